//! What parties keep for a client.

use crate::cluster::Cluster;
use crate::error::refused;
use crate::wait::wait;
use megrez::Material;
use pyo3::prelude::*;

/// What the parties keep that this client owns or may use, as JSON.
#[pyfunction]
pub fn stored(py: Python<'_>, cluster: &Cluster) -> PyResult<String> {
    let connection = cluster.job()?;
    let holdings = wait(py, None, move |_| connection.run_connected(|cluster| cluster.holdings()))?;
    serde_json::to_string(&holdings).map_err(refused)
}

/// Lets these clients, and no others but this one, use what it has stored under a name.
#[pyfunction]
pub fn allow(py: Python<'_>, cluster: &Cluster, name: String, clients: Vec<String>) -> PyResult<()> {
    let connection = cluster.job()?;
    wait(py, None, move |_| connection.run_connected(|cluster| cluster.allow(&name, &clients)))
}

/// Removes what this client has stored under a name.
#[pyfunction]
pub fn remove(py: Python<'_>, cluster: &Cluster, name: String) -> PyResult<()> {
    let connection = cluster.job()?;
    wait(py, None, move |_| connection.run_connected(|cluster| cluster.remove(&name)))
}

/// Removes material that is not used up.
#[pyfunction]
pub fn discard(py: Python<'_>, cluster: &Cluster, material: String) -> PyResult<()> {
    let connection = cluster.job()?;
    let discard = move |material: Material| {
        wait(py, None, move |_| connection.run_connected(|cluster| cluster.discard(material.into())))
    };
    discard(material.parse().map_err(crate::error::error)?)
}
