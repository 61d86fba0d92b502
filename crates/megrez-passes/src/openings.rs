//! Deferred openings: what a product or a function opens waits as a sum until linear steps have
//! made less of it.

use crate::{fresh_name, names};
use megrez_plan::{Kind, Op, Plan, PlanError, Step, ValueId};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Leaves products of secrets, functions by pieces and bits as numbers as sums ([`Op::Additive`])
/// where linear steps follow that make fewer elements of them, such as a sum or a layer of public
/// weights, and shares them there ([`Op::Reshare`]): the same rounds, and fewer elements to open.
/// Where there are as many behind a product with public weights, that is left to the sums alone,
/// and no mask goes through it. The plan computes the same values; those between are no longer
/// shared.
pub fn defer_openings(plan: &mut Plan) -> Result<(), PlanError> {
    let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        step.inputs.iter().for_each(|&i| readers.entry(i).or_default().push(at));
    }
    let revealed: HashSet<ValueId> = plan.outputs.iter().map(|output| output.value).collect();
    let next = |value: ValueId| match readers.get(&value).map(Vec::as_slice) {
        Some(&[reader]) if !revealed.contains(&value) => Some(reader),
        _ => None,
    };
    let (mut left, mut shared) = (HashSet::new(), BTreeSet::new());
    for at in (0..plan.steps.len()).filter(|&at| opens(plan, &plan.steps[at])) {
        if let Some(place) = fewest(plan, at, next) {
            left.insert(at);
            shared.insert(place);
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let mut names = names(plan);
    for (at, mut step) in std::mem::take(&mut plan.steps).into_iter().enumerate() {
        if left.contains(&at) {
            step.op = Op::Additive(Box::new(step.op));
        }
        if !shared.contains(&at) {
            plan.steps.push(step);
            continue;
        }
        let value = step.output;
        step.output = ValueId(plan.values.len() as u32);
        plan.values.push(plan.value(value).clone());
        let name = fresh_name(&mut names, &format!("{}/shared", step.name));
        let reshare = Step { name, op: Op::Reshare, inputs: vec![step.output], output: value };
        plan.steps.extend([step, reshare]);
    }
    plan.retype()
}

/// Whether a step opens what it has computed of secrets, and may leave it as a sum.
fn opens(plan: &Plan, step: &Step) -> bool {
    let secret = |i: &ValueId| matches!(plan.value(*i).kind, Kind::Ring { .. });
    match step.op {
        Op::Mul | Op::MatMul | Op::Conv(_) => step.inputs.len() == 2 && step.inputs.iter().all(secret),
        Op::Lookup(_) | Op::BitToRing => true,
        _ => false,
    }
}

/// The step behind `start` whose result is best shared in its place; `None` if the step's own is.
fn fewest(plan: &Plan, start: usize, next: impl Fn(ValueId) -> Option<usize>) -> Option<usize> {
    let elements = |at: usize| plan.value(plan.steps[at].output).shape.elements();
    let (mut at, mut best, mut multiplied) = (start, start, false);
    while let Some(reader) = next(plan.steps[at].output) {
        let step = &plan.steps[reader];
        let public = step.inputs.iter().any(|&i| matches!(plan.value(i).kind, Kind::Public { .. }));
        let by_public = match step.op {
            Op::TimesPublic(_) => true,
            Op::Mul | Op::MatMul | Op::Conv(_) => public,
            _ => false,
        };
        let linear = matches!(
            step.op,
            Op::Combine { .. }
                | Op::View(_)
                | Op::Pad { .. }
                | Op::Sum { .. }
                | Op::Gather { .. }
                | Op::Rescale { .. }
        );
        if !linear && !by_public {
            break;
        }
        multiplied |= by_public;
        at = reader;
        if elements(at) < elements(best) || (best == start && multiplied && elements(at) == elements(best)) {
            best = at;
        }
    }
    (best != start).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::{Lookup, SignBit};

    /// The steps that are left as sums, and those whose results are shared.
    fn deferred(plan: &mut Plan) -> (Vec<String>, Vec<String>) {
        defer_openings(plan).unwrap();
        plan.validate().unwrap();
        let names = |which: &dyn Fn(&Op) -> bool| {
            plan.steps.iter().filter(|step| which(&step.op)).map(|step| step.name.clone()).collect()
        };
        (names(&|op| matches!(op, Op::Additive(_))), names(&|op| *op == Op::Reshare))
    }

    #[test]
    fn sums_wait_for_fewer_elements_and_for_nothing_else() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [4, 3].into(), 16);
        let b = plan.input("b", "bob", [1, 3].into(), 32);
        let add = Op::Combine { coefficients: vec![1, 1], constant: 0 };
        // Squares are added up, and something is added to that.
        let squares = plan.step("squares", Op::Mul, &[x, x]).unwrap();
        let sum = plan.step("sum", Op::Sum { axis: 0 }, &[squares]).unwrap();
        let biased = plan.step("biased", add, &[sum, b]).unwrap();
        let y = plan.step("y", Op::Truncate { bits: 16 }, &[biased]).unwrap();
        // Read twice, revealed, compared, and added up to as many.
        let twice = plan.step("twice", Op::Mul, &[x, x]).unwrap();
        let one = plan.step("one", Op::Sum { axis: 0 }, &[twice]).unwrap();
        let other = plan.step("other", Op::Sum { axis: 1 }, &[twice]).unwrap();
        let told = plan.step("told", Op::Mul, &[x, x]).unwrap();
        let total = plan.step("total", Op::Sum { axis: 0 }, &[told]).unwrap();
        let compared = plan.step("compared", Op::Mul, &[x, x]).unwrap();
        let sign = plan.step("sign", Op::NonNegative(SignBit::FULL), &[compared]).unwrap();
        let same = plan.step("same", Op::Mul, &[b, b]).unwrap();
        let same = plan.step("alone", Op::Sum { axis: 0 }, &[same]).unwrap();
        for (i, value) in [y, one, other, told, total, sign, same].into_iter().enumerate() {
            plan.output(&i.to_string(), "alice", value);
        }
        assert_eq!(deferred(&mut plan), (vec!["squares".into()], vec!["sum/shared".into()]));
        assert_eq!(plan.value(sum).kind, Kind::Ring { frac: 32 });
        assert_eq!(plan.value(squares).kind, Kind::Additive { frac: 32 });
    }

    #[test]
    fn functions_and_products_pass_public_weights() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [2, 4].into(), 16);
        let words = |n: usize| (0..n as i64).collect::<Vec<_>>();
        let fewer = Op::Constant { shape: [4, 1].into(), frac: 4, words: words(4) };
        let fewer = plan.step("fewer", fewer, &[]).unwrap();
        let square = Op::Constant { shape: [4, 4].into(), frac: 4, words: words(16) };
        let square = plan.step("square", square, &[]).unwrap();
        let more = Op::Constant { shape: [1, 4].into(), frac: 4, words: words(4) };
        let more = plan.step("more", more, &[]).unwrap();
        let f = Lookup {
            cut: 0,
            low: 4,
            degree: 0,
            pieces: vec![0, 1, 2, 3, 4, 5, 6, 7],
            frac: 16,
            beyond: None,
        };
        let f = plan.step("function", Op::Lookup(f), &[x]).unwrap();
        let y = plan.step("layer", Op::MatMul, &[f, fewer]).unwrap();
        // As many behind the weights, and then more.
        let p = plan.step("product", Op::Mul, &[x, x]).unwrap();
        let p = plan.step("to as many", Op::MatMul, &[p, square]).unwrap();
        let q = plan.step("another", Op::Mul, &[y, y]).unwrap();
        let q = plan.step("to more", Op::MatMul, &[q, more]).unwrap();
        for (name, value) in [("y", y), ("p", p), ("q", q)] {
            plan.output(name, "alice", value);
        }
        let (left, shared) = deferred(&mut plan);
        assert_eq!(left, ["function", "product"]);
        assert_eq!(shared, ["layer/shared", "to as many/shared"]);
    }
}
