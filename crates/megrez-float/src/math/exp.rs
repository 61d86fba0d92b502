//! 2^x and e^x. SECFLOAT, Fig. 12, in fixed point.
//!
//! x becomes an integer X at scale 28, e^x by way of x·log2 e with a public factor, which is local.
//! Two's complement makes ⌊x⌋ the exponent and the fraction f in [0, 1) the spline's position for
//! both signs of x, so that one spline of 64 pieces does. 2^f in [1, 2) is the mantissa. From |x| ≥
//! 128 the table of exponents says overflow; what is nearer to the borders, the exponent of the
//! result. Below 2^−25, X is 0 and the result 1.

use super::slide::{Move, moves, slide};
use super::tables::EXP2;
use crate::any::{AnyBlocks, Bit, Extend, Failure, Int, Msb};
use crate::blocks::{Blocks, Table};
use crate::finish::{Class, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// Fraction bits of x.
const SCALE: u32 = 28;
/// log2 e at scale 36.
const LOG2_E: u64 = 99_141_248_300;

/// 2^x.
///
/// # Errors
/// If the blocks fail.
pub fn exp2(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    // man at scale 23, moved left by 5 for the scale and by up to 6 for the exponent.
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let man = b.shift(&man, 4);
    let power = place(b, &x.exp, &man, 0, &range(0, false), &x.sign)?.power(b)?;
    rounded(b, x, &power)
}

/// e^x.
///
/// # Errors
/// If the blocks fail.
pub fn exp(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let power = place_of(b, x, &x.sign)?.power(b)?;
    rounded(b, x, &power)
}

/// 2^f·2^exp, with 2^f in [1, 2) as an integer of 29 bits.
pub(crate) struct Power {
    pub man: Int,
    pub exp: Int,
    /// |x| is 128 or more, or not a number.
    pub large: Bit,
}

/// e^(−|x|·2^lift), where |x|·2^lift from 128 on is taken for something from 64 on.
pub(crate) fn exp_below(b: &mut AnyBlocks, x: &Float, lift: i64) -> Result<Power, Failure> {
    let man = times_log2_e(b, x)?;
    let negative = b.public_bits(&vec![true; x.lanes(b)]);
    place(b, &x.exp, &man, 7, &range(lift, true), &negative)?.power(b)
}

/// man·log2 e at scale 34 in 37 bits.
fn times_log2_e(b: &mut AnyBlocks, x: &Float) -> Result<Int, Failure> {
    // The product has scale 59; 34 of it are enough for 2^6 times as much.
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 62, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let man = b.offset(&b.scale(&man, LOG2_E), 1 << 24);
    b.cut(&man, 25)
}

/// How mantissas become |x|·2^lift at scale 28. What is too large is gone, or `clamp`ed.
pub(crate) fn range(lift: i64, clamp: bool) -> Table {
    moves(move |e| match e + lift {
        ..=-26 => (Move::Gone, false),
        e @ -25..=6 => (Move::Right((e + 25) as u32), false),
        7.. if clamp => (Move::Right(31), true),
        7.. => (Move::Gone, true),
    })
}

/// ±man·2^exp at scale 28 in 38 bits, and whether that is beyond the range.
pub(super) struct Place {
    pub at: Int,
    pub large: Bit,
}

/// Where ±man·2^exp lies, if man·2^(7 − drop) is it at scale 28 for the exponent 6.
pub(super) fn place(
    b: &mut AnyBlocks,
    exp: &Int,
    man: &Int,
    drop: u32,
    range: &Table,
    sign: &Bit,
) -> Result<Place, Failure> {
    let slid = slide(b, exp, man, range, drop, None)?;
    let width = SCALE + Format::FLOAT32.exp_width();
    let at = match b.width(&slid.right) {
        w if w < width => {
            only(b.extend(&[Extend { x: &slid.right, width, signed: false, msb: Msb::Zero }])?)
        }
        _ => b.low(&slid.right, width),
    };
    Ok(Place { at: b.negate_if(sign, &at)?, large: slid.flag })
}

/// Where x·log2 e lies for |x| below 128, with the sign given.
pub(super) fn place_of(b: &mut AnyBlocks, x: &Float, sign: &Bit) -> Result<Place, Failure> {
    let man = times_log2_e(b, x)?;
    place(b, &x.exp, &man, 7, &range(0, false), sign)
}

impl Place {
    /// Two to the power of what lies there.
    pub fn power(&self, b: &mut AnyBlocks) -> Result<Power, Failure> {
        let (man, exp) = EXP2.evaluate(b, &self.at, true)?;
        Ok(Power { man, exp: exp.expect("asked for"), large: self.large.clone() })
    }
}

/// The power as a float. Whatever is too large, infinities included, is 0 or ∞ by x's sign; NaN is
/// among it.
fn rounded(b: &mut AnyBlocks, x: &Float, power: &Power) -> Result<Float, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let pairs = [(&power.large, &x.sign), (&x.nan, &x.sign)];
    settle_normal(b, x.format, &power.exp, &power.man, &pairs, |b, gates| {
        let zero = b.xor(&gates[0], &b.xor(&x.nan, &gates[1]));
        let inf = b.xor(&b.xor(&power.large, &gates[0]), &gates[1]);
        let sign = b.public_bits(&vec![false; x.lanes(b)]);
        Class { zero, inf, special: power.large.clone(), sign }
    })
}
