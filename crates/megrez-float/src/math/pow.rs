//! x^y = 2^(y·log2 |x|), with the logarithm to 2^−34 of itself, so that up to |y·log2 |x|| = 128
//! the exponent is right to 2^−27.
//!
//! The logarithm is as in `log.rs`, with a finer spline; next to x = 1 at scale 60, elsewhere at
//! scale 52, where N·log 2 needs the room. What is infinite in exponent or logarithm makes the
//! power 0 or ∞ by the signs alone.
//!
//! Special cases are those of IEEE 754's powr extended to x < 0: x^0 = 1 and 1^y = 1 unless an
//! argument is NaN; 0^y and ∞^y are 0 or ∞; x < 0 has a power for integers y only, negative for odd
//! ones, else NaN.

use super::exp::{place, range};
use super::slide::{Move, moves, slide};
use super::tables::LOG2_FINE;
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Select, Truncate};
use crate::blocks::Blocks;
use crate::finish::{Class, settle_normal, two};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// Fraction bits of a logarithm next to 1.
const FINE: u32 = 60;
/// Fraction bits of other logarithms.
const COARSE: u32 = 52;
/// Bits of logarithms.
const WIDTH: u32 = 61;
/// Bits of a normalised logarithm: 35 fraction bits.
const LOG: u32 = 36;

/// A logarithm: sign, mantissa of `LOG` bits with its top bit set, exponent, and whether it is
/// zero.
struct Log {
    sign: Bit,
    man: Int,
    exp: Int,
    zero: Bit,
}

/// log2 |x|; for zeros and infinities one of the right sign.
fn log2(b: &mut AnyBlocks, x: &Float) -> Result<Log, Failure> {
    let Format { p, q } = x.format;
    let man = b.add(&x.man, &b.shift(&b.narrow(&x.zero), q));
    let h = LOG2_FINE.evaluate(b, &b.low(&man, q), false)?.0;
    let top = only(b.truncate(&[Truncate { x: &man, cuts: &[q - 1] }])?);
    let upper = b.parity(&top[0]);
    let wide = [
        Extend { x: &man, width: 26, signed: false, msb: Msb::One },
        Extend { x: &b.offset(&x.exp, 1 << p), width: p + 3, signed: false, msb: Msb::Zero },
    ];
    let [man, exp] = two(b.extend(&wide)?);
    let one = b.constant(x.lanes(b), p + 3, 1);
    let job = Select { bit: &upper, ints: vec![&man, &one], bits: vec![] };
    let kept = b.select(&[job])?.remove(0).ints;
    let delta = b.offset(&b.sub(&b.scale(&man, 2), &kept[0]), (1u64 << 24).wrapping_neg());
    let whole = b.offset(&b.add(&exp, &kept[1]), (1u64 << p).wrapping_neg());
    let delta = Factor { x: &delta, signed: true, msb: Msb::Shared(&upper) };
    let part = b.product(delta, Factor::small(&h), WIDTH)?;

    // N = 0: all of the product. Otherwise without its last bits, and N above it.
    let near = only(b.is_zero(&[&whole])?);
    let coarse = b.cut(&part, FINE - COARSE)?;
    let coarse = Extend { x: &coarse, width: WIDTH, signed: true, msb: Msb::Shared(&upper) };
    let coarse = only(b.extend(&[coarse])?);
    let coarse = b.add(&coarse, &b.low(&b.shift(&whole, COARSE), WIDTH));
    let (step, lift) = (b.sub(&part, &coarse), b.constant(x.lanes(b), p + 2, u64::from(FINE - COARSE)));
    let job = Select { bit: &near, ints: vec![&step, &lift], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let sum = b.add(&coarse, &row[0]);

    let sign = b.is_negative(&sum)?;
    let size = b.negate_if(&sign, &sum)?;
    let size = b.low(&size, WIDTH - 1);
    let top = only(b.leading(&[(&size, p + 2)])?);
    let man = b.product(Factor::unsigned(&size), Factor::unsigned(&top.scale), WIDTH - 1)?;
    let man = b.cut(&man, WIDTH - 1 - LOG)?;
    let exp = b.offset(&b.sub(&top.position, &row[1]), u64::from(COARSE).wrapping_neg());
    Ok(Log { sign, man, exp, zero: top.zero })
}

/// Whether y is an integer, and whether an odd one.
fn parity(b: &mut AnyBlocks, y: &Float) -> Result<[Bit; 2], Failure> {
    let table = moves(|e| match e {
        ..=-2 => (Move::Gone, false),
        -1..=23 => (Move::Left((e + 1) as u32), true),
        24.. => (Move::Gone, true),
    });
    let top = b.not(&y.zero);
    let man = Extend { x: &y.man, width: 25, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    // |y| modulo 2 at scale 24.
    let slid = slide(b, &y.exp, &man, &table, 0, Some(25))?;
    let left = slid.left.expect("asked for");
    let odd = b.is_negative(&left)?;
    let whole = only(b.is_zero(&[&b.low(&left, 24)])?);
    let integer = b.both(&slid.flag, &whole)?;
    let odd = b.both(&integer, &odd)?;
    Ok([b.xor(&integer, &y.zero), odd])
}

/// x^y; what it is where it is special, the head of this file says.
///
/// # Errors
/// If the blocks fail.
pub fn pow(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    assert!(x.format == format && y.format == format, "math functions are those of single precision");
    let log = log2(b, x)?;
    let [integer, odd] = parity(b, y)?;

    // |y·log2 |x|| in [1, 4) at scale 34, times 2^exp; nothing of it below 2^−26.
    let (log_top, y_top) = (b.not(&log.zero), b.not(&y.zero));
    let product = b.product(
        Factor { x: &log.man, signed: false, msb: Msb::Shared(&log_top) },
        Factor { x: &y.man, signed: false, msb: Msb::Shared(&y_top) },
        LOG + format.man_width() + 1,
    )?;
    let man = b.cut(&product, LOG + format.man_width() - 36)?;
    let exp = b.add(&log.exp, &y.exp);
    let [tiny, within] = two(b.negative(&[&b.offset(&exp, 26), &b.offset(&exp, 7u64.wrapping_neg())])?);
    let (beyond, some) = (b.not(&within), b.xor(&within, &tiny));
    let man = b.times(&some, &man)?;
    let sign = b.xor(&log.sign, &y.sign);
    let power = place(b, &exp, &man, 7, &range(0, false), &sign)?.power(b)?;

    // Large: a power of 0 or ∞ but the zeroth, and what has too large an exponent, unless x is 1.
    let edge = b.xor(&x.zero, &x.inf);
    let (finite, broken) = (b.not(&edge), b.not(&integer));
    let gates = b.gates(&[
        (&edge, &y_top),
        (&beyond, &log_top),
        (&x.sign, &odd),
        (&x.sign, &broken),
        (&x.nan, &y.nan),
    ])?;
    let not_a_number = b.union(&x.nan, &y.nan, &gates[4]);
    let more = b.and(&[(&gates[0], &gates[1]), (&gates[3], &finite)])?;
    let large = b.union(&gates[0], &gates[1], &more[0]);
    let last = b.and(&[(&not_a_number, &more[1]), (&large, &sign)])?;
    let nan = b.union(&not_a_number, &more[1], &last[0]);
    let small = last[1].clone();
    let huge = b.xor(&large, &small);
    let minus = gates[2].clone();
    let pairs = [(&nan, &small), (&nan, &huge)];
    settle_normal(b, format, &power.exp, &power.man, &pairs, |b, gates| {
        let zero = b.union(&nan, &small, &gates[0]);
        let inf = b.union(&nan, &huge, &gates[1]);
        // Either, or both: small and huge exclude each other.
        let special = b.xor(&b.xor(&zero, &inf), &nan);
        Class { zero, inf, special, sign: minus }
    })
}
