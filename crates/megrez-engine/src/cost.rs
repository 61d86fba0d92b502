//! What a plan costs under a protocol, before it runs.

use megrez_plan::{Plan, Value};
use megrez_protocols::{Cost, Path, Suite, critical_path};
use megrez_session::Phase;

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
}

/// The cost of a plan.
#[derive(Clone, Debug)]
pub struct PlanCost {
    /// Every step, in order.
    pub steps: Vec<StepCost>,
}

impl PlanCost {
    /// Bytes from one party to another in a phase.
    pub fn bytes(&self, phase: Phase, from: usize, to: usize) -> u64 {
        self.steps.iter().map(|s| s.cost.bytes(phase, from, to)).sum()
    }
    /// Rounds and network seconds of the critical path of a phase; see [`critical_path`].
    pub fn critical_path(&self, phase: Phase, delay: f64, transmit: impl Fn(u64) -> f64) -> Path {
        critical_path(self.steps.iter().map(|s| &s.cost), phase, delay, transmit)
    }
    /// Bits over all parties in a phase, without the rounding of messages.
    pub fn bits(&self, phase: Phase) -> f64 {
        self.steps.iter().map(|s| s.cost.bits(phase)).sum()
    }
}

/// Prices every step, or lists all that the protocol lacks.
pub fn check<S: Suite>(suite: &S, plan: &Plan) -> Result<PlanCost, Unsupported> {
    let mut steps = Vec::new();
    let mut missing = Vec::new();
    let mut late = vec![false; plan.values.len()];
    for step in &plan.steps {
        let late_inputs = step.inputs.iter().any(|i| late[i.0 as usize]);
        let inputs: Vec<&Value> = step.inputs.iter().map(|&i| plan.value(i)).collect();
        late[step.output.0 as usize] = suite.late(&step.op, &inputs, late_inputs);
        match suite.cost(&step.op, &inputs, plan.value(step.output)) {
            Ok(cost) => {
                let cost = if late_inputs { cost.made_online() } else { cost };
                steps.push(StepCost { name: step.name.clone(), cost });
            }
            Err(why) => missing.push((step.name.clone(), why.to_string())),
        }
    }
    if missing.is_empty() { Ok(PlanCost { steps }) } else { Err(Unsupported(missing)) }
}
