//! The native part of the Python package `megrez`: the Rust library's functions for Python's types.
//! The package in `python/megrez` gives them their names and documentation.

mod arrays;
mod cluster;
mod float32;
mod model;
mod wait;

use megrez::ErrorKind;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

pyo3::create_exception!(megrez, Error, PyRuntimeError, "What went wrong, and what to do about it.");
pyo3::create_exception!(
    megrez,
    InvalidError,
    Error,
    "The request makes no sense as it was asked: an option, a name, a shape, a missing file."
);
pyo3::create_exception!(
    megrez,
    NotPermittedError,
    Error,
    "What was asked for is not permitted: no right to a model, a protocol that does not protect, a wrong certificate."
);
pyo3::create_exception!(
    megrez,
    UnsupportedError,
    Error,
    "megrez, or this release, protocol or device, cannot do what was asked for."
);
pyo3::create_exception!(
    megrez,
    OutOfRangeError,
    Error,
    "Numbers outside of what was declared, or a range that does not fit the ring."
);
pyo3::create_exception!(megrez, DamagedFileError, Error, "A file or a stored value is not what was written.");
pyo3::create_exception!(megrez, TimedOutError, Error, "A party is alive but did not answer in time.");
pyo3::create_exception!(
    megrez,
    PeerLostError,
    Error,
    "A party or a connection went away, or another party gave up."
);
pyo3::create_exception!(
    megrez,
    InternalError,
    Error,
    "Parties that disagree, a device that failed: nothing that the caller did."
);

/// An error of the library as Python's, of the class of its kind.
fn error(e: megrez::Error) -> PyErr {
    let text = e.to_string();
    match e.kind() {
        ErrorKind::Invalid => InvalidError::new_err(text),
        ErrorKind::NotPermitted => NotPermittedError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::OutOfRange => OutOfRangeError::new_err(text),
        ErrorKind::DamagedFile => DamagedFileError::new_err(text),
        ErrorKind::TimedOut => TimedOutError::new_err(text),
        ErrorKind::PeerLost => PeerLostError::new_err(text),
        ErrorKind::Internal => InternalError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// What makes no sense, in its own words.
fn refused(e: impl std::fmt::Display) -> PyErr {
    InvalidError::new_err(e.to_string())
}

/// How this Python starts a party: the interpreter and its arguments.
fn program(path: PathBuf, arguments: Vec<OsString>) -> megrez::Program {
    megrez::Program { path, arguments }
}

/// Python's view of the library.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::cluster::Cluster;
    #[pymodule_export]
    use super::float32::Float32;
    #[pymodule_export]
    use super::model::Model;
    use super::*;
    #[pymodule_export]
    use super::{
        DamagedFileError, Error, InternalError, InvalidError, NotPermittedError, OutOfRangeError,
        PeerLostError, TimedOutError, UnsupportedError,
    };

    /// The release of megrez.
    #[pymodule_export]
    const RELEASE: &str = env!("CARGO_PKG_VERSION");

    /// The protocols, as JSON.
    #[pyfunction]
    fn protocols() -> PyResult<String> {
        let all: Vec<_> = megrez::protocols::all().collect();
        serde_json::to_string(&all).map_err(refused)
    }

    /// Serves as a party of the process at the other end of standard input, until that ends.
    #[pyfunction]
    fn serve_embedded(py: Python<'_>) -> PyResult<()> {
        py.detach(megrez_service::embedded::serve_embedded).map_err(error)
    }

    /// Serves as one of two parties of the process at the other end of standard input, until that
    /// ends.
    #[pyfunction]
    fn serve_pair(py: Python<'_>) -> PyResult<()> {
        py.detach(megrez_cli::pair_party).map_err(error)
    }

    /// The `megrez` command: gives its exit code.
    #[pyfunction]
    fn command(py: Python<'_>, argv: Vec<OsString>, path: PathBuf, arguments: Vec<OsString>) -> u8 {
        program(path, arguments).register();
        let code = py.detach(|| megrez_cli::main(argv));
        (0..=u8::MAX).find(|&c| ExitCode::from(c) == code).unwrap_or(1)
    }
}
