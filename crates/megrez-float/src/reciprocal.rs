//! Reciprocals and inverse square roots of mantissas: a piecewise linear start, one-sided, and one
//! Newton step.
//!
//! SECFLOAT starts from a table of constants and takes two steps; a linear start from half the rows
//! needs one. The start never exceeds the true value, so that residuals are not negative and their
//! products need no comparison.

use crate::any::{AnyBlocks, Factor, Failure, Int, Truncate};
use crate::blocks::{Blocks, Table, mask};
use crate::single::only;

/// Fraction bits of the start.
pub(crate) const START: u32 = 18;
/// Bits of the position inside a piece.
const INSIDE: u32 = 12;
/// Fraction bits of a slope; it is multiplied by at most 2^−6.
const SLOPE: u32 = 12;

/// Index bits of the start's table: enough that one Newton step makes it good for q.
pub(crate) const fn index_bits(q: u32) -> u32 {
    if q > 23 { 7 } else { 6 }
}

/// Rows (value at the piece's left, drop per unit) of a convex falling f on [1, 2), such that value
/// − drop·t never exceeds f.
pub(crate) fn lines(q: u32, f: impl Fn(f64) -> f64, derivative: impl Fn(f64) -> f64) -> Vec<[u64; 2]> {
    let rows = 1u64 << index_bits(q);
    let step = 1.0 / rows as f64;
    let row = |i: u64| {
        let left = 1.0 + i as f64 * step;
        // The tangent in the middle lies below f; the slope's rounding is made up for at the far
        // end.
        let middle = left + step / 2.0;
        let drop = (-derivative(middle) * f64::from(1 << SLOPE)).round();
        let tilt = (drop / f64::from(1 << SLOPE) + derivative(middle)).abs() * step / 2.0;
        let value = f(middle) + drop / f64::from(1 << SLOPE) * step / 2.0 - tilt;
        [(value * f64::from(1 << START)).floor() as u64, drop as u64]
    };
    (0..rows).map(row).collect()
}

/// The lines' value for mantissas of q + 1 bits with the top bit set, in a ring of more bits: scale
/// `START`, `START` + 2 bits, never above the true value. `rows` looks up the columns of [`lines`]
/// given the mantissa without its low bits.
pub(crate) fn start(
    b: &mut AnyBlocks,
    man: &Int,
    q: u32,
    rows: impl FnOnce(&mut AnyBlocks, &Int) -> Result<[Int; 2], Failure>,
) -> Result<Int, Failure> {
    let index = index_bits(q);
    let high = q - index;
    let inside = high.min(INSIDE);
    let cuts = [high - inside, high];
    let tails = match high - inside {
        0 => {
            let top = only(b.truncate(&[Truncate { x: man, cuts: &cuts[1..] }])?);
            vec![man.clone(), top[0].clone()]
        }
        _ => only(b.truncate(&[Truncate { x: man, cuts: &cuts }])?),
    };
    let wide = b.sub(&tails[0], &b.shift(&tails[1], inside));
    let t = b.low(&wide, inside + 1);
    let [value, drop] = rows(b, &tails[1])?;
    // t has scale index + inside, the drop SLOPE; the product is rounded up, for the start must not
    // be too large.
    let surplus = index + inside + SLOPE - START;
    let product = b.product(Factor::small(&t), Factor::small(&drop), START + 2 + surplus)?;
    let product = b.offset(&product, mask(surplus));
    // The positions that were cut off count as one more.
    let product = if cuts[0] == 0 { product } else { b.offset(&product, 1 << SLOPE) };
    let fall = b.cut(&product, surplus)?;
    Ok(b.sub(&value, &fall))
}

pub(crate) const ROW_WIDTHS: [u32; 2] = [START + 2, SLOPE + 2];

/// 2^q/man, for man in [2^q, 2^(q+1)) in q + 2 bits, at scale q + 5 in q + 7 bits: at most the true
/// value, and less than 2^−(q+2) of it below. The result for man = 0 means nothing.
pub(crate) fn reciprocal(b: &mut AnyBlocks, man: &Int, q: u32) -> Result<Int, Failure> {
    let rows = lines(q, |x| 1.0 / x, |x| -1.0 / (x * x));
    let table = Table::new(index_bits(q), &ROW_WIDTHS, 0, |i| rows[i as usize].to_vec());
    let r = start(b, man, q, |b, top| {
        let index = b.low(top, index_bits(q));
        Ok(b.row(&index, &table)?.ints.try_into().map_err(|_| ()).expect("two columns"))
    })?;
    let scale = q + 5;
    if scale < START {
        let r = b.cut(&r, START - scale)?;
        return Ok(r);
    }
    // f = 1 − man·r is at least zero and below 2^−13: its low bits are all of it.
    let residual = q + START - 12;
    let product = b.product(Factor::small(man), Factor::small(&r), residual)?;
    let f = b.neg(&b.low(&product, residual));
    // r + r·f, with f at scale q + 7; both truncations go down.
    let f = b.cut(&f, START - 7)?;
    let f_scale = q + 7;
    let drop = START + f_scale - scale;
    let more = b.product(Factor::small(&r), Factor::small(&f), scale + 2 + drop)?;
    let more = b.cut(&more, drop)?;
    let r = b.shift(&r, scale - START);
    Ok(b.add(&r, &more))
}
