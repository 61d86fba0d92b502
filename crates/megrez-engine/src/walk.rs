//! The two walks over a plan.

use crate::report::StepReport;
use megrez_kernels::Device;
use megrez_plan::{KEPT, Plan, Step, Value, ValueId};
use megrez_protocols::{AnyData, AnyMasks, AnyMaterial, AnyOperands, AnySuite, AnyValue, Call, Cost};
use megrez_session::{Error, Party, Phase};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What the offline phase leaves at one party: masks of all values and material of all steps.
pub struct Prepared {
    /// Per value of the plan; `None` where they are known online only.
    pub(crate) masks: Vec<Option<AnyMasks>>,
    /// Per step of the plan; `None` where it can be made online only.
    pub(crate) materials: Vec<Option<AnyMaterial>>,
    /// Per input of the plan: the input-mask key for its owner; empty for a stored input.
    pub(crate) mask_keys: Zeroizing<Vec<Vec<u8>>>,
}

/// The values that a party holds after the online phase: those that the plan outputs.
pub struct Values {
    /// Masks and data per value of the plan, where kept.
    pub(crate) values: Vec<Option<AnyValue>>,
}

impl Values {
    /// A kept value.
    pub(crate) fn get(&self, id: ValueId) -> (&AnyMasks, &AnyData) {
        let (masks, data) = self.values[id.0 as usize].as_ref().expect("outputs are kept");
        (masks, data)
    }
}

/// The offline phase of run `run`: all masks first, then what is made of them, wave by wave.
/// `given` are the masks of inputs that are stored already.
pub fn offline<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    run: u32,
    given: &dyn Fn(&str) -> Option<AnyMasks>,
    report: &mut Vec<StepReport>,
) -> Result<Prepared, Error> {
    if !party.device().has_ring(suite.ring()) {
        let device = party.device().describe();
        return party.refuse(format!(
            "{device} has no kernels for a ring of {} bits: use one of 32 or 64, or the processor",
            suite.ring()
        ));
    }
    party.enter(Phase::Offline, run);
    let mut masks: Vec<Option<AnyMasks>> = plan.values.iter().map(|_| None).collect();
    let mut mask_keys = Vec::new();
    for input in &plan.inputs {
        let (mask, mask_key) = match given(&input.name) {
            Some(mask) => (mask, vec![]),
            None if input.owner == KEPT => {
                return party.refuse(format!(
                    "input `{}` is kept by no earlier run of this client: run the plan that keeps it first, on the \
                     same connection",
                    input.name
                ));
            }
            None => {
                party.step(&format!("input/{}", input.name), |p| suite.input(p, plan.value(input.value)))?
            }
        };
        masks[input.value.0 as usize] = Some(mask);
        mask_keys.push(mask_key);
    }
    for step in &plan.steps {
        let inputs: Vec<Option<&AnyMasks>> =
            step.inputs.iter().map(|i| masks[i.0 as usize].as_ref()).collect();
        let types = types(plan, step);
        let call = call(plan, step, &types);
        let drawn = party.step(&step.name, |party| suite.masks(party, call, &inputs))?;
        masks[step.output.0 as usize] = drawn;
    }
    let make = |party: &mut Party<D>, index: usize| {
        let step = &plan.steps[index];
        let inputs = step.inputs.iter().map(|i| masks[i.0 as usize].as_ref()).collect::<Option<Vec<_>>>();
        let output = masks[step.output.0 as usize].as_ref();
        let types = types(plan, step);
        party.step(&step.name, |party| match inputs {
            Some(inputs) => suite.offline(party, call(plan, step, &types), &inputs, output).map(Some),
            None => Ok(None),
        })
    };
    let mut made: Vec<_> = plan.steps.iter().map(|_| None).collect();
    for wave in offline_waves(suite, plan) {
        for (index, lane) in wave.iter().zip(together(party, wave.clone(), make)) {
            let name = &plan.steps[*index].name;
            let report = StepReport::new(Phase::Offline, name, lane.time, &lane.party);
            made[*index] = Some((lane.result?, report));
        }
    }
    let mut materials = Vec::new();
    for (material, step) in made.into_iter().map(|made| made.expect("every step is in a wave")) {
        materials.push(material);
        report.push(step);
    }
    Ok(Prepared { masks, materials, mask_keys: mask_keys.into() })
}

/// The online phase of run `run`, on the data of the plan's inputs in order, wave by wave: the
/// lanes of a wave do not depend on each other and run in threads beside each other. Values are
/// dropped after their last use.
pub fn online<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    run: u32,
    prepared: Prepared,
    inputs: Vec<AnyData>,
    report: &mut Vec<StepReport>,
) -> Result<Values, Error> {
    party.enter(Phase::Online, run);
    let Prepared { masks, materials, .. } = prepared;
    let mut values: Vec<Slot> = masks.into_iter().map(|masks| Slot { masks, data: None }).collect();
    let mut materials: Vec<Option<AnyMaterial>> = materials;
    for (input, value) in plan.inputs.iter().zip(inputs) {
        values[input.value.0 as usize].data = Some(value);
    }
    let mut readers = readers(plan);
    for wave in waves(suite, plan) {
        let taken: Vec<Vec<_>> = wave
            .iter()
            .map(|lane| lane.iter().map(|&index| (index, materials[index].take())).collect())
            .collect();
        let lanes = together(party, taken, |party, lane| one_lane(suite, plan, party, lane, &values));
        for (members, lane) in wave.into_iter().zip(lanes) {
            for (index, (made, step_report)) in members.into_iter().zip(lane.result?) {
                report.push(step_report);
                let step = &plan.steps[index];
                values[step.output.0 as usize] = made;
                for i in &step.inputs {
                    let left = &mut readers[i.0 as usize];
                    *left -= 1;
                    if *left == 0 {
                        values[i.0 as usize] = Slot { masks: None, data: None };
                    }
                }
            }
        }
    }
    Ok(Values { values: values.into_iter().map(|slot| Some((slot.masks?, slot.data?))).collect() })
}

/// The order of the online phase, the same at all parties: waves of lanes of steps. Every local
/// step runs as soon as its inputs are there, by itself; when only interactive steps are left, all
/// that can run make one wave, a lane each. A lane goes on with steps that wait for nothing else,
/// while it takes no more rounds than the longest step of the wave: a look-up and its truncation
/// run beside a comparison.
pub(crate) fn waves<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan) -> Vec<Vec<Vec<usize>>> {
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

/// A value during the online walk.
struct Slot {
    masks: Option<AnyMasks>,
    data: Option<AnyData>,
}

/// What a lane made, how long it took, and where it ended.
struct Lane<D: Device, R> {
    party: Party<D>,
    /// When it began, and how long it took.
    time: (Instant, Duration),
    result: R,
}

/// Runs `work` on every item as lanes in threads beside each other, and joins them: the results in
/// order.
fn together<D: Device, I: Send, R: Send>(
    party: &mut Party<D>,
    items: Vec<I>,
    work: impl Fn(&mut Party<D>, I) -> R + Sync,
) -> Vec<Lane<D, R>> {
    let run = |mut party: Party<D>, item: I| {
        let start = Instant::now();
        let result = work(&mut party, item);
        Lane { time: (start, start.elapsed()), party, result }
    };
    let start = Instant::now();
    let waiting: Vec<_> = items.into_iter().map(|item| Mutex::new(Some((party.lane(), item)))).collect();
    let take = |waiting: &Mutex<Option<(Party<D>, I)>>| {
        let (lane, item) =
            waiting.lock().unwrap_or_else(PoisonError::into_inner).take().expect("a lane runs once");
        run(lane, item)
    };
    let lanes = match waiting.as_slice() {
        [one] => vec![take(one)],
        _ => std::thread::scope(|scope| {
            let take = &take;
            let spawn = |waiting| std::thread::Builder::new().spawn_scoped(scope, move || take(waiting));
            let running: Vec<_> = waiting.iter().map(spawn).collect();
            let ended = running.into_iter().zip(&waiting).map(|(lane, waiting)| match lane {
                Ok(lane) => lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // Without a thread it runs when those before it have ended.
                Err(_) => take(waiting),
            });
            ended.collect()
        }),
    };
    // All together worked as long as the busiest lane.
    let wall = start.elapsed();
    let busy = |lane: &Lane<D, R>| lane.time.1.saturating_sub(lane.party.waited());
    let waited = wall.saturating_sub(lanes.iter().map(busy).max().unwrap_or_default());
    lanes.iter().for_each(|lane| party.join(&lane.party));
    party.has_waited(waited);
    lanes
}

/// The steps of a lane one after the other, each on values of earlier waves or of the lane itself:
/// what they made.
fn one_lane<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    lane: Vec<(usize, Option<AnyMaterial>)>,
    values: &[Slot],
) -> Result<Vec<(Slot, StepReport)>, Error> {
    let mut made: Vec<(ValueId, Slot)> = Vec::with_capacity(lane.len());
    let mut reports = Vec::with_capacity(lane.len());
    for (index, material) in lane {
        let (step, start) = (&plan.steps[index], Instant::now());
        let slot = |id: ValueId| {
            let own = made.iter().find(|(value, _)| *value == id).map(|(_, slot)| slot);
            own.unwrap_or(&values[id.0 as usize])
        };
        let (data, masks) =
            party.step(&step.name, |party| one_step(suite, plan, party, step, material, &slot))?;
        reports.push(StepReport::new(Phase::Online, &step.name, (start, start.elapsed()), party));
        made.push((step.output, Slot { masks, data: Some(data) }));
    }
    Ok(made.into_iter().map(|(_, slot)| slot).zip(reports).collect())
}

/// A step's data and masks. What could not be made offline, because an input's masks were not
/// known, is made first.
fn one_step<'a, D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    step: &Step,
    material: Option<AnyMaterial>,
    slot: &dyn Fn(ValueId) -> &'a Slot,
) -> Result<(AnyData, Option<AnyMasks>), Error> {
    let inputs: Vec<(&AnyMasks, &AnyData)> =
        step.inputs.iter().map(|&i| (known(&slot(i).masks), known(&slot(i).data))).collect();
    let types = types(plan, step);
    let call = call(plan, step, &types);
    let drawn = &slot(step.output).masks;
    let (material, masks) = match material {
        Some(material) => (material, drawn.clone()),
        None => {
            let masks: Vec<&AnyMasks> = inputs.iter().map(|(masks, _)| *masks).collect();
            let all: Vec<Option<&AnyMasks>> = masks.iter().copied().map(Some).collect();
            let output_masks = match drawn {
                Some(_) => drawn.clone(),
                None => suite.masks(party, call, &all)?,
            };
            (suite.offline(party, call, &masks, output_masks.as_ref())?, output_masks)
        }
    };
    let operands = AnyOperands { inputs: &inputs, masks: masks.as_ref() };
    let (data, deferred) = suite.online(party, call, operands, material)?;
    Ok((data, deferred.or(masks)))
}

/// The types of a step's inputs.
pub(crate) fn types<'a>(plan: &'a Plan, step: &Step) -> Vec<&'a Value> {
    step.inputs.iter().map(|&i| plan.value(i)).collect()
}

/// A step as a suite sees it; `inputs` are the types of its inputs.
pub(crate) fn call<'a>(plan: &'a Plan, step: &'a Step, inputs: &'a [&'a Value]) -> Call<'a> {
    Call { op: &step.op, inputs, output: plan.value(step.output) }
}

/// What a step costs; `None` if the suite does not have it.
pub(crate) fn step_cost<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan, step: &Step) -> Option<Cost> {
    suite.cost(call(plan, step, &types(plan, step))).ok()
}

/// Whether a step sends anything, offline included: what an input's deferred masks put off is sent
/// online.
fn interactive<D: Device>(suite: &dyn AnySuite<D>, plan: &Plan, step: &Step) -> bool {
    step_cost(suite, plan, step).is_none_or(|cost| !cost.transfers.is_empty())
}

/// How many times each value is read; an output once more than its steps say, so that it stays.
pub(crate) fn readers(plan: &Plan) -> Vec<usize> {
    let mut readers = vec![0; plan.values.len()];
    plan.steps.iter().flat_map(|s| &s.inputs).for_each(|i| readers[i.0 as usize] += 1);
    plan.outputs.iter().for_each(|o| readers[o.value.0 as usize] += 1);
    readers
}

fn known<T>(slot: &Option<T>) -> &T {
    slot.as_ref().expect("a validated plan defines values before their use and drops them after the last")
}
