//! Evaluation of splines on fixed-point positions.
//!
//! SECFLOAT evaluates its splines in floating point with q = 27. Here the factor that carries the dynamic range is split off
//! first (the exponent of 2^x, x of sin(πx) = x·g(x)), and what is left lies between two fixed powers of two: integers do, and
//! knots may be equidistant, so that a few top bits of the position are the row's number.

use crate::blocks::{Blocks, Factor, Msb, Table, Truncate};
use crate::single::Single;

/// 2^index pieces of degree 2. With t in [0, 1) the position in a piece, the value is c0 + (c1 + c2·t)·t, each product rounded
/// down to a whole unit. See `scripts/float_tables.py`.
pub(crate) struct Spline {
    /// Bits of the row's number.
    pub index: u32,
    /// Bits of the position in a piece.
    pub inside: u32,
    /// Rings of c0, of c1 + c2·t, and of c2.
    pub widths: [u32; 3],
    /// Signs of c1 + c2·t and of c2, where all pieces agree.
    pub negative: [Option<bool>; 2],
    /// c0, c1, c2.
    pub rows: &'static [[i64; 3]],
}

impl Spline {
    pub fn table(&self) -> Table {
        Table::new(self.index, &self.widths, 0, |i| self.rows[i as usize].map(|c| c as u64).to_vec())
    }

    /// The value at x mod 2^(index + inside), in `widths[0]` bits, and with `whole` also ⌊x / 2^(index + inside)⌋.
    pub fn evaluate<B: Blocks>(
        &self,
        b: &mut B,
        x: &B::Int,
        whole: bool,
    ) -> Result<(B::Int, Option<B::Int>), B::Error> {
        // c2 is small: few bits of t are enough for its product.
        let coarse = self.inside.min(self.widths[2]);
        let mut cuts = vec![self.inside];
        if coarse < self.inside {
            cuts.insert(0, self.inside - coarse);
        }
        if whole {
            cuts.push(self.inside + self.index);
        }
        let mut tails = B::one(b.truncate(&[Truncate { x, cuts: &cuts }])?);
        let whole = if whole { tails.pop() } else { None };
        let top = tails.pop().expect("the cut at the piece");
        let t = b.low(&b.sub(x, &b.shift(&top, self.inside)), self.inside + 1);
        let t_coarse = match tails.pop() {
            Some(tail) => b.low(&b.sub(&tail, &b.shift(&top, coarse)), coarse + 1),
            None => t.clone(),
        };
        let row = b.row(&b.low(&top, self.index), &self.table())?.ints;
        let slope = step(b, &row[2], self.negative[1], &t_coarse, self.widths[1])?;
        let slope = b.add(&row[1], &slope);
        let rise = step(b, &slope, self.negative[0], &t, self.widths[0])?;
        Ok((b.add(&row[0], &rise), whole))
    }
}

/// ⌊c·t⌋ in `width` bits, for a signed c whose sign is as said, and t in [0, 1) with a zero bit on top.
fn step<B: Blocks>(
    b: &mut B,
    c: &B::Int,
    negative: Option<bool>,
    t: &B::Int,
    width: u32,
) -> Result<B::Int, B::Error> {
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
