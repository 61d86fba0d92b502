//! A reason that is sent.

use crate::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// Why something failed. No secret in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub kind: ErrorKind,
    /// For people.
    pub reason: String,
}

impl From<&Error> for Failure {
    fn from(e: &Error) -> Self {
        Failure { kind: e.kind(), reason: e.to_string() }
    }
}

impl From<Failure> for Error {
    fn from(Failure { kind, reason }: Failure) -> Self {
        Error::Of(kind, reason)
    }
}
