//! ReLUs whose signs are found by trees of digits.

use crate::{fresh_name, names};
use megrez_plan::{List, Op, Plan, PlanError, Relu, ReluForm};

/// Makes a comparison and a selection of every ReLU that is to be compared by a tree
/// ([`List::Tree`]), for protocols whose selections truncate. The plan computes the same values:
/// what a cut does not see, the truncation drops, and a negative value gives 0.
pub fn select_by_trees(plan: &mut Plan) -> Result<(), PlanError> {
    let mut names = names(plan);
    for step in std::mem::take(&mut plan.steps) {
        match &step.op {
            Op::Relu(Relu { sign, form, truncate })
                if sign.list == List::Tree
                    && !matches!(form, ReluForm::Table | ReluForm::Key | ReluForm::DigitTables) =>
            {
                let name = fresh_name(&mut names, &format!("{}/sign", step.name));
                let bit = plan.step(&name, Op::NonNegative(sign.clone()), &step.inputs)?;
                let inputs = [bit, step.inputs[0]];
                plan.step_into(&step.name, Op::Select { truncate: *truncate }, &inputs, step.output)?;
            }
            _ => plan.steps.push(step),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_plan::SignBit;

    #[test]
    fn relus_by_trees_are_selected_and_others_stay() {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [4].into(), 32);
        let relu = |list: List, form| {
            Op::Relu(Relu { sign: SignBit { list, cut: 16, bits: Some(16) }, form, truncate: 16 })
        };
        let y = plan.step("a", relu(List::Tree, ReluForm::ThreeRounds), &[x]).unwrap();
        // A layer may be called as the comparison would be.
        let z = plan.step("a/sign", relu(List::Bits, ReluForm::ThreeRounds), &[x]).unwrap();
        let u = plan.step("c", relu(List::Tree, ReluForm::Key), &[x]).unwrap();
        [y, z, u].iter().enumerate().for_each(|(i, &value)| plan.output(&i.to_string(), "alice", value));
        select_by_trees(&mut plan).unwrap();
        plan.validate().unwrap();
        let names: Vec<&str> = plan.steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["a/sign-2", "a", "a/sign", "c"]);
        assert_eq!(plan.steps[1].op, Op::Select { truncate: 16 });
        assert_eq!(plan.value(y).kind.frac(), 16);
    }
}
