//! The two walks over a plan.

use crate::report::StepReport;
use crate::steps::{call, derived, producers, readers, types, unspent};
use crate::waves::{offline_waves, waves};
use megrez_kernels::Device;
use megrez_plan::{KEPT, Plan, Step, ValueId};
use megrez_protocols::{AnyData, AnyMasks, AnyMaterial, AnyOperands, AnySuite, AnyValue};
use megrez_session::{Error, Party, Phase, Turns};
use std::sync::{Arc, Mutex, PoisonError};
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
        for (index, lane) in wave.iter().zip(together(party, wave.clone(), false, make)) {
            let name = &plan.steps[*index].name;
            let report = StepReport::new(Phase::Offline, name, lane.time, &lane.party);
            made[*index] = Some((lane.result?, report));
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
        let large = |step: &usize| plan.value(plan.steps[*step].output).shape.elements() >= IN_TURN;
        let in_turn = wave.iter().flatten().any(large);
        let lanes =
            together(party, taken, in_turn, |party, lane| one_lane(suite, plan, party, lane, &values));
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

/// Lanes of a wave take turns where one of its steps makes so many elements: its local work fills
/// the device, and its messages take longer than a delay.
const IN_TURN: usize = 1 << 16;

/// Runs `work` on every item as lanes in threads beside each other, which take turns where that is
/// said, and joins them: the results in order.
fn together<D: Device, I: Send, R: Send>(
    party: &mut Party<D>,
    items: Vec<I>,
    in_turn: bool,
    work: impl Fn(&mut Party<D>, I) -> R + Sync,
) -> Vec<Lane<D, R>> {
    let turns = Arc::new(Turns::default());
    let run = |mut party: Party<D>, (number, item): (usize, I)| {
        let start = Instant::now();
        let result = match in_turn {
            true => party.in_turn(&turns, number, |party| work(party, item)),
            false => work(&mut party, item),
        };
        Lane { time: (start, start.elapsed()), party, result }
    };
    let start = Instant::now();
    let waiting: Vec<_> =
        items.into_iter().enumerate().map(|item| Mutex::new(Some((party.lane(), item)))).collect();
    let take = |waiting: &Mutex<Option<(Party<D>, (usize, I))>>| {
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
    // All together worked as long as the busiest lane, or one after the other.
    let wall = start.elapsed();
    let busy = lanes.iter().map(|lane| lane.time.1.saturating_sub(lane.party.waited()));
    let busy = if in_turn { busy.sum() } else { busy.max().unwrap_or_default() };
    let waited = wall.saturating_sub(busy);
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
/// known, or was not worth holding, is made first.
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

fn known<T>(slot: &Option<T>) -> &T {
    slot.as_ref().expect("a validated plan defines values before their use and drops them after the last")
}
