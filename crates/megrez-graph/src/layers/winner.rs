//! Which number of a row is the largest: a one at its place and zeros elsewhere, exactly one of
//! them. For rows that are too long to compare all pairs ([`super::rank`]), such as the logits of a
//! language model.
//!
//! With n numbers of a row and k = ⌈log₂ n⌉, y_i = 2^k·x_i + (n − 1 − i), or + i where the last of
//! equal numbers counts. No two y are equal, so the largest is one of them; it is found by a
//! tournament of ⌈log₂ n⌉ exact ReLUs, and every y is compared with it at once. So k bits of room
//! are needed beside those of the numbers: of 64 bits, 16 for a vocabulary of 50,257. Cost: 2n − 1
//! comparisons of log₂ max|2y| bits, n conversions of bits; rounds: those of ⌈log₂ n⌉ ReLUs, one
//! comparison and one conversion.

use super::call::{Call, axis};
use super::lines::Lines;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::ValueId;
use megrez_ring::Shape;
use std::sync::Arc;

/// The operator's name in a graph. ONNX's Hardmax is it for long rows.
pub(crate) const WINNER: &str = "Winner";

struct Winner {
    lines: Lines,
    shape: Shape,
}

pub(super) fn winner(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis"])?;
    let shape = call.shape(0)?.clone();
    let along = axis(call.int("axis", -1)?, shape.rank())?;
    Ok(Arc::new(Winner { lines: Lines::new(&shape, &[along]), shape }))
}

/// The largest of every row [r, n] of different numbers, as [r, 1].
fn largest(cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
    let (mut x, mut level) = (x.clone(), 0);
    loop {
        let n = cx.shape(&x).dims()[1];
        if n == 1 {
            return Ok(x);
        }
        let name = |part: &str| format!("largest/{level}/{part}");
        let mut pick =
            |part: &str, from: usize, to: usize| cx.pick(&name(part), &x, 1, &(from..to).collect::<Vec<_>>());
        let half = n / 2;
        let (a, b) = (pick("left", 0, half)?, pick("right", half, 2 * half)?);
        let odd = if n % 2 == 1 { Some(pick("odd", n - 1, n)?) } else { None };
        let difference = cx.combine(&name("difference"), &[(1, &a), (-1, &b)], 0)?;
        let excess = cx.relu_exactly(&name("relu"), &difference)?;
        let mut larger = cx.combine_within(&name("max"), &[(1, &b), (1, &excess)], 0, x.range.clone())?;
        if let Some(odd) = odd {
            larger = cx.concat(&name("with-odd"), &[&larger, &odd], 1)?;
        }
        x = Secret { range: larger.range.merged(), ..larger };
        level += 1;
    }
}

/// For rows [r, n], a one at the place of the largest number and zeros elsewhere, without fraction
/// bits.
pub(super) fn place_of_largest(cx: &mut Lowering, x: &Secret, last: bool) -> Result<Secret, Refusal> {
    let x = cx.settle(x)?;
    let &[rows, n] = cx.shape(&x).dims() else { unreachable!("rows are a matrix") };
    let numbers = (0..n).map(|i| if last { i } else { n - 1 - i } as f32).collect();
    let numbers = cx.whole_numbers(&x, &Tensor::new([1, n], numbers))?;
    let numbers = cx.broadcast("numbers-of-rows", &numbers, &[rows, n].into())?;
    // As words, whatever they stand for: nothing below depends on the scale.
    let x = cx.rescale("words", &x, 0)?;
    let x = Secret { range: x.range.merged(), ..x };
    let factor = 1i64 << n.next_power_of_two().ilog2();
    let y = cx.combine("different", &[(factor, &x), (1, &numbers)], 0)?;
    let y = Secret { range: y.range.merged(), ..y };
    let most = largest(cx, &y)?;
    let most = cx.broadcast("largest", &most, &[rows, n].into())?;
    let below = cx.combine("below", &[(1, &y), (-1, &most)], 0)?;
    let bits = cx.reached("reached", &below, below.range.magnitude(), false)?;
    Ok(cx.bit_to_ring("place", &bits)?.within(Range::uniform(0, 1)))
}

impl Layer for Winner {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let rows = self.lines.plain(inputs[0]);
        let ones = rows.data.chunks_exact(self.lines.size).flat_map(|row| {
            let first = (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
            (0..row.len()).map(move |i| if i == first { 1.0 } else { 0.0 })
        });
        self.lines.plain_join(ones.collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = self.lines.split(cx, inputs[0].secret()?)?;
        let ones = place_of_largest(cx, &x, false)?;
        let ones = cx.scaled_up(&ones, cx.frac())?;
        self.lines.join(cx, &ones)
    }

    fn float(&self, _cx: &mut FloatLowering, _inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        refuse(
            "compares secret numbers, which floating point cannot yet",
            "run it in fixed point: --numbers fixed",
        )
    }

    fn work(&self) -> u64 {
        2 * self.shape.elements() as u64
    }
}
