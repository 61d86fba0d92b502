//! Square root: secfloat.md §2, with one Newton step from a linear start of the inverse root.
//!
//! With u = m·2^(exponent's parity) in [1, 4), y ≤ 1/√u from the table and s = u·y, the root is s +
//! (u − s²)·y/2 up to the square of y's relative error, below √u. So m' = ⌊that⌋ is the correctly
//! rounded root or one less, and m'² + m' against u decides; (m' + ½)² is no integer, so there is
//! no tie. Rounding never carries, for √(4 − 2^(1−q)) < 2 − 2^−(q+1).

use crate::any::{AnyBlocks, Extend, Factor, Failure, Int, Msb};
use crate::blocks::{Blocks, Table};
use crate::finish::{canonical, two};
use crate::float::Float;
use crate::reciprocal::{ROW_WIDTHS, START, index_bits, lines, start};
use crate::single::only;

/// √x, correctly rounded; NaN for x < 0; −0 for −0.
///
/// # Errors
/// If the blocks fail.
pub fn sqrt(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let format = x.format;
    let (p, q, lanes) = (format.p, format.q, x.lanes(b));

    // ⌊exp/2⌋, made positive on the way.
    let odd = b.parity(&x.exp);
    let half = b.cut(&b.offset(&x.exp, 1 << (p - 1)), 1)?;
    let top = b.not(&x.zero);
    let [half, m] = two(b.extend(&[
        Extend { x: &half, width: p + 2, signed: false, msb: Msb::Zero },
        Extend { x: &x.man, width: q + 3, signed: false, msb: Msb::Shared(&top) },
    ])?);
    let exp = b.offset(&half, (1u64 << (p - 2)).wrapping_neg());

    // Both tables at once: rows for 1/√m and for 1/√(2m).
    let even_rows = lines(q, |u| 1.0 / u.sqrt(), |u| -0.5 / (u * u.sqrt()));
    let odd_rows = lines(q, |u| 1.0 / (2.0 * u).sqrt(), |u| -1.0 / ((2.0 * u) * (2.0 * u).sqrt()));
    let index = index_bits(q);
    let table = Table::new(index + 1, &ROW_WIDTHS, 0, |i| {
        let rows = if i >> index == 1 { &odd_rows } else { &even_rows };
        rows[(i & ((1 << index) - 1)) as usize].to_vec()
    });
    let y = start(b, &m, q, |b, top| {
        // The leading one and the parity are added in the place above the index bits.
        let marker = b.shift(&b.narrow(&b.not(&odd)), index);
        let index = b.add(&b.low(top, index + 1), &marker);
        Ok(b.row(&index, &table)?.ints.try_into().map_err(|_| ()).expect("two columns"))
    })?;
    let twice = b.times(&odd, &m)?;
    let u = b.add(&m, &twice);

    let m = match q > START - 5 {
        true => refined(b, &u, &y, q)?,
        // The start alone is good enough.
        false => {
            let root = b.product(Factor::small(&u), Factor::small(&y), q + 4 + START)?;
            b.cut(&root, START)?
        }
    };

    // (m + ½)² < u·2^q, in the few bits where the two can differ.
    let square = b.product(Factor::unsigned(&m), Factor::unsigned(&m), q + 4)?;
    let rest = b.sub(&b.add(&square, &m), &b.shift(&b.low(&u, 4), q));
    let up = b.is_negative(&rest)?;
    let up = only(b.widen(&[(&up, q + 1)])?);
    let man = b.add(&b.low(&m, q + 1), &up);

    let nonzero = b.not(&x.zero);
    let signed = b.gates(&[(&x.sign, &nonzero), (&x.sign, &x.inf)])?;
    let wrong = b.both(&x.nan, &signed[0])?;
    let nan = b.union(&x.nan, &signed[0], &wrong);
    let inf = b.xor(&x.inf, &signed[1]);
    // Only −0 keeps its sign.
    let sign = b.xor(&x.sign, &signed[0]);
    let carry = b.public_bits(&vec![false; lanes]);
    let draft = Float { format, zero: x.zero.clone(), inf, nan, sign, exp, man };
    canonical(b, draft, &carry)
}

/// √u at scale q in q + 4 bits, at most half a place below, by one Newton step from y ≤ 1/√u.
fn refined(b: &mut AnyBlocks, u: &Int, y: &Int, q: u32) -> Result<Int, Failure> {
    // s = u·y at scale START, and u − s² at twice that: at least zero and below 2^−11.
    let residual = 2 * START - 10;
    let s = b.product(Factor::small(u), Factor::small(y), q + residual)?;
    let s = b.cut(&s, q)?;
    let square = b.product(Factor::unsigned(&s), Factor::unsigned(&s), residual)?;
    let up = 2 * START - q;
    let rest = b.sub(&b.shift(&b.low(u, residual - up), up), &square);
    // (u − s²)·y/2 at scale q + 3.
    let drop = 3 * START + 1 - (q + 3);
    let more = b.product(Factor::small(&rest), Factor::small(y), q + 7 + drop)?;
    let more = b.cut(&more, drop)?;
    let s = b.shift(&b.low(&s, START + 4), q + 3 - START);
    b.cut(&b.add(&s, &more), 3)
}
