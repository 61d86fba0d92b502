//! The native part of the Python package `megrez`: the Rust library's functions for Python's types.
//! The package in `python/megrez` gives them their names and documentation.

mod arrays;
mod cluster;
mod error;
mod float32;
mod model;
mod program;
mod wait;

use error::{error, refused};
use program::program;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Python's view of the library.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::cluster::Cluster;
    #[pymodule_export]
    use super::error::{
        BusyError, DamagedFileError, Error, InternalError, InvalidError, NotPermittedError, OutOfRangeError,
        PeerLostError, TimedOutError, UnsupportedError,
    };
    #[pymodule_export]
    use super::float32::Float32;
    #[pymodule_export]
    use super::model::Model;
    use super::*;

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
