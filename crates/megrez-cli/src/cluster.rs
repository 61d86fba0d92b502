//! A cluster that runs elsewhere, as commands name it.

use clap::Args;
use megrez::{Cluster, ClusterConfig, Result};
use megrez_net::{Identity, PeerName};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a party may take to answer the first time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who asks a cluster, and how long it waits.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
struct Caller {
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

impl Caller {
    fn connect(&self, cluster: &Path) -> Result<Cluster> {
        let config = ClusterConfig::load(cluster)?;
        let identity = identity(&self.certs, &self.client)?;
        let mut cluster = Cluster::connect(&config.parties, &identity, PATIENCE)?;
        cluster.set_timeout(self.timeout.map(Duration::from_secs));
        Ok(cluster)
    }
}

/// Where a cluster is, for commands that do without one as well.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Place {
    /// The cluster's file; without it, parties are started on this machine.
    #[arg(long)]
    pub(crate) cluster: Option<PathBuf>,
    #[command(flatten)]
    caller: Caller,
}

impl Place {
    /// Connects, if a cluster is named.
    pub(crate) fn connect(&self) -> Result<Option<Cluster>> {
        self.cluster.as_deref().map(|cluster| self.caller.connect(cluster)).transpose()
    }
}

/// Where a cluster is, for commands that need one.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct There {
    /// The cluster's file.
    #[arg(long)]
    cluster: PathBuf,
    #[command(flatten)]
    caller: Caller,
}

impl There {
    pub(crate) fn connect(&self) -> Result<Cluster> {
        self.caller.connect(&self.cluster)
    }
}

pub(crate) fn identity(certs: &Path, client: &str) -> Result<Identity> {
    Ok(Identity::load(certs, &PeerName::client(client)?)?)
}
