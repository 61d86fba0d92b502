//! In which order the steps of a plan run, the same at all parties.

use crate::steps::{interactive, step_cost};
use megrez_kernels::Device;
use megrez_plan::{Plan, ValueId};
use megrez_protocols::AnySuite;
use megrez_session::Phase;
use std::collections::{BTreeSet, HashMap};

/// The order of the online phase, the same at all parties: parts, one after the other.
///
/// Every local step runs as soon as its inputs are there, by itself; when only interactive steps
/// are left, all that can run make one wave, a lane each. A lane goes on with steps that wait for
/// nothing else, while it takes no more rounds than the longest step of the wave: a look-up and its
/// truncation run beside a comparison.
///
/// A wave of small steps is a part: what it takes is delays, and all of its lanes wait for the
/// same. Waves of large ones follow each other in one part, and no lane waits for a wave to end:
/// what follows from the first slice runs while messages of the last are under way.
pub(crate) fn parts<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut makers: HashMap<ValueId, usize> = HashMap::new();
    for (wave, lanes) in waves(suite, plan).into_iter().enumerate() {
        let large = |step: &usize| plan.value(plan.steps[*step].output).shape.elements() >= IN_TURN;
        let in_turn = lanes.iter().flatten().any(large);
        let local = matches!(lanes.as_slice(), [lane] if matches!(lane.as_slice(), [step] if !interactive(suite, plan, &plan.steps[*step])));
        match parts.last() {
            Some(part) if part.in_turn && (in_turn || local) => {}
            _ => {
                parts.push(Part { lanes: vec![], in_turn });
                makers.clear();
            }
        }
        let part = parts.last_mut().expect("one was made");
        for steps in lanes {
            let inputs = steps.iter().flat_map(|&step| &plan.steps[step].inputs);
            let after: BTreeSet<usize> = inputs.filter_map(|input| makers.get(input).copied()).collect();
            makers.extend(steps.iter().map(|&step| (plan.steps[step].output, part.lanes.len())));
            part.lanes.push(Lane { steps, after: after.into_iter().collect(), wave });
        }
    }
    parts
}

/// Lanes that begin when those before them have ended.
pub(crate) struct Part {
    pub(crate) lanes: Vec<Lane>,
    /// The lanes take turns.
    pub(crate) in_turn: bool,
}

/// Steps one after the other.
pub(crate) struct Lane {
    pub(crate) steps: Vec<usize>,
    /// The lanes before it in its part whose values it reads.
    pub(crate) after: Vec<usize>,
    /// Which wave of the plan's it belongs to.
    pub(crate) wave: usize,
}

/// Lanes take turns where one of their steps makes so many elements: its local work fills the
/// device, and its messages take longer than a delay.
const IN_TURN: usize = 1 << 16;

/// Waves of lanes of steps.
fn waves<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan) -> Vec<Vec<Vec<usize>>> {
    let mut order = Order::of(suite, plan);
    let mut waves = Vec::new();
    loop {
        while let Some(step) = order.local.pop_first() {
            waves.push(vec![vec![step]]);
            order.made(step);
        }
        let mut wave: Vec<Vec<usize>> =
            std::mem::take(&mut order.interactive).into_iter().map(|step| vec![step]).collect();
        match wave.len() {
            0 => return waves,
            1 => {}
            _ => order.lengthen(suite, &mut wave),
        }
        wave.iter().flatten().for_each(|&step| order.made(step));
        waves.push(wave);
    }
}

/// Which steps can run, as values come to be there.
struct Order<'a> {
    plan: &'a Plan,
    /// The steps that read a value, until it is there.
    readers: Vec<Vec<usize>>,
    /// How many inputs a step still waits for; one that is read twice counts twice.
    missing: Vec<usize>,
    there: Vec<bool>,
    /// Steps of a lane, which run when it comes to them.
    placed: Vec<bool>,
    /// Steps that can run, in the plan's order: those that send nothing, and the others.
    local: BTreeSet<usize>,
    interactive: BTreeSet<usize>,
    sends: Vec<bool>,
}

impl<'a> Order<'a> {
    fn of<D: Device>(suite: &dyn AnySuite<D>, plan: &'a Plan) -> Self {
        let mut readers = vec![vec![]; plan.values.len()];
        for (index, step) in plan.steps.iter().enumerate() {
            step.inputs.iter().for_each(|i| readers[i.0 as usize].push(index));
        }
        let mut order = Order {
            plan,
            readers,
            missing: plan.steps.iter().map(|step| step.inputs.len()).collect(),
            there: vec![false; plan.values.len()],
            placed: vec![false; plan.steps.len()],
            local: BTreeSet::new(),
            interactive: BTreeSet::new(),
            sends: plan.steps.iter().map(|step| interactive(suite, plan, step)).collect(),
        };
        let free: Vec<usize> = (0..plan.steps.len()).filter(|&step| order.missing[step] == 0).collect();
        free.into_iter().for_each(|step| order.ready(step));
        plan.inputs.iter().for_each(|input| order.is_there(input.value));
        order
    }

    fn ready(&mut self, step: usize) {
        let ready = if self.sends[step] { &mut self.interactive } else { &mut self.local };
        ready.insert(step);
    }

    fn is_there(&mut self, value: ValueId) {
        if std::mem::replace(&mut self.there[value.0 as usize], true) {
            return;
        }
        for step in std::mem::take(&mut self.readers[value.0 as usize]) {
            self.missing[step] -= 1;
            if self.missing[step] == 0 && !self.placed[step] {
                self.ready(step);
            }
        }
    }

    fn made(&mut self, step: usize) {
        self.is_there(self.plan.steps[step].output);
    }

    /// Gives the lanes of a wave the steps that wait for one lane only and fit beside its longest
    /// step.
    fn lengthen<D: Device>(&mut self, suite: &dyn AnySuite<D>, wave: &mut [Vec<usize>]) {
        let plan = self.plan;
        let rounds = |index: usize| {
            step_cost(suite, plan, &plan.steps[index]).map_or(u32::MAX, |cost| cost.rounds(Phase::Online))
        };
        let mut spent: Vec<u32> = wave.iter().map(|lane| rounds(lane[0])).collect();
        let longest = spent.iter().copied().max().unwrap_or(0);
        let mut waiting: HashMap<usize, FromLanes> = HashMap::new();
        let mut next = BTreeSet::new();
        for (lane, steps) in wave.iter().enumerate() {
            self.made_in(lane, steps[0], &mut waiting, &mut next);
        }
        while let Some(index) = next.pop_first() {
            let FromLanes { lane, several, .. } = waiting[&index];
            if !several && spent[lane].saturating_add(rounds(index)) <= longest {
                spent[lane] += rounds(index);
                wave[lane].push(index);
                self.placed[index] = true;
                self.made_in(lane, index, &mut waiting, &mut next);
            }
        }
    }

    /// A lane makes a step's output: what waits for nothing else may come `next` in it.
    fn made_in(
        &self,
        lane: usize,
        step: usize,
        waiting: &mut HashMap<usize, FromLanes>,
        next: &mut BTreeSet<usize>,
    ) {
        for &reader in &self.readers[self.plan.steps[step].output.0 as usize] {
            let from = waiting.entry(reader).or_insert(FromLanes { lane, several: false, inputs: 0 });
            from.several |= from.lane != lane;
            from.inputs += 1;
            if from.inputs == self.missing[reader] {
                next.insert(reader);
            }
        }
    }
}

/// What of a step's inputs the lanes of a wave make.
struct FromLanes {
    /// The first lane that makes one.
    lane: usize,
    /// Another one does, too.
    several: bool,
    /// How many.
    inputs: usize,
}

/// The most steps of a wave of the offline phase, and the most elements that they make: a wave
/// hides delays, which no longer matter where much is sent, and what is under way takes memory.
const OFFLINE_STEPS: usize = 64;
const OFFLINE_ELEMENTS: usize = 1 << 21;

/// The order of the offline phase, the same at all parties: masks are there, so no step waits for
/// another, and interactive steps run beside each other in waves, in the plan's order. Steps that
/// are not are waves of their own.
pub(crate) fn offline_waves<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan) -> Vec<Vec<usize>> {
    let (mut waves, mut wave, mut elements) = (vec![], vec![], 0);
    for (index, step) in plan.steps.iter().enumerate() {
        if !step_cost(suite, plan, step).is_none_or(|c| c.transfers.iter().any(|t| t.phase == Phase::Offline))
        {
            waves.push(vec![index]);
            continue;
        }
        let size = plan.value(step.output).shape.elements();
        if wave.len() == OFFLINE_STEPS || !wave.is_empty() && elements + size > OFFLINE_ELEMENTS {
            waves.push(std::mem::take(&mut wave));
            elements = 0;
        }
        wave.push(index);
        elements += size;
    }
    if !wave.is_empty() {
        waves.push(wave);
    }
    waves
}
