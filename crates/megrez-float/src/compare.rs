//! Comparison, minimum and maximum, ReLU. SECFLOAT, Fig. 15 and Appendix N.
//!
//! Deviates from the figure: exponent and mantissa are one integer, which is compared once; the sign goes into that
//! comparison as a summand, so that no test for equality is needed.

use crate::add::keys;
use crate::blocks::Blocks;
use crate::float::{Float, choose};
use crate::single::Single;

/// x < y; false with a NaN. −0 and +0 are equal.
///
/// # Errors
/// If the blocks fail.
pub fn lt<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<B::Bit, B::Error> {
    compare(b, x, y, false)
}

/// x ≤ y; false with a NaN. −0 and +0 are equal.
///
/// # Errors
/// If the blocks fail.
pub fn le<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<B::Bit, B::Error> {
    compare(b, y, x, true)
}

/// x < y, or its negation, and false with a NaN.
///
/// Let d be the difference of the magnitudes. With equal signs s, x < y is d < 0 for s = 0 and d ≥ 1 for s = 1, so
/// s ⊕ (d − s < 0). With different signs it is s, x's, unless both are zero.
fn compare<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>, negate: bool) -> Result<B::Bit, B::Error> {
    assert_eq!(x.format, y.format, "formats differ");
    let [(x_key, _), (y_key, _)] = keys(b, [x, y])?;
    let sign = B::one(b.widen(&[(&x.sign, b.width(&x_key))])?);
    let d = b.sub(&b.sub(&x_key, &y_key), &sign);
    let same = b.not(&b.xor(&x.sign, &y.sign));
    let plus = b.not(&y.sign);
    let gates = b.and(&[(&x.nan, &y.nan), (&x.zero, &y.zero), (&x.sign, &plus)])?;
    let ordered = b.not(&b.union(&x.nan, &y.nan, &gates[0]));
    let fixed = b.and(&[(&ordered, &x.sign), (&ordered, &same), (&gates[1], &gates[2])])?;
    let below = b.is_negative(&d)?;
    let varies = b.both(&fixed[1], &below)?;
    let less = b.xor(&b.xor(&fixed[0], &fixed[2]), &varies);
    Ok(if negate { b.xor(&ordered, &less) } else { less })
}

/// x = y; false with a NaN. −0 and +0 are equal.
///
/// # Errors
/// If the blocks fail.
pub fn eq<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<B::Bit, B::Error> {
    assert_eq!(x.format, y.format, "formats differ");
    // A NaN has the mantissa of an infinity; the sign joins the key at its top.
    let [(x_key, _), (y_key, _)] = keys(b, [x, y])?;
    let apart = b.xor(&x.sign, &y.sign);
    let gates = b.and(&[(&x.nan, &y.nan), (&apart, &x.zero)])?;
    let excused = b.not(&b.xor(&apart, &gates[1]));
    let ordered = b.not(&b.union(&x.nan, &y.nan, &gates[0]));
    let may = b.both(&ordered, &excused)?;
    let same = B::one(b.is_zero(&[&b.sub(&x_key, &y_key)])?);
    b.both(&may, &same)
}

/// The larger of two numbers; NaN if one of them is. Of two equal numbers, the first: zeros keep its sign.
///
/// # Errors
/// If the blocks fail.
pub fn max<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    let less = lt(b, x, y)?;
    let take = b.xor(&less, &y.nan);
    choose(b, &take, y, x)
}

/// The smaller of two numbers; NaN if one of them is. Of two equal numbers, the first: zeros keep its sign.
///
/// # Errors
/// If the blocks fail.
pub fn min<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Float<B>, B::Error> {
    let greater = lt(b, y, x)?;
    let take = b.xor(&greater, &y.nan);
    choose(b, &take, y, x)
}

/// max(x, +0), NaN stays: one selection under the sign.
///
/// # Errors
/// If the blocks fail.
pub fn relu<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let number = b.not(&x.nan);
    let drop = b.both(&x.sign, &number)?;
    let zero = Float::constant(b, x.format, 0, x.lanes(b));
    choose(b, &drop, &zero, x)
}
