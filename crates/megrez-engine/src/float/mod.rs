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

use megrez_float::{Blocks, Float, Plain, on};
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
    let inputs = inputs.iter().map(|x| Plain::from_f32(x).secret()).collect();
    let mut walk = Walk::keeping_all(plan, inputs);
    megrez_float::in_the_clear(|b| (0..plan.steps.len()).try_for_each(|i| walk.step(b, i)));
    let values = (0..plan.values.len()).map(|i| walk.value(megrez_plan::ValueId(i as u32)).plain().to_f32());
    values.collect()
}

/// What each step of a plan costs two parties, by the formulas that the meter is held to.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn float_cost(plan: &FloatPlan) -> Vec<Cost> {
    let costing = Costing::new(plan.group).with_threads(plan.threads as usize);
    steps(plan, costing, |costing| std::mem::take(&mut costing.cost))
}

/// As [`float_cost`], with a dealer.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn dealt_cost(plan: &FloatPlan) -> Vec<dealt::Cost> {
    steps(plan, dealt::Costing::default(), |costing| std::mem::take(&mut costing.cost))
}

/// Bytes that a dealer sends for a plan at most: as if every lane went alone, so within a few parts
/// in a hundred of what [`dealt_cost`] says. It is had from the shapes and the cost of one lane of
/// every operation, so it takes no memory and hardly any time, however large the plan is.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn dealt_bytes(plan: &FloatPlan) -> u64 {
    let mut known: HashMap<(String, usize), u64> = HashMap::new();
    let mut cost = |op: &FloatOp, terms: usize| {
        *known.entry((format!("{op:?}"), terms)).or_insert_with(|| lane_cost(op, terms))
    };
    // A sum or a dot product; of very many terms, in parts and one more for the sum of these.
    let mut result = |op: &FloatOp, terms: usize| match terms {
        ..=PRICED => cost(op, graded(terms)),
        _ => cost(op, PRICED).saturating_mul(terms.div_ceil(PRICED) as u64 + 1),
    };
    let one = |step: &FloatStep| {
        let read = |i: usize| plan.shape(step.inputs[i]).elements() as u64;
        let made = plan.shape(step.output).elements() as u64;
        match &step.op {
            op @ FloatOp::Map(_) => read(0).saturating_mul(result(op, 1)),
            op @ (FloatOp::Pair(_) | FloatOp::Choose) => made.saturating_mul(result(op, 1)),
            op @ FloatOp::MatMul => {
                let inner = plan.shape(step.inputs[0]).dims().last().map_or(1, |&k| k);
                made.saturating_mul(result(op, inner))
            }
            op @ FloatOp::Sum => made.saturating_mul(result(op, plan.shape(step.inputs[0]).dims()[0])),
            // Every element on the left meets as many as there are columns on the right.
            op @ FloatOp::Lookup => {
                let columns = plan.shape(step.inputs[1]).dims().last().map_or(1, |&n| n as u64);
                read(0).saturating_mul(columns).saturating_mul(result(op, 1))
            }
            op @ FloatOp::Largest => read(0).saturating_mul(result(op, 2)),
            FloatOp::View(_) | FloatOp::Gather { .. } | FloatOp::Constant { .. } => 0,
        }
    };
    plan.steps.iter().map(one).fold(0, u64::saturating_add)
}

/// Most terms of a sum that is priced as a whole.
const PRICED: usize = 4096;

/// So many terms or some more: large numbers to four binary digits, so that whatever a plan has,
/// few sums are priced.
fn graded(terms: usize) -> usize {
    let step = 1 << terms.max(1).ilog2().saturating_sub(3);
    if terms <= 64 { terms } else { terms.next_multiple_of(step) }
}

/// What a dealer sends for one application of an operation that is not free, to so many terms where
/// it is one on many.
fn lane_cost(op: &FloatOp, terms: usize) -> u64 {
    let mut plan = FloatPlan::new(4);
    let shapes = match op {
        FloatOp::Map(_) => vec![vec![1]],
        FloatOp::Sum | FloatOp::Largest => vec![vec![terms, 1]],
        FloatOp::Choose => vec![vec![1]; 3],
        FloatOp::MatMul => vec![vec![1, terms], vec![terms, 1]],
        _ => vec![vec![1, 1]; 2],
    };
    let named = shapes.into_iter().enumerate();
    let inputs: Vec<_> = named.map(|(i, shape)| plan.input(&i.to_string(), "", shape.into())).collect();
    plan.step("lane", op.clone(), &inputs).expect("an operation on one lane");
    dealt_cost(&plan)[0].dealt
}

/// Inputs of which blocks that cost have the sizes alone.
fn sizes<B: Blocks>(plan: &FloatPlan, b: &B) -> Vec<Float> {
    let number = |elements: usize| Float::public(b, &Plain::from_f32(&vec![0.0; elements])).secret();
    plan.inputs.iter().map(|i| number(plan.shape(i.value).elements())).collect()
}

/// What the blocks took for each step.
fn steps<B: Blocks<Error = Infallible> + 'static, T>(
    plan: &FloatPlan,
    mut b: B,
    taken: impl Fn(&mut B) -> T,
) -> Vec<T> {
    let mut walk = Walk::new(plan, sizes(plan, &b));
    let one = |i: usize| {
        let Ok(()) = on(&mut b, |b| walk.step(b, i));
        taken(&mut b)
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
