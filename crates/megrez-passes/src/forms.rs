//! Forms of ReLU by size: a key takes one round and many bits, which pays for the small ones.

use megrez_plan::{List, Op, Plan, Relu, ReluForm};

/// Whether a ReLU might take a key in place of what it is to be: not if it has one, and not if it
/// would be a comparison and a selection.
fn may(op: &Op) -> bool {
    matches!(op, Op::Relu(Relu { form, sign, .. }) if *form != ReluForm::Key && sign.list != List::Tree)
}

/// Has the ReLUs of at most so many elements take keys ([`ReluForm::Key`]). The plan computes the
/// same values; names and numbers of steps stay.
pub fn key_small_relus(plan: &mut Plan, elements: usize) {
    for at in 0..plan.steps.len() {
        let small = plan.value(plan.steps[at].output).shape.elements() <= elements;
        match &mut plan.steps[at].op {
            op if !small || !may(op) => {}
            Op::Relu(relu) => relu.form = ReluForm::Key,
            _ => {}
        }
    }
}

/// The sizes of the ReLUs that [`key_small_relus`] would change, smallest first, each once.
pub fn relu_sizes(plan: &Plan) -> Vec<usize> {
    let relus = plan.steps.iter().filter(|step| may(&step.op));
    let mut sizes: Vec<usize> = relus.map(|step| plan.value(step.output).shape.elements()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::SignBit;

    #[test]
    fn small_relus_take_keys_and_others_stay_what_they_are() {
        let mut plan = Plan::new(64);
        let forms = [
            (4, ReluForm::TwoRounds, List::Bits),
            (5, ReluForm::TwoRounds, List::Bits),
            (3, ReluForm::Key, List::Bits),
            (2, ReluForm::ThreeRounds, List::Tree),
        ];
        for (n, form, list) in forms {
            let x = plan.input(&format!("x{n}"), "alice", [n].into(), 32);
            let sign = SignBit { list, cut: 0, bits: Some(16) };
            let y = plan.step(&format!("y{n}"), Op::Relu(Relu { sign, form, truncate: 16 }), &[x]).unwrap();
            plan.output(&format!("z{n}"), "alice", y);
        }
        assert_eq!(relu_sizes(&plan), [4, 5]);
        key_small_relus(&mut plan, 4);
        plan.validate().unwrap();
        let form = |at: usize| match &plan.steps[at].op {
            Op::Relu(relu) => relu.form,
            _ => unreachable!("ReLUs"),
        };
        assert_eq!(
            [form(0), form(1), form(2), form(3)],
            [ReluForm::Key, ReluForm::TwoRounds, ReluForm::Key, ReluForm::ThreeRounds]
        );
    }
}
