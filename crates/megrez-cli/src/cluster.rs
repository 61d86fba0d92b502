//! A cluster that runs elsewhere, as commands name it.

use clap::Args;
use megrez::{Cluster, ClusterConfig, Result};
use megrez_net::{Identity, PeerName};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a party may take to answer the first time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who asks a cluster, and how long it waits.
#[derive(Args, Clone)]
#[command(next_help_heading = "Cluster")]
struct Caller {
    /// The folder with this client's certificate.
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// This client's name.
    #[arg(long, default_value = "alice")]
    client: String,
    /// Give a request up after so many seconds, waiting for its turn included.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The replica of the cluster to go to, from 0. Default: one that has little to do; for what
    /// only one replica has, such as jobs and material, the first.
    #[arg(long, value_name = "NUMBER")]
    replica: Option<usize>,
}

/// What a command needs of a replica.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Needs {
    /// What all replicas have.
    Any,
    /// What only one of them has, which is the first unless the caller names it.
    Own,
}

impl Caller {
    fn connect(&self, cluster: &Path, needs: Needs) -> Result<Cluster> {
        let config = ClusterConfig::load(cluster)?;
        let identity = identity(&self.certs, &self.client)?;
        let pinned = self.replica.or((needs == Needs::Own).then_some(0));
        let triples = match pinned {
            Some(replica) => vec![config.triple(replica)?],
            None => config.triples(),
        };
        let (_, mut cluster) = Cluster::connect_any(&triples, &identity, PATIENCE)?;
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
    pub(crate) fn connect(&self, needs: Needs) -> Result<Option<Cluster>> {
        self.cluster.as_deref().map(|cluster| self.caller.connect(cluster, needs)).transpose()
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
    pub(crate) fn connect(&self, needs: Needs) -> Result<Cluster> {
        self.caller.connect(&self.cluster, needs)
    }

    /// The replica that the caller names, or all of them.
    pub(crate) fn replicas(&self) -> Result<Vec<usize>> {
        let count = ClusterConfig::load(&self.cluster)?.triples().len();
        Ok(self.caller.replica.map_or_else(|| (0..count).collect(), |replica| vec![replica]))
    }

    /// Connects to this replica.
    pub(crate) fn connect_to(&self, replica: usize) -> Result<Cluster> {
        Caller { replica: Some(replica), ..self.caller.clone() }.connect(&self.cluster, Needs::Own)
    }
}

pub(crate) fn identity(certs: &Path, client: &str) -> Result<Identity> {
    Ok(Identity::load(certs, &PeerName::client(client)?)?)
}
