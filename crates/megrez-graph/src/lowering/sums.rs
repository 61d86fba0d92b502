//! Sums, and the scales that their terms must have in common.

use super::affine::Affine;
use super::operand::{Secret, Weight};
use super::plan::Lowering;
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::{Op, ValueId, View};
use megrez_ring::Shape;

impl Lowering<'_> {
    /// Σ coefficient · value + constant, all of one shape and scale.
    pub fn combine(
        &mut self,
        name: &str,
        terms: &[(i64, &Secret)],
        constant: i64,
    ) -> Result<Secret, Refusal> {
        let ranges: Vec<(i64, &Range)> = terms.iter().map(|(c, x)| (*c, &x.range)).collect();
        let range = Range::combine(&ranges, constant);
        let parts: Vec<(i64, Affine)> = terms.iter().map(|(c, x)| (*c, self.affine(x))).collect();
        let sum = Affine::sum(&parts, constant);
        let range = sum.iter().fold(range, |range, sum| range.tighten(&sum.range()));
        let ids: Vec<ValueId> = terms.iter().map(|(_, x)| x.id).collect();
        let coefficients = terms.iter().map(|(c, _)| *c).collect();
        let y = self.emit(name, Op::Combine { coefficients, constant }, &ids, range)?;
        self.sums.extend(sum.map(|sum| (y.id, sum)));
        Ok(y)
    }

    /// A value as a sum of others, or of itself.
    fn affine(&self, x: &Secret) -> Affine {
        self.sums.get(&x.id).cloned().unwrap_or_else(|| Affine::of(x))
    }

    /// As [`Lowering::combine`], for a sum that is known to lie in `range` whatever its terms do:
    /// they may wrap.
    pub fn combine_within(
        &mut self,
        name: &str,
        terms: &[(i64, &Secret)],
        constant: i64,
        range: Range,
    ) -> Result<Secret, Refusal> {
        let ids: Vec<ValueId> = terms.iter().map(|(_, x)| x.id).collect();
        let coefficients = terms.iter().map(|(c, _)| *c).collect();
        self.emit(name, Op::Combine { coefficients, constant }, &ids, range)
    }

    /// The sum along an axis, which stays with size 1.
    pub fn sum(&mut self, name: &str, x: &Secret, axis: usize) -> Result<Secret, Refusal> {
        let count = self.shape(x).dims()[axis];
        if count == 1 {
            return Ok(x.clone());
        }
        let range = if axis == 1 { x.range.merged() } else { x.range.clone() };
        self.emit(name, Op::Sum { axis }, &[x.id], range.sum(count))
    }

    /// The same words, read with another number of fraction bits.
    pub fn rescale(&mut self, name: &str, x: &Secret, frac: u32) -> Result<Secret, Refusal> {
        if frac == self.frac_of(x) {
            return Ok(x.clone());
        }
        let sum = self.affine(x);
        let y = self.emit(name, Op::Rescale { frac }, &[x.id], x.range.clone())?;
        self.sums.insert(y.id, sum);
        Ok(y)
    }

    /// The same number with `frac` fraction bits, at least as many as it has.
    pub fn scaled_up(&mut self, x: &Secret, frac: u32) -> Result<Secret, Refusal> {
        let more = frac - self.frac_of(x);
        if more == 0 {
            return Ok(x.clone());
        }
        if more >= self.options.ring - 2 {
            return self.no_room(&format!("{}/scaled", self.layer), i128::MAX, self.options.ring - 1);
        }
        let scaled = self.combine("scaled", &[(1 << more, x)], 0)?;
        self.rescale("scaled-to", &scaled, frac)
    }

    /// All values with as many fraction bits as the one with most.
    pub fn aligned(&mut self, values: &[&Secret]) -> Result<Vec<Secret>, Refusal> {
        let frac = values.iter().map(|x| self.frac_of(x)).max().unwrap_or(0);
        values.iter().map(|x| self.scaled_up(x, frac)).collect()
    }

    /// x + weights, which are broadcast to the shape of x and encoded at its scale: no truncation
    /// is needed.
    pub fn bias(&mut self, x: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        let to = self.shape(x).clone();
        let weight = self.weight("bias", tensor, self.frac_of(x))?;
        let range = Range::of_words(&weight.words, &weight.shape, &to);
        let mut addend = Secret { id: weight.id, range: range.merged() };
        if !self.options.private_weights {
            addend = self.public_as_ring(x, &weight)?;
        }
        let addend = self.broadcast("bias-broadcast", &addend, &to)?.within(range);
        self.combine("biased", &[(1, x), (1, &addend)], 0)
    }

    /// Whole numbers that everybody sees as a value of the plan, beside one that is there. Local.
    pub(crate) fn published(&mut self, beside: &Secret, numbers: &Tensor) -> Result<Secret, Refusal> {
        let y = self.whole_numbers(beside, numbers)?;
        self.scaled_up(&y, self.frac())
    }

    /// As [`published`](Self::published), without fraction bits.
    pub(crate) fn whole_numbers(&mut self, beside: &Secret, numbers: &Tensor) -> Result<Secret, Refusal> {
        let words = self.constant("numbers", numbers, 0)?;
        self.public_as_ring(beside, &words)
    }

    /// Weights as a secret value beside one that is there, at the plan's scale.
    pub(crate) fn hidden(&mut self, beside: &Secret, tensor: &Tensor) -> Result<Secret, Refusal> {
        self.hidden_at(beside, ("constant", tensor), self.frac())
    }

    /// The same with `frac` fraction bits, named after their role.
    pub(crate) fn hidden_at(
        &mut self,
        beside: &Secret,
        (role, tensor): (&str, &Tensor),
        frac: u32,
    ) -> Result<Secret, Refusal> {
        let weight = self.weight(role, tensor, frac)?;
        if !self.options.private_weights {
            return self.public_as_ring(beside, &weight);
        }
        let range = Range::of_words(&weight.words, &weight.shape, &weight.shape).merged();
        Ok(Secret { id: weight.id, range })
    }

    /// Public words as a ring value: the public words times a ring value 1, which is 0 · x + 1.
    /// Local.
    pub(super) fn public_as_ring(&mut self, x: &Secret, weight: &Weight) -> Result<Secret, Refusal> {
        let one = View { shape: Shape::from([1]), strides: vec![0], offset: 0 };
        let one = self.view("one-element", x, one)?;
        let one = self.combine("one", &[(0, &one)], 1)?;
        let one = self.rescale("one-integer", &one, 0)?;
        let ones = View { shape: weight.shape.clone(), strides: vec![0; weight.shape.rank()], offset: 0 };
        let ones = self.view("ones", &one, ones)?;
        let range = Range::of_words(&weight.words, &weight.shape, &weight.shape).merged();
        self.emit("bias-shared", Op::Mul, &[ones.id, weight.id], range)
    }
}
