//! Offload to the dealer: which steps of a plan of replicated values are computed by two workers
//! and a dealer.

use crate::forms::sizes_of;
use megrez_plan::{Op, Plan};

/// Has the ReLUs and maxima of at most so many elements dealt ([`Op::Offloaded`]): they take fewer
/// rounds and more bits, which pays for small ones on slow networks. The plan computes the same
/// values; names and numbers of steps stay. To be done before
/// [`spread_maxima`](crate::spread_maxima) and [`defer_resharing`](crate::defer_resharing), which
/// leave dealt steps alone.
pub fn offload_to_dealer(plan: &mut Plan, elements: usize) {
    for at in 0..plan.steps.len() {
        let small = plan.value(plan.steps[at].output).shape.elements() <= elements;
        let step = &mut plan.steps[at];
        if small && matches!(step.op, Op::Relu(_) | Op::Maximum(_)) {
            step.op = Op::Offloaded(Box::new(step.op.clone()));
        }
    }
}

/// Has all tables dealt, and those of winners: parties who are equal have no other way to look up.
pub fn offload_tables(plan: &mut Plan) {
    for step in plan.steps.iter_mut().filter(|step| matches!(step.op, Op::Lookup(_) | Op::Winner(_))) {
        step.op = Op::Offloaded(Box::new(step.op.clone()));
    }
}

/// The sizes of the steps that [`offload_to_dealer`] may have dealt, smallest first, each once.
pub fn offload_sizes(plan: &Plan) -> Vec<usize> {
    sizes_of(plan, |op| {
        let op = if let Op::Offloaded(step) = op { step } else { op };
        matches!(op, Op::Relu(_) | Op::Maximum(_))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{defer_resharing, spread_maxima};
    use megrez_plan::{Relu, ReluForm, SignBit};

    #[test]
    fn small_steps_are_dealt_and_stay_what_they_are() {
        let mut plan = Plan::new(64);
        let [small, large] = [("a", 4), ("b", 5)].map(|(name, n)| plan.input(name, "alice", [n].into(), 32));
        let relu = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 16 });
        let x = plan.step("x", relu.clone(), &[small]).unwrap();
        let y = plan.step("y", relu.clone(), &[large]).unwrap();
        let z = plan.step("z", Op::Maximum(SignBit::FULL), &[x, x]).unwrap();
        for value in [x, y, z] {
            plan.output(&format!("{value:?}"), "alice", value);
        }
        assert_eq!(offload_sizes(&plan), [4, 5]);
        offload_to_dealer(&mut plan, 4);
        plan.validate().unwrap();
        let dealt: Vec<bool> = plan.steps.iter().map(|s| matches!(s.op, Op::Offloaded(_))).collect();
        assert_eq!(dealt, [true, false, true]);
        spread_maxima(&mut plan).unwrap();
        defer_resharing(&mut plan).unwrap();
        assert_eq!(plan.steps.len(), 3);
        assert!(plan.step("bad", Op::Offloaded(Box::new(Op::Not)), &[x]).is_err());
    }
}
