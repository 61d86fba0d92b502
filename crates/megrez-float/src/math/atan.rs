//! atan x = x·h(x) below 1, and π/2 − y·h(y) with y = 1/x from 1 on, for x ≥ 0. The angle of a
//! point is the same of the smaller coordinate over the larger one, before that is rounded.

use super::slide::{Move, moves, slide};
use super::tables::ATAN;
use crate::add::keys;
use crate::any::{AnyBlocks, Extend, Factor, Failure, Msb, Select};
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
/// π and π/2 at scale 28.
const PI: u64 = 843_314_857;
const HALF_PI: u64 = 421_657_428;

/// atan x: ±π/2 at the infinities, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn atan(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    assert_eq!(x.format, format, "math functions are those of single precision");
    // The exponent is not negative: x is 1 or more.
    let below = b.is_negative(&x.exp)?;
    let inverse = b.not(&below);
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: SCALE - 1, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let man = b.shift(&man, 4);

    // y = 2^27/man is in (½, 1] at scale 32; 2y·2^(−exp−1) is 1/x.
    let y = reciprocal(b, &b.low(&man, 29), 27)?;
    let y = b.cut(&y, 3)?;
    let man = b.shift(&b.low(&man, SCALE + 2), 1);
    let other = b.offset(&b.scale(&x.exp, 2), 1);
    let step = b.sub(&y, &man);
    let job = Select { bit: &inverse, ints: vec![&step, &other], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let man = b.add(&man, &row[0]);
    let exp = b.sub(&x.exp, &row[1]);

    // The position at scale 28; an infinity's inverse has an exponent that looks positive.
    let table = moves(|e| match e {
        -31..0 => (Move::Right((e + 31) as u32), false),
        _ => (Move::Gone, false),
    });
    let slid = slide(b, &exp, &man, &table, 7, None)?;
    let h = ATAN.evaluate(b, &b.low(&slid.right, SCALE), false)?.0;

    // man·h, or π/2 − position·h, doubled.
    let (man, position) = (b.low(&man, WIDE), b.low(&slid.right, WIDE));
    let step = b.sub(&position, &man);
    let job = Select { bit: &inverse, ints: vec![&step, &exp], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let man = b.add(&man, &row[0]);
    let product = b.product(Factor::unsigned(&man), Factor::small(&h), WIDE + SCALE)?;
    let product = b.cut(&product, SCALE)?;
    let rest = b.offset(&b.scale(&product, 2u64.wrapping_neg()), HALF_PI);
    let rest = b.times(&inverse, &rest)?;
    let man = b.add(&product, &rest);
    let exp = b.offset(&b.sub(&exp, &row[1]), u64::MAX);
    settle(b, format, &exp, &man, &[], |b, _| Class {
        zero: x.vanishing(b),
        inf: x.nan.clone(),
        special: x.vanishing(b),
        sign: x.sign.clone(),
    })
}

/// The angle of the point (x, y) to the positive x-axis, in (−π, π]; of (±0, 0) and of infinite
/// points what IEEE 754 has.
///
/// # Errors
/// If the blocks fail.
pub fn atan2(b: &mut AnyBlocks, y: &Float, x: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    assert!(x.format == format && y.format == format, "math functions are those of single precision");
    let width = format.exp_width();
    let [(x_key, x_man), (y_key, y_man)] = keys(b, [x, y], 1)?;
    let steep = b.is_negative(&b.sub(&x_key, &y_key))?;

    // The smaller coordinate over the larger one; nothing, if only the larger one is infinite. The
    // smaller mantissa counts twice where it is the smaller of the two.
    let (exp_step, man_step) = (b.sub(&y.exp, &x.exp), b.sub(&y_man, &x_man));
    let job = Select { bit: &steep, ints: vec![&exp_step, &man_step], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let (larger, smaller) = (b.add(&x_man, &row[1]), b.sub(&y_man, &row[1]));
    let exp = b.sub(&exp_step, &b.scale(&row[0], 2));
    let (x_inf, y_inf) = (x.unbounded(b), y.unbounded(b));
    let gone = b.xor(&x_inf, &y_inf);
    let some = b.not(&gone);
    let smaller = b.times(&some, &smaller)?;
    let less = b.is_negative(&b.sub(&smaller, &larger))?;
    let r = reciprocal(b, &b.shift(&larger, 4), SCALE - 1)?;
    let product = b.product(Factor::small(&smaller), Factor::small(&r), WIDE + 2 + SCALE - 1)?;
    let unit = b.constant(x.lanes(b), width, 1);
    let job = Select { bit: &less, ints: vec![&product, &unit], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let man = b.cut(&b.add(&product, &row[0]), SCALE - 1)?;
    let exp = b.sub(&exp, &row[1]);

    let table = moves(|e| match e {
        -31..=0 => (Move::Right((e + 31) as u32), false),
        _ => (Move::Gone, false),
    });
    let slid = slide(b, &exp, &man, &table, 7, None)?;
    let h = ATAN.evaluate(b, &b.low(&slid.right, SCALE), false)?.0;
    let back = x.sign.clone();
    let gates = b.and(&[(&steep, &back), (&y.zero, &gone), (&x.nan, &y.nan)])?;
    let turned = b.union(&steep, &back, &gates[0]);
    let (man, position) = (b.low(&man, WIDE), b.low(&slid.right, WIDE));
    let step = b.times(&turned, &b.sub(&position, &man))?;
    let product = b.product(Factor::unsigned(&b.add(&man, &step)), Factor::small(&h), WIDE + 1 + SCALE)?;
    let p = b.cut(&product, SCALE)?;

    // p itself, doubled; π/2 − p, doubled; π − p; π/2 + p.
    let plain = b.scale(&p, 2);
    let up = b.offset(&b.scale(&p, 4u64.wrapping_neg()), PI);
    let left = b.offset(&b.scale(&p, 3u64.wrapping_neg()), PI);
    let both = b.offset(&b.scale(&p, 6), (PI + HALF_PI).wrapping_neg());
    let (up_exp, left_exp) = (b.neg(&exp), b.offset(&b.neg(&exp), 1));
    let vanishing = b.union(&y.zero, &gone, &gates[1]);
    let nan = b.union(&x.nan, &y.nan, &gates[2]);
    let rows = b.select(&[
        Select { bit: &steep, ints: vec![&up, &up_exp], bits: vec![] },
        Select { bit: &back, ints: vec![&left, &left_exp], bits: vec![] },
        Select { bit: &gates[0], ints: vec![&both, &exp], bits: vec![] },
        Select { bit: &b.not(&turned), ints: vec![], bits: vec![&vanishing] },
    ])?;
    let man = rows[..3].iter().fold(plain, |sum, row| b.add(&sum, &row.ints[0]));
    let exp = rows[..3].iter().fold(b.offset(&exp, u64::MAX), |sum, row| b.add(&sum, &row.ints[1]));
    let zero = &rows[3].bits[0];
    settle(b, format, &exp, &man, &[(zero, &nan)], |b, gates| {
        let special = b.union(zero, &nan, &gates[0]);
        Class { zero: special.clone(), inf: nan.clone(), special, sign: y.sign.clone() }
    })
}
