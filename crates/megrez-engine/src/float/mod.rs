//! Floating-point plans: walked in the clear, on shares of two parties, with a dealer or without, or on prices, by the same source.

mod client;
mod local;
mod serve;
mod walk;

pub use client::{FloatInputs, collect_floats, provide_floats};
pub use local::{FloatRun, run_floats};
pub use serve::{StoredFloats, serve_floats};
pub use walk::Walk;

use megrez_float::{Blocks, Clear, Float, Plain};
use megrez_plan::FloatPlan;
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

/// What the blocks took for each step.
fn steps<B: Blocks<Error = Infallible>, T>(
    plan: &FloatPlan,
    b: &mut B,
    taken: impl Fn(&mut B) -> T,
) -> Vec<T> {
    let number = |elements: usize| Float::public(&*b, &Plain::from_f32(&vec![0.0; elements]));
    let inputs = plan.inputs.iter().map(|i| number(plan.shape(i.value).elements())).collect();
    let mut walk = Walk::new(plan, inputs);
    let one = |i: usize| {
        let Ok(()) = walk.step(b, i);
        taken(b)
    };
    (0..plan.steps.len()).map(one).collect()
}
