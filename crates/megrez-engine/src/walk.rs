//! The two walks over a plan.

use crate::report::StepReport;
use megrez_plan::{Plan, ValueId};
use megrez_protocols::Suite;
use megrez_session::{Error, Party, Phase};
use std::time::Instant;

/// What the offline phase leaves at one party: masks of all values and material of all steps.
pub struct Prepared<S: Suite> {
    /// Per value of the plan.
    pub(crate) masks: Vec<Option<S::Masks>>,
    /// Per step of the plan.
    pub(crate) materials: Vec<S::Material>,
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
        let inputs: Vec<&S::Masks> = step.inputs.iter().map(|i| known(&masks[i.0 as usize])).collect();
        let output = plan.value(step.output);
        let (material, mask) = party.step(&step.name, |p| suite.offline(p, &step.op, output, &inputs))?;
        materials.push(material);
        masks[step.output.0 as usize] = Some(mask);
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
        let value = party.step(&step.name, |p| suite.online(p, &step.op, output, &inputs, material))?;
        drop(inputs);
        data[step.output.0 as usize] = Some(value);
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
