//! Floating-point programs on parties of this machine. Requests and replies are JSON:
//! `python/megrez/float32.py` writes and reads them.

use super::ending::Call;
use super::error::refused;
use super::program::program;
use super::wait::wait;
use megrez::float32::{Connection, Pair, Reply, Request};
use megrez::{Error, Result};
use megrez_net::NetProfile;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Parties, or this process alone.
#[pyclass(frozen, module = "megrez._native")]
pub struct Float32 {
    pair: Arc<Mutex<Option<Pair>>>,
}

impl Float32 {
    fn of(pair: Pair) -> Self {
        Self { pair: Arc::new(Mutex::new(Some(pair))) }
    }
}

#[pymethods]
impl Float32 {
    /// Everything in the clear, in this process.
    #[staticmethod]
    fn clear() -> Self {
        Self::of(Pair::clear())
    }

    /// Starts the parties of a protocol on this machine.
    #[staticmethod]
    fn processes(
        py: Python<'_>,
        protocol: &str,
        net: &str,
        path: PathBuf,
        arguments: Vec<OsString>,
    ) -> PyResult<Self> {
        let net: NetProfile = net.parse().map_err(refused)?;
        program(path, arguments).register();
        let protocol = protocol.to_owned();
        Ok(Self::of(wait(py, None, move |_| Pair::processes(&protocol, &net))?))
    }

    /// Connects to the parties of a cluster, as one of several clients; `patience` in seconds.
    #[staticmethod]
    fn connect(
        py: Python<'_>,
        config: PathBuf,
        certs: PathBuf,
        client: String,
        name: String,
        protocol: String,
        patience: f64,
        threads: u32,
    ) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(patience).map_err(refused)?;
        let to = Connection { config, certs, client, name, protocol, patience, threads };
        Ok(Self::of(wait(py, None, move |_| Pair::connect(to))?))
    }

    /// Runs a request and gives the reply.
    fn run(&self, py: Python<'_>, request: &str) -> PyResult<String> {
        let request: Request = serde_json::from_str(request).map_err(refused)?;
        let pair = Arc::clone(&self.pair);
        let reply: Reply = wait(py, None, move |_| -> Result<Reply> {
            let mut pair = pair.lock().unwrap_or_else(PoisonError::into_inner);
            let pair = pair.as_mut().ok_or_else(|| Error::Refused("the parties have ended".into()))?;
            pair.run(request)
        })?;
        serde_json::to_string(&reply).map_err(refused)
    }

    /// Ends the parties.
    fn close(&self, py: Python<'_>) {
        let pair = Arc::clone(&self.pair);
        Call::begin(py).detached(|| drop(pair.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}
