//! sin(πx), cos(πx), tan(πx). SECFLOAT, Fig. 7, 13 and 14, with one factor split off.
//!
//! sin(πδ) = δ·g(δ) for δ in [0, ½], where g falls from π to 2; tan(πδ) = δ·h(δ) for δ in [0, ¼],
//! where h rises from π to 4. The normalised δ keeps all its bits however small it is, and g and h
//! need δ in fixed point only: tiny arguments are no case of their own. x modulo 2 is exact: from
//! 2^−1 on (tan: 2^−2) it is a multiple of 2^−24 (2^−25), below it is δ already.

use super::slide::{Move, Slid, moves, slide};
use super::tables::{SINPI, TANPI};
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, settle, two};
use crate::float::Float;
use crate::format::Format;
use crate::reciprocal::reciprocal;
use crate::single::only;

/// Fraction bits of positions.
const SCALE: u32 = 28;
/// Bits of a result's mantissa before rounding: five guard bits.
const WIDE: u32 = 29;

/// Where x lies modulo 2: from 2^−1 on at scale 24, below that at scale 28.
fn place(b: &mut AnyBlocks, x: &Float, reduced: i64) -> Result<Slid, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let table = moves(|e| match e {
        ..=-34 => (Move::Gone, false),
        -33..=-2 => (Move::Right((e + 33) as u32), e >= reduced),
        -1..=23 => (Move::Left((e + 1) as u32), true),
        24.. => (Move::Gone, true),
    });
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    slide(b, &x.exp, &man, &table, 4, Some(25))
}

/// y modulo 2, folded at ½.
struct Folded {
    /// ⌊y⌋ is odd.
    odd: Bit,
    /// y modulo 1 is at least ½.
    high: Bit,
    /// The distance to the next integer, 0 to ½, at y's scale.
    distance: Int,
    /// `high` at scale 28.
    last: Int,
}

/// Folds y, which has one bit before the point.
fn fold(b: &mut AnyBlocks, y: &Int) -> Result<Folded, Failure> {
    let lanes = b.lanes(y);
    let part = b.low(y, b.width(y) - 1);
    let [odd, high] = two(b.negative(&[y, &part])?);
    let unit = b.constant(lanes, SCALE, 1);
    let job = Select { bit: &high, ints: vec![&part, &unit], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let distance = b.sub(&part, &b.scale(&row[0], 2));
    Ok(Folded { odd, high, distance, last: row[1].clone() })
}

/// A positive number man·2^exp with the leading bit of man on top, or zero.
pub(super) struct Normal {
    pub man: Int,
    pub exp: Int,
    pub zero: Bit,
}

/// `fixed` as a normalised number, where its bit 2^`unit` has the value 1.
pub(super) fn normalise(b: &mut AnyBlocks, fixed: &Int, unit: u32) -> Result<Normal, Failure> {
    let top = only(b.leading(&[(fixed, Format::FLOAT32.exp_width())])?);
    let man = b.product(Factor::unsigned(fixed), Factor::unsigned(&top.scale), b.width(fixed))?;
    Ok(Normal { man, exp: b.offset(&top.position, u64::from(unit).wrapping_neg()), zero: top.zero })
}

/// `fixed` where x was reduced, x itself elsewhere, with the mantissa in `fixed`'s width.
pub(super) fn either(b: &mut AnyBlocks, reduced: &Bit, fixed: &Normal, x: &Float) -> Result<Normal, Failure> {
    let man = b.shift(&x.man, b.width(&fixed.man) - b.width(&x.man));
    let (man_step, exp_step) = (b.sub(&fixed.man, &man), b.sub(&fixed.exp, &x.exp));
    let flip = b.xor(&fixed.zero, &x.zero);
    let job = Select { bit: reduced, ints: vec![&man_step, &exp_step], bits: vec![&flip] };
    let row = b.select(&[job])?.remove(0);
    Ok(Normal {
        man: b.add(&man, &row.ints[0]),
        exp: b.add(&x.exp, &row.ints[1]),
        zero: b.xor(&x.zero, &row.bits[0]),
    })
}

/// δ·g for a spline value g of 31 bits in [2, 8) at the scale of bit `unit`: as a mantissa of
/// `WIDE` bits in [1, 4), with one more bit of room.
fn factor(b: &mut AnyBlocks, delta: &Normal, g: &Int, unit: u32) -> Result<Int, Failure> {
    let w = b.width(&delta.man);
    let top = b.not(&delta.zero);
    let man = Factor { x: &delta.man, signed: false, msb: Msb::Shared(&top) };
    // The product has w − 1 + unit fraction bits; [2, 8) at WIDE − 3 of them fills WIDE bits.
    let drop = w - 1 + unit - (WIDE - 3);
    let product = b.product(man, Factor::small(g), WIDE + 1 + drop)?;
    b.cut(&product, drop)
}

/// sin(πx). Integers give a zero with x's sign, infinities NaN.
///
/// # Errors
/// If the blocks fail.
pub fn sinpi(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let slid = place(b, x, -1)?;
    let folded = fold(b, &slid.left.expect("asked for"))?;
    // A whole ½ counts as a little less, for the last piece ends there.
    let position = b.sub(&b.shift(&folded.distance, SCALE - 24), &folded.last);
    let position = b.add(&position, &b.low(&slid.right, SCALE));
    let g = SINPI.evaluate(b, &position, false)?.0;
    let reduced = normalise(b, &folded.distance, 24)?;
    let delta = either(b, &slid.flag, &reduced, x)?;
    sine(b, x, &delta, &g, &folded.odd, Some(&x.sign))
}

/// cos(πx) = sin(π(x + ½)). Half-integers give +0, infinities NaN.
///
/// # Errors
/// If the blocks fail.
pub fn cospi(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let slid = place(b, x, -1)?;
    let left = b.shift(&slid.left.expect("asked for"), SCALE - 24);
    let y = b.offset(&b.add(&left, &b.low(&slid.right, SCALE + 1)), 1 << (SCALE - 1));
    let folded = fold(b, &y)?;
    let position = b.sub(&folded.distance, &folded.last);
    let g = SINPI.evaluate(b, &position, false)?.0;
    let delta = normalise(b, &folded.distance, SCALE)?;
    sine(b, x, &delta, &g, &folded.odd, None)
}

/// ±δ·g(δ), negative where ⌊y⌋ is odd; with `sign` also where that says, and zeros have it alone.
fn sine(
    b: &mut AnyBlocks,
    x: &Float,
    delta: &Normal,
    g: &Int,
    odd: &Bit,
    sign: Option<&Bit>,
) -> Result<Float, Failure> {
    let man = factor(b, delta, g, SCALE)?;
    let man = b.low(&man, WIDE);
    let exp = b.offset(&delta.exp, 1);
    let wrong = x.unbounded(b);
    let pairs = [(&delta.zero, &wrong), (&delta.zero, odd)];
    settle(b, Format::FLOAT32, &exp, &man, &pairs, |b, gates| {
        let special = b.union(&delta.zero, &wrong, &gates[0]);
        let turned = b.xor(odd, &gates[1]);
        let sign = sign.map_or_else(|| turned.clone(), |s| b.xor(s, &turned));
        Class { zero: special.clone(), inf: wrong.clone(), special, sign }
    })
}

/// tan(πx). At n and n + ½ it is 0 and ∞ with the sign of (−1)^n, turned for negative x; NaN at
/// infinities.
///
/// Beyond ¼ it is the reciprocal of tan(π(½ − δ)), which is taken before rounding.
///
/// # Errors
/// If the blocks fail.
pub fn tanpi(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let slid = place(b, x, -2)?;
    let left = b.shift(&slid.left.expect("asked for"), SCALE - 24);
    let y = b.add(&left, &b.low(&slid.right, SCALE + 1));
    let folded = fold(b, &y)?;
    // The second fold, at ¼, which belongs to the steep side.
    let flat = b.is_negative(&b.offset(&folded.distance, (1u64 << (SCALE - 2)).wrapping_neg()))?;
    let steep = b.not(&flat);
    let rest = b.offset(&b.neg(&folded.distance), 1 << (SCALE - 1));
    let (back, unit) = (b.sub(&folded.distance, &rest), b.constant(x.lanes(b), SCALE, 1));
    let job = Select { bit: &flat, ints: vec![&back, &unit], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let fixed = b.add(&rest, &row[0]);
    let position = b.offset(&b.add(&fixed, &row[1]), u64::MAX);
    let h = TANPI.evaluate(b, &position, false)?.0;
    let reduced = normalise(b, &b.low(&fixed, SCALE - 1), SCALE)?;
    let delta = either(b, &slid.flag, &reduced, x)?;
    let tan = factor(b, &delta, &h, SCALE - 1)?;

    let exp = b.offset(&delta.exp, 1);
    let (man, exp) = turned(b, &tan, &exp, &steep)?;

    // At infinities nothing is left of x, so that they look like the zero at 0.
    let wrong = x.unbounded(b);
    let turn = b.xor(&folded.odd, &folded.high);
    let pairs = [(&delta.zero, &flat), (&delta.zero, &turn)];
    settle(b, Format::FLOAT32, &exp, &man, &pairs, |b, gates| {
        let inf = b.xor(&b.xor(&delta.zero, &gates[0]), &wrong);
        let sign = b.xor(&x.sign, &b.xor(&folded.high, &gates[1]));
        Class { zero: gates[0].clone(), inf, special: delta.zero.clone(), sign }
    })
}

/// tan·2^exp, or its reciprocal where `steep`: both as a mantissa of `WIDE` bits in [1, 4). `tan`
/// is one, with one bit of room.
pub(super) fn turned(b: &mut AnyBlocks, tan: &Int, exp: &Int, steep: &Bit) -> Result<(Int, Int), Failure> {
    // The reciprocal, from the mantissa with its leading bit in place.
    let flat = b.low(tan, WIDE);
    let two = b.is_negative(&flat)?;
    let half = b.times(&two, tan)?;
    let normal = b.sub(&b.scale(tan, 2), &half);
    let r = reciprocal(b, &normal, WIDE - 1)?;
    let r = b.cut(&b.offset(&r, 1 << 4), 5)?;
    let two = only(b.widen(&[(&two, b.width(exp))])?);
    let steep_exp = b.neg(&b.offset(&b.add(exp, &two), 1));
    let (man_step, exp_step) = (b.sub(&b.low(&r, WIDE), &flat), b.sub(&steep_exp, exp));
    let job = Select { bit: steep, ints: vec![&man_step, &exp_step], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    Ok((b.add(&flat, &row[0]), b.add(exp, &row[1])))
}
