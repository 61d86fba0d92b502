//! Steps that no range is believed for: what they give holds for every word that they may be given.

use super::operand::Secret;
use super::plan::Lowering;
use crate::problem::Refusal;
use crate::range::Range;
use megrez_plan::{Op, Relu, ValueId, View};
use megrez_ring::Shape;

impl Lowering<'_> {
    /// The largest word.
    fn largest(&self) -> i128 {
        (1 << (self.options.ring - 1)) - 1
    }

    /// A step whose result may be any word.
    fn modulo(&mut self, name: &str, op: Op, inputs: &[ValueId]) -> Result<Secret, Refusal> {
        let name = self.unique(name);
        let (id, largest) = (self.step(&name, op, inputs)?, self.largest());
        Ok(Secret { id, range: Range::uniform(-largest, largest) })
    }

    /// max(x, 0) of any word, by a comparison of all bits.
    fn relu_of_any(&mut self, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        let sign = self.exact_sign(self.largest());
        let relu = Relu { sign, form: self.options.relu, truncate: 0 };
        self.modulo(name, Op::Relu(relu), &[x.id])
    }

    /// x between −`bound` and `bound`, a word, whatever x is: where it lies between them, x. With y
    /// = max(x + bound, 0), which is no negative word whatever x + bound has wrapped to, bound −
    /// max(2·bound − y, 0): 2·bound − y does not wrap.
    pub(crate) fn bounded(&mut self, x: &Secret, bound: i64) -> Result<Secret, Refusal> {
        let moved = |coefficient, constant| Op::Combine { coefficients: vec![coefficient], constant };
        let y = self.modulo("above-low", moved(1, bound), &[x.id])?;
        let y = self.relu_of_any("not-below-low", &y)?;
        let y = self.modulo("below-high", moved(-1, 2 * bound), &[y.id])?;
        let y = self.relu_of_any("not-above-high", &y)?;
        let y = self.modulo("bounded", moved(-1, bound), &[y.id])?;
        Ok(Secret { range: Range::uniform((-bound).into(), bound.into()), ..y })
    }

    /// Whether a value is data as its owner gives it, or elements of it.
    pub(crate) fn is_data(&self, x: &Secret) -> bool {
        let mut id = x.id;
        loop {
            if self.data.contains(&id) {
                return true;
            }
            match self.plan.steps.iter().rev().find(|step| step.output == id) {
                Some(step) if matches!(step.op, Op::View(_)) => id = step.inputs[0],
                _ => return false,
            }
        }
    }

    /// x · y, modulo 2^ℓ.
    pub(crate) fn matmul_modulo(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        self.modulo(name, Op::MatMul, &[x.id, y.id])
    }

    /// The sum along an axis, modulo 2^ℓ.
    pub(crate) fn sum_modulo(&mut self, name: &str, x: &Secret, axis: usize) -> Result<Secret, Refusal> {
        self.modulo(name, Op::Sum { axis }, &[x.id])
    }

    /// The elements of a sum under another shape.
    pub(crate) fn shaped_modulo(&mut self, name: &str, x: &Secret, to: Shape) -> Result<Secret, Refusal> {
        self.modulo(name, Op::View(View::whole(to)), &[x.id])
    }

    /// x and noise of `deviation` words, taken to lie within `bound`.
    pub(crate) fn with_noise(
        &mut self,
        name: &str,
        x: &Secret,
        deviation: u64,
        bound: i128,
    ) -> Result<Secret, Refusal> {
        let (shape, frac) = (self.shape(x).clone(), self.frac_of(x));
        let noise = self.modulo("noise", Op::Noise { shape, frac, deviation }, &[])?;
        let sum = Op::Combine { coefficients: vec![1, 1], constant: 0 };
        self.emit(name, sum, &[x.id, noise.id], Range::uniform(-bound, bound))
    }
}
