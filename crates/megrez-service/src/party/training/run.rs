//! A job in its session: the parties cut batches out of stored rows, run the step on what lasts,
//! and seal it after every epoch.

use super::entries::Running;
use super::files::{Checkpoint, Folder};
use super::outbox::Outbox;
use super::shards::{self, Replica, Sharded};
use crate::party::clients::alive_to;
use crate::party::host::{Host, hash};
use crate::party::opened::StoredModel;
use crate::party::stored::{ModelFile, ModelHeader, forbidden};
use crate::protocols::Suite;
use crate::training::{Job, Opened, Opening, RowSet, WEIGHTS, Work};
use crate::wire::Train;
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{Stored, Turn, agree, agree_or, check, common_name, derive, run_again};
use megrez_net::{Network, Payload};
use megrez_plan::{Input, KEPT, Kind, Op, Plan, PlanError, Value, ValueId, View};
use megrez_protocols::AnyMasks;
use megrez_session::{Error as SessionError, Party};
use std::collections::BTreeMap;
use std::path::PathBuf;
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

/// What the last weights become: the header without the name of an upload, and where the file is.
pub(super) type Kept = Option<(ModelHeader, PathBuf)>;

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

fn made(e: PlanError) -> Error {
    Error::of(ErrorKind::Internal, e)
}

/// A plan of kept inputs, to which local steps are added.
struct Local(Plan);

impl Local {
    fn input(&mut self, name: &str, value: &Value) -> Result<ValueId> {
        match value.kind {
            Kind::Ring { frac } => Ok(self.0.input(name, KEPT, value.shape.clone(), frac)),
            _ => Err(Error::Refused(format!("`{name}` is no number on the ring"))),
        }
    }

    fn step(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.0.step(name, op, inputs).map_err(made)
    }
}

/// The order of rows in an epoch: a permutation that follows from what the parties have drawn
/// together.
pub(super) fn order(seed: &[u8; 16], epoch: u32, rows: usize) -> Vec<usize> {
    let key = megrez_engine::hash("megrez 2026 order of rows", &[&seed[..], &epoch.to_le_bytes()].concat());
    let mut order: Vec<usize> = (0..rows).collect();
    let mut random = [0; 32];
    for i in (1..rows).rev() {
        // Four numbers in each hash.
        let place = (rows - 1 - i) % 4;
        if place == 0 {
            random = megrez_engine::hash("megrez 2026 order of rows", &[&key[..], &i.to_le_bytes()].concat());
        }
        let word =
            random[8 * place..][..8].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
        order.swap(i, ((u128::from(word) * (i as u128 + 1)) >> 64) as usize);
    }
    order
}

impl TrainJob<'_> {
    /// All sets' rows, joined; by the names of the step's inputs.
    fn join(&self, suite: &Suite, party: &mut Party<AnyDevice>) -> Result<Stored> {
        let job = &self.train.job;
        let mut plan = Local(Plan::new(self.work.ring()));
        let (mut parts, mut places) = (Stored::new(), BTreeMap::<String, Vec<ValueId>>::new());
        for (i, (_, sets)) in blocks(job, &self.stored).enumerate() {
            let mut columns = BTreeMap::<String, Vec<ValueId>>::new();
            for (j, set) in sets.iter().enumerate() {
                let (_, values) = set.header.values()?;
                for (name, part) in set.load(suite, &job.protocol, party)? {
                    if let Some((_, value)) = values.iter().find(|(n, _)| *n == name) {
                        let part_name = format!("{i}/{j}/{name}");
                        columns.entry(name).or_default().push(plan.input(&part_name, value)?);
                        parts.insert(part_name, part);
                    }
                }
            }
            for (name, all) in columns {
                let joined = match all[..] {
                    [one] => one,
                    _ => plan.step(&format!("columns/{i}/{name}"), Op::Concat { axis: 1 }, &all)?,
                };
                places.entry(name).or_default().push(joined);
            }
        }
        for (name, _) in &self.work.rows {
            let all = places.remove(name).unwrap_or_default();
            let joined = match all[..] {
                [one] => one,
                _ => plan.step(&format!("join/{name}"), Op::Concat { axis: 0 }, &all)?,
            };
            plan.0.output(name, KEPT, joined);
        }
        Ok(derive(suite, &plan.0, party, &parts, 0)?)
    }

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
        state.extend(derive(suite, &plan.0, party, &state, 1)?);
        Ok(state)
    }

    /// The rows of a batch.
    fn cut(
        &self,
        suite: &Suite,
        party: &mut Party<AnyDevice>,
        rows: &Stored,
        indices: &[usize],
        run: u32,
    ) -> Result<Stored> {
        let mut plan = Local(Plan::new(self.work.ring()));
        for (name, value) in &self.work.rows {
            let shape = [&[self.train.job.all_rows()], &value.shape.dims()[1..]].concat().into();
            let all = plan.input(name, &Value { shape, kind: value.kind })?;
            let gather = Op::Gather { axis: 0, indices: indices.to_vec() };
            let batch = plan.step(&format!("batch/{name}"), gather, &[all])?;
            plan.0.output(name, KEPT, batch);
        }
        Ok(derive(suite, &plan.0, party, rows, run)?)
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
        for step in work.steps.iter().chain(&work.shard) {
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
        let joined = self.join(suite, party)?;
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
                (&joined, &seed),
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
        (joined, seed): (&Stored, &[u8; 16]),
    ) -> Result<End> {
        let (job, work) = (&self.train.job, self.work);
        // Two runs came before the first step.
        let mut run = 2;
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
                    .map(|(run, shard)| self.cut(suite, party, joined, shard, run))
                    .collect::<Result<_>>()
                    .map(Some)
            };
            let (mut batch, mut made) = (cut(party, run)?, None);
            for step in 0.. {
                let Some(rows) = batch else { break };
                if Self::stops(running, party, run)? {
                    return Ok(End::Stopped);
                }
                let after = run
                    .checked_add(runs)
                    .filter(|after| after.checked_add(runs).is_some())
                    .ok_or_else(|| Error::Refused("too many steps in one session".into()))?;
                batch = cut(party, after)?;
                // Nothing is made ahead over the end of an epoch, which the parties seal first.
                if let Some(sharded) = &mut sharded {
                    sharded.step(party, state, plan, (&rows, batch.as_deref()), run)?;
                } else {
                    rows.into_iter().for_each(|rows| state.extend(rows));
                    let next = batch.as_ref().and_then(|next| next.first());
                    let masks = |input: &Input| next?.get(&input.name).map(|(masks, _)| masks.clone());
                    let next = next.map(|_| (plan, after, &masks as &dyn Fn(&Input) -> Option<AnyMasks>));
                    let turn = Turn { plan, run, made };
                    made = run_again(suite, turn, party, state, &mut Outbox::default(), next)?.1;
                }
                run = after;
                running.step.store(step + 1, Ordering::Release);
            }
            let tag = common_name(party, "checkpoint")?;
            work.rows.iter().for_each(|(name, _)| drop(state.remove(name)));
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

    /// All that lasts, whether the step reads it or only the kept model does.
    fn state(&self) -> Result<Vec<(String, Value)>> {
        let (_, start) = self.stored[self.stored.len() - 1].header.values()?;
        let more = start.into_iter().filter(|(name, _)| self.work.state(name).is_none());
        Ok(self.work.state.iter().cloned().chain(more).collect())
    }
}

/// The stored sets of each of a job's entries, of all that it names in its order.
fn blocks<'a>(
    job: &'a Job,
    stored: &'a [StoredModel],
) -> impl Iterator<Item = (&'a RowSet, &'a [StoredModel])> {
    let mut left = stored;
    job.data.iter().map_while(move |set| {
        let (these, rest) = left.split_at_checked(1 + set.beside.len())?;
        left = rest;
        Some((set, these))
    })
}

/// What sets that are joined column by column hold of one kind of row.
fn beside(parts: Vec<Value>) -> Option<Value> {
    let columns = |parts: &[Value]| -> Option<usize> {
        let width = |part: &Value| match *part.shape.dims() {
            [rows, width] if rows == parts[0].shape.dims()[0] && part.kind == parts[0].kind => Some(width),
            _ => None,
        };
        parts.iter().map(width).sum()
    };
    match &parts[..] {
        [] => None,
        [one] => Some(one.clone()),
        [first, ..] => {
            let width = columns(&parts)?;
            Some(Value { shape: [first.shape.dims()[0], width].into(), kind: first.kind })
        }
    }
}

/// Rows of several sets are joined only if their owners have said that they are the same.
fn same_rows(named: &RowSet, sets: &[StoredModel]) -> Result<()> {
    let ids = |set: &StoredModel| set.header.ids;
    let Some(first) = sets.first().filter(|_| sets.len() > 1) else { return Ok(()) };
    let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
    for (name, set) in named.names().zip(sets) {
        if ids(set).is_none() {
            return refuse(format!(
                "joins columns of `{name}`, of which nobody has said whose rows they are: upload them with --ids"
            ));
        }
        if ids(set) != ids(first) {
            return refuse(format!(
                "joins columns of `{}` and `{name}`, whose rows are others, or in another order, by their --ids",
                named.name
            ));
        }
    }
    Ok(())
}

/// What this party checks of a job and the stored values that it names, besides the consents.
pub(super) fn fits(host: &Host, train: &Train, work: &Work, stored: &[StoredModel]) -> Result<Kept> {
    let job = &train.job;
    let refuse = |what: String| Err(Error::Refused(format!("the job {what}")));
    let (start, sets) = stored.split_last().ok_or_else(|| Error::Refused("the job has no weights".into()))?;
    let ring = work.ring();
    for (named, parts) in blocks(job, sets) {
        same_rows(named, parts)?;
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for set in parts {
            set.header.is_of(&job.protocol)?;
            let (of, values) = set.header.values()?;
            let of_ring = values.into_iter().filter(|_| of == ring);
            of_ring.for_each(|(name, value)| found.entry(name).or_default().push(value));
        }
        for (name, value) in &work.rows {
            let shape = [&[named.rows], &value.shape.dims()[1..]].concat().into();
            if found.remove(name).and_then(beside) != Some(Value { shape, kind: value.kind }) {
                let names: Vec<&str> = named.names().map(String::as_str).collect();
                return refuse(format!(
                    "takes {} rows `{name}` of {:?} numbers from `{}`, which are stored there with another count, shape, scale or ring",
                    named.rows,
                    &value.shape.dims()[1..],
                    names.join("+")
                ));
            }
        }
    }
    start.header.is_of(&job.protocol)?;
    let (of, values) = start.header.values()?;
    for (name, value) in &values {
        let same = work.state(name).is_none_or(|state| state == value);
        if of != ring || !same || job.rows.contains(name) {
            return refuse(format!(
                "begins with weights `{name}` that are stored with another shape, scale or ring"
            ));
        }
    }
    let added_up = |name: &str| !name.starts_with(WEIGHTS) && work.writes(name);
    let missing = |(name, _): &&(String, Value)| !added_up(name) && !values.iter().any(|(n, _)| n == name);
    if let Some((name, _)) = work.state.iter().find(missing) {
        return refuse(format!("begins with `{}`, where there are no weights `{name}`", job.start));
    }
    let size = |v: &Value| v.shape.elements();
    let rows = work.rows.iter().map(|(_, v)| (size(v) / work.batch).saturating_mul(job.all_rows()));
    let more: Vec<usize> = rows.chain(values.iter().map(|(_, v)| size(v))).collect();
    for step in work.steps.iter().chain(&work.shard) {
        host.room_for(step.values.iter().map(size).chain(more.iter().copied()))?;
    }
    let Some(keep) = &job.keep else { return Ok(None) };
    let upload = crate::wire::Upload {
        session: train.session,
        protocol: job.protocol.clone(),
        model: keep.model.clone(),
        plans: keep.plans.clone(),
        allow: keep.allow.clone(),
        rows: false,
        ids: None,
        within_s: None,
    };
    let mut owners: Vec<String> = stored.iter().flat_map(|s| s.header.owners.clone()).collect();
    owners.push(job.client.clone());
    owners.sort_unstable();
    owners.dedup();
    let header = ModelHeader::new(&job.client, host.endpoint.me(), &upload)?.of_owners(owners);
    for plan in &keep.plans {
        host.affordable(&plan.plan)?;
    }
    let (of, weights) = header.values()?;
    for (name, value) in &weights {
        let state = work.state(name).or_else(|| values.iter().find(|(n, _)| n == name).map(|(_, v)| v));
        if of != ring || state != Some(value) {
            return refuse(format!("keeps a model with weights `{name}` that training does not leave"));
        }
    }
    let path = host.policy.models.path(&keep.model)?;
    let newest = Folder::new(&host.policy.data, job.id()).newest()?;
    if path.exists() && newest < job.epochs() {
        return Err(forbidden(format!("a model `{}` is stored already; choose another name", keep.model)));
    }
    Ok(Some((header, path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_joined_of_matrices_of_as_many_rows_and_one_kind() {
        let kind = Kind::Ring { frac: 16 };
        let of = |dims: &[usize], kind| Value { shape: dims.to_vec().into(), kind };
        let joined = |parts: &[Value]| beside(parts.to_vec());
        let matrix = of(&[5, 3], kind);
        assert_eq!(joined(&[matrix.clone(), of(&[5, 4], kind)]), Some(of(&[5, 7], kind)));
        let cube = of(&[5, 1, 3], kind);
        assert_eq!((joined(&[]), joined(std::slice::from_ref(&cube))), (None, Some(cube.clone())));
        // What others have stored may be of any shape.
        let others =
            [of(&[], kind), of(&[5], kind), cube, of(&[4, 3], kind), of(&[5, 3], Kind::Ring { frac: 8 })];
        for other in others {
            assert_eq!(joined(&[matrix.clone(), other.clone()]), None, "{other:?}");
            assert_eq!(joined(&[other, matrix.clone()]), None);
        }
    }

    #[test]
    fn an_order_has_every_row_once_and_nobody_sees_the_next_one() {
        let orders = [order(&[1; 16], 1, 50), order(&[1; 16], 2, 50), order(&[2; 16], 1, 50)];
        assert!(orders[0] != orders[1] && orders[0] != orders[2]);
        assert_eq!(orders[0], order(&[1; 16], 1, 50));
        for mut order in orders {
            order.sort_unstable();
            assert!(order.into_iter().eq(0..50));
        }
        // Every row comes first in about as many epochs.
        let mut first = [0; 5];
        (0..5000).for_each(|epoch| first[order(&[3; 16], epoch, 5)[0]] += 1);
        assert!(first.iter().all(|n| (850..1150).contains(n)), "{first:?}");
    }
}
