//! e^x − 1, sinh x and cosh x, from e^x before it is rounded.
//!
//! Below 1 the first two cancel, and are x·h(x) with splines h that have their position from x·log2
//! e, which e^x needs anyway. From 1 on e^x − 1 is the difference of e^x and 1, the smaller moved
//! to where the larger is, and with e^|x| = m·2^n sinh and cosh are (m ∓ 2^(−2n)/m)·2^(n−1).

use super::exp::{Power, place_of};
use super::slide::{Move, moves, slide};
use super::tables::{EXPM1, SINH};
use crate::any::{AnyBlocks, Extend, Factor, Failure, Int, Msb, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, settle};
use crate::float::Float;
use crate::format::Format;
use crate::reciprocal::reciprocal;
use crate::single::only;

/// Fraction bits of everything between 0 and 2.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) with so many fraction bits before rounding.
const WIDE: u32 = SCALE + 2;

/// e^x − 1: −1 at −∞, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn expm1(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let place = place_of(b, x, &x.sign)?;
    let power = place.power(b)?;

    // From 1 on the larger one of e^x and 1 minus the smaller, which lies |n| places below.
    let one = b.constant(x.lanes(b), SCALE + 1, 1 << SCALE);
    let unit = b.constant(x.lanes(b), WIDE, 1);
    let step = b.sub(&one, &power.man);
    let job = Select { bit: &x.sign, ints: vec![&step, &power.exp, &unit], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let larger = b.add(&power.man, &row[0]);
    let smaller = b.sub(&b.add(&one, &power.man), &larger);
    let apart = b.sub(&b.scale(&row[1], 2), &power.exp);
    let table = moves(|e| match e {
        -31..0 => (Move::Right((e + 31) as u32), false),
        _ => (Move::Gone, false),
    });
    let smaller = Extend { x: &smaller, width: WIDE, signed: false, msb: Msb::One };
    let smaller = only(b.extend(&[smaller])?);
    let smaller = slide(b, &apart, &smaller, &table, 7, None)?.right;
    let far = b.shift(&b.sub(&larger, &b.low(&smaller, SCALE + 1)), 1);
    let far_exp = b.offset(&b.sub(&power.exp, &row[1]), u64::MAX);

    // Below 1; h is doubled for negative x, however small.
    let at = b.sub(&b.low(&b.offset(&place.at, 2 << SCALE), WIDE), &row[2]);
    let h = EXPM1.evaluate(b, &at, false)?.0;
    let near = below_one(b, x, &h)?;
    let near_exp = b.sub(&x.exp, &b.low(&row[2], x.format.exp_width()));
    let (man, exp) = nearer(b, x, [&near, &near_exp], [&far, &far_exp])?;
    let pairs = [(&place.large, &x.sign)];
    settle(b, x.format, &exp, &man, &pairs, |b, gates| {
        // NaN is large, and has no sign.
        let inf = b.xor(&place.large, &gates[0]);
        Class { zero: x.vanishing(b), special: b.xor(&x.zero, &inf), inf, sign: x.sign.clone() }
    })
}

/// sinh x: ±∞ at the infinities, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn sinh(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let (place, power, inverse) = both_powers(b, x)?;
    let far = b.scale(&b.sub(&power.man, &inverse), 2);
    let far_exp = b.offset(&power.exp, 2u64.wrapping_neg());
    let h = SINH.evaluate(b, &b.low(&place, SCALE + 1), false)?.0;
    let near = below_one(b, x, &h)?;
    let (man, exp) = nearer(b, x, [&near, &x.exp], [&far, &far_exp])?;
    settle(b, x.format, &exp, &man, &[], |b, _| Class {
        zero: x.vanishing(b),
        inf: power.large.clone(),
        special: b.xor(&x.zero, &power.large),
        sign: x.sign.clone(),
    })
}

/// cosh x: ∞ at the infinities.
///
/// # Errors
/// If the blocks fail.
pub fn cosh(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let (_, power, inverse) = both_powers(b, x)?;
    let man = b.add(&power.man, &inverse);
    let exp = b.offset(&power.exp, u64::MAX);
    settle(b, x.format, &exp, &man, &[], |b, _| Class {
        zero: x.nan.clone(),
        inf: power.large.clone(),
        special: power.large.clone(),
        sign: b.public_bits(&vec![false; x.lanes(b)]),
    })
}

/// Where |x|·log2 e lies, e^|x| = m·2^n, and 2^(−2n)/m at scale 28 as m is.
fn both_powers(b: &mut AnyBlocks, x: &Float) -> Result<(Int, Power, Int), Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let positive = b.public_bits(&vec![false; x.lanes(b)]);
    let place = place_of(b, x, &positive)?;
    let mut power = place.power(b)?;
    let man = Extend { x: &power.man, width: WIDE, signed: false, msb: Msb::One };
    power.man = only(b.extend(&[man])?);
    let inverse = reciprocal(b, &power.man, SCALE)?;
    let inverse = b.cut(&b.offset(&inverse, 1 << 4), 5)?;
    let table = moves(|n| match n {
        0..=15 => (Move::Right((31 - 2 * n) as u32), false),
        _ => (Move::Gone, false),
    });
    let inverse = slide(b, &power.exp, &inverse, &table, 7, None)?.right;
    Ok((place.at, power, b.low(&inverse, WIDE)))
}

/// man·h for h below 4 at scale 28, as a mantissa in [1, 4).
fn below_one(b: &mut AnyBlocks, x: &Float, h: &Int) -> Result<Int, Failure> {
    let top = b.not(&x.zero);
    let man = Factor { x: &x.man, signed: false, msb: Msb::Shared(&top) };
    let product = b.product(man, Factor::small(h), WIDE + x.format.q)?;
    b.cut(&product, x.format.q)
}

/// The first mantissa and exponent where |x| is below 1, otherwise the others.
fn nearer(b: &mut AnyBlocks, x: &Float, near: [&Int; 2], far: [&Int; 2]) -> Result<(Int, Int), Failure> {
    let below = b.is_negative(&x.exp)?;
    let steps = [0, 1].map(|i| b.sub(near[i], far[i]));
    let job = Select { bit: &below, ints: steps.iter().collect(), bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    Ok((b.add(far[0], &row[0]), b.add(far[1], &row[1])))
}
