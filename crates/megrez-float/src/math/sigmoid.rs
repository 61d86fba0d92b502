//! Sigmoid and hyperbolic tangent, from e^(−|x|) before it is rounded.
//!
//! With E = e^(−|x|), sigmoid(x) is 1/(1 + E) or, for x < 0, E/(1 + E); no difference cancels. With
//! E = e^(−2|x|), tanh |x| is (1 − E)/(1 + E) from 1 on, and x·h(x) with a spline h below 1, where
//! 1 − E would cancel. Both end in one product.

use super::exp::{Power, exp_below};
use super::slide::{Move, moves, slide};
use super::tables::TANH;
use crate::any::{AnyBlocks, Extend, Factor, Failure, Int, Msb, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, settle};
use crate::float::Float;
use crate::format::Format;
use crate::reciprocal::reciprocal;
use crate::single::only;

/// Fraction bits of everything between 0 and 2.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) before rounding.
const WIDE: u32 = 29;

/// E at scale 28 in 31 bits, below 1 (a whole 1 counts as a little less), and 1/(1 + E) at scale 28
/// in 30 bits.
fn with_one(b: &mut AnyBlocks, power: &Power) -> Result<[Int; 2], Failure> {
    let width = SCALE + 3;
    // Exponents are at most zero; from −128 on down they look positive to the table.
    let table = moves(|e| match e {
        0 => (Move::Gone, true),
        -31..0 => (Move::Right((e + 31) as u32), false),
        _ => (Move::Gone, false),
    });
    let man = Extend { x: &power.man, width: width - 1, signed: false, msb: Msb::One };
    let man = only(b.extend(&[man])?);
    let slid = slide(b, &power.exp, &man, &table, 7, None)?;
    let whole = only(b.widen(&[(&slid.flag, width)])?);
    let e = b.add(&slid.right, &b.scale(&whole, (1 << SCALE) - 1));
    let r = reciprocal(b, &b.low(&b.offset(&e, 1 << SCALE), SCALE + 2), SCALE)?;
    let r = b.cut(&b.offset(&r, 1 << 4), 5)?;
    Ok([e, r])
}

/// 2·x·y as a mantissa in [1, 4), for x·y in [½, 2), x of 29 and y of 30 bits, both at scale 28, y
/// at most 1.
pub(super) fn doubled(b: &mut AnyBlocks, x: &Int, y: &Int) -> Result<Int, Failure> {
    let product = b.product(Factor::unsigned(x), Factor::small(y), WIDE + SCALE)?;
    b.cut(&product, SCALE)
}

/// 1/(1 + e^(−x)): 0 and 1 at the infinities.
///
/// # Errors
/// If the blocks fail.
pub fn sigmoid(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let power = exp_below(b, x, 0)?;
    let [_, r] = with_one(b, &power)?;
    let one = b.constant(x.lanes(b), WIDE, 1 << SCALE);
    let step = b.sub(&power.man, &one);
    let job = Select { bit: &x.sign, ints: vec![&step, &power.exp], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let man = doubled(b, &b.add(&one, &row[0]), &r)?;
    let exp = b.offset(&row[1], u64::MAX);
    let pairs = [(&power.large, &x.sign), (&x.nan, &x.sign)];
    settle(b, x.format, &exp, &man, &pairs, |b, gates| {
        let zero = b.xor(&gates[0], &b.xor(&x.nan, &gates[1]));
        let sign = b.public_bits(&vec![false; x.lanes(b)]);
        Class { inf: x.nan.clone(), special: zero.clone(), zero, sign }
    })
}

/// tanh x: ±1 at the infinities, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn tanh(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    let power = exp_below(b, x, 1)?;
    let [e, r] = with_one(b, &power)?;

    // |x| at scale 28 where it is below 1; the flag says where it is not.
    let table = moves(|e| match e {
        0.. => (Move::Gone, true),
        -32..0 => (Move::Right((e + 32) as u32), false),
        _ => (Move::Gone, false),
    });
    let top = b.not(&x.zero);
    let man = only(b.extend(&[Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) }])?);
    let man = b.shift(&man, 4);
    let slid = slide(b, &x.exp, &man, &table, 7, None)?;
    let h = TANH.evaluate(b, &b.low(&slid.right, SCALE), false)?.0;

    // |x|·h or (1 − E)·r.
    let man = b.low(&b.shift(&man, 1), WIDE);
    let rest = b.offset(&b.neg(&b.low(&e, WIDE)), 1 << SCALE);
    let steps = [b.sub(&rest, &man), b.sub(&r, &h), x.exp.clone()];
    let job = Select { bit: &slid.flag, ints: steps.iter().collect(), bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let man = doubled(b, &b.add(&man, &row[0]), &b.add(&h, &row[1]))?;
    let exp = b.offset(&b.sub(&x.exp, &row[2]), u64::MAX);
    settle(b, format, &exp, &man, &[], |b, _| Class {
        zero: x.vanishing(b),
        inf: x.nan.clone(),
        special: x.vanishing(b),
        sign: x.sign.clone(),
    })
}
