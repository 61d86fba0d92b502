//! Parties on this machine: real processes on loopback, with mutual TLS and keys that live as long
//! as they do. The client is the parent process; the children are usually the same program.

use crate::approval::Guarantees;
use crate::client::Cluster;
use crate::config::public_weights;
use crate::launch::{Children, Program, Start, listen, read_line};
use crate::log::Log;
use crate::party::{Capacity, Models, Policy, Service, Settings, limits};
use crate::wire::fresh_name;
use crate::{Error, Result};
use megrez_device::DeviceChoice;
use megrez_net::{Identity, Limits, PeerName};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The name of the parent as a client.
pub const CLIENT: &str = "local";

/// What a child is told besides its identity.
#[derive(Serialize, Deserialize)]
struct Task {
    data: PathBuf,
    silence_seconds: u64,
    device: DeviceChoice,
}

/// Running parties; they end when this is dropped.
pub struct Parties {
    // Fields are dropped in this order: parties end before their folder goes.
    children: Children,
    /// The parent's first, then those of others whose part it plays.
    identities: Vec<Identity>,
    _data: Folder,
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Parties {
    /// Starts `count` parties, on one device or on one for each: see [`DeviceChoice::each`].
    pub fn start(program: impl Into<Program>, count: usize, devices: &[DeviceChoice]) -> Result<Self> {
        Self::start_with(program, count, devices, Limits::default().idle_timeout)
    }

    /// As [`start`](Self::start); a party that is silent for `idle_timeout`, in whole seconds, is
    /// taken for dead.
    pub fn start_with(
        program: impl Into<Program>,
        count: usize,
        devices: &[DeviceChoice],
        idle_timeout: Duration,
    ) -> Result<Self> {
        Self::start_for(program, count, devices, idle_timeout, &[])
    }

    /// As [`start_with`](Self::start_with), with further clients whose parts the parent can play:
    /// see [`connect_as`](Self::connect_as).
    pub fn start_for(
        program: impl Into<Program>,
        count: usize,
        devices: &[DeviceChoice],
        idle_timeout: Duration,
        clients: &[&str],
    ) -> Result<Self> {
        let devices = DeviceChoice::each(devices, count)?;
        if count < 2 {
            return Err(Error::Refused(
                "a single party has nobody to talk to: run it in a thread of this process (--parties thread)"
                    .into(),
            ));
        }
        let name: String = fresh_name()?.iter().map(|b| format!("{b:02x}")).collect();
        let data = Folder(std::env::temp_dir().join(format!("megrez-{name}")));
        let task = |(party, device)| Task {
            data: data.0.join(format!("party{party}")),
            silence_seconds: idle_timeout.as_secs(),
            device,
        };
        let tasks = devices.into_iter().enumerate().map(task).collect();
        let clients = [&[CLIENT], clients].concat();
        let (children, deployment) = Children::start(&program.into(), tasks, &clients)?;
        let identity = |client: &&str| Ok(deployment.identity(&PeerName::client(client)?)?);
        let identities = clients.iter().map(identity).collect::<Result<_>>()?;
        Ok(Parties { children, identities, _data: data })
    }

    /// A client of these parties.
    pub fn connect(&self) -> Result<Cluster> {
        Cluster::connect(self.addresses(), self.identity(), Duration::from_secs(10))
    }

    /// One of the further clients.
    pub fn connect_as(&self, client: &str) -> Result<Cluster> {
        let name = PeerName::client(client)?;
        let identity = self.identities.iter().find(|identity| *identity.name() == name);
        let identity =
            identity.ok_or_else(|| Error::Refused(format!("these parties know no client `{client}`")))?;
        Cluster::connect(self.addresses(), identity, Duration::from_secs(10))
    }

    /// Who their client is.
    pub fn identity(&self) -> &Identity {
        &self.identities[0]
    }

    /// Where the parties listen.
    pub fn addresses(&self) -> &[String] {
        self.children.addresses()
    }

    /// The process numbers of the parties, for tests that stop or kill one.
    pub fn process_ids(&self) -> Vec<u32> {
        self.children.process_ids()
    }
}

/// The child's side: serves until standard input ends. `guarantees` is what rules of owners ask.
pub fn serve_embedded(guarantees: Guarantees) -> Result<()> {
    crate::heap::keep();
    let mut stdin = BufReader::new(std::io::stdin());
    let start: Start<Task> = read_line(&mut stdin)?;
    let limits = limits(Duration::from_secs(start.task.silence_seconds));
    let device = start.task.device.open().map_err(Error::from);
    let Some((endpoint, device)) = listen(&mut stdin, &start, limits, device)? else { return Ok(()) };
    let endpoint = Arc::new(endpoint);
    // Whoever started this party owns the machine: it may be asked for anything.
    let policy = Policy {
        replicas: vec![],
        models: Models::of(&start.task.data),
        // Its parent, the same user, has put them there.
        weights: public_weights(None, &start.task.data),
        data: start.task.data,
        settings: Settings {
            capacity: Capacity::of_one_client(),
            max_elements: usize::MAX,
            allow_shaping: true,
            allow_insecure: true,
        },
        audit: None,
        traces: None,
        rights: None,
        guarantees,
    };
    let log = Log::of_child(endpoint.me());
    let service = Service::new(Arc::clone(&endpoint), policy, device)?;
    let serving = std::thread::spawn(move || service.run(log));
    // The parent holds the other end; when it goes, for whatever reason, so does this party.
    let mut rest = String::new();
    while matches!(stdin.read_line(&mut rest), Ok(n) if n > 0) {
        rest.clear();
    }
    endpoint.stop();
    drop(serving);
    Ok(())
}
