//! log2 x, ln x, log10 x and ln(1 + x). SECFLOAT, Fig. 8, in fixed point; ln(1 + x) is no figure of
//! the paper's.
//!
//! x = z·2^N with z in [¾, 3/2), and log z = (z − 1)·h(z) with h between two powers of two. z − 1
//! is exact, so that its product with h has h's relative precision, also next to x = 1 where N = 0.
//! For N ≠ 0 the sum with N·log 2 is at least ¼ in magnitude and does not cancel. Both are one
//! integer, which is normalised once.
//!
//! For ln(1 + x) the sum t = 1 + x has 28 bits. Wherever N ≠ 0 it is exact, or so large that it
//! need not be; where N = 0, z − 1 is x itself with all its bits, and t only says which h.

use super::spline::Spline;
use super::tables::{LN, LOG2, LOG10};
use crate::add::add;
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Select, Truncate};
use crate::blocks::{Blocks, mask};
use crate::finish::{Class, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// Fraction bits of h.
const H: u32 = 27;
/// Bits of a normalised logarithm.
const LOG: u32 = 29;
/// Fraction bits of logarithms of single-precision numbers.
const SCALE: u32 = 51;
/// ln 2 at scale 51, and at scale 55.
const LN_2: u64 = 1_560_828_692_041_340;
const LN_2_WIDE: u64 = 24_973_259_072_661_443;
/// The pieces of the logarithm, for positions of four bits more.
const LN_WIDE: Spline = Spline { inside: LN.inside + 4, ..LN };
/// 2·log10 2 at scale 51.
const LOG10_4: u64 = 1_355_718_576_299_648;

/// log2 x; −∞ for zeros, NaN for x < 0.
///
/// # Errors
/// If the blocks fail.
pub fn log2(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    logarithm(b, x, &LOG2, 1 << SCALE, SCALE)
}

/// ln x; −∞ for zeros, NaN for x < 0.
///
/// # Errors
/// If the blocks fail.
pub fn ln(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    logarithm(b, x, &LN, LN_2, SCALE)
}

/// log10 x; −∞ for zeros, NaN for x < 0.
///
/// # Errors
/// If the blocks fail.
pub fn log10(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    // Twice the logarithm, so that its h is as large as the others.
    logarithm(b, x, &LOG10, LOG10_4, SCALE + 1)
}

/// The logarithm whose log z/(z − 1) is `spline` and whose log 2 is `unit`, as integers of which 1
/// is 2^`scale`.
fn logarithm(b: &mut AnyBlocks, x: &Float, spline: &Spline, unit: u64, scale: u32) -> Result<Float, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let (sign, size) = split(b, x, spline)?.sum(b, unit)?;
    let exp = b.constant(x.lanes(b), x.format.exp_width(), u64::from(scale).wrapping_neg());
    settled(b, x, &sign, &size, &exp)
}

/// ln(1 + x); −∞ for −1, NaN for x < −1, −0 for −0.
///
/// # Errors
/// If the blocks fail.
pub fn log1p(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let Format { p, q } = Format::WIDE;
    let one = Float::constant(b, Format::WIDE, mask(p - 1) << q, x.lanes(b));
    let t = add(b, &x.widened(b), &one)?;
    let parts = split(b, &t, &LN_WIDE)?;
    let (sign, size) = parts.sum(b, LN_2_WIDE)?;

    // N = 0: x·h, with the exponent of x.
    let near = only(b.is_zero(&[&parts.whole])?);
    let top = b.not(&x.zero);
    let man = Factor { x: &x.man, signed: false, msb: Msb::Shared(&top) };
    let product = b.product(man, Factor::small(&parts.h), x.format.q + H + 3)?;
    let wider = Extend { x: &product, width: b.width(&size), signed: false, msb: Msb::Zero };
    let product = only(b.extend(&[wider])?);
    let step = b.sub(&product, &size);
    let far = u64::from(q + 1 + H).wrapping_neg();
    let lift = b.offset(&x.exp, u64::from(q + 1 - x.format.q));
    let turn = b.xor(&x.sign, &sign);
    let job = Select { bit: &near, ints: vec![&step, &lift], bits: vec![&turn] };
    let row = b.select(&[job])?.remove(0);
    let (sign, size) = (b.xor(&sign, &row.bits[0]), b.add(&size, &row.ints[0]));
    settled(b, &t, &sign, &size, &b.offset(&row.ints[1], far))
}

/// log |x| is N·log 2 + (z − 1)·h.
struct Parts {
    /// N.
    whole: Int,
    /// z − 1, with one fraction bit more than x has.
    delta: Int,
    /// z − 1 is negative.
    upper: Bit,
    /// h at scale 27.
    h: Int,
}

/// N, z − 1 and h of |x|; of zeros those of something small.
fn split(b: &mut AnyBlocks, x: &Float, spline: &Spline) -> Result<Parts, Failure> {
    let Format { p, q } = x.format;
    // A zero gets the mantissa of 1; its exponent makes the logarithm negative, as it should be.
    let man = b.add(&x.man, &b.shift(&b.narrow(&x.zero), q));
    let h = spline.evaluate(b, &b.low(&man, q), false)?.0;
    let top = only(b.truncate(&[Truncate { x: &man, cuts: &[q - 1] }])?);
    let upper = b.parity(&top[0]);

    // N = exp + upper, and z − 1 at scale q + 1: 2·man − 2^(q+1), or man − 2^(q+1).
    let width = (q + 1 + H + 10).min(64);
    let wide = [
        Extend { x: &man, width: q + 3, signed: false, msb: Msb::One },
        Extend { x: &b.offset(&x.exp, 1 << p), width, signed: false, msb: Msb::Zero },
    ];
    let wide = b.extend(&wide)?;
    let one = b.constant(x.lanes(b), width, 1);
    let job = Select { bit: &upper, ints: vec![&wide[0], &one], bits: vec![] };
    let kept = b.select(&[job])?.remove(0).ints;
    let delta = b.offset(&b.sub(&b.scale(&wide[0], 2), &kept[0]), (2u64 << q).wrapping_neg());
    let whole = b.offset(&b.add(&wide[1], &kept[1]), (1u64 << p).wrapping_neg());
    Ok(Parts { whole, delta, upper, h })
}

impl Parts {
    /// The sign and the size of the sum; `unit` is log 2.
    fn sum(&self, b: &mut AnyBlocks, unit: u64) -> Result<(Bit, Int), Failure> {
        let width = b.width(&self.whole);
        let delta = Factor { x: &self.delta, signed: true, msb: Msb::Shared(&self.upper) };
        let part = b.product(delta, Factor::small(&self.h), width)?;
        let sum = b.add(&b.scale(&self.whole, unit), &part);
        let sign = b.is_negative(&sum)?;
        let size = b.negate_if(&sign, &sum)?;
        Ok((sign, b.low(&size, width - 1)))
    }
}

/// The logarithm of x from its sign and size, where the lowest bit of `size` is 2^`exp`.
fn settled(b: &mut AnyBlocks, x: &Float, sign: &Bit, size: &Int, exp: &Int) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    let width = b.width(size);
    let top = only(b.leading(&[(size, format.exp_width())])?);
    let man = b.product(Factor::unsigned(size), Factor::unsigned(&top.scale), width)?;
    let man = b.cut(&man, width - LOG)?;
    let exp = b.add(&top.position, exp);

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
