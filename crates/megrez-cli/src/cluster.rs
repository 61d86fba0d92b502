//! A cluster that runs elsewhere, as commands name it.

use clap::Args;
use megrez::{Cluster, ClusterConfig, Result};
use megrez_net::{Identity, PeerName};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a party may take to answer the first time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a cluster is, for commands that do without one as well.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Place {
    /// The cluster's file; without it, parties are started on this machine.
    #[arg(long)]
    pub(crate) cluster: Option<PathBuf>,
    /// The folder with this client's certificate (cluster only).
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// This client's name (cluster only).
    #[arg(long, default_value = "alice")]
    client: String,
    /// Give a request up after so many seconds, waiting for its turn included (cluster only).
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

impl Place {
    /// Connects, if a cluster is named.
    pub(crate) fn connect(&self) -> Result<Option<Cluster>> {
        let Some(cluster) = &self.cluster else { return Ok(None) };
        let mut cluster = connect(cluster, &self.certs, &self.client)?;
        cluster.set_timeout(self.timeout.map(Duration::from_secs));
        Ok(Some(cluster))
    }
}

pub(crate) fn identity(certs: &Path, client: &str) -> Result<Identity> {
    Ok(Identity::load(certs, &PeerName::client(client)?)?)
}

pub(crate) fn connect(cluster: &Path, certs: &Path, client: &str) -> Result<Cluster> {
    let config = ClusterConfig::load(cluster)?;
    Cluster::connect(&config.parties, &identity(certs, client)?, PATIENCE)
}
