//! Secret bits: of words, as matrices, and numbers by their bits. Bits of a number lie along the
//! first dimension, the lowest first.

use super::operand::Secret;
use super::plan::Lowering;
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::{Op, View};
use megrez_ring::Shape;

fn bit() -> Range {
    Range::uniform(0, 1)
}

impl Lowering<'_> {
    /// Whether matrices of bits are multiplied.
    pub(crate) fn multiplies_bits(&self) -> bool {
        self.options.multiplies_bits
    }

    /// x [batch, m, k, lanes] · y [batch, k, n, lanes] over F_2.
    pub(crate) fn bit_product(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::BitMatMul, &[x.id, y.id], bit())
    }

    /// Zeros and ones as secret bits, named after their role, beside a value that is there. Local.
    pub(crate) fn hidden_bits(
        &mut self,
        beside: &Secret,
        (role, bits): (&str, &Tensor),
    ) -> Result<Secret, Refusal> {
        let numbers = self.hidden_at(beside, (role, bits), 0)?;
        self.low_bit("bits", &numbers)
    }

    /// The lowest bits of words. Local.
    fn low_bit(&mut self, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::LowBit, &[x.id], bit())
    }

    /// a ⊕ b. Local.
    pub(crate) fn xor(&mut self, name: &str, x: &Secret, y: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::Xor, &[x.id, y.id], bit())
    }

    fn not(&mut self, name: &str, x: &Secret) -> Result<Secret, Refusal> {
        self.emit(name, Op::Not, &[x.id], bit())
    }

    /// The lowest `bits` bits of whole numbers from 0 to 2^`bits` − 1, which everybody knows them
    /// to be.
    ///
    /// Bit j is the lowest of ⌊x / 2^j⌋. A truncation gives that or one more, and its distance from
    /// x says which: x − 2^j·t ≥ 0 if t = ⌊x / 2^j⌋, and below 0 if it is one more. So all bits
    /// take a truncation and a comparison of j + 2 bits, side by side.
    pub(crate) fn bits_of(&mut self, x: &Secret, bits: u32) -> Result<Secret, Refusal> {
        // A truncation drops fraction bits.
        let x = self.rescale("as-fraction", x, bits)?;
        let mut planes = vec![self.low_bit("bit", &x)?];
        for j in 1..bits {
            let high = x.range.truncated(j);
            let near = self.emit("near", Op::Truncate { bits: j }, &[x.id], high)?;
            let whole = self.rescale("whole", &near, bits)?;
            let most = 1i128 << j;
            let left = Range::uniform(-most, most);
            let left = self.combine_within("left", &[(1, &x), (-(1 << j), &whole)], 0, left)?;
            let floor = self.reached("floor", &left, most, true)?;
            let more = self.not("one-more", &floor)?;
            let low = self.low_bit("bit", &near)?;
            planes.push(self.xor("bit", &low, &more)?);
        }
        self.stack("bits", &planes.iter().collect::<Vec<_>>())
    }

    /// The bits [x > y] of numbers by their bits, of y the complements.
    ///
    /// Of every part of the bits it is found out whether x is above y there, and whether they are
    /// equal: of three bits at first, then of four parts, of which the highest that is not equal
    /// decides. One round, and two bits for a part; the lowest needs not know whether it is equal.
    pub(crate) fn exceeds(&mut self, name: &str, x: &Secret, not_y: &Secret) -> Result<Secret, Refusal> {
        let count = self.shape(x).dims()[0];
        let equal = self.xor("equal", x, not_y)?;
        // Where x has what y lacks, it is above: a conjunction.
        let all = self.concat("bits", &[&equal, x, not_y], 0)?;
        let above = |bit: usize| vec![count + bit, 2 * count + bit];
        let mut parts = count.div_ceil(3);
        let mut decided = self.decide(name, &all, [count, parts], |bit| bit, above)?;
        while parts > 1 {
            let (from, to) = (parts, parts.div_ceil(4));
            // Behind what is above stands what is equal, but for the lowest.
            decided = self.decide(name, &decided, [from, to], |part| from + part - 1, |part| vec![part])?;
            parts = to;
        }
        let to: Shape = self.shape(&decided).dims()[1..].to_vec().into();
        self.view(name, &decided, View::whole(to))
    }

    /// Makes `to` parts of `from`, as even as can be: whether x is above y in each, and behind
    /// these, of each but the lowest, whether they are equal. Of the parts that there are it is
    /// known which slice says that they are equal, and which ones that they are above.
    fn decide(
        &mut self,
        name: &str,
        of: &Secret,
        [from, to]: [usize; 2],
        equal: impl Fn(usize) -> usize,
        above: impl Fn(usize) -> Vec<usize>,
    ) -> Result<Secret, Refusal> {
        let group = |part: usize| part * from / to..(part + 1) * from / to;
        let rising = |mut factors: Vec<usize>| {
            factors.sort_unstable();
            factors
        };
        let term = |part: usize, end: usize| {
            rising((part + 1..end).map(&equal).chain(above(part)).collect::<Vec<_>>())
        };
        let is_above = (0..to).map(|part| {
            let group = group(part);
            group.clone().map(|one| term(one, group.end)).collect::<Vec<_>>()
        });
        let is_equal = (1..to).map(|part| vec![rising(group(part).map(&equal).collect())]);
        let sums = is_above.chain(is_equal).collect();
        self.emit(name, Op::BitPolynomials { sums }, &[of.id], bit())
    }
}
