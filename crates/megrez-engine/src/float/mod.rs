//! Floating-point plans: walked in the clear, on shares of two parties, with a dealer or without,
//! or on prices, by the same source.

mod client;
mod local;
mod program;
mod serve;
mod walk;

pub use client::{FloatInputs, collect_floats, provide_floats};
pub use local::{FloatRun, run_floats};
pub use program::{
    MAX_CLIENTS, MAX_ENTRIES, MAX_REFERENCES, Opening, Program, collect_program, provide_program,
    serve_program,
};
pub use serve::{StoredFloats, serve_floats};
pub use walk::Walk;

use megrez_float::{Blocks, Clear, Float, Plain};
use megrez_plan::{FloatOp, FloatPlan, FloatStep};
use megrez_twoparty::costing::{Cost, Costing};
use megrez_twoparty::dealt::costing as dealt;
use std::collections::HashMap;
use std::convert::Infallible;

/// Every value of a plan in the clear, by its number: what the parties get, bit for bit. `inputs`
/// are in the plan's order and of its shapes.
///
/// # Panics
/// If the inputs are not those of the plan, or the plan is not valid.
pub fn in_the_clear(plan: &FloatPlan, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let inputs = inputs.iter().map(|x| Float::public(&Clear, &Plain::from_f32(x))).collect();
    let mut walk = Walk::keeping_all(plan, inputs);
    for i in 0..plan.steps.len() {
        let Ok(()) = walk.step(&mut Clear, i);
    }
    let values = (0..plan.values.len()).map(|i| walk.value(megrez_plan::ValueId(i as u32)).plain().to_f32());
    values.collect()
}

/// What each step of a plan costs two parties, by the formulas that the meter is held to.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn float_cost(plan: &FloatPlan) -> Vec<Cost> {
    let mut costing = Costing::new(plan.group).with_threads(plan.threads as usize);
    steps(plan, &mut costing, |costing| std::mem::take(&mut costing.cost))
}

/// As [`float_cost`], with a dealer.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn dealt_cost(plan: &FloatPlan) -> Vec<dealt::Cost> {
    steps(plan, &mut dealt::Costing::default(), |costing| std::mem::take(&mut costing.cost))
}

/// Bytes that a dealer sends for a plan at most: as if every lane went alone, so within a few parts
/// in a hundred of what [`dealt_cost`] says. It is had from the shapes and the cost of one lane of
/// every operation, so it takes no memory and hardly any time, however large the plan is.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn dealt_bytes(plan: &FloatPlan) -> u64 {
    let mut known: HashMap<String, u64> = HashMap::new();
    let mut lane = |op: &FloatOp| *known.entry(format!("{op:?}")).or_insert_with(|| lane_cost(op));
    let one = |step: &FloatStep| {
        let read = |i: usize| plan.shape(step.inputs[i]).elements() as u64;
        // Of a product of matrices every element on the left meets as many as there are columns on
        // the right.
        let met =
            || read(0).saturating_mul(plan.shape(step.inputs[1]).dims().last().map_or(1, |&n| n as u64));
        match &step.op {
            op @ FloatOp::Map(_) => read(0).saturating_mul(lane(op)),
            op @ (FloatOp::Pair(_) | FloatOp::Choose) => {
                (plan.shape(step.output).elements() as u64).saturating_mul(lane(op))
            }
            op @ FloatOp::MatMul => met().saturating_mul(lane(op) + lane(&FloatOp::Sum)),
            op @ FloatOp::Lookup => met().saturating_mul(lane(op)),
            op @ (FloatOp::Sum | FloatOp::Largest) => read(0).saturating_mul(lane(op)),
            FloatOp::View(_) | FloatOp::Gather { .. } | FloatOp::Constant { .. } => 0,
        }
    };
    plan.steps.iter().map(one).fold(0, u64::saturating_add)
}

/// What a dealer sends for one application of an operation that is not free.
fn lane_cost(op: &FloatOp) -> u64 {
    let mut plan = FloatPlan::new(4);
    let (operands, shape) = match op {
        FloatOp::Map(_) => (1, vec![1]),
        FloatOp::Sum | FloatOp::Largest => (1, vec![2, 1]),
        FloatOp::Choose => (3, vec![1]),
        _ => (2, vec![1, 1]),
    };
    let inputs: Vec<_> =
        (0..operands).map(|i| plan.input(&i.to_string(), "", shape.clone().into())).collect();
    plan.step("lane", op.clone(), &inputs).expect("an operation on one lane");
    dealt_cost(&plan)[0].dealt
}

/// Inputs of which blocks that cost the sizes alone.
fn sizes<B: Blocks>(plan: &FloatPlan, b: &B) -> Vec<Float<B>> {
    let number = |elements: usize| Float::public(b, &Plain::from_f32(&vec![0.0; elements]));
    plan.inputs.iter().map(|i| number(plan.shape(i.value).elements())).collect()
}

/// What the blocks took for each step.
fn steps<B: Blocks<Error = Infallible>, T>(
    plan: &FloatPlan,
    b: &mut B,
    taken: impl Fn(&mut B) -> T,
) -> Vec<T> {
    let mut walk = Walk::new(plan, sizes(plan, b));
    let one = |i: usize| {
        let Ok(()) = walk.step(b, i);
        taken(b)
    };
    (0..plan.steps.len()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::{Function, Operation};

    #[test]
    fn what_a_dealer_sends_is_bounded_from_the_shapes() {
        let mut plan = FloatPlan::new(4);
        let [x, y] = ["x", "y"].map(|name| plan.input(name, "alice", [9, 9].into()));
        let product = plan.step("product", FloatOp::MatMul, &[x, y]).unwrap();
        let square = plan.step("square", FloatOp::Pair(Operation::Mul), &[product, product]).unwrap();
        let sum = plan.step("sum", FloatOp::Sum, &[square]).unwrap();
        let tanh = plan.step("tanh", FloatOp::Map(Function::Tanh), &[sum]).unwrap();
        let largest = plan.step("largest", FloatOp::Largest, &[square]).unwrap();
        let looked = plan.step("lookup", FloatOp::Lookup, &[x, y]).unwrap();
        for value in [tanh, largest, looked] {
            plan.output("z", "alice", value);
        }
        let exact: u64 = dealt_cost(&plan).iter().map(|cost| cost.dealt).sum();
        let bound = dealt_bytes(&plan);
        assert!(exact <= bound && bound < exact + exact / 2, "{exact} {bound}");
    }
}
