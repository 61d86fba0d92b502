//! What follows from a job alone: whether it makes sense, and what it does.

use super::{Job, MAX_EPOCHS, MAX_METRICS, MAX_SHARDS, MAX_STAGES, Opening, Stage, Validation, count};
use crate::{Error, ErrorKind, Result};
use megrez_plan::{KEPT, Kind, Plan, Value};
use std::collections::{BTreeMap, BTreeSet};

impl Job {
    /// What follows from the job alone.
    ///
    /// # Errors
    /// What makes no sense in it, or would open something that it does not declare.
    pub fn check(&self) -> Result<Work> {
        let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
        // People read these before they approve, on terminals that obey what is not text.
        let keep = self.keep.iter().flat_map(|keep| keep.allow.iter().chain([&keep.model]));
        let opened = self.opened.iter().flat_map(|opening| [&opening.state, &opening.recipient]);
        let opened = opened.chain(self.bounds.iter().map(|bound| &bound.state));
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
        if self.data.is_empty() || names.len() < self.sets().count() || self.rows.is_empty() {
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
        if let Some(validation) = &self.validation {
            self.validate(validation, &mut work)?;
        }
        self.opens(&work)?;
        self.bounds(&work)?;
        Ok(work)
    }

    /// What follows from a plan that only counts: it can leave nothing in what is trained, and
    /// nothing beside what is opened.
    fn validate(&self, Validation { data, plan }: &Validation, work: &mut Work) -> Result<()> {
        let refuse = |what: &str| Err(Error::Refused(format!("the job's validation {what}")));
        let plan = Self::plan(plan)?;
        if plan.ring != work.ring() {
            return refuse("is on another ring than its step");
        }
        let (mut rows, mut added) = (vec![], vec![]);
        for input in &plan.inputs {
            let (name, value) = (&input.name, plan.value(input.value));
            if self.rows.contains(name) {
                rows.push((name.clone(), value.clone()));
            } else if work.of_shard(name).is_some() {
                return refuse(&format!("reads `{name}` of a shard"));
            } else if work.state(name).is_none() {
                added.push((name.clone(), value.clone()));
            } else if work.state(name) != Some(value) {
                return refuse(&format!("reads `{name}` as another thing than its step"));
            }
        }
        let batch = one_batch(&rows).filter(|_| rows.len() == self.rows.len());
        let Some(batch) = batch else { return refuse("does not read a batch of each kind of its rows") };
        let batches = u32::try_from(count(data) / batch).unwrap_or(0);
        if batches == 0 {
            return refuse(&format!("has {} rows, which fill no batch of {batch}", count(data)));
        }
        for output in &plan.outputs {
            let (name, value) = (&output.name, plan.value(output.value));
            let each = |opening: &Opening| opening.every_epoch && opening.state == *name;
            if !added.contains(&(name.clone(), value.clone())) || !self.opened.iter().any(each) {
                return refuse(&format!("writes `{name}`, which is not added up for it alone and opened"));
            }
        }
        work.state.extend(added);
        work.validated = Some(Validated { plan, batch, batches, rows });
        Ok(())
    }

    /// Makes sure that no more is opened than may be.
    fn opens(&self, work: &Work) -> Result<()> {
        let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
        let mut opened = BTreeSet::new();
        for Opening { state, every_epoch, .. } in &self.opened {
            let Some(value) = work.state(state).filter(|_| opened.insert(state)) else {
                return refuse(format!("opens `{state}` twice, or has no such state"));
            };
            if *every_epoch && value.shape.elements() != 1 {
                return refuse(format!("opens `{state}` after every epoch: only single numbers are"));
            }
            if *every_epoch && (state.starts_with(WEIGHTS) || !work.writes(state)) {
                return refuse(format!("opens `{state}` after every epoch: only what is added up is"));
            }
        }
        Ok(())
    }

    /// Makes sure that bounds are of numbers that last, and that the ring has sums beyond them.
    fn bounds(&self, work: &Work) -> Result<()> {
        let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
        let mut bounded = BTreeSet::new();
        for bound in &self.bounds {
            let name = &bound.state;
            let Some(Kind::Ring { frac }) = work.state(name).map(|value| value.kind) else {
                return refuse(format!("bounds `{name}`, which is no number that lasts"));
            };
            // What is opened after every epoch is no weight: one bit of a loss is one too many.
            let added = self.opened.iter().any(|opening| opening.every_epoch && opening.state == *name);
            if added || !bounded.insert(name) {
                return refuse(format!("bounds `{name}` twice, or beside opening it"));
            }
            if bound.below.saturating_add(frac.saturating_mul(2)) > work.ring().saturating_sub(2) {
                return refuse(format!(
                    "bounds the squares of `{name}` by 2^{}: on the ring of {} bits they never get there",
                    bound.below,
                    work.ring()
                ));
            }
        }
        Ok(())
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
            validated: None,
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
        let batch = one_batch(&work.rows).filter(|_| work.rows.len() == self.rows.len());
        let Some(batch) = batch else {
            return refuse("has a step that does not read a batch of each kind of its rows".into());
        };
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
        work.steps.push(step);
        work.shard = shard;
        Ok(work)
    }
}

/// What the names of weights begin with.
pub const WEIGHTS: &str = "w.";

/// How many rows a batch of them has, if all kinds of rows have as many.
fn one_batch(rows: &[(String, Value)]) -> Option<usize> {
    let mut batches = rows.iter().map(|(_, value)| value.shape.dims().first().copied().unwrap_or(0));
    let first = batches.next().filter(|&batch| batch > 0)?;
    batches.all(|batch| batch == first).then_some(first)
}

/// A job's validation, taken apart.
pub struct Validated {
    /// The plan of a batch.
    pub plan: Plan,
    /// Rows of a batch.
    pub batch: usize,
    /// How many batches an epoch is followed by. The last rows, which fill none, are left out, the
    /// same ones each time.
    pub batches: u32,
    /// What is cut out of stored rows for each batch.
    pub rows: Vec<(String, Value)>,
}

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
    /// What is counted after an epoch.
    pub validated: Option<Validated>,
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

    /// How many numbers each kind of rows has, of those that it learns from and of the others.
    pub fn stored_rows(&self, job: &Job) -> impl Iterator<Item = usize> {
        let all = move |(_, value): &(String, Value), batch: usize, rows: usize| {
            (value.shape.elements() / batch).saturating_mul(rows)
        };
        let learnt = self.rows.iter().map(move |kind| all(kind, self.batch, job.all_rows()));
        let data = job.validation.as_ref().map_or(&[][..], |validation| &validation.data);
        let looked_at = self.validated.iter();
        learnt.chain(
            looked_at.flat_map(move |v| v.rows.iter().map(move |kind| all(kind, v.batch, count(data)))),
        )
    }

    /// All plans.
    pub fn plans(&self) -> impl Iterator<Item = &Plan> {
        let validation = self.validated.iter().map(|validated| &validated.plan);
        self.steps.iter().chain(&self.shard).chain(validation)
    }

    /// Whether a step, or the validation, leaves something of this name for the next.
    pub fn writes(&self, name: &str) -> bool {
        let validation = self.validated.iter().map(|validated| &validated.plan);
        let writes = |plan: &Plan| plan.outputs.iter().any(|output| output.name == name);
        self.steps.iter().chain(validation).any(writes)
    }

    /// The type of a part of the state.
    pub fn state(&self, name: &str) -> Option<&Value> {
        self.state.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }
}
