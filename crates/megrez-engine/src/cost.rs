//! What a plan costs under a protocol, before it runs.

use megrez_plan::{Plan, Value};
use megrez_protocols::{Cost, Suite};
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
    /// Bits over all parties in a phase, without the rounding of messages.
    pub fn bits(&self, phase: Phase) -> f64 {
        self.steps.iter().map(|s| s.cost.bits(phase)).sum()
    }
}

/// Prices every step, or lists all that the protocol lacks.
pub fn check<S: Suite>(suite: &S, plan: &Plan) -> Result<PlanCost, Unsupported> {
    let mut steps = Vec::new();
    let mut missing = Vec::new();
    for step in &plan.steps {
        let inputs: Vec<&Value> = step.inputs.iter().map(|&i| plan.value(i)).collect();
        match suite.cost(&step.op, &inputs, plan.value(step.output)) {
            Ok(cost) => steps.push(StepCost { name: step.name.clone(), cost }),
            Err(why) => missing.push((step.name.clone(), why.to_string())),
        }
    }
    if missing.is_empty() { Ok(PlanCost { steps }) } else { Err(Unsupported(missing)) }
}
