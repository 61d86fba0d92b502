//! Forms of ReLU by size: a key takes one round and many bits, which pays for the small ones.

use megrez_plan::{Op, Plan, Relu, ReluForm};

/// Has the ReLUs of at most so many elements take keys ([`ReluForm::Key`]), by whatever they would
/// be compared. The plan computes the same values; names and numbers of steps stay. To be done
/// before [`select_by_trees`](crate::select_by_trees), which leaves ReLUs by key alone.
pub fn key_small_relus(plan: &mut Plan, elements: usize) {
    for at in 0..plan.steps.len() {
        let small = plan.value(plan.steps[at].output).shape.elements() <= elements;
        if let Op::Relu(relu) = &mut plan.steps[at].op
            && small
        {
            relu.form = ReluForm::Key;
        }
    }
}

/// The sizes of the ReLUs that [`key_small_relus`] would change, smallest first, each once.
pub fn relu_sizes(plan: &Plan) -> Vec<usize> {
    sizes_of(plan, |op| matches!(op, Op::Relu(Relu { form, .. }) if *form != ReluForm::Key))
}

/// The sizes of what some steps give, in elements, smallest first, each once.
pub(crate) fn sizes_of(plan: &Plan, which: impl Fn(&Op) -> bool) -> Vec<usize> {
    let steps = plan.steps.iter().filter(|step| which(&step.op));
    let mut sizes: Vec<usize> = steps.map(|step| plan.value(step.output).shape.elements()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select_by_trees;
    use megrez_plan::{List, SignBit};

    #[test]
    fn small_relus_take_keys_and_others_stay_what_they_are() {
        let mut plan = Plan::new(64);
        let forms = [
            (4, ReluForm::TwoRounds, List::Bits),
            (5, ReluForm::TwoRounds, List::Bits),
            (3, ReluForm::Key, List::Bits),
            (2, ReluForm::ThreeRounds, List::Tree),
            (6, ReluForm::ThreeRounds, List::Tree),
        ];
        for (n, form, list) in forms {
            let x = plan.input(&format!("x{n}"), "alice", [n].into(), 32);
            let sign = SignBit { list, cut: 0, bits: Some(16) };
            let y = plan.step(&format!("y{n}"), Op::Relu(Relu { sign, form, truncate: 16 }), &[x]).unwrap();
            plan.output(&format!("z{n}"), "alice", y);
        }
        assert_eq!(relu_sizes(&plan), [2, 4, 5, 6]);
        key_small_relus(&mut plan, 4);
        assert_eq!(relu_sizes(&plan), [5, 6]);
        select_by_trees(&mut plan).unwrap();
        plan.validate().unwrap();
        let keyed =
            |step: &megrez_plan::Step| matches!(&step.op, Op::Relu(relu) if relu.form == ReluForm::Key);
        let names = |is: bool| {
            let steps = plan.steps.iter().filter(|step| keyed(step) == is);
            steps.map(|step| step.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(true), ["y4", "y3", "y2"]);
        assert_eq!(names(false), ["y5", "y6/sign", "y6"]);
    }
}
