//! The two walks over a plan.

use crate::report::StepReport;
use megrez_plan::{Plan, ValueId};
use megrez_protocols::Suite;
use megrez_session::{Error, Party, Phase};
use std::time::Instant;

/// What the offline phase leaves at one party: masks of all values and material of all steps.
pub struct Prepared<S: Suite> {
    /// Per value of the plan; `None` where they are known online only.
    pub(crate) masks: Vec<Option<S::Masks>>,
    /// Per step of the plan; `None` where it can be made online only.
    pub(crate) materials: Vec<Option<S::Material>>,
    /// Per input of the plan: the ticket for its owner; empty for a stored input.
    pub(crate) tickets: Vec<Vec<u8>>,
}

/// The values that a party holds after the online phase: those that the plan outputs.
pub struct Values<S: Suite> {
    /// Masks and data per value of the plan, where kept.
    pub(crate) values: Vec<Option<(S::Masks, S::Data)>>,
}

impl<S: Suite> Values<S> {
    /// A kept value.
    pub(crate) fn get(&self, id: ValueId) -> (&S::Masks, &S::Data) {
        let (masks, data) = self.values[id.0 as usize].as_ref().expect("outputs are kept");
        (masks, data)
    }
}

/// The offline phase of run `run`: `given` are the masks of inputs that are stored already.
pub fn offline<S: Suite>(
    suite: &S,
    plan: &Plan,
    party: &mut Party<S::Device>,
    run: u32,
    given: &dyn Fn(&str) -> Option<S::Masks>,
    report: &mut Vec<StepReport>,
) -> Result<Prepared<S>, Error> {
    party.enter(Phase::Offline, run);
    let mut masks: Vec<Option<S::Masks>> = plan.values.iter().map(|_| None).collect();
    let mut tickets = Vec::new();
    for input in &plan.inputs {
        let (mask, ticket) = match given(&input.name) {
            Some(mask) => (mask, vec![]),
            None => {
                party.step(&format!("input/{}", input.name), |p| suite.input(p, plan.value(input.value)))?
            }
        };
        masks[input.value.0 as usize] = Some(mask);
        tickets.push(ticket);
    }
    let mut materials = Vec::new();
    for step in &plan.steps {
        let start = Instant::now();
        let inputs: Vec<Option<&S::Masks>> =
            step.inputs.iter().map(|i| masks[i.0 as usize].as_ref()).collect();
        let output = plan.value(step.output);
        let (mask, material) = party.step(&step.name, |party| {
            let mask = suite.masks(party, &step.op, output, &inputs)?;
            let material = match inputs.into_iter().collect::<Option<Vec<_>>>() {
                Some(inputs) => Some(suite.offline(party, &step.op, output, &inputs)?),
                None => None,
            };
            Ok((mask, material))
        })?;
        materials.push(material);
        masks[step.output.0 as usize] = mask;
        report.push(StepReport::new(Phase::Offline, &step.name, start, party));
    }
    Ok(Prepared { masks, materials, tickets })
}

/// The online phase of run `run`, on the data of the plan's inputs in order. Values are dropped after their last use.
pub fn online<S: Suite>(
    suite: &S,
    plan: &Plan,
    party: &mut Party<S::Device>,
    run: u32,
    prepared: Prepared<S>,
    inputs: Vec<S::Data>,
    report: &mut Vec<StepReport>,
) -> Result<Values<S>, Error> {
    party.enter(Phase::Online, run);
    let last = last_uses(plan);
    let Prepared { mut masks, materials, .. } = prepared;
    let mut data: Vec<Option<S::Data>> = plan.values.iter().map(|_| None).collect();
    for (input, value) in plan.inputs.iter().zip(inputs) {
        data[input.value.0 as usize] = Some(value);
    }
    for (index, (step, material)) in plan.steps.iter().zip(materials).enumerate() {
        let start = Instant::now();
        let inputs: Vec<(&S::Masks, &S::Data)> =
            step.inputs.iter().map(|i| (known(&masks[i.0 as usize]), known(&data[i.0 as usize]))).collect();
        let output = plan.value(step.output);
        let mask = &masks[step.output.0 as usize];
        let (value, late) = party.step(&step.name, |party| {
            let drawn;
            let (material, mask) = match material {
                Some(material) => (material, mask.as_ref()),
                // An input's masks were not known offline; by now they are.
                None => {
                    let masks: Vec<&S::Masks> = inputs.iter().map(|(masks, _)| *masks).collect();
                    let all: Vec<Option<&S::Masks>> = masks.iter().copied().map(Some).collect();
                    drawn = match mask {
                        Some(_) => None,
                        None => suite.masks(party, &step.op, output, &all)?,
                    };
                    let mask = mask.as_ref().or(drawn.as_ref());
                    (suite.offline(party, &step.op, output, &masks)?, mask)
                }
            };
            let (value, late) = suite.online(party, &step.op, output, &inputs, mask, material)?;
            Ok((value, late.or_else(|| mask.cloned())))
        })?;
        drop(inputs);
        data[step.output.0 as usize] = Some(value);
        masks[step.output.0 as usize] = late;
        for i in step.inputs.iter().filter(|i| last[i.0 as usize] == index) {
            data[i.0 as usize] = None;
            masks[i.0 as usize] = None;
        }
        report.push(StepReport::new(Phase::Online, &step.name, start, party));
    }
    Ok(Values { values: masks.into_iter().zip(data).map(|(m, d)| Some((m?, d?))).collect() })
}

fn known<T>(slot: &Option<T>) -> &T {
    slot.as_ref().expect("a validated plan defines values before their use and drops them after the last")
}

/// The step after which a value is not needed; outputs are needed for ever.
fn last_uses(plan: &Plan) -> Vec<usize> {
    let mut last = vec![0; plan.values.len()];
    for (index, step) in plan.steps.iter().enumerate() {
        step.inputs.iter().for_each(|i| last[i.0 as usize] = index);
    }
    plan.outputs.iter().for_each(|o| last[o.value.0 as usize] = usize::MAX);
    last
}
