//! What clients and parties say to each other over a client's channel.
//!
//! A client opens one channel to each party and sends one [`Request`] at a time. During a run the
//! party answers with input-mask keys, shares and reports; between them the client sends raw input
//! shares. Both sides decode strictly and bound what they allocate.

mod programs;

use crate::approval::{Grant, Rules, Usage};
pub use crate::failure::Failure;
pub use crate::plans::ModelPlan;
use crate::training::{Consent, Job, JobId, JobState};
use crate::{Error, ErrorKind, Result};
pub use megrez_engine::PartyReport;
pub use megrez_engine::float::{MAX_CLIENTS, MAX_ENTRIES, MAX_REFERENCES, Opening, Program};
use megrez_net::{Channel, NetProfile, Payload};
pub use programs::{MAX_PROGRAM, MAX_RUN_NAME, program, program_clients, program_hash};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of these messages; both sides must have the same. Connections of another are refused
/// before the first of them.
pub const VERSION: u32 = megrez_net::frame::VERSION as u32;

/// In the plans of a stored model: whoever runs it. It owns the data and receives the outputs; no
/// client has this name there.
pub const USER: &str = "user";

/// Largest answer in bytes, shares of outputs included.
pub const MAX_REPLY: u64 = 4 << 30;

/// How often a party that works for a client says that it is alive.
pub const HEARTBEAT: Duration = Duration::from_secs(3);
/// How long a client waits for a party from which nothing comes, not even a heartbeat.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client repeats a request while the parties are too busy for it.
pub const PATIENCE_WITH_BUSY: Duration = Duration::from_secs(60);

/// A network profile on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Net {
    name: String,
    rtt_ms: f64,
    mbps: f64,
}

impl From<&NetProfile> for Net {
    fn from(p: &NetProfile) -> Self {
        Net { name: p.name.clone(), rtt_ms: p.rtt_ms, mbps: p.mbps }
    }
}

impl Net {
    /// The profile, checked.
    pub fn profile(&self) -> Result<NetProfile> {
        Ok(NetProfile::new(&self.name, self.rtt_ms, self.mbps)?)
    }
}

/// What a client wants of a party.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Who are you? Changes nothing.
    Info {
        /// [`VERSION`] of the client.
        version: u32,
    },
    /// Run a plan. All parties are asked the same.
    Run(Run),
    /// Keep a model's weights in shares. All parties are asked the same.
    Upload(Upload),
    /// Describe a stored model at a batch size.
    Describe {
        /// The model's name.
        model: String,
        /// The batch size; 0 for stored rows.
        batch: usize,
    },
    /// Make material for a plan ahead. All parties are asked the same.
    Prepare(Prepare),
    /// Begin a training job, or go on with it after its last checkpoint. All parties are asked the
    /// same.
    Train(Train),
    /// Approve a job, or no longer. Every party that is to accept the job is asked.
    Consent {
        /// What is said.
        consent: Consent,
        /// That this client says so: of a [`Approval`](crate::approval::Approval).
        signature: Vec<u8>,
    },
    /// Say how jobs stand: one, or all that concern this client.
    Jobs {
        /// Which one.
        job: Option<JobId>,
        /// The job itself is wanted as well.
        whole: bool,
    },
    /// Stop a job at the border of a step.
    Stop {
        /// Which one.
        job: JobId,
    },
    /// Remove what this client has stored. All parties are asked; each says whether it held it.
    Remove {
        /// The name of a model or of rows.
        model: String,
    },
    /// Take part in a floating-point program. All its clients ask all parties for the same; it runs
    /// once all have come.
    Join(Join),
    /// Say what is kept here that this client owns or may use.
    Stored,
    /// Let these clients, and no others, use a stored model or rows of this client, as far as it
    /// says.
    Allow {
        /// Who may use what.
        usage: Usage,
        /// That this client says so: of a [`Approval`](crate::approval::Approval).
        signature: Vec<u8>,
    },
    /// Remove material that was made for this client. All parties are asked; each says whether it
    /// held it.
    Discard {
        /// The name of the batch.
        material: [u8; 16],
    },
    /// Deal with shards of a job's steps: a party asks another of its replicas.
    Assist(Assist),
}

/// What a party keeps for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoredKind {
    /// A model, in shares.
    Model,
    /// Rows to train on, in shares.
    Rows,
    /// Correlated randomness for one run.
    Material,
}

/// One thing that a party keeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredItem {
    /// What it is.
    pub kind: StoredKind,
    /// Its name; of material the name of the batch, in hexadecimal digits.
    pub name: String,
    /// Whose it is.
    pub owner: String,
    /// Who else may use it. Only its owner is told.
    pub allow: Vec<String>,
    /// The limits of those who may use it up to one; others than its owner are told their own.
    pub limits: Vec<Grant>,
    /// What jobs on these rows have to keep to.
    pub rules: Option<Rules>,
    /// The protocol in whose sharing it is; none of material.
    pub protocol: Option<String>,
    /// The batch sizes that its owner approved; of rows and material none.
    pub batches: Vec<usize>,
    /// Its size at this party in bytes.
    pub bytes: u64,
    /// When it was written, by this party's clock: seconds since 1970.
    pub written_s: u64,
    /// Which upload or preparation it is of: parties that hold another do not work together.
    pub made: [u8; 16],
}

/// Where the plan of a run comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Source {
    /// The client brings it: all inputs and outputs must be the client's own.
    Plan(Vec<u8>),
    /// A stored model, with one of the plans that its owner approved.
    Model {
        /// The model's name.
        model: String,
        /// The batch size.
        batch: usize,
    },
}

impl Source {
    /// Whether the plan is a stored model's.
    pub fn is_stored(&self) -> bool {
        matches!(self, Source::Model { .. })
    }
}

/// Which of the material that was made ahead serves a request's runs. A run for which there is none
/// makes its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ahead {
    /// None.
    #[default]
    Nothing,
    /// This batch serves the first run; it is an error if it cannot.
    Batch([u8; 16]),
    /// Each run takes a batch of the client's stock for this plan, the oldest first, for as long as
    /// all parties have one.
    Stock,
}

/// A request to run a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The session's fresh name.
    pub session: [u8; 16],
    /// The protocol's name.
    pub protocol: String,
    /// The plan.
    pub source: Source,
    /// How many times, with new inputs each time.
    pub runs: u32,
    /// The names of the inputs that last: shared in the first run, and held by the parties until
    /// the last.
    pub lasting: Vec<String>,
    /// Make the material of a run while the one before goes on.
    pub streamed: bool,
    /// Shape the links to this profile; parties accept anything but `loopback` only if they are
    /// configured to.
    pub net: Net,
    /// What was made ahead for these runs.
    pub material: Ahead,
    /// The caller insists on a protocol that does not protect.
    pub insecure: bool,
    /// How many seconds its client still waits for it; without an end, if it does not say.
    pub within_s: Option<u32>,
}

/// A request to keep a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upload {
    /// The session's fresh name.
    pub session: [u8; 16],
    /// The protocol in whose sharing the weights are kept.
    pub protocol: String,
    /// The model's name.
    pub model: String,
    /// The plans that may use the weights, one per batch size. Nothing else may.
    pub plans: Vec<ModelPlan>,
    /// The clients who may run them.
    pub allow: Vec<String>,
    /// These are no weights but rows to train on, or weights to begin with: nobody runs their plan,
    /// which only says what they are, and `allow` names those who may ask for training on them
    /// ([`Consent`] is theirs to wait for).
    pub rows: bool,
    /// What stands for the identifiers of these rows in their order: sets that hold different
    /// columns of the same rows have the same ([`training::ids`](crate::training::ids)).
    pub ids: Option<[u8; 32]>,
    /// How many seconds its client still waits for it; without an end, if it does not say.
    pub within_s: Option<u32>,
}

/// A request to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// The session's fresh name.
    pub session: [u8; 16],
    /// What to do.
    pub job: Job,
    /// Shape the links of this session, as for a [`Run`]. No part of the job: what happens to the
    /// data is the same.
    pub net: Net,
    /// How many seconds its client still waits for it; without an end, if it does not say.
    pub within_s: Option<u32>,
}

/// A request of a party to another of its replicas. All parties of the one triple ask those of the
/// other the same. After [`Reply::Begun`] the one gives [`Given`] inputs of the plan, or nothing
/// any more, and the other [`Reply::Given`] what the plan keeps, again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assist {
    /// The session's name: it follows from that of the job's session.
    pub session: [u8; 16],
    /// The protocol's name.
    pub protocol: String,
    /// The plan of a shard: all inputs and outputs are kept.
    pub plan: Vec<u8>,
    /// Shape the links, as for a [`Run`].
    pub net: Net,
    /// How many seconds it waits for its turn.
    pub within_s: u32,
}

/// What one party's machines give to each other of the inputs or outputs of a plan's run: encoded
/// shares, by name.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Given {
    /// Of the run that is due; nothing if there is none.
    pub values: Vec<(String, Vec<u8>)>,
    /// Masks of the run after that, so that its material can be made meanwhile; nothing if they are
    /// not known.
    pub masks: Vec<(String, Vec<u8>)>,
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Given({} values, {} masks)", self.values.len(), self.masks.len())
    }
}

/// A request to take part in a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// This client's fresh name for its part. The session's name is made of all of them.
    pub session: [u8; 16],
    /// The protocol's name.
    pub protocol: String,
    /// What the clients call this run of the program: at most [`MAX_RUN_NAME`] bytes.
    pub name: String,
    /// A [`Program`]: [`program`] reads it.
    pub program: Vec<u8>,
    /// How many seconds to wait for the other clients, and until the program begins; no longer than
    /// for a turn.
    pub seconds: u32,
}

/// A request to make material ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    /// The session's fresh name.
    pub session: [u8; 16],
    /// The protocol's name.
    pub protocol: String,
    /// The plan.
    pub source: Source,
    /// The batch's fresh name.
    pub material: [u8; 16],
    /// Whether runs take it by themselves; if not, only the one that names it.
    pub stock: bool,
    /// How many seconds its client still waits for it; without an end, if it does not say.
    pub within_s: Option<u32>,
}

/// A party's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Who I am.
    Info(Info),
    /// My input-mask key for the next input.
    MaskKey(Vec<u8>),
    /// My share of the next output follows as raw bytes.
    Share,
    /// What I measured, one per run.
    Reports(Vec<PartyReport>),
    /// Done; nothing else to say.
    Done,
    /// A stored model's plan.
    Model {
        /// The protocol in whose sharing it is kept.
        protocol: String,
        /// The approved plan.
        plan: ModelPlan,
        /// How many batches of material for it this party keeps for the client who asks.
        stock: usize,
    },
    /// All parties have begun: the job, which goes on whether its client stays or not, or the
    /// program that all its clients have brought, whose inputs are now due.
    Begun,
    /// How jobs stand.
    Jobs(Vec<JobState>),
    /// What is kept here.
    Stored(Vec<StoredItem>),
    /// Whether there was something to remove.
    Removed(bool),
    /// What a shard's plan has kept, for the party that has asked for it.
    Given(Given),
    /// It failed, and why.
    Failed(Failure),
}

/// What `megrez doctor` shows of a party.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// [`VERSION`].
    pub version: u32,
    /// The release of megrez.
    pub release: String,
    /// Which party.
    pub party: usize,
    /// Its device.
    pub device: String,
    /// Its clock: milliseconds since 1970.
    pub clock_ms: u64,
    /// Sessions that run.
    pub sessions: usize,
    /// Requests that wait for their turn.
    pub waiting: usize,
    /// It is about to end, and takes no requests any more.
    pub draining: bool,
    /// Its data folder can be written.
    pub writable: bool,
    /// When its certificate ends, in seconds since 1970, where it is known.
    pub certificate_ends_s: Option<i64>,
}

/// Refuses a client of another [`VERSION`].
pub(crate) fn same_version(version: u32) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let what = format!(
        "the client speaks version {version} of the client protocol, this party {}: install one release everywhere",
        VERSION
    );
    Err(Error::of(ErrorKind::Unsupported, what))
}

/// Sends a message.
pub fn send<T: Serialize>(channel: &mut Channel, message: &T) -> Result<()> {
    let bytes = postcard::to_allocvec(message).map_err(|e| Error::of(ErrorKind::Internal, e))?;
    Ok(channel.send(&bytes)?)
}

/// Receives a message of at most `limit` bytes.
pub fn recv<T: for<'a> Deserialize<'a>>(channel: &mut Channel, limit: u64) -> Result<T> {
    let payload = channel.recv(limit)?;
    parse(channel, &payload)
}

/// A message that has been received.
pub fn parse<T: for<'a> Deserialize<'a>>(channel: &Channel, payload: &Payload) -> Result<T> {
    postcard::from_bytes(payload.as_bytes()).map_err(|_| {
        let peer = channel.peer();
        Error::of(
            ErrorKind::Unsupported,
            format!("{peer} sent a message that this version does not know: use one version"),
        )
    })
}

/// A fresh random name for a session or a batch of material.
pub fn fresh_name() -> Result<[u8; 16]> {
    let mut name = [0; 16];
    getrandom::fill(&mut name).map_err(|e| Error::of(ErrorKind::Internal, format!("no randomness: {e}")))?;
    Ok(name)
}
