//! Floating-point plans: walked in the clear, on shares of two parties, with a dealer or without, or on prices, by the same source.

mod client;
mod local;
mod program;
mod serve;
mod walk;

pub use client::{FloatInputs, collect_floats, provide_floats};
pub use local::{FloatRun, run_floats};
pub use program::{
    MAX_CLIENTS, MAX_ENTRIES, Opening, Program, collect_program, provide_program, serve_program,
};
pub use serve::{StoredFloats, serve_floats};
pub use walk::Walk;

use megrez_float::{Blocks, Clear, Float, Plain};
use megrez_plan::{FloatOp, FloatPlan, FloatStep};
use megrez_twoparty::dealt::price as dealt;
use megrez_twoparty::price::{Bill, Price};
use std::convert::Infallible;

/// Every value of a plan in the clear, by its number: what the parties get, bit for bit. `inputs` are in the plan's order and of
/// its shapes.
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
pub fn float_price(plan: &FloatPlan) -> Vec<Bill> {
    let mut price = Price::new(plan.group).with_threads(plan.threads as usize);
    steps(plan, &mut price, |price| std::mem::take(&mut price.bill))
}

/// As [`float_price`], with a dealer.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn dealt_price(plan: &FloatPlan) -> Vec<dealt::Bill> {
    steps(plan, &mut dealt::Price::default(), |price| std::mem::take(&mut price.bill))
}

/// Bytes that a dealer sends for a plan, or `most` if they are more. Steps that follow then are not priced, nor products so many that
/// they are more for sure: what this takes does not grow with them.
///
/// # Panics
/// If the plan is not valid.
#[must_use]
pub fn dealt_bytes(plan: &FloatPlan, most: u64) -> u64 {
    let mut price = dealt::Price::default();
    let mut walk = Walk::new(plan, sizes(plan, &price));
    for (i, step) in plan.steps.iter().enumerate() {
        // Of a product the dealer sends 125 bytes, of a selection 9.
        if products(plan, step) > most / 8 {
            return most;
        }
        let Ok(()) = walk.step(&mut price, i);
        if price.bill.dealt >= most {
            return most;
        }
    }
    price.bill.dealt
}

/// How many pairs of numbers a step multiplies, or selects from.
fn products(plan: &FloatPlan, step: &FloatStep) -> u64 {
    match step.op {
        FloatOp::MatMul | FloatOp::Lookup => {
            let [left, right] = [0, 1].map(|i| plan.shape(step.inputs[i]));
            let columns = right.dims().last().copied().unwrap_or(1);
            (left.elements() as u64).saturating_mul(columns as u64)
        }
        _ => 0,
    }
}

/// Inputs of which blocks that price know the sizes alone.
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
