//! All parties of a session in this process, over links in memory: so that the tests of a step
//! stand below its code, and need no engine.

use crate::{Call, Cost, Operands, Suite};
use megrez_kernels::Reference;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_plan::{Op, Plan, Value, ValueId};
use megrez_ring::Word;
use megrez_session::{Error, Party, Phase};
use std::time::Duration;

/// The phases in which a step sends.
const PHASES: [Phase; 2] = [Phase::Offline, Phase::Online];

/// The parties that a suite takes, and one client, who owns every input and learns every output.
pub struct World<S>(S);

/// What one party knows of a value.
type Slot<S> = (Option<<S as crate::Sharing>::Masks>, Option<<S as crate::Sharing>::Data>);

/// What a party has after the offline phase: itself, what it knows of every value, the material of
/// every step, and its input-mask keys.
struct Prepared<S: Suite> {
    party: Party<S::Device>,
    values: Vec<Slot<S>>,
    materials: Vec<Option<S::Material>>,
    mask_keys: Vec<Vec<u8>>,
}

/// Runs a closure for every item, each in a thread.
fn each<I: Send, R: Send>(items: Vec<I>, work: impl Fn(I) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

/// The parties of a session, in memory and under virtual time.
fn parties(count: usize) -> Vec<Network> {
    Network::in_memory(count, &NetProfile::loopback(), ClockKind::Virtual, Duration::from_secs(20))
}

impl<S: Suite<Device: Default>> World<S> {
    /// A world of this suite.
    pub fn new(suite: S) -> Self {
        World(suite)
    }

    /// The result of one step on ring values of one dimension with `frac` fraction bits.
    ///
    /// # Panics
    /// As [`World::run`].
    pub fn step(&self, op: Op, frac: u32, inputs: &[&[u64]]) -> Vec<u64> {
        let mut plan = Plan::new(S::Word::BITS);
        let ids: Vec<ValueId> = (inputs.iter().enumerate())
            .map(|(i, x)| plan.input(&format!("x{i}"), "owner", [x.len()].into(), frac))
            .collect();
        let z = plan.step("step", op, &ids).unwrap();
        plan.output("z", "owner", z);
        self.run(&plan, inputs).remove(0)
    }

    /// Runs a plan on the words of its inputs, step by step; the words of its outputs. What every
    /// party sends in every step is held to the step's formula.
    ///
    /// # Panics
    /// If a party fails, or sends something else.
    pub fn run(&self, plan: &Plan, inputs: &[&[u64]]) -> Vec<Vec<u64>> {
        let prepared = each(parties(S::PARTIES), |network| self.prepare(plan, network).unwrap());
        let mask_keys =
            |input: usize| prepared.iter().map(|p| p.mask_keys[input].clone()).collect::<Vec<_>>();
        let shares: Vec<Vec<_>> = (inputs.iter().enumerate())
            .map(|(i, words)| {
                let words: Vec<S::Word> = words.iter().map(|&w| S::Word::from_u64(w)).collect();
                self.0.share(&mask_keys(i), &words).unwrap()
            })
            .collect();
        let ended = each(prepared, |prepared| {
            let me = prepared.party.me();
            let shares = shares.iter().map(|of_input| of_input[me].clone()).collect();
            self.compute(plan, prepared, shares).unwrap()
        });
        self.check_meters(plan, &ended.iter().map(|(party, _)| party).collect::<Vec<_>>());
        let output = |(i, output): (usize, &megrez_plan::Output)| {
            let messages: Vec<_> = ended.iter().map(|(_, sent)| sent[i].clone()).collect();
            let words = self.0.reconstruct(plan.value(output.value), &messages).unwrap();
            words.into_iter().map(Word::to_u64).collect()
        };
        plan.outputs.iter().enumerate().map(output).collect()
    }

    /// The offline phase at one party.
    fn prepare(&self, plan: &Plan, network: Network) -> Result<Prepared<S>, Error> {
        let mut party = Party::start(network, S::Device::default())?;
        party.enter(Phase::Offline, 0);
        let mut values: Vec<Slot<S>> = plan.values.iter().map(|_| (None, None)).collect();
        let (mut mask_keys, mut materials) = (vec![], vec![]);
        for input in &plan.inputs {
            let name = format!("input/{}", input.name);
            let (masks, mask_key) =
                party.step(&name, |party| self.0.input(party, plan.value(input.value)))?;
            values[input.value.0 as usize].0 = Some(masks);
            mask_keys.push(mask_key);
        }
        for step in &plan.steps {
            let types = types(plan, &step.inputs);
            let call = Call { op: &step.op, inputs: &types, output: plan.value(step.output) };
            let masks: Vec<_> = step.inputs.iter().map(|i| values[i.0 as usize].0.as_ref()).collect();
            let drawn = party.step(&step.name, |party| self.0.masks(party, call, &masks))?;
            let known: Option<Vec<_>> = masks.into_iter().collect();
            materials.push(match known {
                Some(known) => {
                    let of = |party: &mut _| self.0.offline(party, call, &known, drawn.as_ref());
                    Some(party.step(&step.name, of)?)
                }
                None => None,
            });
            values[step.output.0 as usize].0 = drawn;
        }
        Ok(Prepared { party, values, materials, mask_keys })
    }

    /// The online phase at one party, and its messages to the recipient of the outputs.
    fn compute(
        &self,
        plan: &Plan,
        prepared: Prepared<S>,
        shares: Vec<megrez_net::Payload>,
    ) -> Result<(Party<S::Device>, Vec<megrez_net::Payload>), Error> {
        let Prepared { mut party, mut values, materials, .. } = prepared;
        for (input, share) in plan.inputs.iter().zip(shares) {
            values[input.value.0 as usize].1 = Some(self.0.accept(&party, plan.value(input.value), share)?);
        }
        party.enter(Phase::Online, 0);
        for (step, material) in plan.steps.iter().zip(materials) {
            let types = types(plan, &step.inputs);
            let call = Call { op: &step.op, inputs: &types, output: plan.value(step.output) };
            let of = |i: &ValueId| match &values[i.0 as usize] {
                (Some(masks), Some(data)) => (masks, data),
                _ => panic!("a plan defines values before their use"),
            };
            let inputs: Vec<_> = step.inputs.iter().map(of).collect();
            let drawn = values[step.output.0 as usize].0.clone();
            let (data, masks) = party.step(&step.name, |party| {
                let (material, masks) = match material {
                    Some(material) => (material, drawn),
                    // Masks of inputs were not known before.
                    None => {
                        let known: Vec<_> = inputs.iter().map(|(masks, _)| *masks).collect();
                        let all: Vec<_> = known.iter().copied().map(Some).collect();
                        let masks = match drawn {
                            Some(masks) => Some(masks),
                            None => self.0.masks(party, call, &all)?,
                        };
                        (self.0.offline(party, call, &known, masks.as_ref())?, masks)
                    }
                };
                let operands = Operands { inputs: &inputs, masks: masks.as_ref() };
                let (data, deferred) = self.0.online(party, call, operands, material)?;
                Ok((data, deferred.or(masks)))
            })?;
            values[step.output.0 as usize] = (masks, Some(data));
        }
        let verified = self.0.verify(&mut party)?;
        party.enter(Phase::Output, 0);
        let mut sent = vec![];
        for output in &plan.outputs {
            let (Some(masks), Some(data)) = &values[output.value.0 as usize] else {
                panic!("a plan defines what it outputs")
            };
            let name = format!("output/{}", output.name);
            sent.push(party.step(&name, |party| self.0.reveal(party, masks, data, &verified))?);
        }
        Ok((party, sent))
    }

    /// Compares what was sent with the formulas, per step, phase and pair of parties.
    fn check_meters(&self, plan: &Plan, parties: &[&Party<S::Device>]) {
        let mut deferred = vec![false; plan.values.len()];
        for step in &plan.steps {
            let types = types(plan, &step.inputs);
            let call = Call { op: &step.op, inputs: &types, output: plan.value(step.output) };
            let deferred_inputs = step.inputs.iter().any(|i| deferred[i.0 as usize]);
            deferred[step.output.0 as usize] = self.0.deferred(call, deferred_inputs);
            let cost = self.0.cost(call).unwrap();
            let cost: Cost = if deferred_inputs { cost.made_online() } else { cost };
            for (phase, from) in PHASES.into_iter().flat_map(|phase| (0..S::PARTIES).map(move |p| (phase, p)))
            {
                let readings = parties[from].meter().readings();
                let reading = readings.iter().find(|r| r.phase == phase && r.step == step.name);
                for to in 0..S::PARTIES {
                    let sent = reading.map_or(0, |r| r.sent[to]);
                    let stated = cost.bytes(phase, from, to);
                    assert_eq!(sent, stated, "step `{}`, {phase:?}: bytes from {from} to {to}", step.name);
                }
            }
        }
    }
}

fn types<'a>(plan: &'a Plan, inputs: &[ValueId]) -> Vec<&'a Value> {
    inputs.iter().map(|&i| plan.value(i)).collect()
}

/// Runs three parties in the online phase, each in a thread, and returns what they return.
pub fn session<T: Send>(party: impl Fn(&mut Party<Reference>) -> T + Sync) -> Vec<T> {
    each(parties(3), |network| {
        let mut started = Party::start(network, Reference).unwrap();
        started.enter(Phase::Online, 0);
        party(&mut started)
    })
}
