//! sin x, cos x and tan x of radians, for |x| < 16; NaN beyond.
//!
//! x = N·π/2 + r with |r| ≤ π/4, and π/2 known to 58 bits after the point: with N ≤ 10 that leaves
//! r an error below 2^−55, while no single-precision number below 16 comes nearer than 2^−26 to a
//! multiple of π/2. For larger x neither would hold in 64 bits, so larger x are refused: scale
//! arguments by 1/π and use sinpi, whose reduction is exact everywhere.

use super::sigmoid::doubled;
use super::slide::{Move, moves, slide};
use super::spline::Spline;
use super::tables::{COS, SIN, TAN};
use super::trig::{Normal, either, normalise, turned};
use crate::blocks::{Blocks, Extend, Factor, Msb, Select, Truncate};
use crate::finish::{Class, settle, two};
use crate::float::Float;
use crate::format::Format;
use crate::single::Single;

/// Fraction bits of positions.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) before rounding.
const WIDE: u32 = 29;
/// Fraction bits of the reduction.
const FINE: u32 = 58;
/// π/2 at scale 58.
const HALF_PI: u64 = 452_751_216_129_820_178;
/// 2/π at scale 30.
const TWO_BY_PI: u64 = 683_565_276;

/// |x| = N·π/2 ± r.
struct Reduced<B: Blocks> {
    /// r, normalised, with a mantissa of 29 bits.
    r: Normal<B>,
    /// r at scale 28.
    position: B::Int,
    /// N modulo 4, lowest bit first.
    quadrant: [B::Bit; 2],
    /// r is subtracted.
    minus: B::Bit,
    /// |x| is 16 or more, or x is not a number.
    beyond: B::Bit,
}

fn reduce<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Reduced<B>, B::Error> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let table = moves(|e| match e {
        ..=-34 => (Move::Gone, false),
        -33..=-2 => (Move::Right((e + 33) as u32), false),
        -1..=3 => (Move::Left((e + 1) as u32), true),
        4.. => (Move::Gone, true),
    });
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) };
    let man = B::one(b.extend(&[man])?);
    let slid = slide(b, &x.exp, &man, &table, 4, Some(30))?;

    // From ½ on |x| has scale 24. N is x·2/π, rounded.
    let fixed = Extend { x: &slid.left.expect("asked for"), width: 64, signed: false, msb: Msb::Zero };
    let fixed = B::one(b.extend(&[fixed])?);
    let turns = b.offset(&b.low(&b.scale(&fixed, TWO_BY_PI), 60), 1 << 53);
    let n = B::one(b.truncate(&[Truncate { x: &turns, cuts: &[54, 55] }])?);
    let quadrant = [b.parity(&n[0]), b.parity(&n[1])];
    let whole = Extend { x: &n[0], width: 64, signed: false, msb: Msb::Zero };
    let whole = B::one(b.extend(&[whole])?);
    let rest = b.sub(&b.scale(&fixed, 1 << (FINE - 24)), &b.scale(&whole, HALF_PI));
    let within = b.offset(&x.exp, 4u64.wrapping_neg());
    let [minus, within] = two(b.negative(&[&rest, &within])?);
    let rest = b.negate_if(&minus, &rest)?;
    let rest = b.low(&rest, FINE);
    let coarse = b.cut(&rest, FINE - SCALE)?;
    let position = b.add(&coarse, &b.low(&slid.right, SCALE));

    let fine = normalise(b, &rest, FINE)?;
    let man = b.cut(&fine.man, FINE - WIDE)?;
    let r = either(b, &slid.flag, &Normal { man, ..fine }, x)?;
    Ok(Reduced { r, position, quadrant, minus, beyond: b.not(&within) })
}

/// sin x for |x| < 16, else NaN.
///
/// # Errors
/// If the blocks fail.
pub fn sin<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let reduced = reduce(b, x)?;
    // In odd quadrants the cosine of r.
    let even = reduced.quadrant[0].clone();
    let sign = b.xor(&x.sign, &reduced.quadrant[1]);
    wave(b, &reduced, &even, &sign)
}

/// cos x for |x| < 16, else NaN.
///
/// # Errors
/// If the blocks fail.
pub fn cos<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let reduced = reduce(b, x)?;
    let even = b.not(&reduced.quadrant[0]);
    let sign = b.xor(&reduced.quadrant[0], &reduced.quadrant[1]);
    wave(b, &reduced, &even, &sign)
}

/// ±cos r where `flat`, otherwise ±sin r, which also has the sign of r.
fn wave<B: Blocks>(
    b: &mut B,
    reduced: &Reduced<B>,
    flat: &B::Bit,
    sign: &B::Bit,
) -> Result<Float<B>, B::Error> {
    let Reduced { r, position, minus, beyond, .. } = reduced;
    let both = |b: &mut B, spline: &Spline| Ok(spline.evaluate(b, position, false)?.0);
    let (sine, cosine) = (both(b, &SIN)?, both(b, &COS)?);
    // r·(sin r/r) or 1·cos r.
    let one = b.constant(b.lanes(position), WIDE, 1 << SCALE);
    let steps = [b.sub(&one, &r.man), b.sub(&cosine, &sine), r.exp.clone()];
    let job = Select { bit: flat, ints: steps.iter().collect(), bits: vec![&r.zero, minus] };
    let row = b.select(&[job])?.remove(0);
    let (man, factor) = (b.add(&r.man, &row.ints[0]), b.add(&sine, &row.ints[1]));
    let man = doubled(b, &man, &factor)?;
    let exp = b.offset(&b.sub(&r.exp, &row.ints[2]), u64::MAX);
    let zero = b.xor(&r.zero, &row.bits[0]);
    let sign = b.xor(sign, &b.xor(minus, &row.bits[1]));
    settle(b, Format::FLOAT32, &exp, &man, &[(&zero, beyond)], |b, gates| {
        let special = b.union(&zero, beyond, &gates[0]);
        Class { zero: special.clone(), inf: beyond.clone(), special, sign }
    })
}

/// tan x for |x| < 16, else NaN. No such number is a pole.
///
/// # Errors
/// If the blocks fail.
pub fn tan<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let Reduced { r, position, quadrant: [odd, _], minus, beyond } = reduce(b, x)?;
    let factor = TAN.evaluate(b, &position, false)?.0;
    let top = b.not(&r.zero);
    let man = Factor { x: &r.man, signed: false, msb: Msb::Shared(&top) };
    // The product has twice the scale; as a mantissa in [1, 4) it has one fraction bit less than
    // `WIDE` has.
    let drop = 2 * SCALE - (WIDE - 2);
    let product = b.product(man, Factor::small(&factor), WIDE + 1 + drop)?;
    let tan = b.cut(&product, drop)?;
    let (man, exp) = turned(b, &tan, &r.exp, &odd)?;
    let sign = b.xor(&x.sign, &b.xor(&minus, &odd));
    settle(b, Format::FLOAT32, &exp, &man, &[(&r.zero, &beyond)], |b, gates| {
        let special = b.union(&r.zero, &beyond, &gates[0]);
        Class { zero: special.clone(), inf: beyond.clone(), special, sign }
    })
}
