//! What parties keep for a client.

use super::cluster::Cluster;
use super::error::refused;
use super::wait::wait;
use megrez::Material;
use megrez_service::approval::{Grant, Rules, now_s};
use pyo3::prelude::*;
use std::path::PathBuf;

/// What the parties keep that this client owns or may use, as JSON.
#[pyfunction]
pub fn stored(py: Python<'_>, cluster: &Cluster) -> PyResult<String> {
    let connection = cluster.job()?;
    let holdings = wait(py, None, move |_| connection.run_connected(|cluster| cluster.holdings()))?;
    serde_json::to_string(&holdings).map_err(refused)
}

/// Lets these clients, and no others but this one, use what it has stored under a name, each up to
/// these limits; `rules` is a file of rules for jobs on rows.
#[pyfunction]
pub fn allow(
    py: Python<'_>,
    cluster: &Cluster,
    name: String,
    clients: Vec<String>,
    limits: (Option<u64>, Option<u64>, Option<u32>),
    rules: Option<PathBuf>,
) -> PyResult<()> {
    let (runs, rows, days) = limits;
    let until_s = days.map(|days| now_s() + u64::from(days) * 24 * 3600);
    let allow: Vec<Grant> =
        clients.into_iter().map(|client| Grant { client, since_s: now_s(), runs, rows, until_s }).collect();
    let rules = rules.as_deref().map(Rules::load).transpose().map_err(super::error::error)?;
    let connection = cluster.job()?;
    wait(py, None, move |_| connection.run_connected(|cluster| cluster.allow(&name, &allow, rules.as_ref())))
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
    discard(material.parse().map_err(super::error::error)?)
}
