//! Deferred resharing: products that stay an additive 3-of-3 sharing until they are truncated.

use megrez_plan::{Kind, Op, Plan, PlanError, ValueId};
use std::collections::HashSet;

/// Leaves products of secrets in additive 3-of-3 sharing where all that follows, up to a
/// truncation, is linear: for protocols that truncate and share again in one go. The plan computes
/// the same values; names and numbers of steps stay.
pub fn defer_resharing(plan: &mut Plan) -> Result<(), PlanError> {
    let products: Vec<usize> = (0..plan.steps.len()).filter(|&at| may_wait(plan, at)).collect();
    for at in products {
        let step = &mut plan.steps[at];
        step.op = Op::Additive(Box::new(step.op.clone()));
    }
    plan.retype()
}

/// Whether step `at` is a product of two secrets that only linear steps and truncations read, and
/// no more elements are truncated than pays: sharing n elements costs 3ℓ bits each, and a
/// truncation of a sum 2ℓ more than one of a shared value.
fn may_wait(plan: &Plan, at: usize) -> bool {
    let step = &plan.steps[at];
    let secret = |i: &ValueId| matches!(plan.value(*i).kind, Kind::Ring { .. });
    let of_two = matches!(step.op, Op::Mul | Op::MatMul | Op::Conv(_)) && step.inputs.len() == 2;
    if !of_two || !step.inputs.iter().all(secret) {
        return false;
    }
    let mut sums = HashSet::from([step.output]);
    let mut truncated = 0;
    for reader in &plan.steps[at + 1..] {
        if !reader.inputs.iter().any(|i| sums.contains(i)) {
            continue;
        }
        match &reader.op {
            Op::Combine { .. }
            | Op::View(_)
            | Op::Pad { .. }
            | Op::Sum { .. }
            | Op::Gather { .. }
            | Op::Rescale { .. } => {
                sums.insert(reader.output);
            }
            Op::Truncate { .. } => truncated += plan.value(reader.output).shape.elements(),
            Op::Relu(relu) if relu.truncate > 0 => {
                truncated += plan.value(reader.output).shape.elements();
            }
            _ => return false,
        }
    }
    let revealed = plan.outputs.iter().any(|o| sums.contains(&o.value));
    truncated > 0 && !revealed && 2 * truncated <= 3 * plan.value(step.output).shape.elements()
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::{SignBit, View};

    #[test]
    fn products_wait_for_their_truncation_and_for_nothing_else() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [4].into(), 16);
        let b = plan.input("b", "bob", [4].into(), 32);
        let combine = Op::Combine { coefficients: vec![1, 1], constant: 0 };
        let p = plan.step("p", Op::Mul, &[x, x]).unwrap();
        let sum = plan.step("bias", combine.clone(), &[b, p]).unwrap();
        let y = plan.step("truncate", Op::Truncate { bits: 16 }, &[sum]).unwrap();
        // Compared before it is truncated, opened, or copied into many elements: shared as ever.
        let q = plan.step("q", Op::Mul, &[y, x]).unwrap();
        let sign = plan.step("sign", Op::NonNegative(SignBit::FULL), &[q]).unwrap();
        let r = plan.step("r", Op::Mul, &[y, y]).unwrap();
        let s = plan.step("s", Op::Mul, &[x, y]).unwrap();
        let copies = View::broadcast(&[4].into(), &[3, 4].into()).unwrap();
        let copies = plan.step("copies", Op::View(copies), &[s]).unwrap();
        let z = plan.step("z", Op::Truncate { bits: 8 }, &[copies]).unwrap();
        for (name, value) in [("sign", sign), ("r", r), ("z", z)] {
            plan.output(name, "alice", value);
        }
        defer_resharing(&mut plan).unwrap();
        plan.validate().unwrap();
        let left: Vec<&str> = plan
            .steps
            .iter()
            .filter(|step| matches!(step.op, Op::Additive(_)))
            .map(|step| step.name.as_str())
            .collect();
        assert_eq!(left, ["p"]);
        assert_eq!(plan.value(sum).kind, Kind::Additive { frac: 32 });
        assert_eq!(plan.value(y).kind, Kind::Ring { frac: 16 });
    }
}
