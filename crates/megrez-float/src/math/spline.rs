//! Evaluation of splines on fixed-point positions.
//!
//! SECFLOAT evaluates its splines in floating point with q = 27. Here the factor that carries the
//! dynamic range is split off first (the exponent of 2^x, x of sin(πx) = x·g(x)), and what is left
//! lies between two fixed powers of two: integers do, and knots may be equidistant, so that a few
//! top bits of the position are the row's number.

use crate::any::{AnyBlocks, Factor, Failure, Int, Msb, Truncate};
use crate::blocks::{Blocks, Table};
use crate::single::only;

/// 2^index pieces. With t in [0, 1) the position in a piece, the value is c0 + (c1 + (c2 + …)·t)·t,
/// each product rounded down to a whole unit. See `scripts/float_tables.py`.
pub(crate) struct Spline {
    /// Bits of the row's number.
    pub index: u32,
    /// Bits of the position in a piece.
    pub inside: u32,
    /// Rings of the value, of what is multiplied last, and so on to the highest coefficient.
    pub widths: &'static [u32],
    /// Signs of what is multiplied last, and so on, where all pieces agree.
    pub negative: &'static [Option<bool>],
    /// c0, c1 and so on of every piece.
    pub coefficients: &'static [i64],
}

impl Spline {
    pub fn table(&self) -> Table {
        let columns = self.widths.len();
        let row = |i: u64| &self.coefficients[i as usize * columns..][..columns];
        Table::new(self.index, self.widths, 0, |i| row(i).iter().map(|&c| c as u64).collect())
    }

    /// The value at x mod 2^(index + inside), in `widths[0]` bits, and with `whole` also ⌊x /
    /// 2^(index + inside)⌋.
    pub fn evaluate(&self, b: &mut AnyBlocks, x: &Int, whole: bool) -> Result<(Int, Option<Int>), Failure> {
        // Of t no more bits than its factor has are worth multiplying.
        let kept = |degree: usize| self.inside.min(self.widths[degree]);
        let mut cuts: Vec<u32> =
            (1..self.widths.len()).map(|d| self.inside - kept(d)).filter(|&c| c > 0).collect();
        cuts.push(self.inside);
        if whole {
            cuts.push(self.inside + self.index);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut tails = only(b.truncate(&[Truncate { x, cuts: &cuts }])?);
        let whole = if whole { tails.pop() } else { None };
        let top = tails.pop().expect("the cut at the piece");
        let row = b.row(&b.low(&top, self.index), &self.table())?.ints;
        let mut value = row[self.widths.len() - 1].clone();
        for degree in (1..self.widths.len()).rev() {
            let bits = kept(degree);
            let tail = cuts.iter().position(|&c| c == self.inside - bits).map_or(x, |i| &tails[i]);
            let t = b.low(&b.sub(tail, &b.shift(&top, bits)), bits + 1);
            let rise = step(b, &value, self.negative[degree - 1], &t, self.widths[degree - 1])?;
            value = b.add(&row[degree - 1], &rise);
        }
        Ok((value, whole))
    }
}

/// ⌊c·t⌋ in `width` bits, for a signed c whose sign is as said, and t in [0, 1) with a zero bit on
/// top.
fn step(b: &mut AnyBlocks, c: &Int, negative: Option<bool>, t: &Int, width: u32) -> Result<Int, Failure> {
    let msb = match negative {
        None => Msb::Unknown,
        Some(false) => Msb::Zero,
        Some(true) => Msb::One,
    };
    let fraction = b.width(t) - 1;
    let c = Factor { x: c, signed: true, msb };
    let product = b.product(c, Factor::small(t), width + fraction)?;
    b.cut(&product, fraction)
}
