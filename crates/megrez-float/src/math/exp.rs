//! 2^x and e^x. SECFLOAT, Fig. 12, in fixed point.
//!
//! x becomes an integer X at scale 28, e^x by way of x·log2 e with a public factor, which is local. Two's complement makes
//! ⌊x⌋ the exponent and the fraction f in [0, 1) the spline's position for both signs of x, so that one spline of 64 pieces
//! does. 2^f in [1, 2) is the mantissa. From |x| ≥ 128 the table of exponents says overflow; what is nearer to the
//! borders, the exponent of the result. Below 2^−25, X is 0 and the result 1.

use super::slide::{Move, moves, slide};
use super::tables::EXP2;
use crate::blocks::{Blocks, Extend, Msb};
use crate::finish::{Class, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::single::Single;

/// Fraction bits of x.
const SCALE: u32 = 28;
/// log2 e at scale 36.
const LOG2_E: u64 = 99_141_248_300;

/// 2^x.
///
/// # Errors
/// If the blocks fail.
pub fn exp2<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    // man at scale 23, moved left by 5 for the scale and by up to 6 for the exponent.
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) };
    let man = B::one(b.extend(&[man])?);
    let man = b.shift(&man, 4);
    power(b, x, &man, 0)
}

/// e^x.
///
/// # Errors
/// If the blocks fail.
pub fn exp<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    // The product has scale 59; 34 of it are enough for 2^6 times as much.
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 62, signed: false, msb: Msb::Shared(&top) };
    let man = B::one(b.extend(&[man])?);
    let man = b.offset(&b.scale(&man, LOG2_E), 1 << 24);
    let man = b.cut(&man, 25)?;
    power(b, x, &man, 7)
}

/// 2^(±man·2^exp), where man·2^(7 − drop) is the position at scale 28 for the exponent 6.
fn power<B: Blocks>(b: &mut B, x: &Float<B>, man: &B::Int, drop: u32) -> Result<Float<B>, B::Error> {
    let format = Format::FLOAT32;
    assert_eq!(x.format, format, "math functions are those of single precision");
    let table = moves(|e| match e {
        ..=-26 => (Move::Gone, false),
        -25..=6 => (Move::Right((e + 25) as u32), false),
        7.. => (Move::Gone, true),
    });
    let slid = slide(b, x, man, &table, drop, None)?;
    let width = SCALE + format.exp_width();
    let place = match b.width(&slid.right) {
        w if w < width => {
            B::one(b.extend(&[Extend { x: &slid.right, width, signed: false, msb: Msb::Zero }])?)
        }
        _ => b.low(&slid.right, width),
    };
    let place = b.negate_if(&x.sign, &place)?;
    let (man, exp) = EXP2.evaluate(b, &place, true)?;
    let exp = exp.expect("asked for");

    // Whatever is too large, infinities included, is 0 or ∞ by its sign; NaN is among it.
    let pairs = [(&slid.flag, &x.sign), (&x.nan, &x.sign)];
    settle_normal(b, format, &exp, &man, &pairs, |b, gates| {
        let zero = b.xor(&gates[0], &b.xor(&x.nan, &gates[1]));
        let inf = b.xor(&b.xor(&slid.flag, &gates[0]), &gates[1]);
        let sign = b.public_bits(&vec![false; x.lanes(b)]);
        Class { zero, inf, special: slid.flag.clone(), sign }
    })
}
