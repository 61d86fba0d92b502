//! Polynomials of degree 7 in three products deep: p(w) = a(w) + w⁴·b(w) with a and b of degree 3.
//!
//! w lies in [−1, 1] (a little more does no harm), where the coefficients of the functions here fall off quickly, so powers
//! need few bits: g = 20 on the 64-bit ring, 9 on the 32-bit ring. Products: w², then w³ and w⁴, then w⁴·b; the first
//! two levels are truncated, the last result carries ℓ − 6 fraction bits, so that |p| < 8.
//! Rounding: each power is off by at most a few units of 2^−g, the result by about 2^(2−g) times the derivative's size.

use crate::lowering::{Lowering, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use megrez_ring::Shape;

/// c0 to c7.
pub(super) type Coefficients = [f32; 8];

/// Fraction bits of w.
pub(super) fn argument_bits(ring: u32) -> u32 {
    if ring == 64 { 20 } else { 9 }
}

/// p(w); the result has ℓ − 6 fraction bits.
pub(super) fn polynomial(cx: &mut Lowering, w: &Secret, c: &Coefficients) -> Result<Secret, Refusal> {
    let g = cx.frac_of(w);
    let scale = cx.ring() - 6;
    let (inner, outer) = (scale - 2 * g, scale - g);
    let non_negative = |range: &Range| range.map(|b| b.max(0));
    let square = cx.mul("w2-product", w, w)?;
    let range = non_negative(&square.range);
    let square = cx.rounded("w2", &square.within(range), g)?;
    let shape = cx.shape(w).clone();
    let twice: Shape = [&[2], shape.dims()].concat().into();
    let both = cx.stack("w-w2", &[w, &square])?;
    let squares = cx.broadcast("w2-w2", &square, &twice)?;
    let higher = cx.mul("w3-w4-product", &both, &squares)?;
    let higher = cx.rounded("w3-w4", &higher, g)?;
    let powers = cx.unstack("power", &higher, &shape)?;
    let [cube, fourth] = &powers[..] else { unreachable!("two powers were stacked") };
    let range = non_negative(&fourth.range);
    let fourth = fourth.clone().within(range);

    let cubic = |cx: &mut Lowering, name: &str, c: &[f32], bits: u32| {
        let mut terms = vec![];
        for (&c, power) in c[1..].iter().zip([w, &square, cube]) {
            terms.push((cx.encode(c, bits)?, power));
        }
        let constant = cx.encode(c[0], g + bits)?;
        let sum = cx.combine(name, &terms, constant)?;
        cx.rescale(&format!("{name}-scale"), &sum, g + bits)
    };
    let high = cubic(cx, "high", &c[4..], inner)?;
    let low = cubic(cx, "low", &c[..4], outer)?;
    let high = cx.mul("w4-product", &fourth, &high)?;
    cx.combine("polynomial", &[(1, &high), (1, &low)], 0)
}
