//! The processes that this Python starts.

use std::ffi::OsString;
use std::path::PathBuf;

/// How this Python starts a party: the interpreter and its arguments.
pub(crate) fn program(path: PathBuf, arguments: Vec<OsString>) -> megrez::Program {
    megrez::Program { path, arguments }
}
