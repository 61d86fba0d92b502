//! √(x² + y²), without overflow or underflow on the way: the exponent of the larger number is split
//! off first, so that a sum of squares in [1, 8) is left.

use super::slide::{Move, moves, slide};
use super::trig::normalise;
use crate::add::keys;
use crate::any::{AnyBlocks, Factor, Failure, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, settle_normal};
use crate::float::Float;
use crate::format::Format;
use crate::sqrt::sqrt;

/// Fraction bits of the numbers that are squared.
const SCALE: u32 = 28;

/// √(x² + y²): ∞ if one is infinite, and NaN if one is NaN, also beside an infinity.
///
/// # Errors
/// If the blocks fail.
pub fn hypot(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    assert!(x.format == format && y.format == format, "math functions are those of single precision");
    let [(x_key, x_man), (y_key, y_man)] = keys(b, [x, y], 1)?;
    let less = b.is_negative(&b.sub(&x_key, &y_key))?;
    let (exp_step, man_step) = (b.sub(&y.exp, &x.exp), b.sub(&y_man, &x_man));
    let flip = b.xor(&x.zero, &y.zero);
    let job = Select { bit: &less, ints: vec![&exp_step, &man_step], bits: vec![&flip] };
    let row = b.select(&[job])?.remove(0);
    let exp = b.add(&x.exp, &row.ints[0]);
    let zero = b.xor(&x.zero, &row.bits[0]);
    let lift = SCALE - format.q;
    let larger = b.shift(&b.add(&x_man, &row.ints[1]), lift);
    let smaller = b.shift(&b.sub(&y_man, &row.ints[1]), lift);

    // The smaller one moves right by as much as its exponent is smaller.
    let apart = b.sub(&exp_step, &b.scale(&row.ints[0], 2));
    let table = moves(|e| match e {
        -31..=0 => (Move::Right((e + 31) as u32), false),
        _ => (Move::Gone, false),
    });
    let smaller = slide(b, &apart, &smaller, &table, 7, None)?.right;
    let (larger, smaller) = (b.low(&larger, SCALE + 1), b.low(&smaller, SCALE + 1));
    let width = 2 * SCALE + 3;
    let [large, small] = [&larger, &smaller].map(|x| (Factor::unsigned(x), Factor::unsigned(x)));
    let squares = [b.product(large.0, large.1, width)?, b.product(small.0, small.1, width)?];
    let sum = b.cut(&b.add(&squares[0], &squares[1]), SCALE)?;
    let sum = normalise(b, &sum, SCALE)?;

    // Its root, of 28 bits, takes the exponent again.
    let none = b.public_bits(&vec![false; x.lanes(b)]);
    let man = b.cut(&sum.man, b.width(&sum.man) - Format::WIDE.man_width())?;
    let square = Float {
        format: Format::WIDE,
        zero: sum.zero,
        inf: none.clone(),
        nan: none.clone(),
        sign: none,
        exp: sum.exp,
        man,
    };
    let root = sqrt(b, &square)?;
    let exp = b.add(&exp, &root.exp);
    let pairs = [(&x.inf, &y.inf), (&x.nan, &y.nan)];
    let gates = b.and(&pairs)?;
    let [inf, nan] = [0, 1].map(|i| b.union(pairs[i].0, pairs[i].1, &gates[i]));
    let both = b.both(&inf, &nan)?;
    let inf = b.union(&inf, &nan, &both);
    settle_normal(b, format, &exp, &root.man, &[], |b, _| Class {
        zero: b.xor(&zero, &nan),
        special: b.xor(&zero, &inf),
        inf: inf.clone(),
        sign: b.public_bits(&vec![false; x.lanes(b)]),
    })
}
