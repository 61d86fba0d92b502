//! A job in its session: the parties cut batches out of stored rows, run the step on what lasts,
//! and seal it after every epoch.

use super::entries::Running;
use super::files::{Checkpoint, Folder};
use super::fits::Kept;
use super::guard;
use super::outbox::Outbox;
use super::rows::{Joined, Local, order};
use super::shards::{self, Replica, Sharded};
use crate::party::clients::alive_to;
use crate::party::host::{Host, hash};
use crate::party::opened::StoredModel;
use crate::party::stored::ModelFile;
use crate::protocols::Suite;
use crate::training::{Opened, Opening, Validated, Work};
use crate::wire::Train;
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{Made, Stored, Turn, agree, agree_or, check, common_name, derive, run_again};
use megrez_net::{Network, Payload};
use megrez_plan::{Input, KEPT, Kind, Op, Plan, Value, View};
use megrez_protocols::AnyMasks;
use megrez_session::{Error as SessionError, Party};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a job's session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// After the last epoch.
    Done,
    /// At the border of a step, as somebody wished.
    Stopped,
}

pub(super) struct TrainJob<'a> {
    pub(super) host: &'a Host,
    pub(super) network: Network,
    pub(super) train: &'a Train,
    pub(super) work: &'a Work,
    /// The sets of rows, and at last the weights to begin with.
    pub(super) stored: Vec<StoredModel>,
    pub(super) keep: Kept,
    /// Takes the job's place among those that run here, if all still agree to it.
    pub(super) enter: &'a dyn Fn(&[StoredModel]) -> Result<Arc<Running>>,
    /// Tells the client that the job has begun.
    pub(super) begun: &'a dyn Fn(),
}

/// The numbers of what comes before the first step: rows are joined, the state is begun, rows to
/// count on are joined.
const JOIN: u32 = 0;
const BEGIN: u32 = 1;
const JOIN_TOO: u32 = 2;
/// The number of the first run after.
const FIRST: u32 = 3;

impl TrainJob<'_> {
    /// The state before the first step: the stored weights, and zeros.
    fn begin(&self, suite: &Suite, party: &mut Party<AnyDevice>) -> Result<Stored> {
        let start = &self.stored[self.stored.len() - 1];
        let mut state = start.load(suite, &self.train.job.protocol, party)?;
        let (_, values) = start.header.values()?;
        let mut plan = Local(Plan::new(self.work.ring()));
        let (any, value) = values.first().ok_or_else(|| Error::Refused("there are no weights".into()))?;
        let any = plan.input(any, value)?;
        let some = plan.step("zero", Op::Combine { coefficients: vec![0], constant: 0 }, &[any])?;
        for (name, value) in self.work.state.iter().filter(|(name, _)| !state.contains_key(name)) {
            let Kind::Ring { frac } = value.kind else {
                return Err(Error::Refused(format!("`{name}` is no number on the ring")));
            };
            let strides = vec![0; value.shape.rank()];
            let view = View { shape: value.shape.clone(), strides, offset: 0 };
            let zeros = plan.step(&format!("zeros/{name}"), Op::View(view), &[some])?;
            let zeros = plan.step(&format!("scale/{name}"), Op::Rescale { frac }, &[zeros])?;
            plan.0.output(name, KEPT, zeros);
        }
        state.extend(derive(suite, &plan.0, party, &state, BEGIN)?);
        Ok(state)
    }

    /// Opens what the job says, in shares that wait for their recipients.
    fn open(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        state: &mut Stored,
        [epoch, run]: [u32; 2],
        tag: [u8; 16],
    ) -> Result<Vec<(String, Opened)>> {
        let mut plan = Local(Plan::new(self.work.ring()));
        let last = epoch == self.train.job.epochs();
        let mut any = false;
        for Opening { state, recipient, every_epoch } in &self.train.job.opened {
            if !(*every_epoch || last) {
                continue;
            }
            any = true;
            let missing = || Error::of(ErrorKind::Internal, format!("no state `{state}`"));
            let value = plan.input(state, self.work.state(state).ok_or_else(missing)?)?;
            plan.0.output(state, recipient, value);
            if *every_epoch {
                let zero = Op::Combine { coefficients: vec![0], constant: 0 };
                let zero = plan.step(&format!("{state}/zero"), zero, &[value])?;
                plan.0.output(state, KEPT, zero);
            }
        }
        let mut outbox = Outbox::default();
        if any {
            agree(party, "opening", &plan.0.hash())?;
            run_again(suite, Turn::new(&plan.0, run), party, state, &mut outbox, None)?;
        }
        let opened = |(state, recipient, share)| (recipient, Opened { epoch, state, tag, share });
        Ok(outbox.0.into_iter().map(opened).collect())
    }

    /// Opens what the job says after the epoch of a checkpoint that all parties have sealed, from
    /// what is in it.
    fn tell(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        folder: &Folder,
        checkpoint: &mut Checkpoint,
        state: &mut Stored,
        run: u32,
    ) -> Result<()> {
        let tag = common_name(party, "told")?;
        let opened = self.open(suite, party, state, [checkpoint.epoch, run], tag)?;
        folder.tell(checkpoint.epoch, &opened)?;
        checkpoint.opened.extend(opened);
        Ok(())
    }

    /// From which epoch the parties go on: the last that all of them have. They make sure that it
    /// is of one run. All have sealed an epoch before one begins the next, so a party that lacks
    /// two has lost them, and no epoch is done again for its sake.
    fn resume<D: megrez_kernels::Device>(&self, folder: &Folder, party: &mut Party<D>) -> Result<Checkpoint> {
        let newest = folder.newest()?;
        let all = party.step("agreement", |party| {
            for peer in party.peers() {
                party.send(peer, "epoch", Payload::from_bytes(&newest.to_le_bytes()))?;
            }
            let peers = party.peers();
            let mut of = |peer: usize| {
                let bytes = party.recv(peer, "epoch", 4)?;
                Ok(bytes.as_bytes().iter().rev().fold(0, |word: u32, &byte| word << 8 | u32::from(byte)))
            };
            peers.into_iter().map(&mut of).collect::<std::result::Result<Vec<_>, SessionError>>()
        })?;
        let (least, most) = all.into_iter().fold((newest, newest), |(a, b), of| (a.min(of), b.max(of)));
        if most - least > 1 {
            return Err(Error::of(
                ErrorKind::DamagedFile,
                format!(
                    "one party has checkpoints up to epoch {least} of the job, another up to {most}: put the first one's files back, \
                     or make another job"
                ),
            ));
        }
        let epoch = least;
        let checkpoint = folder.checkpoint(&self.train.job, party.me(), epoch)?;
        agree_or(party, "checkpoint", &hash(&(epoch, checkpoint.tag)), |low, high| {
            format!("the checkpoints of epoch {epoch} of parties {low} and {high} are of different runs")
        })?;
        folder.forget_after(epoch)?;
        Ok(checkpoint)
    }

    /// Whether any party wishes to stop; all parties hear the same.
    fn stops<D: megrez_kernels::Device>(running: &Running, party: &mut Party<D>, run: u32) -> Result<bool> {
        let mine = running.stop.load(Ordering::Acquire);
        let said = party.peers().into_iter().map(|peer| (peer, [u8::from(mine); 32])).collect();
        Ok(!party.barrier_with(&format!("stop-{run}"), &said)?.is_empty() || mine)
    }

    /// Stores the last weights as a model, unless they are.
    fn store(self, suite: &Suite, party: &mut Party<AnyDevice>, state: &Stored, tag: [u8; 16]) -> Result<()> {
        let Some((header, path)) = self.keep else { return Ok(()) };
        let header = header.of_upload(tag);
        if path.exists() {
            let (models, me) = (&self.host.policy.models, self.host.endpoint.me());
            let found = StoredModel::open(models, header.name(), &header.owner, me, false)?;
            if found.header.upload != tag {
                let what =
                    format!("another model `{}` was stored meanwhile: remove it, and resume", header.name());
                return Err(Error::Refused(what));
            }
        } else {
            let mut file = ModelFile::new(&header)?;
            let refuse = |e: megrez_protocols::EncodeError| Error::of(ErrorKind::Internal, e);
            for name in &header.inputs {
                let missing = || Error::of(ErrorKind::Internal, format!("no state `{name}`"));
                let (masks, data) = state.get(name).ok_or_else(missing)?;
                suite.write_masks(party.device(), masks, file.body()).map_err(refuse)?;
                suite.write_data(party.device(), data, file.body()).map_err(refuse)?;
            }
            file.write(&self.host.policy.models, &path)?;
        }
        // A party that has lost its share hears of it here; the others keep theirs, for the next
        // attempt.
        Ok(party.barrier("trained-model")?)
    }
}

impl TrainJob<'_> {
    /// Goes on with the job, from its last checkpoint.
    pub(super) fn run(self, suite: &Suite) -> Result<End> {
        let (job, work) = (&self.train.job, self.work);
        let bounds = guard::plan(job, work)?;
        for step in work.plans().chain(&bounds) {
            check(suite, step).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        }
        let mut party = Party::start(self.network.clone(), self.host.device.clone())?;
        let party = &mut party;
        // Of two attempts at one job party 0 has one go on: the others enter theirs once it has.
        let first = if party.me() == 0 { Some((self.enter)(&self.stored)?) } else { None };
        agree(party, "request", &hash(self.train))?;
        let running = first.map_or_else(|| (self.enter)(&self.stored), Ok)?;
        let uploads: Vec<_> = self.stored.iter().map(|stored| stored.header.upload).collect();
        agree_or(party, "upload", &hash(&uploads), |low, high| {
            format!("parties {low} and {high} hold different uploads of the job's rows or weights")
        })?;
        let folder = Folder::new(&self.host.policy.data, job.id());
        folder.begin(job, &uploads)?;
        let mut checkpoint = self.resume(&folder, party)?;
        let mut state = match checkpoint.epoch {
            0 => self.begin(suite, party)?,
            _ => checkpoint.state(suite, party.device(), &self.state()?)?,
        };
        let (protocol, ring) = (&job.protocol, work.ring());
        let joined =
            Joined::new(suite, party, protocol, (ring, &work.rows), (&job.data, &self.stored), JOIN)?;
        let looked_at = match (&job.validation, &work.validated) {
            (Some(of), Some(Validated { rows, .. })) => {
                let stored = &self.stored[job.data.iter().map(|set| set.names().count()).sum()..];
                Some(Joined::new(suite, party, protocol, (ring, rows), (&of.data, stored), JOIN_TOO)?)
            }
            _ => None,
        };
        let replicas = shards::replicas(self.host, self.train, party)?;
        let seed = common_name(party, "order")?;
        party.barrier("job-begun")?;
        running.epoch.store(checkpoint.epoch, Ordering::Release);
        (self.begun)();
        let epochs = || {
            self.epochs(
                suite,
                party,
                (&running, &folder),
                &replicas,
                (&mut checkpoint, &mut state),
                (&joined, looked_at.as_ref(), bounds.as_ref()),
                &seed,
            )
        };
        if alive_to(&shards::channels(&replicas), epochs)? == End::Stopped {
            shards::dismiss(&replicas);
            return Ok(End::Stopped);
        }
        shards::dismiss(&replicas);
        let tag = checkpoint.tag;
        self.store(suite, party, &state, tag)?;
        Ok(End::Done)
    }
}

impl TrainJob<'_> {
    /// The epochs that are left, up to the last one's checkpoint.
    fn epochs(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        (running, folder): (&Running, &Folder),
        replicas: &[Replica],
        (checkpoint, state): (&mut Checkpoint, &mut Stored),
        (joined, looked_at, bounds): (&Joined, Option<&Joined>, Option<&Plan>),
        seed: &[u8; 16],
    ) -> Result<End> {
        let (job, work) = (&self.train.job, self.work);
        let mut run = FIRST;
        if checkpoint.epoch > 0 {
            // A party may have failed between sealing and opening.
            self.tell(suite, party, folder, checkpoint, state, run)?;
            run += 1;
        }
        while checkpoint.epoch < job.epochs() {
            let epoch = checkpoint.epoch + 1;
            let missing = || Error::of(ErrorKind::Internal, "no plan for an epoch");
            let plan = work.step(job, epoch).ok_or_else(missing)?;
            let rows = work.steps(job) as usize * work.all_batch();
            // Where one batch has all rows, what lasts may be of rows: they stay where they are.
            let whole = rows == work.batch && rows == job.all_rows();
            let order = if whole { (0..rows).collect() } else { order(seed, epoch, rows) };
            let mut sharded = Sharded::new(suite, work, replicas);
            let runs = sharded.as_ref().map_or(1, Sharded::runs);
            let mut batches = order.chunks_exact(work.all_batch());
            // A set of rows for each shard.
            let mut cut = |party: &mut Party<AnyDevice>, run: u32| -> Result<Option<Vec<Stored>>> {
                let Some(batch) = batches.next() else { return Ok(None) };
                let shards = (run..).zip(batch.chunks_exact(work.batch));
                shards
                    .map(|(run, shard)| joined.cut(suite, party, shard, run))
                    .collect::<Result<_>>()
                    .map(Some)
            };
            let (mut batch, mut made) = (cut(party, run)?, None);
            for step in 0.. {
                let Some(rows) = batch else { break };
                if Self::stops(running, party, run)? {
                    return Ok(End::Stopped);
                }
                let after = later(run, runs)?;
                batch = cut(party, after)?;
                // Nothing is made ahead over the end of an epoch, which the parties seal first.
                if let Some(sharded) = &mut sharded {
                    sharded.step(party, state, plan, (&rows, batch.as_deref()), run)?;
                } else {
                    rows.into_iter().for_each(|rows| state.extend(rows));
                    let next = batch.as_ref().and_then(|next| next.first()).map(|next| (next, after));
                    made = turn(suite, party, state, Turn { plan, run, made }, next)?;
                }
                run = after;
                running.step.store(step + 1, Ordering::Release);
            }
            if let (Some(validated), Some(rows)) = (&work.validated, looked_at) {
                match self.validate(suite, party, running, state, (validated, rows), run)? {
                    Some(after) => run = after,
                    None => return Ok(End::Stopped),
                }
            }
            work.rows.iter().for_each(|(name, _)| drop(state.remove(name)));
            if let Some(bounds) = bounds {
                if !guard::kept(suite, party, bounds, state, run)? {
                    return Err(beyond(epoch));
                }
                run = later(run, 1)?;
            }
            let tag = common_name(party, "checkpoint")?;
            (checkpoint.epoch, checkpoint.tag) = (epoch, tag);
            checkpoint.fill(suite, party.device(), state)?;
            folder.keep(checkpoint)?;
            party.barrier("checkpoint")?;
            self.tell(suite, party, folder, checkpoint, state, run)?;
            run += 1;
            running.step.store(0, Ordering::Release);
            running.epoch.store(epoch, Ordering::Release);
        }
        Ok(End::Done)
    }

    /// Counts on the rows that nothing is learnt from, always in the same batches. Gives the number
    /// of the run that comes next; `None` if somebody wishes to stop.
    fn validate(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        running: &Running,
        state: &mut Stored,
        (Validated { plan, batch, batches, .. }, rows): (&Validated, &Joined),
        mut run: u32,
    ) -> Result<Option<u32>> {
        let order: Vec<usize> = (0..*batches as usize * batch).collect();
        let mut batches = order.chunks_exact(*batch);
        let mut cut = |party: &mut Party<AnyDevice>, run: u32| {
            batches.next().map(|batch| rows.cut(suite, party, batch, run)).transpose()
        };
        let (mut batch, mut made) = (cut(party, run)?, None);
        while let Some(rows) = batch {
            if Self::stops(running, party, run)? {
                return Ok(None);
            }
            let after = later(run, 1)?;
            batch = cut(party, after)?;
            state.extend(rows);
            let next = batch.as_ref().map(|next| (next, after));
            made = turn(suite, party, state, Turn { plan, run, made }, next)?;
            run = after;
        }
        Ok(Some(run))
    }

    /// All that lasts, whether the step reads it or only the kept model does.
    fn state(&self) -> Result<Vec<(String, Value)>> {
        let (_, start) = self.stored[self.stored.len() - 1].header.values()?;
        let more = start.into_iter().filter(|(name, _)| self.work.state(name).is_none());
        Ok(self.work.state.iter().cloned().chain(more).collect())
    }
}

/// The number that comes so many runs after one, if there is room for as many again.
fn later(run: u32, runs: u32) -> Result<u32> {
    run.checked_add(runs)
        .filter(|after| after.checked_add(runs).is_some())
        .ok_or_else(|| Error::Refused("too many steps in one session".into()))
}

/// A run on rows that are in the state; and what has been made meanwhile of that on the next rows,
/// which has this number.
fn turn(
    suite: &Suite,
    party: &mut Party<AnyDevice>,
    state: &mut Stored,
    turn: Turn<'_>,
    next: Option<(&Stored, u32)>,
) -> Result<Option<Made>> {
    let (plan, rows) = (turn.plan, next.map(|(rows, _)| rows));
    let masks = |input: &Input| rows?.get(&input.name).map(|(masks, _)| masks.clone());
    let next = next.map(|(_, run)| (plan, run, &masks as &dyn Fn(&Input) -> Option<AnyMasks>));
    Ok(run_again(suite, turn, party, state, &mut Outbox::default(), next)?.1)
}

/// What no longer keeps to the job's bounds is not gone on with.
fn beyond(epoch: u32) -> Error {
    let before = match epoch {
        1 => "nothing was sealed before".into(),
        _ => format!("epoch {} is sealed", epoch - 1),
    };
    Error::of(
        ErrorKind::OutOfRange,
        format!(
            "after epoch {epoch} weights are beyond the job's bounds: training diverges, or words wrap; {before}. Make a \
             job with a smaller rate, or on a longer ring"
        ),
    )
}
