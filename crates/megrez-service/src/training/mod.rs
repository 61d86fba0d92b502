//! Training as a service: what a [`Job`] is, what its [`Consent`]s bind, and how it stands
//! ([`JobState`]).
//!
//! A job says everything that happens to the data: the plan of a step, how often it runs, on the
//! rows of which stored sets, with which weights it begins, what is opened to whom and when
//! ([`Opening`]), and what is kept for whom ([`Keep`]). Its [`hash`](Job::hash) binds all of it.
//! Whoever owns rows or weights in it and is not the client who asks must have approved that hash,
//! at every party. A job is named by its hash ([`Job::id`]), and an epoch is opened once: an
//! approval serves no second job.
//!
//! The parties run nothing else on stored rows.

mod work;

pub use work::{Validated, WEIGHTS, Work};

use crate::failure::Failure;
use crate::plans::ModelPlan;
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A job's name: what its hash begins with, so nobody else can have a job of that name.
pub type JobId = [u8; 16];

/// What a job's file begins with.
const FILE: &[u8] = b"megrez-job-005\n";

/// Most epochs of a job.
pub const MAX_EPOCHS: u32 = 10_000;

/// Most plans of a job: one for each rate of its schedule.
pub const MAX_STAGES: usize = 64;

/// Most shards of a step.
pub const MAX_SHARDS: u32 = 64;

/// Most values that are opened after every epoch.
const MAX_METRICS: usize = 16;

/// A set of stored rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSet {
    /// Its name.
    pub name: String,
    /// How many rows it has: how much an epoch's loss says of one row depends on it.
    pub rows: usize,
    /// Sets that hold further columns of the very same rows, or their labels, in this order. All
    /// say the same [`ids`].
    pub beside: Vec<String>,
}

impl RowSet {
    /// The names of all sets that its rows are in.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.beside)
    }
}

/// What stands for the identifiers of rows, in their order. Whoever can guess the whole list can
/// see that it is the one, unless it does not know `key`, which the owners of the rows have in
/// common.
///
/// # Errors
/// If an identifier is empty, or there twice.
pub fn ids(ids: &[&str], key: &str) -> Result<[u8; 32]> {
    let mut seen = BTreeSet::new();
    for (row, id) in ids.iter().enumerate() {
        let what = match (id.is_empty(), seen.insert(id)) {
            (true, _) => "is empty",
            (_, false) => "is that of an earlier row, too",
            _ => continue,
        };
        return Err(Error::of(ErrorKind::Invalid, format!("the identifier of row {row} {what}")));
    }
    // No list is another one's beginning, and no key is a part of a list.
    let parts = [&[key], ids].concat();
    let bytes: Vec<u8> =
        parts.iter().flat_map(|part| [&part.len().to_le_bytes(), part.as_bytes()].concat()).collect();
    Ok(megrez_engine::hash("megrez 2026 identifiers of rows", &bytes))
}

/// How many rows sets have together.
pub(crate) fn count(sets: &[RowSet]) -> usize {
    sets.iter().fold(0, |all, set| all.saturating_add(set.rows))
}

/// A value that is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The name of what lasts from step to step.
    pub state: String,
    /// The client who learns it; nobody else does.
    pub recipient: String,
    /// After every epoch, whereupon it begins at zero again: a single number. Or else once, after
    /// the last.
    pub every_epoch: bool,
}

/// A stored model that the last weights become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Keep {
    /// Its name. Its owner is the client who asked; for further training all owners of rows have a
    /// say in it.
    pub model: String,
    /// The clients who may run it.
    pub allow: Vec<String>,
    /// The plans that may be run, one per batch size. Their inputs of the job's client are weights,
    /// by the names of the state.
    pub plans: Vec<ModelPlan>,
}

/// Epochs that have one plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The plan of a step, in bytes: all inputs and outputs are kept. Besides rows it reads and
    /// writes what lasts from step to step. In place of rows it may read what the plan of a shard
    /// gives of each of them: a number from 0, a slash, and the name.
    pub step: Vec<u8>,
    /// How often every row is learnt from by it.
    pub epochs: u32,
}

/// The rows of a step in several shards of one size, whose gradients are added up. Which machines
/// of a party deal with which of them is no part of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shards {
    /// How many there are: at least two.
    pub count: u32,
    /// The plan of one of them, in bytes: it reads rows and what lasts, and all that it gives is
    /// for the step.
    pub plan: Vec<u8>,
}

/// What is counted after every epoch on rows that nothing is learnt from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// The stored rows, as [`Job::data`].
    pub data: Vec<RowSet>,
    /// The plan of a batch, in bytes: it reads rows and what lasts, and adds up numbers that
    /// nothing else reads and that are opened after every epoch.
    pub plan: Vec<u8>,
}

/// What no epoch may leave: numbers whose squares sum up to 2^`below` or more. Whether all bounds
/// of a job are kept is opened to the parties after every epoch; if one is not, the job ends there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The name of what lasts from step to step.
    pub state: String,
    /// The logarithm of the bound.
    pub below: u32,
}

/// Everything about a training that matters to those whose data it uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Random, so that no job is another one's.
    pub nonce: [u8; 16],
    /// The client who asks for it.
    pub client: String,
    /// The protocol.
    pub protocol: String,
    /// The stored rows; those of several entries are joined, one below the other.
    pub data: Vec<RowSet>,
    /// The stored weights with which it begins. State that is not among them begins at zero.
    pub start: String,
    /// What a step is, epoch after epoch: as many plans as its schedule has rates. All read and
    /// write the same.
    pub stages: Vec<Stage>,
    /// How the rows of a step come in shards; `None` where they are one batch.
    pub shards: Option<Shards>,
    /// What is counted after every epoch; `None` for nothing.
    pub validation: Option<Validation>,
    /// What numbers have to keep to from epoch to epoch; none if nothing is looked at.
    pub bounds: Vec<Bound>,
    /// The names of the inputs that are rows, and of what is stored: one name for both.
    pub rows: Vec<String>,
    /// What is opened.
    pub opened: Vec<Opening>,
    /// What is kept.
    pub keep: Option<Keep>,
    /// What the client says about the plan, for people who read the job. Nothing follows from it.
    pub about: String,
}

impl Job {
    /// What consents name.
    ///
    /// # Panics
    /// Never: a job has plain fields.
    pub fn hash(&self) -> [u8; 32] {
        let bytes = postcard::to_allocvec(self).expect("a job has plain fields");
        megrez_engine::hash("megrez 2026 training job", &bytes)
    }

    /// The job's name.
    pub fn id(&self) -> JobId {
        let hash = self.hash();
        std::array::from_fn(|i| hash[i])
    }

    /// Its rows: those that it learns from, and then those on which it only counts.
    pub fn entries(&self) -> impl Iterator<Item = &RowSet> {
        self.data.iter().chain(self.validation.iter().flat_map(|validation| &validation.data))
    }

    /// The names of all sets of rows in it.
    pub fn sets(&self) -> impl Iterator<Item = &String> {
        self.entries().flat_map(RowSet::names)
    }

    /// Whether rows or weights of this name are in it.
    pub fn uses(&self, name: &str) -> bool {
        self.start == name || self.sets().any(|set| set == name)
    }

    /// The job as a file.
    ///
    /// # Panics
    /// Never: a job has plain fields.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = postcard::to_allocvec(self).expect("a job has plain fields");
        [FILE, &bytes].concat()
    }

    /// Reads and checks a job; the bytes may come from anywhere.
    ///
    /// # Errors
    /// If they are no job, or one that makes no sense.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let damaged =
            || Error::of(ErrorKind::DamagedFile, "this is no job of this version, or it is damaged");
        let rest = bytes.strip_prefix(FILE).ok_or_else(damaged)?;
        let (job, rest) = postcard::take_from_bytes::<Job>(rest).map_err(|_| damaged())?;
        if !rest.is_empty() || job.to_bytes() != bytes {
            return Err(damaged());
        }
        job.check()?;
        Ok(job)
    }

    /// How often every row is learnt from, in all stages together.
    pub fn epochs(&self) -> u32 {
        self.stages.iter().fold(0, |all, stage| all.saturating_add(stage.epochs))
    }

    /// How many rows it learns from.
    pub fn all_rows(&self) -> usize {
        count(&self.data)
    }
}

/// An owner's word on a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// The [`Job::hash`].
    pub job: [u8; 32],
    /// Those of the job's rows and weights that are this client's.
    pub of: Vec<String>,
    /// An approval is taken back: the job neither begins nor goes on.
    pub withdrawn: bool,
    /// Until when the job may begin, or go on after it was interrupted, by each party's clock:
    /// seconds since 1970.
    pub until_s: Option<u64>,
}

/// A share of something that was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// After which epoch, from 1.
    pub epoch: u32,
    /// What it is.
    pub state: String,
    /// A name that the parties' shares of one value have in common.
    pub tag: [u8; 16],
    /// The party's message to the recipient.
    pub share: Vec<u8>,
}

/// How a job stands at a party.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stands {
    /// It runs: steps done in the epoch that is under way.
    Runs(u32),
    /// It does not run, and has not come to its end: it was stopped, or a party ended.
    Waits,
    /// It failed here since this party started.
    Failed(Failure),
    /// It has come to its end.
    Done,
}

/// What a party says of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    /// Which one.
    pub id: JobId,
    /// What consents name.
    pub hash: [u8; 32],
    /// Who asked for it.
    pub client: String,
    /// How many epochs it has.
    pub epochs: u32,
    /// How many are done and sealed.
    pub epoch: u32,
    /// Steps of an epoch.
    pub steps: u32,
    /// What it does.
    pub stands: Stands,
    /// What was opened to the client that asks.
    pub opened: Vec<Opened>,
    /// The job itself, if one was asked for.
    pub job: Option<Box<Job>>,
}
