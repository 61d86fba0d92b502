//! What clients and parties say to each other over a client's channel.
//!
//! A client opens one channel to each party and sends one [`Request`] at a time. During a run the
//! party answers with input-mask keys, shares and reports; between them the client sends raw input shares.
//! Both sides decode strictly and bound what they allocate.

use crate::training::{Consent, Job, JobId, JobState};
use crate::{Error, ErrorKind, Result};
use megrez_engine::PartyReport;
use megrez_graph::lower::{DataInput, Revealed};
use megrez_net::{Channel, NetProfile, Payload};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version of these messages; both sides must have the same.
pub const VERSION: u32 = 5;

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
    /// Begin a training job, or go on with it after its last checkpoint. All parties are asked the same.
    Train(Train),
    /// Approve a job, or no longer. Every party that is to accept the job is asked.
    Consent(Consent),
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
    /// Remove what this client has stored. Every party that holds it is asked.
    Remove {
        /// The name of a model or of rows.
        model: String,
    },
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
    /// The names of the inputs that last: shared in the first run, and held by the parties until the last.
    pub lasting: Vec<String>,
    /// Shape the links to this profile; parties accept anything but `loopback` only if they are
    /// configured to.
    pub net: Net,
    /// A batch of material that was made ahead, for the first run.
    pub material: Option<[u8; 16]>,
    /// The caller insists on a protocol that does not protect.
    pub insecure: bool,
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
    /// These are no weights but rows to train on, or weights to begin with: nobody runs their plan, which only says what they are, and
    /// `allow` names those who may ask for training on them ([`Consent`] is theirs to wait for).
    pub rows: bool,
}

/// A request to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// The session's fresh name.
    pub session: [u8; 16],
    /// What to do.
    pub job: Job,
}

/// A plan that a model's owner approves, with what its user needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPlan {
    /// Inputs per run.
    pub batch: usize,
    /// The plan's bytes.
    pub plan: Vec<u8>,
    /// What the data owner shares.
    pub data_inputs: Vec<DataInput>,
    /// What the recipient opens.
    pub outputs: Vec<Revealed>,
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
    },
    /// All parties have begun the job; it goes on whether its client stays or not.
    Begun,
    /// How jobs stand.
    Jobs(Vec<JobState>),
    /// It failed, and why.
    Failed(Failure),
}

/// Why something failed. No secret in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub kind: ErrorKind,
    /// For people.
    pub reason: String,
}

impl From<&Error> for Failure {
    fn from(e: &Error) -> Self {
        Failure { kind: e.kind(), reason: e.to_string() }
    }
}

impl From<Failure> for Error {
    fn from(Failure { kind, reason }: Failure) -> Self {
        Error::Of(kind, reason)
    }
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
