//! What can go wrong, and the reason that all parties of a failed session share.

use thiserror::Error;

/// Longest reason text in an [`Abort`], in bytes.
pub const MAX_REASON: usize = 512;

/// An error of the network: what happened, where, and what to do about it.
///
/// Once a session has failed, every call on it returns the same [`NetError::Aborted`] value, at
/// every party.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetError {
    /// The session is over, for the reason that all its parties agreed on.
    #[error("{0}")]
    Aborted(Abort),
    /// The other side closed the connection, or the handle was closed.
    #[error("connection closed: {0}")]
    Closed(String),
    /// Nothing came in time.
    #[error("time-out: {0}")]
    Timeout(String),
    /// The other side sent bytes that this protocol does not allow.
    #[error("malformed data: {0}")]
    Garbage(String),
    /// TLS failed, or the other side is not who it should be.
    #[error("identity check failed: {0}")]
    Identity(String),
    /// The other side speaks another version.
    #[error("version mismatch: {0}")]
    Version(String),
    /// A size or a count is over its limit.
    #[error("over a limit: {0}")]
    Limit(String),
    /// The caller, a file or a setting is wrong.
    #[error("{0}")]
    Config(String),
    /// The operating system refused.
    #[error("{0}")]
    Io(String),
}

impl NetError {
    /// The shared reason when this is the end of a session.
    #[must_use]
    pub fn abort(&self) -> Option<&Abort> {
        match self {
            Self::Aborted(abort) => Some(abort),
            _ => None,
        }
    }

    pub(crate) fn io(what: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::Timeout(what.to_owned()),
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::NotConnected => Self::Closed(what.to_owned()),
            _ => Self::Io(format!("{what}: {error}")),
        }
    }
}

/// Why a session ended; the variants are ordered from root cause to consequence, and where parties
/// notice different things the smallest wins.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum AbortKind {
    /// The program above the network gave up ([`Network::fail`](crate::Network::fail)).
    Failed = 1,
    /// A peer broke the wire protocol.
    Garbage = 2,
    /// A peer sent more than the limits allow.
    Limit = 3,
    /// A peer's connection went away.
    Left = 4,
    /// A peer's host was silent for the time-out.
    Stalled = 5,
    /// A peer is alive, but a message did not come within the step limit.
    Timeout = 6,
    /// A peer finished although somebody still waited for it.
    Ended = 7,
}

impl AbortKind {
    pub(crate) fn from_wire(byte: u8) -> Option<Self> {
        [Self::Failed, Self::Garbage, Self::Limit, Self::Left, Self::Stalled, Self::Timeout, Self::Ended]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The reason why a session ended, identical at every party.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Abort {
    /// What sort of failure.
    pub kind: AbortKind,
    /// The party at fault, where one is known.
    pub culprit: Option<usize>,
    /// The party that noticed.
    pub origin: usize,
    /// What happened; at most [`MAX_REASON`] bytes, no control characters.
    pub reason: String,
}

impl Abort {
    pub(crate) fn new(kind: AbortKind, culprit: Option<usize>, origin: usize, reason: &str) -> Self {
        Self { kind, culprit, origin, reason: sanitise(reason, MAX_REASON) }
    }
}

impl std::fmt::Display for Abort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "session ended: {} (noticed by party {}", self.reason, self.origin)?;
        match (self.kind, self.culprit) {
            (AbortKind::Failed, _) => write!(f, "; see the error there)"),
            (AbortKind::Garbage, Some(who)) => {
                write!(f, "; check that party {who} runs the same version and the same plan)")
            }
            (AbortKind::Limit, _) => write!(f, "; raise the limit or use smaller batches)"),
            (AbortKind::Left, Some(who)) => write!(f, "; look at the log of party {who})"),
            (AbortKind::Stalled, Some(who)) => {
                write!(f, "; check the host of party {who} and the network to it)")
            }
            (AbortKind::Timeout, Some(who)) => {
                write!(f, "; party {who} is alive but busy or stuck: look there or raise the step limit)")
            }
            (AbortKind::Ended, Some(who)) => write!(f, "; check that party {who} runs the same plan)"),
            _ => f.write_str(")"),
        }
    }
}

/// At most `max` bytes of `text`, cut at a character, control characters replaced: safe to print
/// and to log.
pub(crate) fn sanitise(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for c in text.chars() {
        let c = if c.is_control() || is_invisible(c) { '\u{FFFD}' } else { c };
        if out.len() + c.len_utf8() > max {
            break;
        }
        out.push(c);
    }
    out
}

/// Characters that reorder or hide text on a terminal.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_bounded_and_printable() {
        let abort =
            Abort::new(AbortKind::Failed, None, 1, &format!("a\n\x1b[31m\u{202E}{}", "ü".repeat(1000)));
        assert!(abort.reason.len() <= MAX_REASON);
        assert!(!abort.reason.chars().any(char::is_control));
        assert!(abort.reason.starts_with("a\u{FFFD}\u{FFFD}[31m\u{FFFD}ü"));
    }

    #[test]
    fn root_causes_come_first() {
        let left = Abort::new(AbortKind::Left, Some(2), 1, "x");
        let timeout = Abort::new(AbortKind::Timeout, Some(0), 0, "x");
        let failed = Abort::new(AbortKind::Failed, None, 2, "x");
        assert!(failed < left && left < timeout);
        assert!(Abort::new(AbortKind::Left, Some(2), 0, "x") < left, "then the culprit, then who noticed");
    }
}
