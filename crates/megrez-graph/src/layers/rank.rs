//! The order of the numbers of a row: for each how many are before it, by comparing all pairs at
//! once, in one comparison. Of equal numbers the first counts as larger, or the last. ArgMax within
//! a plan, and what Hardmax and TopK are made of.

use super::call::{Call, axis};
use super::lines::Lines;
use super::winner;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::ValueId;
use megrez_ring::Shape;
use std::sync::Arc;

/// The operator's name in a graph; ONNX has none for it.
pub(crate) const RANK: &str = "Rank";

/// The longest row: pairs grow with the square.
pub(crate) const MOST: usize = 64;

struct Rank {
    lines: Lines,
    shape: Shape,
    last: bool,
}

pub(super) fn rank(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis", "last"])?;
    let shape = call.shape(0)?.clone();
    let along = axis(call.int("axis", -1)?, shape.rank())?;
    let lines = Lines::new(&shape, &[along]);
    Ok(Arc::new(Rank { lines, shape, last: call.int("last", 0)? != 0 }))
}

/// For rows [r, n], how many numbers of the row are before each, without fraction bits.
pub(super) fn ranks(cx: &mut Lowering, x: &Secret, last: bool) -> Result<Secret, Refusal> {
    let &[rows, n] = cx.shape(x).dims() else { unreachable!("rows are a matrix") };
    if n > MOST {
        return refuse(format!("orders {n} numbers, and {MOST} are the most"), "reduce them before");
    }
    if n == 1 {
        let zero = cx.combine("nothing", &[(0, x)], 0)?;
        return cx.rescale("nothing-whole", &zero, 0);
    }
    let pairs: Vec<(usize, usize)> = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect();
    let [first, second]: [Vec<usize>; 2] =
        [pairs.iter().map(|p| p.0).collect(), pairs.iter().map(|p| p.1).collect()];
    let (a, b) = (cx.pick("first", x, 1, &first)?, cx.pick("second", x, 1, &second)?);
    let difference = cx.combine("difference", &[(1, &a), (-1, &b)], 0)?;
    // 1 where the first of a pair is before the second.
    let bits = cx.thermometer("compare", &difference, &[i64::from(last)])?;
    let ones = cx.bit_to_ring("before", &bits)?;
    let ones = cx.reshape("pairs", &ones, [rows, pairs.len()].into())?;
    let mut places = vec![];
    for i in 0..n {
        let of = |f: &dyn Fn(&(usize, usize)) -> bool| {
            pairs.iter().enumerate().filter(|(_, p)| f(p)).map(|(k, _)| k).collect::<Vec<usize>>()
        };
        let (wins, losses) = (of(&|p| p.0 == i), of(&|p| p.1 == i));
        let mut sums = vec![];
        for (name, sign, list) in [("ahead", -1, wins), ("behind", 1, losses)] {
            if !list.is_empty() {
                let some = cx.pick(name, &ones, 1, &list)?;
                sums.push((sign, cx.sum(&format!("{name}-sum"), &some, 1)?));
            }
        }
        let terms: Vec<(i64, &Secret)> = sums.iter().map(|(sign, sum)| (*sign, sum)).collect();
        let place = cx.combine("place", &terms, (n - 1 - i) as i64)?;
        places.push(place.within(Range::uniform(0, n as i128 - 1)));
    }
    cx.concat("places", &places.iter().collect::<Vec<_>>(), 1)
}

/// The number of the first element of each row [r, n] in the order, as [r, 1].
pub(super) fn first(cx: &mut Lowering, x: &Secret, last: bool) -> Result<Secret, Refusal> {
    let n = cx.shape(x).dims()[1];
    if n > MOST {
        let ones = winner::place_of_largest(cx, x, last)?;
        let numbers = Tensor::new([1, n], (0..n).map(|i| i as f32).collect());
        let numbered = cx.mul_public("numbered", &ones, &numbers, 0)?;
        // There is one 1 in a row.
        let place = cx.sum("place", &numbered, 1)?;
        let place = Secret { range: Range::uniform(0, n as i128 - 1), ..place };
        return cx.scaled_up(&place, cx.frac());
    }
    let ranks = ranks(cx, x, last)?;
    let after = cx.thermometer("after", &ranks, &[1])?;
    let after = cx.bit_to_ring("after-number", &after)?;
    let to = cx.shape(&ranks).clone();
    let after = cx.reshape("after-shape", &after, to)?;
    let mut columns = vec![];
    for i in 0..n {
        columns.push(cx.pick("column", &after, 1, &[i])?);
    }
    let terms: Vec<(i64, &Secret)> = columns.iter().enumerate().map(|(i, c)| (-(i as i64), c)).collect();
    let all = (n * (n - 1) / 2) as i64;
    let place = cx.combine("place-of-first", &terms, all)?.within(Range::uniform(0, n as i128 - 1));
    let frac = cx.frac();
    cx.scaled_up(&place, frac)
}

impl Layer for Rank {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let rows = self.lines.plain(inputs[0]);
        let ranks = rows.data.chunks_exact(self.lines.size).flat_map(|row| {
            (0..row.len()).map(|i| {
                let before =
                    |j: usize| row[j] > row[i] || (row[j] == row[i] && if self.last { j > i } else { j < i });
                (0..row.len()).filter(|&j| before(j)).count() as f32
            })
        });
        self.lines.plain_join(ranks.collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = self.lines.split(cx, inputs[0].secret()?)?;
        let ranks = ranks(cx, &x, self.last)?;
        let frac = cx.frac();
        let ranks = cx.scaled_up(&ranks, frac)?;
        self.lines.join(cx, &ranks)
    }

    fn float(&self, _cx: &mut FloatLowering, _inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        refuse(
            "compares secret numbers, which floating point cannot yet",
            "run it in fixed point: --numbers fixed",
        )
    }

    fn work(&self) -> u64 {
        (self.lines.rows * self.lines.size * self.lines.size) as u64
    }
}
