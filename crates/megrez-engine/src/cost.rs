//! What a plan costs under a protocol, before it runs.

use crate::memory::{Timed, peak};
use crate::steps::{call, types};
use crate::waves::{offline_waves, parts};
use megrez_kernels::Device;
use megrez_net::NetProfile;
use megrez_plan::Plan;
use megrez_protocols::{AnySuite, Clocks, Cost, Path, Wires, last, later};
use megrez_session::Phase;
use std::collections::HashMap;
use std::sync::Arc;

/// The steps of a plan that a protocol does not have, all at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the protocol cannot run {} steps of this plan:{}", .0.len(), .0.iter().map(|(step, why)| format!("\n  {step}: {why}")).collect::<String>())]
pub struct Unsupported(pub Vec<(String, String)>);

/// The cost of one step.
#[derive(Clone, Debug)]
pub struct StepCost {
    /// The step.
    pub name: String,
    /// Its formula.
    pub cost: Cost,
    /// Steps of one wave run beside each other offline; waves follow each other.
    pub offline_wave: usize,
    /// The part of the online phase that it belongs to; parts follow each other.
    pub online_part: usize,
    /// The lane in its part: the steps of one lane follow each other.
    pub online_lane: usize,
    /// The lanes of the part that its lane waits for.
    pub online_after: Arc<[usize]>,
}

/// The cost of a plan.
#[derive(Clone, Debug)]
pub struct PlanCost {
    /// Every step, in order.
    pub steps: Vec<StepCost>,
    /// Bytes that each party holds at most in a run: values, masks and correlated randomness, with
    /// those of stored inputs.
    pub memory: Vec<u64>,
}

impl PlanCost {
    /// Bytes from one party to another in a phase.
    pub fn bytes(&self, phase: Phase, from: usize, to: usize) -> u64 {
        self.steps.iter().map(|s| s.cost.bytes(phase, from, to)).sum()
    }

    /// Rounds of the critical path of a phase.
    pub fn rounds(&self, phase: Phase) -> u32 {
        self.critical_path(phase, &NetProfile::loopback()).rounds
    }

    /// Rounds and network seconds of the critical path of a phase over links of this kind.
    pub fn critical_path(&self, phase: Phase, net: &NetProfile) -> Path {
        let mut wires =
            Wires::new(net.delay_ns() as f64 * 1e-9, |bytes| net.transmit_ns(bytes) as f64 * 1e-9);
        let mut clocks = Clocks::default();
        // A step's place: its part, or wave, and the lane in it.
        let place = |(i, step): &(usize, &StepCost)| match phase {
            Phase::Online => (step.online_part, step.online_lane),
            _ => (step.offline_wave, *i),
        };
        let mut steps: Vec<(usize, &StepCost)> = self.steps.iter().enumerate().collect();
        steps.sort_by_key(place);
        for part in steps.chunk_by(|a, b| place(a).0 == place(b).0) {
            let (begin, mut ended) = (clocks.clone(), HashMap::new());
            for lane in part.chunk_by(|a, b| place(a) == place(b)) {
                let after = if phase == Phase::Online { &*lane[0].1.online_after } else { &[] };
                let start = after.iter().fold(begin.clone(), |clocks, before| later(&clocks, &ended[before]));
                let end =
                    lane.iter().fold(start, |clocks, (_, step)| wires.advance(&clocks, &step.cost, phase));
                clocks = later(&clocks, &end);
                ended.insert(place(&lane[0]).1, end);
            }
        }
        last(&clocks)
    }
    /// Bits over all parties in a phase, without the rounding of messages.
    pub fn bits(&self, phase: Phase) -> f64 {
        self.steps.iter().map(|s| s.cost.bits(phase)).sum()
    }
}

/// Prices every step, or lists all that the protocol lacks.
pub fn check<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan) -> Result<PlanCost, Unsupported> {
    let mut steps = Vec::new();
    let mut missing = Vec::new();
    let mut deferred = vec![false; plan.values.len()];
    let mut spends = Vec::new();
    for step in &plan.steps {
        let deferred_inputs = step.inputs.iter().any(|i| deferred[i.0 as usize]);
        let types = types(plan, step);
        let call = call(plan, step, &types);
        deferred[step.output.0 as usize] = suite.deferred(call, deferred_inputs);
        spends.push(!deferred_inputs && !suite.reads_masks(call));
        match suite.cost(call) {
            Ok(cost) => {
                let cost = if deferred_inputs { cost.made_online() } else { cost };
                steps.push(StepCost {
                    name: step.name.clone(),
                    cost,
                    offline_wave: 0,
                    online_part: 0,
                    online_lane: 0,
                    online_after: Arc::default(),
                });
            }
            Err(why) => missing.push((step.name.clone(), why.to_string())),
        }
    }
    if !missing.is_empty() {
        return Err(Unsupported(missing));
    }
    let mut online_waves = vec![0; plan.steps.len()];
    for (online_part, part) in parts(suite, plan).into_iter().enumerate() {
        for (online_lane, lane) in part.lanes.into_iter().enumerate() {
            let online_after: Arc<[usize]> = lane.after.into();
            for step in lane.steps {
                online_waves[step] = lane.wave;
                let online_after = Arc::clone(&online_after);
                let cost = &mut steps[step];
                (cost.online_part, cost.online_lane, cost.online_after) =
                    (online_part, online_lane, online_after);
            }
        }
    }
    for (wave, members) in offline_waves(suite, plan).into_iter().enumerate() {
        members.into_iter().for_each(|step| steps[step].offline_wave = wave);
    }
    let timed: Vec<Timed<'_>> = steps
        .iter()
        .zip(spends.into_iter().zip(online_waves))
        .map(|(StepCost { cost, offline_wave, .. }, (spends, online_wave))| Timed {
            cost,
            spends,
            offline_wave: *offline_wave,
            online_wave,
        })
        .collect();
    let memory = (0..suite.parties()).map(|me| peak(plan, &timed, me, suite.words_held(me))).collect();
    Ok(PlanCost { steps, memory })
}
