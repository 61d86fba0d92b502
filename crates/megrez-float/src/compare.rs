//! Comparison, minimum and maximum, ReLU. SECFLOAT, Fig. 15 and Appendix N.
//!
//! Deviates from the figure: a float becomes one signed integer that orders like it (exponent and
//! mantissa, negated under the sign), and two of them are compared once. Zeros are 0 whatever their
//! sign. NaN, which is stored like +∞, orders beyond everything on the side where it is not less.

use crate::add::keys;
use crate::any::{AnyBlocks, Bit, Failure, Int, Select};
use crate::blocks::Blocks;
use crate::finish::two;
use crate::float::{Float, choose};
use crate::format::Format;
use crate::single::only;

/// The encoding of 1.
const ONE: u64 = 0x3f80_0000;

/// x − y as integers that order like floats, a NaN of x being +∞ and one of y −∞.
fn difference(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Int, Failure> {
    assert_eq!(x.format, y.format, "formats differ");
    let [(x_key, _), (y_key, _)] = keys(b, [x, y], 2)?;
    let y_sign = b.xor(&y.sign, &y.nan);
    let jobs = [(&x.sign, &x_key), (&y_sign, &y_key)].map(|(bit, key)| Select {
        bit,
        ints: vec![key],
        bits: vec![],
    });
    let [x_negative, y_negative] = two(b.select(&jobs)?).map(|row| only(row.ints));
    let x_key = b.sub(&x_key, &b.scale(&x_negative, 2));
    let y_key = b.sub(&y_key, &b.scale(&y_negative, 2));
    Ok(b.sub(&x_key, &y_key))
}

/// Neither is NaN.
fn ordered(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Bit, Failure> {
    let both = b.both(&x.nan, &y.nan)?;
    Ok(b.not(&b.union(&x.nan, &y.nan, &both)))
}

/// Everybody knows that x is zero, in every lane: then the sign and flags of the other number tell
/// how the two compare.
fn is_nil(b: &AnyBlocks, x: &Float) -> bool {
    b.known_bits(&x.zero).is_some_and(|v| v.iter().all(|&v| v == 1))
}

/// x < y; false with a NaN. −0 and +0 are equal.
///
/// # Errors
/// If the blocks fail.
pub fn lt(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Bit, Failure> {
    if is_nil(b, y) {
        let nonzero = b.not(&x.zero);
        return b.both(&x.sign, &nonzero);
    }
    if is_nil(b, x) {
        let (plus, number) = (b.not(&y.sign), b.not(&y.vanishing(b)));
        return b.both(&plus, &number);
    }
    let d = difference(b, x, y)?;
    b.is_negative(&d)
}

/// x ≤ y; false with a NaN. −0 and +0 are equal.
///
/// # Errors
/// If the blocks fail.
pub fn le(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Bit, Failure> {
    if is_nil(b, y) || is_nil(b, x) {
        let (number, side) = match is_nil(b, y) {
            true => (x, x.sign.clone()),
            // NaN has no sign.
            false => (y, b.not(&b.xor(&y.sign, &y.nan))),
        };
        let both = b.both(&number.zero, &side)?;
        return Ok(b.union(&number.zero, &side, &both));
    }
    let greater = lt(b, y, x)?;
    let ordered = ordered(b, x, y)?;
    let not_greater = b.not(&greater);
    b.both(&ordered, &not_greater)
}

/// x = y; false with a NaN. −0 and +0 are equal.
///
/// # Errors
/// If the blocks fail.
pub fn eq(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Bit, Failure> {
    for (x, y) in [(x, y), (y, x)] {
        if is_nil(b, y) {
            return Ok(x.zero.clone());
        }
    }
    let d = difference(b, x, y)?;
    let ordered = ordered(b, x, y)?;
    let same = only(b.is_zero(&[&d])?);
    b.both(&ordered, &same)
}

/// 1 where a bit is set, else +0.
///
/// # Errors
/// If the blocks fail.
pub fn truth(b: &mut AnyBlocks, bit: &Bit, like: &Float) -> Result<Float, Failure> {
    assert_eq!(like.format, Format::FLOAT32, "truth is a number of single precision");
    let [one, zero] = [ONE, 0].map(|bits| Float::constant(b, like.format, bits, like.lanes(b)));
    choose(b, bit, &one, &zero)
}

/// The larger of two numbers; NaN if one of them is. Of two equal numbers, the first: zeros keep
/// its sign.
///
/// # Errors
/// If the blocks fail.
pub fn max(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let less = lt(b, x, y)?;
    let take = b.xor(&less, &y.nan);
    choose(b, &take, y, x)
}

/// The smaller of two numbers; NaN if one of them is. Of two equal numbers, the first: zeros keep
/// its sign.
///
/// # Errors
/// If the blocks fail.
pub fn min(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let greater = lt(b, y, x)?;
    let take = b.xor(&greater, &y.nan);
    choose(b, &take, y, x)
}

/// max(x, +0), NaN stays: one selection under the sign.
///
/// # Errors
/// If the blocks fail.
pub fn relu(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let zero = Float::constant(b, x.format, 0, x.lanes(b));
    choose(b, &x.sign, &zero, x)
}
