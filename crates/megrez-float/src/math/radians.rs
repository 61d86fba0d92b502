//! sin x, cos x and tan x of radians; NaN of infinities.
//!
//! x = (N + f)·π/2 with |f| ≤ ½ (Payne and Hanek): of x = M·2^(e−23) with whole M, multiples of 4
//! in 2/π·2^(e−23) do not matter, and of the rest 84 bits after the point leave M times it an error
//! below 2^−60. A table of all exponents has these windows of 2/π. No single-precision number comes
//! nearer than 2^−30 to a multiple of π/2, so that r = f·π/2 keeps 30 bits. Below ½ x is r, with
//! all its bits.

use super::sigmoid::doubled;
use super::slide::{Move, slide, with_numbers};
use super::spline::Spline;
use super::tables::{COS, SIN, TAN};
use super::trig::{Normal, either, normalise, turned};
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Multiply, Select, Truncate};
use crate::blocks::Blocks;
use crate::finish::{Class, settle};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// Fraction bits of positions.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) before rounding.
const WIDE: u32 = 29;
/// Fraction bits of N + f, which has two more.
const FINE: u32 = 62;
/// Fraction bits of the windows of 2/π beyond those.
const FINER: u32 = 22;
/// 2/π, 192 bits after the point.
const TWO_BY_PI: [u64; 3] = [0xa2f9_836e_4e44_1529, 0xfc27_57d1_f534_ddc0, 0xdb62_9599_3c43_9041];
/// π/4 at scale 33.
const QUARTER_PI: u64 = 6_746_518_852;
/// π/2 at scale 30.
const HALF_PI: u64 = 1_686_629_713;

/// 2/π·2^(e−23) modulo 4, for e from −1 on: 64 bits at scale 62, and the 22 bits after them.
fn window(e: i64) -> [u64; 2] {
    // The last bit of the window is the one before `end`, counted from the point.
    let end = (e + 61) as u32;
    let bits = |end: u32, count: u32| {
        (end.saturating_sub(count)..end)
            .fold(0, |bits, at| bits << 1 | TWO_BY_PI[at as usize / 64] >> (63 - at % 64) & 1)
    };
    [bits(end - FINER, 64), bits(end, FINER)]
}

/// |x| = N·π/2 ± r.
struct Reduced {
    /// r, normalised, with a mantissa of 29 bits.
    r: Normal,
    /// r at scale 28.
    position: Int,
    /// N modulo 4, lowest bit first.
    quadrant: [Bit; 2],
    /// r is subtracted.
    minus: Bit,
    /// x is infinite or not a number.
    beyond: Bit,
}

fn reduce(b: &mut AnyBlocks, x: &Float) -> Result<Reduced, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let table = with_numbers([64, FINER], |e| match e {
        ..=-34 => (Move::Gone, [0; 2], [false]),
        -33..=-2 => (Move::Right((e + 33) as u32), [0; 2], [false]),
        -1..=127 => (Move::Gone, window(e), [true]),
        128.. => (Move::Gone, [0; 2], [true]),
    });
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: 25, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let slid = slide(b, &x.exp, &man, &table, 4, None)?;

    // N + f modulo 4 at scale 62. The lower product has a bit of room, so that its top bit is zero.
    let by = |y, width| {
        let x = Factor { x: &x.man, signed: false, msb: Msb::Shared(&top) };
        Multiply { x, y: Factor::unsigned(y), width }
    };
    let below = b.width(&x.man) + FINER + 1;
    let products = b.multiply(&[by(&slid.more[0], 64), by(&slid.more[1], below)])?;
    let below = b.cut(&products[1], FINER)?;
    let below = only(b.extend(&[in_64_bits(&below, Msb::Zero)])?);
    let turns = b.add(&products[0], &below);
    let n = Truncate { x: &b.offset(&turns, 1 << (FINE - 1)), cuts: &[FINE, FINE + 1] };
    let n = only(b.truncate(&[n])?);
    let quadrant = [b.parity(&n[0]), b.parity(&n[1])];
    let f = b.low(&turns, FINE);
    let minus = b.is_negative(&f)?;
    let f = b.negate_if(&minus, &f)?;

    // r in fixed point, by the upper 31 bits of f, which is below ½ …
    let coarse = b.cut(&f, FINE - 31)?;
    let coarse = only(b.extend(&[in_64_bits(&coarse, Msb::Zero)])?);
    let coarse = b.low(&b.scale(&coarse, HALF_PI), SCALE + 33);
    let coarse = b.cut(&coarse, 33)?;
    let position = b.add(&coarse, &b.low(&slid.right, SCALE));

    // … and normalised: f's mantissa times π/4 is in [π/4, π/2).
    let fine = normalise(b, &f, FINE)?;
    let man = b.cut(&fine.man, FINE - 31)?;
    let man = only(b.extend(&[in_64_bits(&man, Msb::Shared(&b.not(&fine.zero)))])?);
    let man = b.offset(&b.scale(&man, QUARTER_PI), 1 << (62 - WIDE));
    let man = only(b.truncate(&[Truncate { x: &man, cuts: &[63 - WIDE, 64 - WIDE] }])?);
    let whole = b.is_negative(&man[0])?;
    let (below, one) = (b.low(&man[0], WIDE), b.constant(x.lanes(b), b.width(&fine.exp), 1));
    let step = b.sub(&man[1], &below);
    let job = Select { bit: &whole, ints: vec![&step, &one], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let fine = Normal { man: b.add(&below, &row[0]), exp: b.add(&fine.exp, &row[1]), ..fine };
    let r = either(b, &slid.flag, &fine, x)?;
    Ok(Reduced { r, position, quadrant, minus, beyond: x.unbounded(b) })
}

/// An unsigned integer in 64 bits.
fn in_64_bits<'a>(x: &'a Int, msb: Msb<'a>) -> Extend<'a> {
    Extend { x, width: 64, signed: false, msb }
}

/// sin x; NaN of infinities.
///
/// # Errors
/// If the blocks fail.
pub fn sin(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let reduced = reduce(b, x)?;
    // In odd quadrants the cosine of r.
    let even = reduced.quadrant[0].clone();
    let sign = b.xor(&x.sign, &reduced.quadrant[1]);
    wave(b, &reduced, &even, &sign)
}

/// cos x; NaN of infinities.
///
/// # Errors
/// If the blocks fail.
pub fn cos(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let reduced = reduce(b, x)?;
    let even = b.not(&reduced.quadrant[0]);
    let sign = b.xor(&reduced.quadrant[0], &reduced.quadrant[1]);
    wave(b, &reduced, &even, &sign)
}

/// ±cos r where `flat`, otherwise ±sin r, which also has the sign of r.
fn wave(b: &mut AnyBlocks, reduced: &Reduced, flat: &Bit, sign: &Bit) -> Result<Float, Failure> {
    let Reduced { r, position, minus, beyond, .. } = reduced;
    let both = |b: &mut AnyBlocks, spline: &Spline| Ok(spline.evaluate(b, position, false)?.0);
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

/// tan x; NaN of infinities. No number is a pole.
///
/// # Errors
/// If the blocks fail.
pub fn tan(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
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
