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

use crate::failure::Failure;
use crate::plans::ModelPlan;
use crate::{Error, ErrorKind, Result};
use megrez_plan::{KEPT, Plan, Value};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A job's name: what its hash begins with, so nobody else can have a job of that name.
pub type JobId = [u8; 16];

/// What a job's file begins with.
const FILE: &[u8] = b"megrez-job-004\n";

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

    /// The names of all sets of rows in it.
    pub fn sets(&self) -> impl Iterator<Item = &String> {
        self.data.iter().flat_map(RowSet::names)
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

    /// How many rows all sets have.
    pub fn all_rows(&self) -> usize {
        self.data.iter().fold(0, |all, set| all.saturating_add(set.rows))
    }

    /// What follows from the job alone.
    ///
    /// # Errors
    /// What makes no sense in it, or would open something that it does not declare.
    pub fn check(&self) -> Result<Work> {
        let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
        // People read these before they approve, on terminals that obey what is not text.
        let keep = self.keep.iter().flat_map(|keep| keep.allow.iter().chain([&keep.model]));
        let opened = self.opened.iter().flat_map(|opening| [&opening.state, &opening.recipient]);
        let names = self.sets().chain([&self.client, &self.protocol, &self.start]);
        let text = |name: &String| name.len() <= 256 && name.chars().all(|c| matches!(c, ' '..='~'));
        if let Some(name) = names.chain(&self.rows).chain(keep).chain(opened).find(|name| !text(name)) {
            return refuse(format!(
                "has the name `{}`: names are up to 256 letters of ASCII",
                name.escape_debug()
            ));
        }
        if self.opened.iter().filter(|opening| opening.every_epoch).count() > MAX_METRICS {
            return refuse(format!("opens more than {MAX_METRICS} numbers after every epoch"));
        }
        let whole = self.stages.iter().all(|stage| stage.epochs > 0);
        if !whole || self.stages.len() > MAX_STAGES || !(1..=MAX_EPOCHS).contains(&self.epochs()) {
            return refuse(format!(
                "has from 1 to {MAX_EPOCHS} epochs, in up to {MAX_STAGES} stages of at least one"
            ));
        }
        let names: BTreeSet<&String> = self.sets().collect();
        if names.is_empty() || names.len() < self.sets().count() || self.rows.is_empty() {
            return refuse("names at least one set of rows, none of them twice".into());
        }
        if self.shards.as_ref().is_some_and(|shards| !(2..=MAX_SHARDS).contains(&shards.count)) {
            return refuse(format!("has from 2 to {MAX_SHARDS} shards in a step, or none"));
        }
        let mut works = self.stages.iter().map(|stage| self.work(&stage.step));
        let mut work = works.next().unwrap_or_else(|| refuse("has no step".into()))?;
        for other in works {
            let Work { batch, rows, state, steps, .. } = other?;
            if (batch, &rows, &state) != (work.batch, &work.rows, &work.state)
                || steps.iter().any(|step| step.ring != work.ring())
            {
                return refuse("has stages whose steps read different rows or state".into());
            }
            work.steps.extend(steps);
        }
        Ok(work)
    }

    /// A plan of which everything is kept.
    ///
    /// # Errors
    /// If it is none.
    pub(crate) fn plan(bytes: &[u8]) -> Result<Plan> {
        let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
        let plan = Plan::from_bytes(bytes).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        if plan.public_matrices().next().is_some() {
            return refuse("multiplies by public weights, which are not trained beside".into());
        }
        if let Some(input) = plan.inputs.iter().find(|input| input.owner != KEPT) {
            return refuse(format!("asks `{}` for the input `{}`: all are kept", input.owner, input.name));
        }
        if let Some(output) = plan.outputs.iter().find(|output| output.recipient != KEPT) {
            return refuse(format!("gives `{}` to `{}` in every step", output.name, output.recipient));
        }
        let mut seen = BTreeSet::new();
        match plan.inputs.iter().find(|input| !seen.insert(&input.name)) {
            Some(twice) => refuse(format!("reads `{}` twice", twice.name)),
            None => Ok(plan),
        }
    }

    /// What follows from the plan of one stage.
    fn work(&self, step: &[u8]) -> Result<Work> {
        let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
        let step = Self::plan(step)?;
        let shard = self.shards.as_ref().map(|shards| Self::plan(&shards.plan)).transpose()?;
        if shard.as_ref().is_some_and(|shard| shard.ring != step.ring) {
            return refuse("has a shard on another ring than its step".into());
        }
        let mut work = Work {
            batch: 0,
            shards: self.shards.as_ref().map_or(1, |shards| shards.count),
            rows: vec![],
            state: vec![],
            gathered: BTreeMap::new(),
            steps: vec![],
            shard: None,
        };
        let reader = shard.as_ref().unwrap_or(&step);
        if self.rows.len() > reader.inputs.len() {
            return refuse("names more rows than its step reads".into());
        }
        for input in &reader.inputs {
            let (name, value) = (&input.name, reader.value(input.value));
            let place = if self.rows.contains(name) { &mut work.rows } else { &mut work.state };
            place.push((name.clone(), value.clone()));
        }
        if let Some(shard) = &shard {
            for output in &shard.outputs {
                let value = shard.value(output.value).clone();
                if work.gathered.insert(output.name.clone(), value).is_some() {
                    return refuse(format!("gathers `{}` twice", output.name));
                }
            }
            let known: BTreeMap<String, Value> = work.state.iter().cloned().collect();
            for input in &step.inputs {
                let (name, value) = (&input.name, step.value(input.value));
                if self.rows.contains(name) {
                    return refuse(format!("reads the rows `{name}` beside its shards"));
                }
                match work.of_shard(name).or(known.get(name)) {
                    Some(same) if same == value => {}
                    Some(_) => return refuse(format!("reads `{name}` as two different things")),
                    None => work.state.push((name.clone(), value.clone())),
                }
            }
        }
        let batches: BTreeSet<Option<&usize>> =
            work.rows.iter().map(|(_, value)| value.shape.dims().first()).collect();
        let batch = batches.first().copied().flatten().copied().unwrap_or(0);
        if work.rows.len() != self.rows.len() || batches.len() != 1 || batch == 0 {
            return refuse("has a step that does not read a batch of each kind of its rows".into());
        }
        work.batch = batch;
        if work.steps(self) == 0 {
            return refuse(format!(
                "has {} rows, which fill no batch of {}",
                self.all_rows(),
                work.all_batch()
            ));
        }
        let mut written = BTreeSet::new();
        for output in &step.outputs {
            let name = &output.name;
            if work.state(name) != Some(step.value(output.value)) || !written.insert(name) {
                return refuse(format!("writes `{name}`, which it does not read as the same"));
            }
        }
        let mut opened = BTreeSet::new();
        for Opening { state, every_epoch, .. } in &self.opened {
            let Some(value) = work.state(state).filter(|_| opened.insert(state)) else {
                return refuse(format!("opens `{state}` twice, or has no such state"));
            };
            if *every_epoch && value.shape.elements() != 1 {
                return refuse(format!("opens `{state}` after every epoch: only single numbers are"));
            }
            if *every_epoch && (state.starts_with(WEIGHTS) || !written.contains(state)) {
                return refuse(format!("opens `{state}` after every epoch: only what is added up is"));
            }
        }
        work.steps.push(step);
        work.shard = shard;
        Ok(work)
    }
}

/// What the names of weights begin with.
pub const WEIGHTS: &str = "w.";

/// A job's step, taken apart.
pub struct Work {
    /// Rows of a shard, which are those of a step where it has one shard.
    pub batch: usize,
    /// In how many shards the rows of a step come.
    pub shards: u32,
    /// What is cut out of stored rows for each step.
    pub rows: Vec<(String, Value)>,
    /// What lasts from step to step.
    pub state: Vec<(String, Value)>,
    /// What a step reads of each shard.
    pub gathered: BTreeMap<String, Value>,
    /// The plan of each stage.
    pub steps: Vec<Plan>,
    /// The plan of a shard, where there are several.
    pub shard: Option<Plan>,
}

impl Work {
    /// How many steps an epoch has. The last rows, which fill no batch, are never learnt from:
    /// would each epoch leave out others, the losses of two epochs would tell those of single rows.
    pub fn steps(&self, job: &Job) -> u32 {
        u32::try_from(job.all_rows() / self.all_batch()).unwrap_or(0)
    }

    /// Rows of a step.
    pub fn all_batch(&self) -> usize {
        self.batch.saturating_mul(self.shards as usize).max(1)
    }

    /// The name under which a step reads what a shard gives.
    pub fn name_of(shard: u32, name: &str) -> String {
        format!("{shard}/{name}")
    }

    /// What a step reads under this name of a shard, if it is one's.
    fn of_shard(&self, name: &str) -> Option<&Value> {
        let (shard, of) = name.split_once('/')?;
        let shard = shard.parse().ok().filter(|&shard: &u32| shard < self.shards)?;
        let value = self.gathered.get(of)?;
        (Self::name_of(shard, of) == name).then_some(value)
    }

    /// The ring of all stages.
    pub fn ring(&self) -> u32 {
        self.steps.first().map_or(0, |step| step.ring)
    }

    /// The plan of an epoch's steps; epochs count from 1.
    pub fn step(&self, job: &Job, epoch: u32) -> Option<&Plan> {
        let mut last = 0u32;
        let until = |stage: &Stage| {
            last = last.saturating_add(stage.epochs);
            last
        };
        let ends: Vec<u32> = job.stages.iter().map(until).collect();
        self.steps.get(ends.iter().position(|&end| (1..=end).contains(&epoch))?)
    }

    /// Whether a step leaves something of this name for the next.
    pub fn writes(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.outputs.iter().any(|output| output.name == name))
    }

    /// The type of a part of the state.
    pub fn state(&self, name: &str) -> Option<&Value> {
        self.state.iter().find(|(n, _)| n == name).map(|(_, value)| value)
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
