//! Plans that mix families: which steps of a plan of replicated values are computed by two workers and a dealer.

use crate::{Op, Plan};

impl Plan {
    /// Has the ReLUs and maxima of at most so many elements dealt ([`Op::Dealt`]): they take fewer rounds and more bits, which
    /// pays for small ones on slow networks. The plan computes the same values; names and numbers of steps stay. To be done
    /// before [`Plan::spread_maxima`] and [`Plan::leave_sums`], which leave dealt steps alone.
    pub fn deal_below(&mut self, elements: usize) {
        for at in 0..self.steps.len() {
            let small = self.value(self.steps[at].output).shape.elements() <= elements;
            let step = &mut self.steps[at];
            if small && matches!(step.op, Op::Relu(_) | Op::Maximum(_)) {
                step.op = Op::Dealt(Box::new(step.op.clone()));
            }
        }
    }

    /// The sizes of the steps that [`Plan::deal_below`] may have dealt, smallest first, each once.
    pub fn dealt_sizes(&self) -> Vec<usize> {
        let may = |op: &Op| matches!(op, Op::Relu(_) | Op::Maximum(_) | Op::Dealt(_));
        let steps = self.steps.iter().filter(|step| may(&step.op));
        let mut sizes: Vec<usize> = steps.map(|step| self.value(step.output).shape.elements()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Relu, ReluForm, SignBit};

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
        assert_eq!(plan.dealt_sizes(), [4, 5]);
        plan.deal_below(4);
        plan.validate().unwrap();
        let dealt: Vec<bool> = plan.steps.iter().map(|s| matches!(s.op, Op::Dealt(_))).collect();
        assert_eq!(dealt, [true, false, true]);
        plan.spread_maxima().unwrap();
        plan.leave_sums().unwrap();
        assert_eq!(plan.steps.len(), 3);
        assert!(plan.step("bad", Op::Dealt(Box::new(Op::Not)), &[x]).is_err());
    }
}
