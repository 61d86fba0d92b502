//! log2 x and ln x. SECFLOAT, Fig. 8, in fixed point.
//!
//! x = z·2^N with z in [¾, 3/2), and log z = (z − 1)·h(z) with h between two powers of two. z − 1
//! is exact, so that its product with h has h's relative precision, also next to x = 1 where N = 0.
//! For N ≠ 0 the sum with N·log 2 is at least ¼ in magnitude and does not cancel. Both are one
//! integer at scale 51, which is normalised once.

use super::spline::Spline;
use super::tables::{LN, LOG2};
use crate::blocks::{Blocks, Extend, Factor, Msb, Select, Truncate};
use crate::finish::{Class, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::single::Single;

/// Fraction bits of the logarithm.
const SCALE: u32 = 51;
/// Bits of its ring.
const WIDTH: u32 = 61;
/// ln 2 at scale 51.
const LN_2: u64 = 1_560_828_692_041_340;

/// log2 x; −∞ for zeros, NaN for x < 0.
///
/// # Errors
/// If the blocks fail.
pub fn log2<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    logarithm(b, x, &LOG2, 1 << SCALE)
}

/// ln x; −∞ for zeros, NaN for x < 0.
///
/// # Errors
/// If the blocks fail.
pub fn ln<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    logarithm(b, x, &LN, LN_2)
}

/// The logarithm whose log z/(z − 1) is `spline`, and whose log 2 at scale 51 is `unit`.
fn logarithm<B: Blocks>(b: &mut B, x: &Float<B>, spline: &Spline, unit: u64) -> Result<Float<B>, B::Error> {
    let format = Format::FLOAT32;
    assert_eq!(x.format, format, "math functions are those of single precision");
    let lanes = x.lanes(b);
    // A zero gets the mantissa of 1; its exponent makes the logarithm negative, as it should be.
    let man = b.add(&x.man, &b.shift(&b.narrow(&x.zero), format.q));
    let h = spline.evaluate(b, &b.low(&man, format.q), false)?.0;
    let top = B::one(b.truncate(&[Truncate { x: &man, cuts: &[format.q - 1] }])?);
    let upper = b.parity(&top[0]);

    // N = exp + upper, and z − 1 at scale 24: 2·man − 2^24, or man − 2^24.
    let wide = [
        Extend { x: &man, width: 26, signed: false, msb: Msb::One },
        Extend { x: &b.offset(&x.exp, 1 << format.p), width: WIDTH, signed: false, msb: Msb::Zero },
    ];
    let wide = b.extend(&wide)?;
    let one = b.constant(lanes, WIDTH, 1);
    let job = Select { bit: &upper, ints: vec![&wide[0], &one], bits: vec![] };
    let kept = b.select(&[job])?.remove(0).ints;
    let delta = b.offset(&b.sub(&b.scale(&wide[0], 2), &kept[0]), (1u64 << 24).wrapping_neg());
    let whole = b.offset(&b.add(&wide[1], &kept[1]), (1u64 << format.p).wrapping_neg());
    let delta = Factor { x: &delta, signed: true, msb: Msb::Shared(&upper) };
    let part = b.product(delta, Factor::small(&h), WIDTH)?;
    let sum = b.add(&b.scale(&whole, unit), &part);

    let sign = b.is_negative(&sum)?;
    let size = b.negate_if(&sign, &sum)?;
    let size = b.low(&size, WIDTH - 1);
    let top = B::one(b.leading(&[(&size, format.exp_width())])?);
    let man = b.product(Factor::unsigned(&size), Factor::unsigned(&top.scale), WIDTH - 1)?;
    let man = b.cut(&man, WIDTH - 30)?;
    let exp = b.offset(&top.position, u64::from(SCALE).wrapping_neg());

    let nonzero = b.not(&x.zero);
    let below = b.both(&x.sign, &nonzero)?;
    let wrong = b.both(&x.nan, &below)?;
    let wrong = b.union(&x.nan, &below, &wrong);
    let both = b.both(&x.inf, &wrong)?;
    let inf = b.xor(&x.zero, &b.union(&x.inf, &wrong, &both));
    let pairs = [(&top.zero, &inf), (&top.zero, &wrong)];
    settle_normal(b, format, &exp, &man, &pairs, |b, gates| Class {
        zero: b.union(&top.zero, &wrong, &gates[1]),
        special: b.union(&top.zero, &inf, &gates[0]),
        inf: inf.clone(),
        sign: sign.clone(),
    })
}
