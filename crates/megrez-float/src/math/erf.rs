//! The error function: x·h(x) below 1, where h falls from 2/√π; from 1 on a value of its own, which
//! rounds to 1 from 3.92 on.
//!
//! One spline of |x|/4 serves both: h on its first quarter, 2·erf on the others. x·h for a mantissa
//! in [1, 2), and 2·erf, lie between 1 and 2.26: both are mantissas already.

use super::slide::{Move, flagged, slide};
use super::tables::ERF;
use crate::any::{AnyBlocks, Extend, Factor, Failure, Msb, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, settle};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// Fraction bits of everything between 0 and 2.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) before rounding.
const WIDE: u32 = 29;

/// erf x = 2/√π·∫₀ˣ e^(−t²) dt: ±1 at the infinities, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn erf(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    assert_eq!(x.format, format, "math functions are those of single precision");
    // |x|/4 at scale 28, and whether |x| is 1 or more, and 4 or more.
    let table = flagged(|e| match e {
        2.. => (Move::Gone, [true, true]),
        -30..2 => (Move::Right((e + 30) as u32), [e >= 0, false]),
        _ => (Move::Gone, [false, false]),
    });
    let top = b.not(&x.zero);
    let man = only(b.extend(&[Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) }])?);
    let man = b.shift(&man, 4);
    let slid = slide(b, &x.exp, &man, &table, 7, None)?;
    let value = ERF.evaluate(b, &b.low(&slid.right, SCALE), false)?.0;

    // From 1 on the value is multiplied by 1 and doubled, from 4 on it is nearly 2.
    let man = b.low(&b.shift(&man, 1), WIDE);
    let one = b.constant(x.lanes(b), WIDE, 1 << SCALE);
    let last = b.constant(x.lanes(b), SCALE + 2, (2 << SCALE) - 1);
    let steps = [b.sub(&one, &man), b.offset(&b.neg(&x.exp), u64::MAX), b.sub(&last, &value)];
    let beyond = slid.second.expect("the table has two flags");
    let jobs = [
        Select { bit: &slid.flag, ints: vec![&steps[0], &steps[1]], bits: vec![] },
        Select { bit: &beyond, ints: vec![&steps[2]], bits: vec![] },
    ];
    let rows = b.select(&jobs)?;
    let man = b.add(&man, &rows[0].ints[0]);
    let exp = b.add(&x.exp, &rows[0].ints[1]);
    let value = b.add(&value, &rows[1].ints[0]);
    let product = b.product(Factor::unsigned(&man), Factor::small(&value), WIDE + SCALE + 1)?;
    let man = b.cut(&product, SCALE + 1)?;
    settle(b, format, &exp, &man, &[], |b, _| Class {
        zero: x.vanishing(b),
        inf: x.nan.clone(),
        special: x.vanishing(b),
        sign: x.sign.clone(),
    })
}
