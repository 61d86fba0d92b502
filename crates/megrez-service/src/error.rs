//! What went wrong, in words for the person who has to mend it, and its kind for programs.

use megrez_graph::npy::NpyError;
use megrez_graph::{Cause, Problem, Problems};
use megrez_net::{AbortKind, NetError};
use megrez_session::Error as SessionError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. [`kind`](Self::kind) sorts it, for programs that act on it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A party refused or failed, in its own words.
    #[error("party {party}: {reason}")]
    Party {
        /// Which party.
        party: usize,
        /// What kind of failure the party reports.
        kind: ErrorKind,
        /// Its words.
        reason: String,
    },
    /// The model, or data for it.
    #[error("{0}")]
    Model(#[from] Problems),
    /// A file.
    #[error("{path}: {what}")]
    File {
        /// Which file.
        path: String,
        /// Whether the file is damaged, or is merely not what was asked for.
        kind: ErrorKind,
        /// What is wrong with it.
        what: String,
    },
    /// The request makes no sense as it was asked, and the caller can mend it.
    #[error("{0}")]
    Refused(String),
    /// Anything else, of any kind.
    #[error("{1}")]
    Of(ErrorKind, String),
}

/// What an error is about, for programs that act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request makes no sense as it was asked: an option, a name, a shape, a missing file.
    Invalid,
    /// What was asked for is not permitted: no right to a model, a protocol that does not protect,
    /// a wrong certificate.
    NotPermitted,
    /// megrez, or this release, protocol or device, cannot do what was asked for: an operator, a
    /// step, another version.
    Unsupported,
    /// Numbers outside of what was declared, or a range that does not fit the ring.
    OutOfRange,
    /// A file or stored value is not what was written.
    DamagedFile,
    /// A party is alive but did not answer in time.
    TimedOut,
    /// A party or a connection went away, or another party gave up.
    PeerLost,
    /// Parties that disagree, a device that failed, a full disk: nothing that the caller did.
    Internal,
    /// The parties have too much to do, or are about to end: the same request may be done later.
    Busy,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [ErrorKind; 9] = [
        ErrorKind::Invalid,
        ErrorKind::NotPermitted,
        ErrorKind::Unsupported,
        ErrorKind::OutOfRange,
        ErrorKind::DamagedFile,
        ErrorKind::TimedOut,
        ErrorKind::PeerLost,
        ErrorKind::Internal,
        ErrorKind::Busy,
    ];

    /// The kind as reports for programs name it, such as `peer-lost`.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::NotPermitted => "not-permitted",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::OutOfRange => "out-of-range",
            ErrorKind::DamagedFile => "damaged-file",
            ErrorKind::TimedOut => "timed-out",
            ErrorKind::PeerLost => "peer-lost",
            ErrorKind::Internal => "internal",
            ErrorKind::Busy => "busy",
        }
    }

    /// Of several reasons for one failure, the one that explains the others: that a party gave up
    /// follows from something.
    pub(crate) fn explains(self, other: ErrorKind) -> bool {
        let rank = |kind| match kind {
            ErrorKind::PeerLost => 2,
            ErrorKind::TimedOut => 1,
            _ => 0,
        };
        rank(self) < rank(other)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Error {
    /// An error of this kind.
    pub fn of(kind: ErrorKind, what: impl fmt::Display) -> Self {
        Error::Of(kind, what.to_string())
    }

    /// An error about a file that cannot be used as it is.
    pub fn file(path: &Path, what: impl fmt::Display) -> Self {
        Error::File { path: path.display().to_string(), kind: ErrorKind::Invalid, what: what.to_string() }
    }

    /// An error about a party's own file that could not be read or written: nothing that a client
    /// did.
    pub fn storage(path: &Path, what: impl fmt::Display) -> Self {
        Error::File { path: path.display().to_string(), kind: ErrorKind::Internal, what: what.to_string() }
    }

    /// An error about a file that is not what was written.
    pub fn damaged(path: &Path, what: impl fmt::Display) -> Self {
        Error::File { path: path.display().to_string(), kind: ErrorKind::DamagedFile, what: what.to_string() }
    }

    /// What the error is about.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Session(e) => session_kind(e),
            Error::Net(e) => net_kind(e),
            Error::Model(Problems(problems)) => match problems.first().map(|p| p.cause) {
                Some(Cause::OutOfRange) => ErrorKind::OutOfRange,
                Some(Cause::Unsupported) => ErrorKind::Unsupported,
                Some(Cause::Damaged) => ErrorKind::DamagedFile,
                Some(Cause::Invalid) | None => ErrorKind::Invalid,
            },
            Error::Party { kind, .. } | Error::File { kind, .. } | Error::Of(kind, _) => *kind,
            Error::Refused(_) => ErrorKind::Invalid,
        }
    }
}

fn session_kind(error: &SessionError) -> ErrorKind {
    match error {
        SessionError::Net(e) => net_kind(e),
        SessionError::Refused(_) => ErrorKind::Invalid,
        _ => ErrorKind::Internal,
    }
}

fn net_kind(error: &NetError) -> ErrorKind {
    match error {
        NetError::Aborted(abort) => match abort.kind {
            AbortKind::Timeout => ErrorKind::TimedOut,
            AbortKind::Garbage | AbortKind::Limit => ErrorKind::Internal,
            _ => ErrorKind::PeerLost,
        },
        NetError::Closed(_) | NetError::Io(_) => ErrorKind::PeerLost,
        NetError::Timeout(_) => ErrorKind::TimedOut,
        NetError::Identity(_) => ErrorKind::NotPermitted,
        NetError::Version(_) => ErrorKind::Unsupported,
        NetError::Config(_) => ErrorKind::Invalid,
        NetError::Limit(_) => ErrorKind::Busy,
        _ => ErrorKind::Internal,
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Self {
        Error::Model(Problems(vec![problem]))
    }
}

/// What a closure that a session calls may end with: in words, as a session knows no more.
impl From<Error> for SessionError {
    fn from(e: Error) -> Self {
        match e {
            Error::Session(e) => e,
            Error::Net(e) => SessionError::Net(e),
            e if e.kind() == ErrorKind::Internal => SessionError::Storage(e.to_string()),
            e => SessionError::Refused(e.to_string()),
        }
    }
}

impl From<NpyError> for Error {
    fn from(e: NpyError) -> Self {
        let kind = match e {
            NpyError::Io { .. } => ErrorKind::Invalid,
            NpyError::Content { .. } => ErrorKind::DamagedFile,
        };
        Error::of(kind, e)
    }
}

impl From<megrez_ring::FixedError> for Error {
    fn from(e: megrez_ring::FixedError) -> Self {
        Error::of(ErrorKind::OutOfRange, e)
    }
}

impl From<megrez_engine::local::LocalError> for Error {
    fn from(e: megrez_engine::local::LocalError) -> Self {
        use megrez_engine::local::LocalError;
        match e {
            LocalError::Unknown(..) => Error::Refused(e.to_string()),
            LocalError::Unsupported(_) => Error::of(ErrorKind::Unsupported, e),
            LocalError::Session(e) => Error::Session(e),
        }
    }
}

impl From<megrez_device::Error> for Error {
    fn from(e: megrez_device::Error) -> Self {
        let kind = match e {
            megrez_device::Error::Absent(_) => ErrorKind::Unsupported,
            megrez_device::Error::Count { .. } => ErrorKind::Invalid,
        };
        Error::of(kind, e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_as_they_are_written() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }

    #[test]
    fn a_cause_explains_its_consequences() {
        assert!(ErrorKind::DamagedFile.explains(ErrorKind::PeerLost));
        assert!(ErrorKind::TimedOut.explains(ErrorKind::PeerLost));
        assert!(!ErrorKind::PeerLost.explains(ErrorKind::Internal));
        assert!(!ErrorKind::Invalid.explains(ErrorKind::Invalid));
    }
}
