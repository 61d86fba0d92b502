//! The native part of the Python package `megrez`: the Rust library's functions for Python's types.
//! The package in `python/megrez` gives them their names and documentation.

mod arrays;
mod cluster;
mod ending;
mod error;
mod float32;
mod model;
mod program;
mod stored;
mod training;
mod wait;

use ending::Call;
use error::{error, refused};
use megrez_report::Parts;
use program::program;
use pyo3::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;
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
    #[pymodule_export]
    use super::stored::{allow, discard, remove, stored};
    #[pymodule_export]
    use super::training::{begin, boost, job_state, resume_job, stop_job};
    use super::*;

    #[pymodule_init]
    fn prepare(module: &Bound<'_, PyModule>) -> PyResult<()> {
        ending::register(module)
    }

    /// The release of megrez.
    #[pymodule_export]
    const RELEASE: &str = env!("CARGO_PKG_VERSION");

    /// The protocols, as JSON.
    #[pyfunction]
    fn protocols() -> PyResult<String> {
        let all: Vec<_> = megrez::protocols::all().collect();
        serde_json::to_string(&all).map_err(refused)
    }

    /// How often every party of a cluster's file is there.
    #[pyfunction]
    fn replicas(config: PathBuf) -> PyResult<usize> {
        Ok(megrez::ClusterConfig::load(&config).map_err(error)?.triples().len())
    }

    /// A page of HTML made of reports as JSON, each of which may be missing: of a run, of an
    /// earlier one, of what it tells whom, of its accuracy, of the model's layers.
    #[pyfunction]
    fn page(parts: BTreeMap<String, String>) -> PyResult<String> {
        let parts: serde_json::Result<BTreeMap<String, Value>> =
            parts.into_iter().map(|(name, report)| Ok((name, serde_json::from_str(&report)?))).collect();
        let parts = parts.map_err(refused)?;
        let [run, before, disclosure, check, layers] =
            ["run", "before", "disclosure", "check", "layers"].map(|name| parts.get(name));
        megrez_report::page(&Parts { run, before, disclosure, check, layers }).map_err(refused)
    }

    /// A run's cost as HTML for a notebook.
    #[pyfunction]
    fn fragment(run: &str) -> PyResult<String> {
        let run = serde_json::from_str(run).map_err(refused)?;
        megrez_report::fragment(&run).map_err(refused)
    }

    /// Serves as a party of the process at the other end of standard input, until that ends.
    #[pyfunction]
    fn serve_embedded(py: Python<'_>) -> PyResult<()> {
        Call::begin(py)
            .detached(|| megrez_service::embedded::serve_embedded(megrez::train::guaranteed))
            .map_err(error)
    }

    /// Serves as one of two parties of the process at the other end of standard input, until that
    /// ends.
    #[pyfunction]
    fn serve_pair(py: Python<'_>) -> PyResult<()> {
        Call::begin(py).detached(megrez_cli::pair_party).map_err(error)
    }

    /// The `megrez` command: gives its exit code.
    #[pyfunction]
    fn command(py: Python<'_>, argv: Vec<OsString>, path: PathBuf, arguments: Vec<OsString>) -> u8 {
        program(path, arguments).register();
        let code = Call::begin(py).detached(|| megrez_cli::main(argv));
        (0..=u8::MAX).find(|&c| ExitCode::from(c) == code).unwrap_or(1)
    }
}
