//! The two walks over a plan.

use crate::report::StepReport;
use crate::steps::{call, derived, producers, readers, types, unspent};
use crate::waves::{Lane, offline_waves, parts};
use megrez_kernels::Device;
use megrez_plan::{KEPT, Plan, Step, ValueId};
use megrez_protocols::{AnyData, AnyMasks, AnyMaterial, AnyOperands, AnySuite, AnyValue};
use megrez_session::{Error, Party, Phase, Turns};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What the offline phase leaves at one party: what the online phase needs of the masks of all
/// values, and material of all steps.
pub struct Prepared {
    /// Per value of the plan; `None` where they are known online only, or made once more there.
    pub(crate) masks: Vec<Option<AnyMasks>>,
    /// Per step of the plan; `None` where it can be made online only, or is nothing.
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

/// The offline phase of run `run`, wave by wave: masks, what is made of them, and when all of it is
/// made, what the online phase needs of them. `given` are the masks of inputs that are stored
/// already.
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
    let mut made: Vec<Option<(Option<AnyMaterial>, StepReport)>> = plan.steps.iter().map(|_| None).collect();
    let mut drawn = 0;
    let (mut unspent, producers) = (unspent(plan), producers(plan));
    for wave in offline_waves(suite, plan) {
        while drawn <= wave.iter().copied().max().unwrap_or(0) {
            let step = &plan.steps[drawn];
            let inputs: Vec<Option<&AnyMasks>> =
                step.inputs.iter().map(|i| masks[i.0 as usize].as_ref()).collect();
            let types = types(plan, step);
            let call = call(plan, step, &types);
            masks[step.output.0 as usize] =
                party.step(&step.name, |party| suite.masks(party, call, &inputs))?;
            drawn += 1;
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
        let lanes = wave.iter().map(|&index| (index, &[][..])).collect();
        for (index, (material, ended)) in wave.iter().zip(together(party, lanes, false, make)?) {
            let name = &plan.steps[*index].name;
            made[*index] = Some((material, StepReport::new(Phase::Offline, name, ended.time, &ended.party)));
        }
        for index in wave {
            let step = &plan.steps[index];
            let types = types(plan, step);
            // Without material it reads masks online.
            let is_made = made[index].as_ref().is_some_and(|(material, _)| material.is_some());
            if !is_made || suite.reads_masks(call(plan, step, &types)) {
                continue;
            }
            for &value in step.inputs.iter().chain([&step.output]) {
                let left = &mut unspent[value.0 as usize];
                *left -= 1;
                if *left > 0 {
                    continue;
                }
                let masks = &mut masks[value.0 as usize];
                if let Some(spent) = masks.as_ref().and_then(|masks| suite.spent(masks)) {
                    *masks = Some(spent);
                } else if let Some((material, _)) =
                    derived(plan, value, &producers).and_then(|step| made[step].as_mut())
                {
                    (*masks, *material) = (None, None);
                }
            }
        }
    }
    let mut materials = Vec::new();
    for (material, step) in made.into_iter().map(|made| made.expect("every step is in a wave")) {
        materials.push(material);
        report.push(step);
    }
    Ok(Prepared { masks, materials, mask_keys: mask_keys.into() })
}

/// The online phase of run `run`, on the data of the plan's inputs in order, part by part: lanes
/// run in threads beside each other, each as soon as what it reads is there. Values are dropped
/// after their last use.
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
    let Prepared { masks, mut materials, .. } = prepared;
    let mut slots: Vec<Slot> = masks.into_iter().map(|masks| Slot { masks, data: None }).collect();
    for (input, value) in plan.inputs.iter().zip(inputs) {
        slots[input.value.0 as usize].data = Some(value);
    }
    let values = Held::of(plan, slots);
    for part in parts(suite, plan) {
        let mut take =
            |lane: &Lane| lane.steps.iter().map(|&step| (step, materials[step].take())).collect::<Vec<_>>();
        let lanes = part.lanes.iter().map(|lane| (take(lane), lane.after.as_slice())).collect();
        let ended =
            together(party, lanes, part.in_turn, |party, lane| one_lane(suite, plan, party, lane, &values))?;
        report.extend(ended.into_iter().flat_map(|(reports, _)| reports));
    }
    let slots = values.slots.into_inner().unwrap_or_else(PoisonError::into_inner).slots;
    let kept = |slot: Arc<Slot>| {
        let slot = Arc::into_inner(slot)?;
        Some((slot.masks?, slot.data?))
    };
    Ok(Values { values: slots.into_iter().map(kept).collect() })
}

/// A value during the online walk.
#[derive(Default)]
struct Slot {
    masks: Option<AnyMasks>,
    data: Option<AnyData>,
}

/// What lanes read and make.
struct Held {
    slots: Mutex<Slots>,
}

struct Slots {
    slots: Vec<Arc<Slot>>,
    /// How many times each is still to be read.
    readers: Vec<usize>,
}

impl Held {
    fn of(plan: &Plan, slots: Vec<Slot>) -> Self {
        let slots = slots.into_iter().map(Arc::new).collect();
        Held { slots: Mutex::new(Slots { slots, readers: readers(plan) }) }
    }

    fn get(&self, value: ValueId) -> Arc<Slot> {
        let held = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&held.slots[value.0 as usize])
    }

    /// A step was run: its output is there, and its inputs were read.
    fn made(&self, step: &Step, slot: Slot) {
        let mut held = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        held.slots[step.output.0 as usize] = Arc::new(slot);
        for input in step.inputs.iter().map(|i| i.0 as usize) {
            held.readers[input] -= 1;
            if held.readers[input] == 0 {
                held.slots[input] = Arc::default();
            }
        }
    }
}

/// Where a lane ended.
struct Ended<D: Device> {
    party: Party<D>,
    /// When it began, and how long it took.
    time: (Instant, Duration),
}

/// Runs `work` on every item as a lane in a thread of its own, once the lanes named beside the item
/// have ended, which come before it; they take turns where that is said. Joins them: the results in
/// order, or the first error.
fn together<D: Device, I: Send, R: Send>(
    party: &mut Party<D>,
    items: Vec<(I, &[usize])>,
    in_turn: bool,
    work: impl Fn(&mut Party<D>, I) -> Result<R, Error> + Sync,
) -> Result<Vec<(R, Ended<D>)>, Error> {
    let turns = Arc::new(Turns::default());
    let run = |mut party: Party<D>, number: usize, item: I| {
        let start = Instant::now();
        let result = match in_turn {
            true => party.in_turn(&turns, number, |party| work(party, item)),
            false => work(&mut party, item),
        };
        let time = (start, start.elapsed());
        result.map(|result| (result, Ended { time, party }))
    };
    let start = Instant::now();
    let results = match <[_; 1]>::try_from(items) {
        Ok([(item, _)]) => vec![run(party.lane(), 0, item)?],
        Err(items) => in_threads(party, items, run)?,
    };
    // All together worked as long as the busiest lane, or one after the other.
    let wall = start.elapsed();
    let busy = results.iter().map(|(_, lane)| lane.time.1.saturating_sub(lane.party.waited()));
    let busy = if in_turn { busy.sum() } else { busy.max().unwrap_or_default() };
    results.iter().for_each(|(_, lane)| party.join(&lane.party));
    party.has_waited(wall.saturating_sub(busy));
    Ok(results)
}

/// Runs every item as [`together`] says.
fn in_threads<D: Device, I: Send, R: Send>(
    party: &Party<D>,
    items: Vec<(I, &[usize])>,
    run: impl Fn(Party<D>, usize, I) -> Result<(R, Ended<D>), Error> + Sync,
) -> Result<Vec<(R, Ended<D>)>, Error> {
    type Result<T> = std::thread::Result<std::result::Result<T, Error>>;
    let (after, items): (Vec<&[usize]>, Vec<Mutex<Option<I>>>) =
        items.into_iter().map(|(item, after)| (after, Mutex::new(Some(item)))).unzip();
    let mut ended: Vec<Option<(R, Ended<D>)>> = items.iter().map(|_| None).collect();
    let mut waiting: BTreeSet<usize> = (0..items.len()).collect();
    let (sender, receiver) = mpsc::channel::<(usize, Result<(R, Ended<D>)>)>();
    let take = |lane: usize, party: Party<D>| {
        let mut item = items[lane].lock().unwrap_or_else(PoisonError::into_inner);
        let item = item.take().expect("a lane runs once");
        (lane, catch_unwind(AssertUnwindSafe(|| run(party, lane, item))))
    };
    let mut failed = None;
    std::thread::scope(|scope| {
        let (take, mut running) = (&take, 0);
        loop {
            let can_run = |lane: &usize| after[*lane].iter().all(|&lane| ended[lane].is_some());
            let ready: Vec<usize> = waiting.iter().copied().filter(can_run).collect();
            for lane in ready.into_iter().filter(|_| failed.is_none()) {
                let mut party = party.lane();
                after[lane]
                    .iter()
                    .flat_map(|&lane| &ended[lane])
                    .for_each(|(_, lane)| party.join(&lane.party));
                let (to, begin) = (sender.clone(), party.clone());
                let thread =
                    std::thread::Builder::new().spawn_scoped(scope, move || drop(to.send(take(lane, begin))));
                match thread {
                    Ok(_) => {}
                    // Without a thread it runs when those before it have ended.
                    Err(_) if running > 0 => break,
                    Err(_) => drop(sender.send(take(lane, party))),
                }
                waiting.remove(&lane);
                running += 1;
            }
            if running == 0 {
                break;
            }
            running -= 1;
            match receiver.recv().expect("a sender is held here") {
                (lane, Ok(Ok(made))) => ended[lane] = Some(made),
                (_, Ok(Err(error))) => failed = failed.take().or(Some(error)),
                (_, Err(panic)) => std::panic::resume_unwind(panic),
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(ended.into_iter().map(|lane| lane.expect("all lanes have ended")).collect()),
    }
}

/// The steps of a lane one after the other: their reports.
fn one_lane<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    lane: Vec<(usize, Option<AnyMaterial>)>,
    values: &Held,
) -> Result<Vec<StepReport>, Error> {
    let one = |(index, material): (usize, Option<AnyMaterial>)| {
        let (step, start) = (&plan.steps[index], Instant::now());
        let slot = party.step(&step.name, |party| one_step(suite, plan, party, step, material, values))?;
        let report = StepReport::new(Phase::Online, &step.name, (start, start.elapsed()), party);
        values.made(step, slot);
        Ok(report)
    };
    lane.into_iter().map(one).collect()
}

/// A step's data and masks. What could not be made offline, because an input's masks were not
/// known, or was not worth holding, is made first.
fn one_step<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    party: &mut Party<D>,
    step: &Step,
    material: Option<AnyMaterial>,
    values: &Held,
) -> Result<Slot, Error> {
    let read: Vec<Arc<Slot>> = step.inputs.iter().map(|&i| values.get(i)).collect();
    let inputs: Vec<(&AnyMasks, &AnyData)> =
        read.iter().map(|slot| (known(&slot.masks), known(&slot.data))).collect();
    let types = types(plan, step);
    let call = call(plan, step, &types);
    let output = values.get(step.output);
    let drawn = &output.masks;
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
    Ok(Slot { masks: deferred.or(masks), data: Some(data) })
}

fn known<T>(slot: &Option<T>) -> &T {
    slot.as_ref().expect("a validated plan defines values before their use and drops them after the last")
}
