//! Truncations: back to the fraction bits of the plan.

use super::operand::Secret;
use super::plan::Lowering;
use crate::problem::Refusal;
use megrez_plan::{Op, Relu};

impl Lowering<'_> {
    /// With `frac` fraction bits again, if there are more. A value is truncated once, however often
    /// it is asked for.
    pub fn settle(&mut self, x: &Secret) -> Result<Secret, Refusal> {
        let bits = self.frac_of(x).saturating_sub(self.frac());
        if bits == 0 {
            return Ok(x.clone());
        }
        if let Some(done) = self.settled.get(&x.id) {
            return Ok(done.clone());
        }
        let range =
            self.admit(&format!("{}/truncate", self.layer), x.range.clone(), self.options.ring - 2)?;
        let y = self.emit("truncate", Op::Truncate { bits }, &[x.id], range.truncated(bits))?;
        self.settled.insert(x.id, y.clone());
        Ok(y)
    }

    /// As [`Lowering::settle`] for the output of the layer that was just lowered: where that ends
    /// in a ReLU, the truncation becomes a part of it, which costs no round and no opening of its
    /// own.
    pub(crate) fn settle_last(&mut self, x: &Secret) -> Result<Secret, Refusal> {
        let bits = self.frac_of(x).saturating_sub(self.frac());
        if let Some(selected) = self.select_truncated(x, bits)? {
            return Ok(selected);
        }
        let is_relu = self.plan.steps.last().is_some_and(|s| s.output == x.id && matches!(s.op, Op::Relu(_)));
        if bits == 0 || !is_relu || self.settled.contains_key(&x.id) {
            return self.settle(x);
        }
        let step = self.plan.steps.pop().expect("there is a last step");
        let Op::Relu(relu) = step.op else { unreachable!("checked above") };
        // The truncation inside needs |x| < 2^(ℓ−2) of the ReLU's input, negative values too.
        let input = self.relu_inputs.get(&x.id).cloned().unwrap_or_else(|| x.range.clone());
        self.admit(&step.name, input, self.options.ring - 2)?;
        let fused = Op::Relu(Relu { truncate: bits, ..relu });
        self.plan.values.pop();
        let id = self.step(&step.name, fused, &step.inputs)?;
        Ok(Secret { id, range: x.range.truncated(bits) })
    }

    /// A selection that was just lowered, with a truncation of what it selects in it; `None` if it
    /// is none, or the protocol has no such step.
    fn select_truncated(&mut self, x: &Secret, bits: u32) -> Result<Option<Secret>, Refusal> {
        let last = self.plan.steps.last().filter(|step| step.output == x.id && step.op == Op::SELECT);
        let fuses = bits > 0 && self.options.selects_truncated && !self.settled.contains_key(&x.id);
        let Some(step) = last.filter(|_| fuses).cloned() else { return Ok(None) };
        self.admit(&step.name, x.range.clone(), self.options.ring - 2)?;
        self.plan.steps.pop();
        self.plan.values.pop();
        let id = self.step(&step.name, Op::Select { truncate: bits }, &step.inputs)?;
        Ok(Some(Secret { id, range: x.range.truncated(bits).merged().with_zero() }))
    }

    /// With `frac` fraction bits: truncated, or scaled up.
    pub fn rounded(&mut self, name: &str, x: &Secret, frac: u32) -> Result<Secret, Refusal> {
        let has = self.frac_of(x);
        if has <= frac {
            return self.scaled_up(x, frac);
        }
        let bits = has - frac;
        let range = self.admit(&format!("{}/{name}", self.layer), x.range.clone(), self.options.ring - 2)?;
        self.emit(name, Op::Truncate { bits }, &[x.id], range.truncated(bits))
    }
}
