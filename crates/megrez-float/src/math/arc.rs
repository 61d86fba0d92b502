//! asin x and acos x. Below ½ asin x = x·h(x); from there on it is π/2 − 2·asin y with y = √((1 −
//! |x|)/2), which is at most ½ again. 1 − |x| is exact there, and y rounded to 28 bits.
//!
//! acos x is 2·asin y for x from ½ on, which keeps all bits next to 1, π − 2·asin y up to −½, and
//! π/2 − asin x between.

use super::slide::{Move, moves, slide};
use super::tables::ASIN;
use super::trig::{Normal, normalise};
use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Select};
use crate::blocks::Blocks;
use crate::finish::{Class, settle, two};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;
use crate::sqrt::sqrt;

/// Fraction bits of everything between 0 and 4.
const SCALE: u32 = 28;
/// Bits of a mantissa in [1, 4) with so many fraction bits before rounding.
const WIDE: u32 = SCALE + 2;
/// π and π/2 at scale 28.
const PI: u64 = 843_314_857;
const HALF_PI: u64 = 421_657_428;

/// asin x: NaN for |x| > 1, −0 at −0.
///
/// # Errors
/// If the blocks fail.
pub fn asin(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let half = halved(b, x)?;
    let plain = b.not(&half.far);
    let p = half.arc(b, &plain)?;
    // Far twice π/2 − 2p, where p was cut by up to two units.
    let rest = b.sub(&b.offset(&b.scale(&p, 4u64.wrapping_neg()), PI - 4), &p);
    let exp = b.offset(&b.neg(&half.v.exp), u64::MAX);
    let job = Select { bit: &half.far, ints: vec![&rest, &exp], bits: vec![] };
    let row = b.select(&[job])?.remove(0).ints;
    let (man, exp) = (b.add(&p, &row[0]), b.add(&half.v.exp, &row[1]));
    settle(b, x.format, &exp, &man, &[], |b, _| {
        let zero = b.xor(&x.zero, &half.beyond);
        Class { special: zero.clone(), zero, inf: half.beyond.clone(), sign: x.sign.clone() }
    })
}

/// acos x: NaN for |x| > 1, +0 at 1.
///
/// # Errors
/// If the blocks fail.
pub fn acos(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let half = halved(b, x)?;
    let left = b.both(&half.far, &x.sign)?;
    let right = b.xor(&half.far, &left);
    let p = half.arc(b, &right)?;
    // 2p far to the right, π − 2p far to the left, π/2 ∓ p between.
    let near = b.offset(&b.neg(&p), HALF_PI);
    let [minus, exp] = [b.scale(&p, 2), b.offset(&half.v.exp, 1)];
    let far = b.offset(&minus, HALF_PI.wrapping_neg());
    let far_left = b.offset(&b.scale(&p, 5u64.wrapping_neg()), PI);
    let rows = b.select(&[
        Select { bit: &x.sign, ints: vec![&minus], bits: vec![] },
        Select { bit: &half.far, ints: vec![&far], bits: vec![] },
        Select { bit: &left, ints: vec![&far_left], bits: vec![] },
        Select { bit: &right, ints: vec![&exp], bits: vec![] },
    ])?;
    let man = rows[..3].iter().fold(near, |sum, row| b.add(&sum, &row.ints[0]));
    settle(b, x.format, &rows[3].ints[0], &man, &[(&half.one, &x.sign)], |b, gates| {
        let zero = b.xor(&b.xor(&half.one, &gates[0]), &half.beyond);
        let sign = b.public_bits(&vec![false; x.lanes(b)]);
        Class { special: zero.clone(), zero, inf: half.beyond.clone(), sign }
    })
}

/// A number v that is at most ½: |x|, or y.
struct Half {
    /// |x| is ½ or more, and v is y.
    far: Bit,
    /// |x| is 1.
    one: Bit,
    /// |x| is more than 1, or not a number.
    beyond: Bit,
    /// v, with a mantissa of 29 bits whose lowest is zero.
    v: Normal,
    /// v at scale 28, and whether it is ½.
    fixed: (Int, Bit),
}

/// The number whose asin is needed.
fn halved(b: &mut AnyBlocks, x: &Float) -> Result<Half, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "math functions are those of single precision");
    let Format { q, .. } = x.format;
    let exp = b.offset(&x.exp, 1);
    let (near, inner) = only(b.negative_zero(&[&exp])?);
    let far = b.not(&near);
    let [exp, man] = two(b.is_zero(&[&x.exp, &b.low(&x.man, q)])?);
    let one = b.both(&exp, &man)?;
    let beyond = b.xor(&b.xor(&far, &inner), &one);

    // For |x| in [½, 1) 1 − |x| is 2^24 − man at scale 24; from 1 on zero stands for it.
    let rest = b.times(&inner, &b.neg(&x.man))?;
    let rest = normalise(b, &rest, q + 1)?;
    let none = b.public_bits(&vec![false; x.lanes(b)]);
    let y = Float {
        format: x.format,
        exp: b.offset(&rest.exp, u64::MAX),
        man: rest.man,
        zero: rest.zero,
        inf: none.clone(),
        nan: none.clone(),
        sign: none,
    };
    let y = sqrt(b, &y.widened(b))?;

    let wide = x.widened(b);
    let (man, exp) = (b.sub(&y.man, &wide.man), b.sub(&y.exp, &wide.exp));
    let flip = b.xor(&y.zero, &wide.zero);
    let job = Select { bit: &far, ints: vec![&man, &exp], bits: vec![&flip] };
    let row = b.select(&[job])?.remove(0);
    let zero = b.xor(&wide.zero, &row.bits[0]);
    let (man, exp) = (b.add(&wide.man, &row.ints[0]), b.add(&wide.exp, &row.ints[1]));
    let table = moves(|e| match e {
        -31..0 => (Move::Right((e + 31) as u32), e == -1),
        _ => (Move::Gone, false),
    });
    let top = b.not(&zero);
    let man = Extend { x: &man, width: SCALE + 1, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let man = b.shift(&man, 1);
    let slid = slide(b, &exp, &man, &table, 7, None)?;
    let v = Normal { man: b.low(&man, SCALE + 1), exp, zero };
    Ok(Half { far, one, beyond, v, fixed: (slid.right, slid.flag) })
}

impl Half {
    /// asin v at scale 28: of v's mantissa where `mantissa` says so.
    fn arc(&self, b: &mut AnyBlocks, mantissa: &Bit) -> Result<Int, Failure> {
        // A whole ½ counts as a little less, for the last piece ends there.
        let (fixed, half) = &self.fixed;
        let last = only(b.widen(&[(half, SCALE - 1)])?);
        let h = ASIN.evaluate(b, &b.sub(&b.low(fixed, SCALE - 1), &last), false)?.0;
        let fixed = b.low(fixed, SCALE + 1);
        let step = b.times(mantissa, &b.sub(&self.v.man, &fixed))?;
        let v = b.add(&fixed, &step);
        let product = b.product(Factor::unsigned(&v), Factor::small(&h), WIDE + SCALE)?;
        b.cut(&product, SCALE)
    }
}
