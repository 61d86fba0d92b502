//! Plans walked on symbols by all parties, in threads of this process.

use super::deps::Deps;
use super::device::{Symbolic, shared_input};
use super::form::Rows;
use super::world::{RUNS, Session, World};
use crate::mutation::Mutation;
use megrez_engine::{Clients, Options, Stored, check, serve};
use megrez_net::{ClockKind, NetProfile, Network, Payload};
use megrez_plan::{Input, KEPT, Output, Plan};
use megrez_prg::Key;
use megrez_protocols::AnySuite;
use megrez_session::{Error, Name, Party, Phase};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long a party waits for another: nothing is computed, so a party that waits longer waits for
/// ever.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Why a plan was not walked.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// No such protocol or ring.
    #[error("there is no protocol `{0}` on a ring of {1} bits")]
    Unknown(String, u32),
    /// The protocol lacks steps of the plan.
    #[error(transparent)]
    Unsupported(#[from] megrez_engine::Unsupported),
    /// The walk failed.
    #[error(transparent)]
    Session(#[from] Error),
}

/// Walks plans that are run one after the other, each reading what those before it have kept, the
/// last one with `options`; every message is in the world afterwards.
pub(super) fn walk(
    protocol: &str,
    plans: &[Plan],
    options: Options<'_>,
    mutation: Option<Mutation>,
) -> Result<Arc<World>, WalkError> {
    let before = kept_before(plans);
    let mut plans: Vec<(&Plan, Options<'_>)> =
        before.iter().chain(plans).map(|plan| (plan, Options::default())).collect();
    let Some(last) = plans.last_mut() else { return Ok(Arc::new(World::new(&[], mutation))) };
    last.1 = options;
    let ring = last.0.ring;
    let of_world: Vec<&Plan> = plans.iter().map(|(plan, _)| *plan).collect();
    let world = Arc::new(World::new(&of_world, mutation));
    let suite = suite(protocol, ring).ok_or_else(|| WalkError::Unknown(protocol.into(), ring))?;
    walk_under(&*suite, &plans, &world)?;
    Ok(world)
}

#[cfg(not(test))]
use megrez_protocols::registry::suite;

/// Unit tests walk no plan: every protocol on symbols once more would be most of what they compile.
#[cfg(test)]
fn suite(_: &str, _: u32) -> Option<Box<Suite>> {
    None
}

/// A protocol on symbols.
type Suite = dyn AnySuite<Symbolic>;

fn walk_under(suite: &Suite, plans: &[(&Plan, Options<'_>)], world: &Arc<World>) -> Result<(), WalkError> {
    plans.iter().try_for_each(|(plan, _)| check(suite, plan).map(drop))?;
    let owners = Owners::default();
    // Every plan is a session of its own, with its own keys, as it is to the service.
    let mut networks: Vec<Vec<Network>> = (0..suite.parties()).map(|_| vec![]).collect();
    for _ in plans {
        let session =
            Network::in_memory(suite.parties(), &NetProfile::loopback(), ClockKind::Virtual, TIMEOUT);
        networks.iter_mut().zip(session).for_each(|(of, network)| of.push(network));
    }
    let walked: Vec<Result<(), Error>> = std::thread::scope(|scope| {
        let parts: Vec<_> = networks
            .into_iter()
            .map(|networks| {
                let owners = &owners;
                scope.spawn(move || {
                    one_party(suite, plans, owners, world, &networks).inspect_err(|e| {
                        owners.fail();
                        let reason = e.to_string();
                        networks.iter().for_each(|network| drop(network.fail(&reason)));
                    })
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().expect("a party does not panic")).collect()
    });
    Ok(walked.into_iter().collect::<Result<(), Error>>()?)
}

fn one_party(
    suite: &Suite,
    plans: &[(&Plan, Options<'_>)],
    owners: &Owners,
    world: &Arc<World>,
    networks: &[Network],
) -> Result<(), Error> {
    let mut stored = Stored::new();
    for (number, ((plan, options), network)) in plans.iter().zip(networks).enumerate() {
        let device = Symbolic::new(network.me(), world.clone());
        let mut party = Party::start(network.clone(), device.clone())?;
        party.probe(Arc::new(Session { world: world.clone(), number: number as u32 }));
        let mut clients = Both { suite, plan, number, device: &device, owners, counts: HashMap::new() };
        serve(suite, plan, &mut party, &mut stored, None, &mut clients, *options)?;
    }
    Ok(())
}

/// The plan that keeps what these read and none of them has kept before, if there is such: it takes
/// it from an owner.
fn kept_before(plans: &[Plan]) -> Option<Plan> {
    let mut before = Plan::new(plans.first()?.ring);
    let mut there: HashSet<&str> = HashSet::new();
    for plan in plans {
        let missing = plan.inputs.iter().filter(|input| input.owner == KEPT);
        for input in missing.filter(|input| !there.contains(input.name.as_str())).collect::<Vec<_>>() {
            let value = plan.value(input.value);
            let megrez_plan::Kind::Ring { frac } = value.kind else { continue };
            let value = before.input(&input.name, "owner of what is kept", value.shape.clone(), frac);
            before.output(&input.name, KEPT, value);
            there.insert(&input.name);
        }
        let kept = plan.outputs.iter().filter(|output| output.recipient == KEPT);
        there.extend(kept.map(|output| output.name.as_str()));
    }
    (!before.inputs.is_empty()).then_some(before)
}

/// The input-mask keys that owners have got, and what they send.
#[derive(Default)]
struct Owners {
    state: Mutex<OwnersState>,
    more: Condvar,
}

#[derive(Default)]
struct OwnersState {
    mask_keys: HashMap<Occasion, [Option<Vec<u8>>; 3]>,
    shares: HashMap<Occasion, (Vec<Payload>, Vec<Rows>)>,
    failed: bool,
}

impl Owners {
    fn fail(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.more.notify_all();
    }
}

/// One time that an owner shares an input: in which session, which input, for the how-manieth time.
type Occasion = (usize, String, u32);

/// A party's way to the clients, who stand on both sides.
struct Both<'a> {
    suite: &'a Suite,
    plan: &'a Plan,
    number: usize,
    device: &'a Symbolic,
    owners: &'a Owners,
    /// How often something has been said about an input or an output.
    counts: HashMap<(&'static str, String), u32>,
}

impl Both<'_> {
    /// How often this was called before for the same.
    fn count(&mut self, what: &'static str, name: &str) -> u32 {
        let count = self.counts.entry((what, name.to_owned())).or_default();
        *count += 1;
        *count - 1
    }

    /// What the owner of an input sends, once it has all input-mask keys.
    fn shares(&self, input: &Input, mask_keys: &[Vec<u8>]) -> Result<(Vec<Payload>, Vec<Rows>), Error> {
        let n = self.plan.value(input.value).shape.elements();
        let payloads = self.suite.share(mask_keys, &vec![0; n])?;
        // The keys that mask it: the input-mask keys', or those that the owner draws and sends
        // ahead of the words.
        let words = n * self.suite.ring() as usize / 8;
        let mut keys: Vec<Key> = vec![];
        let mut add = |bytes: &[u8]| {
            for key in bytes.chunks_exact(32) {
                let key: [u8; 32] = key.try_into().expect("32 bytes");
                if keys.iter().all(|k| *k.expose() != key) {
                    keys.push(Key::from_bytes(key));
                }
            }
        };
        match mask_keys.iter().any(|mask_key| !mask_key.is_empty()) {
            true => mask_keys.iter().for_each(|mask_key| add(mask_key)),
            false => {
                let ahead =
                    payloads.iter().filter(|p| p.len() > words && (p.len() - words).is_multiple_of(32));
                ahead.for_each(|p| add(&p.as_bytes()[..p.len() - words]));
            }
        }
        let world = &self.device.world;
        let draws =
            |keys: &[Key]| -> Vec<Rows> { keys.iter().map(|key| world.drawn_by_client(key, n)).collect() };
        let value = world.input(&input.name, &input.owner);
        // Without keys the owner sends words that it draws, and to the next party what is left of
        // the value.
        let rows = match keys.as_slice() {
            [] => {
                let drawn = draws(&[Key::random().map_err(|e| Error::Randomness(e.to_string()))?]);
                vec![shared_input(Deps::default(), &drawn, n), shared_input(value, &drawn, n)]
            }
            keys => vec![shared_input(value, &draws(keys), n); 3],
        };
        Ok((payloads, rows))
    }
}

impl Clients for Both<'_> {
    fn mask_key(&mut self, input: &Input, mask_key: Vec<u8>) -> Result<(), Error> {
        let occasion = (self.number, input.name.clone(), self.count("mask key", &input.name));
        let mut state = self.owners.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.mask_keys.entry(occasion).or_default()[self.device.me] = Some(mask_key);
        self.owners.more.notify_all();
        Ok(())
    }

    fn data(&mut self, input: &Input, _: usize) -> Result<Payload, Error> {
        let time = self.count("data", &input.name);
        let key = (self.number, input.name.clone(), time);
        let state = self.owners.state.lock().unwrap_or_else(PoisonError::into_inner);
        let complete = |state: &mut OwnersState| {
            !state.failed && !state.mask_keys.get(&key).is_some_and(|t| t.iter().all(Option::is_some))
        };
        let (mut state, _) = (self.owners.more.wait_timeout_while(state, TIMEOUT, complete))
            .unwrap_or_else(PoisonError::into_inner);
        let mask_keys: Option<Vec<Vec<u8>>> =
            state.mask_keys.get(&key).and_then(|mask_keys| mask_keys.iter().cloned().collect());
        let Some(mask_keys) = mask_keys else {
            return Err(Error::Refused("another party failed before it gave its input-mask key".into()));
        };
        if !state.shares.contains_key(&key) {
            let shares = self.shares(input, &mask_keys)?;
            state.shares.insert(key.clone(), shares);
        }
        let (payloads, rows) = &state.shares[&key];
        let payload = payloads[self.device.me].clone();
        let name = Name {
            parties: [usize::MAX, self.device.me],
            phase: Phase::Input,
            run: self.number as u32 * RUNS + time,
            place: format!("input/{}", input.name),
            label: "share".into(),
        };
        self.device.expect(rows.get(self.device.me).map(|rows| (name, rows.clone())));
        Ok(payload)
    }

    fn output(&mut self, output: &Output, share: Payload) -> Result<(), Error> {
        let (me, time) = (self.device.me, self.count("output", &output.name));
        match self.device.take_given() {
            Some(rows) if !share.is_empty() => {
                let name = Name {
                    parties: [me, usize::MAX],
                    phase: Phase::Output,
                    run: self.number as u32 * RUNS + time,
                    place: format!("output/{}", output.name),
                    label: "share".into(),
                };
                self.device.world.reveal(name, &output.recipient, &output.name, rows);
            }
            _ => {}
        }
        Ok(())
    }
}
