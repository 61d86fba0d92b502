//! atan x = x·h(x) below 1, and π/2 − y·h(y) with y = 1/x from 1 on, for x ≥ 0.

use super::slide::{Move, moves, slide};
use super::tables::ATAN;
use crate::blocks::{Blocks, Extend, Factor, Msb, Select};
use crate::finish::{Class, settle};
use crate::float::Float;
use crate::format::Format;
use crate::reciprocal::reciprocal;
use crate::single::Single;

/// Fraction bits of everything between 0 and 2.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) before rounding.
const WIDE: u32 = 29;
/// π/2 at scale 28.
const HALF_PI: u64 = 421_657_428;

/// atan x: ±π/2 at the infinities, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn atan<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let format = Format::FLOAT32;
    assert_eq!(x.format, format, "math functions are those of single precision");
    // The exponent is not negative: x is 1 or more.
    let below = b.is_negative(&x.exp)?;
    let inverse = b.not(&below);
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: SCALE - 1, signed: false, msb: Msb::Shared(&top) };
    let man = B::one(b.extend(&[man])?);
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
