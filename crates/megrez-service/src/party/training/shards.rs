//! Steps whose rows come in shards: the triple that has the job deals with some of them, and other
//! replicas with the rest, at the same time. Each party gives its own replica shares of the weights
//! and of a shard's rows, and gets shares of the gradients back, which are added up where the job
//! is. Nothing goes from one party to another but within the sessions of each triple, and what a
//! value's shares are, and under which mask, does not depend on who has the job: a replica is the
//! same party.
//!
//! Where that spares time, masks go ahead of values: those of a shard's gradients are known before
//! its rows are looked at, so the update's material, and with it the masks of the next weights, and
//! with these the material of the next shard are made while this one runs.

use crate::party::asked::{Asked, Wish};
use crate::party::clients::{ChannelClients, ClientChannel, alive, hold};
use crate::party::host::{Host, ended, hash};
use crate::party::service::Service;
use crate::party::stored::forbidden;
use crate::protocols::{self, Suite};
use crate::training::{Job, Work};
use crate::wire::{self, Assist, Given, Reply, Request, Train};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::store::{decode_value, encode_value};
use megrez_engine::{Made, Stored, Turn, agree, all_say, check, may_stream, run_again};
use megrez_net::{Network, PeerName, dial};
use megrez_plan::{Input, Plan};
use megrez_protocols::{AnyMasks, EncodeError};
use megrez_session::Party;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use super::outbox::Outbox;

/// How long a replica waits for its turn: without it the job goes on.
const TURN: Duration = Duration::from_secs(20);

/// Masks by name.
type Masks = Vec<(String, AnyMasks)>;

/// The mask of this name.
fn of_name<'a, M>(masks: &'a [(String, M)], name: &str) -> Option<&'a M> {
    masks.iter().find(|(known, _)| known == name).map(|(_, mask)| mask)
}

/// What becomes of what replicas are asked at the same time.
type Answers<'scope> = Vec<ScopedJoinHandle<'scope, Result<Vec<Given>>>>;

/// Asks each replica one after the other of its shards, all replicas at the same time.
fn ask<'scope>(
    scope: &'scope Scope<'scope, '_>,
    replicas: &'scope [Replica],
    given: Vec<Vec<Given>>,
    limit: u64,
) -> Result<Answers<'scope>> {
    let ask = |(replica, given): (&'scope Replica, Vec<Given>)| {
        let ask = move || given.iter().map(|given| replica.exchange(given, limit)).collect();
        let thread = std::thread::Builder::new().name("megrez-replica".into());
        thread.spawn_scoped(scope, ask).map_err(|e| Error::of(ErrorKind::Internal, e))
    };
    replicas.iter().zip(given).map(ask).collect()
}

/// What they have said.
fn heard(asked: Answers<'_>) -> Result<Vec<Vec<Given>>> {
    asked
        .into_iter()
        .map(|asked| asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}

/// Shares as they are sent, by name.
type Encoded = Vec<(String, Vec<u8>)>;

/// Another replica of this party, which deals with shards.
pub(super) struct Replica {
    address: String,
    channel: ClientChannel,
}

fn refused(e: EncodeError) -> Error {
    Error::of(ErrorKind::Internal, e)
}

fn lacking(name: &str) -> Error {
    Error::of(ErrorKind::Internal, format!("there is no `{name}`"))
}

/// Most bytes of a message about a plan: values of up to four words an element, and masks of the
/// same.
fn most_bytes(plan: &Plan) -> u64 {
    let values = plan.inputs.iter().map(|input| input.value).chain(plan.outputs.iter().map(|o| o.value));
    let elements = values.map(|value| plan.value(value).shape.elements() as u64);
    elements.fold(1 << 20, |all: u64, n| {
        all.saturating_add(n.saturating_mul(8 * u64::from(plan.ring / 8) + 1024))
    })
}

fn encoded_masks(suite: &Suite, device: &AnyDevice, masks: &Masks) -> Result<Encoded> {
    let encode = |(name, masks): &(String, AnyMasks)| {
        let mut bytes = vec![];
        suite.write_masks(device, masks, &mut bytes).map_err(refused)?;
        Ok((name.clone(), bytes))
    };
    masks.iter().map(encode).collect()
}

fn decoded_masks(suite: &Suite, device: &AnyDevice, encoded: Encoded) -> Result<Masks> {
    let decode = |(name, bytes): (String, Vec<u8>)| {
        let mut input = &bytes[..];
        let masks = suite.read_masks(device, &mut input).map_err(refused)?;
        if input.is_empty() { Ok((name, masks)) } else { Err(refused(EncodeError::Damaged)) }
    };
    encoded.into_iter().map(decode).collect()
}

fn encoded(
    suite: &Suite,
    device: &AnyDevice,
    values: &Stored,
    names: impl Iterator<Item = String>,
) -> Result<Encoded> {
    let encode = |name: String| {
        let value = values.get(&name).ok_or_else(|| lacking(&name))?;
        Ok((name, encode_value(suite, device, value).map_err(refused)?))
    };
    names.map(encode).collect()
}

fn decoded(suite: &Suite, device: &AnyDevice, encoded: Encoded) -> Result<Stored> {
    let decode = |(name, bytes): (String, Vec<u8>)| {
        let value = decode_value(suite, device, &bytes).ok_or_else(|| refused(EncodeError::Damaged))?;
        Ok((name, value))
    };
    encoded.into_iter().map(decode).collect()
}

impl Replica {
    /// Connects to the same party of another replica.
    fn reach(host: &Host, address: &str) -> Result<Self> {
        let me = PeerName::party(host.endpoint.me())?;
        let channel = dial(address, &host.endpoint.identity(), &me, wire::PATIENCE)?;
        Ok(Replica { address: address.into(), channel: ClientChannel::new(channel, wire::PATIENCE) })
    }

    /// What it says next.
    fn hears(&self, limit: u64) -> Result<Reply> {
        match wire::recv(&mut hold(&self.channel), limit)? {
            Reply::Failed(failure) => Err(self.about(failure.into())),
            reply => Ok(reply),
        }
    }

    /// Has it begin.
    fn begins(&self, assist: &Assist) -> Result<()> {
        wire::send(&mut hold(&self.channel), &Request::Assist(assist.clone()))?;
        match self.hears(1 << 16)? {
            Reply::Begun => Ok(()),
            _ => Err(self.about(Error::Refused("it says something else than that it begins".into()))),
        }
    }

    /// Gives it inputs, and takes what the plan has kept.
    fn exchange(&self, given: &Given, limit: u64) -> Result<Given> {
        wire::send(&mut hold(&self.channel), &Some(given)).map_err(|e| self.about(e))?;
        match self.hears(limit).map_err(|e| self.about(e))? {
            Reply::Given(given) => Ok(given),
            _ => Err(self.about(Error::Refused("it does not say what a shard has given".into()))),
        }
    }

    fn about(&self, e: Error) -> Error {
        Error::of(e.kind(), format!("this party's replica at {}: {e}", self.address))
    }
}

/// The replicas that deal with shards of a job, at all parties the same; those that cannot are left
/// out.
pub(super) fn replicas<D: megrez_kernels::Device>(
    host: &Host,
    train: &Train,
    party: &mut Party<D>,
) -> Result<Vec<Replica>> {
    let Some(shards) = &train.job.shards else { return Ok(vec![]) };
    let mut replicas = vec![];
    for (number, address) in host.policy.replicas.iter().enumerate().take(shards.count as usize - 1) {
        let reached = Replica::reach(host, address);
        if !all_say(party, "replica reached", reached.is_ok())? {
            continue;
        }
        let of_session = [&train.session[..], &(number as u64).to_le_bytes()].concat();
        let session = megrez_engine::hash("megrez 2026 session of a replica", &of_session);
        let assist = Assist {
            session: *session.first_chunk().expect("32 bytes"),
            protocol: train.job.protocol.clone(),
            plan: shards.plan.clone(),
            net: train.net.clone(),
            within_s: TURN.as_secs() as u32,
        };
        let begun = reached.and_then(|replica| replica.begins(&assist).map(|()| replica));
        if all_say(party, "replica begun", begun.is_ok())? {
            replicas.extend(begun);
        }
    }
    Ok(replicas)
}

/// Tells replicas that nothing comes any more.
pub(super) fn dismiss(replicas: &[Replica]) {
    for replica in replicas {
        // One that has gone is not missed.
        let _ = wire::send(&mut hold(&replica.channel), &None::<&Given>);
    }
}

/// The channels of replicas.
pub(super) fn channels(replicas: &[Replica]) -> Vec<&ClientChannel> {
    replicas.iter().map(|replica| &replica.channel).collect()
}

/// The steps of a job whose rows come in shards, one after the other.
pub(super) struct Sharded<'a> {
    suite: &'a Suite,
    work: &'a Work,
    shard: &'a Plan,
    replicas: &'a [Replica],
    /// Of this triple's next shard.
    made: Option<Made>,
    /// The masks of what the replicas' next shards will give; none if they have made nothing ahead.
    theirs: Vec<Masks>,
}

impl<'a> Sharded<'a> {
    pub(super) fn new(suite: &'a Suite, work: &'a Work, replicas: &'a [Replica]) -> Option<Self> {
        let shard = work.shard.as_ref()?;
        Some(Sharded { suite, work, shard, replicas, made: None, theirs: vec![] })
    }

    /// The numbers of runs that a step takes.
    pub(super) fn runs(&self) -> u32 {
        self.work.shards + 1
    }

    /// How many machines deal with shards, this one among them.
    fn machines(&self) -> usize {
        self.replicas.len() + 1
    }

    fn is_row(&self, name: &str) -> bool {
        self.work.rows.iter().any(|(row, _)| row == name)
    }

    /// The masks of a shard's inputs.
    fn masks(&self, state: &Masks, rows: &Stored) -> Result<Masks> {
        let of = |input: &Input| {
            let name = &input.name;
            let found = rows.get(name).map(|(masks, _)| masks).or(of_name(state, name));
            Ok((name.clone(), found.ok_or_else(|| lacking(name))?.clone()))
        };
        self.shard.inputs.iter().map(of).collect()
    }

    /// A step on these rows, a set for each shard: runs from number `run` on. `next` are the rows
    /// of the step after it, if one follows in this epoch.
    pub(super) fn step(
        &mut self,
        party: &mut Party<AnyDevice>,
        state: &mut Stored,
        update: &Plan,
        (rows, next): (&[Stored], Option<&[Stored]>),
        run: u32,
    ) -> Result<()> {
        let (shards, updates) = (self.work.shards, run + self.work.shards);
        let masks_of = |state: &Stored| -> Masks {
            state.iter().map(|(name, (masks, _))| (name.clone(), masks.clone())).collect()
        };
        // One shard for each machine, or material would have to be made for several at once.
        let streams = self.machines() == shards as usize && may_stream(self.suite, party, self.shard);
        if streams && self.made.is_none() {
            self.prepare(party, &masks_of(state), rows, run)?;
        }
        let (made_update, ahead) = match streams {
            true => self.ahead(party, update, (masks_of(state), next), updates)?,
            false => (None, None),
        };
        let after = updates + 1;
        let given = self.all_given(party.device(), state, rows, ahead.as_deref())?;
        let (limit, own) = (most_bytes(self.shard), ahead.as_ref().map(|ahead| &ahead[0]));
        let replicas = self.replicas;
        let (gathered, theirs, made) = std::thread::scope(|scope| -> Result<_> {
            let asked = ask(scope, replicas, given, limit)?;
            let mut gathered = vec![];
            let mut made = self.made.take();
            for of in (0..shards).step_by(self.machines()) {
                state.extend(rows[of as usize].iter().map(|(name, value)| (name.clone(), value.clone())));
                let masks = |input: &Input| of_name(own?, &input.name).cloned();
                let next = own.map(|_| (self.shard, after, &masks as &dyn Fn(&Input) -> Option<AnyMasks>));
                let turn = Turn { plan: self.shard, run: run + of, made: made.take() };
                made = run_again(self.suite, turn, party, state, &mut Outbox::default(), next)?.1;
                for name in self.work.gathered.keys() {
                    let value = state.remove(name).ok_or_else(|| lacking(name))?;
                    gathered.push((Work::name_of(of, name), value));
                }
            }
            let mut theirs = vec![];
            for (h, replies) in (1..).zip(heard(asked)?) {
                let mut masks = vec![];
                for (of, reply) in (h..shards).step_by(self.machines()).zip(replies) {
                    for (name, value) in decoded(self.suite, party.device(), reply.values)? {
                        gathered.push((Work::name_of(of, &name), value));
                    }
                    masks = decoded_masks(self.suite, party.device(), reply.masks)?;
                }
                theirs.push(masks);
            }
            Ok((gathered, theirs, made))
        })?;
        (self.made, self.theirs) = (made, theirs);
        state.retain(|name, _| !self.is_row(name));
        state.extend(gathered);
        let turn = Turn { plan: update, run: updates, made: made_update };
        run_again(self.suite, turn, party, state, &mut Outbox::default(), None)?;
        for of in 0..shards {
            self.work.gathered.keys().for_each(|name| drop(state.remove(&Work::name_of(of, name))));
        }
        Ok(())
    }

    /// The material of an update, made from the masks of what the shards will give; and the masks
    /// of the next step's inputs. Nothing where a mask is not known before a value is.
    fn ahead(
        &mut self,
        party: &mut Party<AnyDevice>,
        update: &Plan,
        (mut masks, next): (Masks, Option<&[Stored]>),
        run: u32,
    ) -> Result<(Option<Made>, Option<Vec<Masks>>)> {
        let Some(own) = self.made.as_ref().map(|made| made.masks(self.shard)) else {
            return Ok((None, None));
        };
        let all = std::iter::once(own).chain(self.theirs.drain(..));
        for (of, gathered) in (0..).zip(all.collect::<Vec<Masks>>()) {
            if gathered.len() != self.work.gathered.len() {
                return Ok((None, None));
            }
            masks.extend(gathered.into_iter().map(|(name, mask)| (Work::name_of(of, &name), mask)));
        }
        let made = Made::now(self.suite, update, party, run, &|name| of_name(&masks, name).cloned())?;
        // What the update writes has other masks afterwards.
        masks.retain(|(name, _)| update.outputs.iter().all(|output| output.name != *name));
        masks.extend(made.masks(update));
        let known = self
            .shard
            .inputs
            .iter()
            .all(|input| self.is_row(&input.name) || of_name(&masks, &input.name).is_some());
        let of = |rows: &Stored| self.masks(&masks, rows);
        let ahead = next.filter(|_| known).map(|next| next.iter().map(of).collect()).transpose()?;
        Ok((Some(made), ahead))
    }

    /// The first material: of this triple's shard, and of the others'.
    fn prepare(
        &mut self,
        party: &mut Party<AnyDevice>,
        state: &Masks,
        rows: &[Stored],
        run: u32,
    ) -> Result<()> {
        let (limit, mut given) = (most_bytes(self.shard), vec![]);
        for rows in &rows[1..] {
            let masks = encoded_masks(self.suite, party.device(), &self.masks(state, rows)?)?;
            given.push(vec![Given { masks, ..Given::default() }]);
        }
        let masks = self.masks(state, &rows[0])?;
        let (made, said) = std::thread::scope(|scope| -> Result<_> {
            let asked = ask(scope, self.replicas, given, limit)?;
            let made = Made::now(self.suite, self.shard, party, run, &|name| of_name(&masks, name).cloned())?;
            Ok((made, heard(asked)?))
        })?;
        let replies = said.into_iter().flatten();
        let theirs = replies
            .map(|reply| decoded_masks(self.suite, party.device(), reply.masks))
            .collect::<Result<_>>()?;
        (self.made, self.theirs) = (Some(made), theirs);
        Ok(())
    }

    /// What each replica is given: of its first shard the weights, too.
    fn all_given(
        &self,
        device: &AnyDevice,
        state: &Stored,
        rows: &[Stored],
        ahead: Option<&[Masks]>,
    ) -> Result<Vec<Vec<Given>>> {
        let inputs = |of_rows: bool| {
            let named = self.shard.inputs.iter().map(|input| input.name.clone());
            named.filter(move |name| self.is_row(name) == of_rows)
        };
        let weights = encoded(self.suite, device, state, inputs(false))?;
        let mut all = vec![];
        for h in 1..self.machines() {
            let mut given = vec![];
            for of in (h..rows.len()).step_by(self.machines()) {
                let mut values = if of == h { weights.clone() } else { vec![] };
                values.extend(encoded(self.suite, device, &rows[of], inputs(true))?);
                let masks = match ahead {
                    Some(ahead) => encoded_masks(self.suite, device, &ahead[of])?,
                    None => vec![],
                };
                given.push(Given { values, masks });
            }
            all.push(given);
        }
        Ok(all)
    }
}

impl Service {
    /// Deals with shards of a job that this party has at another replica, until it hears that
    /// nothing comes any more.
    pub(in crate::party) fn assist(
        &self,
        asked: &Asked,
        assist: &Assist,
        shared: &ClientChannel,
    ) -> Result<()> {
        if *hold(shared).peer() != PeerName::party(self.host.endpoint.me())? {
            return Err(forbidden("a party deals with shards for its own replicas only"));
        }
        let profile = &self.host.profile(&assist.net)?;
        let begin = || {
            let ready = self.host.protocol(&assist.protocol, false).and_then(|_| {
                self.host.affordable(&assist.plan)?;
                Job::plan(&assist.plan)
            });
            let memory = |plan: &Plan| Host::memory_streamed(&assist.protocol, plan);
            let (session, alone, depend, present) = (assist.session, true, false, &|| shared.present());
            let within = Some(Duration::from_secs(assist.within_s.into()));
            let wish =
                Wish { asked, session, profile, present, depend, within, alone, ready, memory: &memory };
            let (plan, place) = self.admitted(wish)?;
            let network = self.host.join(asked, session, profile)?;
            Ok::<_, Error>((plan, place, network))
        };
        let (plan, _place, network) = alive(shared, begin)?;
        let suite = protocols::suite(&assist.protocol, plan.ring)?;
        let job =
            AssistJob { host: &self.host, network: network.clone(), plan: &plan, assist, channel: shared };
        ended(&network, alive(shared, || job.run(&*suite)))
    }
}

struct AssistJob<'a> {
    host: &'a Host,
    network: Network,
    plan: &'a Plan,
    assist: &'a Assist,
    channel: &'a ClientChannel,
}

impl AssistJob<'_> {
    /// Deals with what it is given.
    fn run(self, suite: &Suite) -> Result<()> {
        let plan = self.plan;
        check(suite, plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        let mut party = Party::start(self.network.clone(), self.host.device.clone())?;
        let party = &mut party;
        agree(party, "request", &hash(self.assist))?;
        wire::send(&mut hold(self.channel), &Reply::Begun)?;
        let mut client = ChannelClients { channel: self.channel, network: self.network.clone(), due: None };
        let (mut stored, mut made) = (Stored::new(), None);
        let (mut run, limit) = (0, most_bytes(plan));
        loop {
            let payload = client.next(limit)?;
            let Some(Given { values, masks }) = wire::parse(&hold(self.channel), &payload)? else {
                return Ok(());
            };
            let ahead = decoded_masks(suite, party.device(), masks)?;
            let mut reply = Given::default();
            if values.is_empty() {
                made = Some(Made::now(suite, plan, party, run, &|name| of_name(&ahead, name).cloned())?);
            } else {
                stored.extend(decoded(suite, party.device(), values)?);
                let after: u32 = run
                    .checked_add(1)
                    .ok_or_else(|| Error::Refused("too many steps in one session".into()))?;
                let masks = |input: &Input| of_name(&ahead, &input.name).cloned();
                let next = (!ahead.is_empty()).then_some((
                    plan,
                    after,
                    &masks as &dyn Fn(&Input) -> Option<AnyMasks>,
                ));
                let turn = Turn { plan, run, made: made.take() };
                made = run_again(suite, turn, party, &mut stored, &mut Outbox::default(), next)?.1;
                let names = plan.outputs.iter().map(|output| output.name.clone());
                reply.values = encoded(suite, party.device(), &stored, names)?;
                run = after;
            }
            if let Some(made) = &made {
                reply.masks = encoded_masks(suite, party.device(), &made.masks(plan))?;
            }
            wire::send(&mut hold(self.channel), &Reply::Given(reply))?;
        }
    }
}
