//! Signs and whole numbers next to a number: no figure of SECFLOAT's, but its blocks.
//!
//! For an exponent e from 0 to 22 the mantissa without its lowest 23 − e bits is the whole part,
//! and these bits are what decides whether one more unit, 2^(23−e), is added. A table of all
//! exponents has the unit. Below 1 nothing is left of the mantissa, and the unit is a whole
//! mantissa: a sum that is one is the number 1.

use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb};
use crate::blocks::Blocks;
use crate::finish::canonical;
use crate::float::{Float, choose};
use crate::format::Format;
use crate::math::slide::{Move, slide, with_numbers};
use crate::single::only;

/// The encoding of 1.
const ONE: u64 = 0x3f80_0000;
/// Bits of units: twice the largest unit that is added.
const UNIT: u32 = 27;

/// −1, 0 or 1; zeros and NaN stay.
///
/// # Errors
/// If the blocks fail.
pub fn sign(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    assert_eq!(x.format, Format::FLOAT32, "signs are those of single precision");
    let one = Float::constant(b, x.format, ONE, x.lanes(b));
    let one = Float { sign: x.sign.clone(), ..one };
    choose(b, &x.vanishing(b), x, &one)
}

/// The nearest whole number, of two the even one, with the sign of x.
///
/// # Errors
/// If the blocks fail.
pub fn round(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let cut = cut(b, x)?;
    let past = b.sub(&b.scale(&cut.rest, 2), &cut.unit);
    let (less, tie) = only(b.negative_zero(&[&past])?);
    let odd = b.both(&tie, &b.parity(&cut.whole))?;
    let more = b.xor(&b.not(&b.xor(&less, &tie)), &odd);
    cut.raised(b, x, &more)
}

/// The largest whole number that is not above x, with the sign of x.
///
/// # Errors
/// If the blocks fail.
pub fn floor(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let cut = cut(b, x)?;
    let whole = only(b.is_zero(&[&cut.rest])?);
    let more = b.both(&b.not(&whole), &x.sign)?;
    cut.raised(b, x, &more)
}

/// The smallest whole number that is not below x, with the sign of x.
///
/// # Errors
/// If the blocks fail.
pub fn ceil(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let below = floor(b, &x.neg(b))?;
    Ok(below.neg(b))
}

/// The nearest whole number towards zero, with the sign of x.
///
/// # Errors
/// If the blocks fail.
pub fn trunc(b: &mut AnyBlocks, x: &Float) -> Result<Float, Failure> {
    let cut = cut(b, x)?;
    let none = b.public_bits(&vec![false; x.lanes(b)]);
    cut.raised(b, x, &none)
}

/// |x| as a whole number and a rest.
struct Cut {
    /// The whole number.
    whole: Int,
    /// It and the rest at the scale of the mantissa, together the mantissa; from 2^23 on all is
    /// rest.
    part: Int,
    rest: Int,
    /// One at that scale; below ½ more than twice a mantissa, so that nothing there is nearer to 1,
    /// and nothing from 2^23 on.
    unit: Int,
    /// The exponent, −1 in place of lower ones.
    exp: Int,
    /// |x| is below 1.
    below: Bit,
    /// |x| is 2^23 or more, or not a number.
    large: Bit,
}

fn cut(b: &mut AnyBlocks, x: &Float) -> Result<Cut, Failure> {
    let (format, q) = (Format::FLOAT32, Format::FLOAT32.q);
    assert_eq!(x.format, format, "2^23 is whole in single precision");
    let table = with_numbers([UNIT, format.exp_width()], |e| match e {
        ..=-2 => (Move::Gone, [4 << q, (-1 - e) as u64], [false, true]),
        -1 => (Move::Gone, [2 << q, 0], [false, true]),
        0..=22 => (Move::Right((e + 8) as u32), [1 << (i64::from(q) - e), 0], [false, false]),
        23.. => (Move::Gone, [0, 0], [true, false]),
    });
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: UNIT, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let slid = slide(b, &x.exp, &b.low(&man, q + 2), &table, 7, None)?;
    let whole = b.low(&slid.right, q + 1);
    let part = b.product(Factor::small(&whole), Factor::small(&slid.more[0]), UNIT)?;
    let rest = b.sub(&man, &part);
    let [unit, lift] = slid.more.try_into().map_err(|_| ()).expect("the table has two numbers");
    let exp = b.add(&x.exp, &lift);
    let below = slid.second.expect("the table has two flags");
    Ok(Cut { whole, part, rest, unit, exp, below, large: slid.flag })
}

impl Cut {
    /// The whole number, or one more; large numbers are whole.
    fn raised(&self, b: &mut AnyBlocks, x: &Float, more: &Bit) -> Result<Float, Failure> {
        let q = x.format.q;
        let own = b.times(&self.large, &x.man)?;
        let step = b.times(more, &self.unit)?;
        // 2^24 or 2^25 is the next power of two, with a mantissa of 2^23.
        let sum = b.low(&b.add(&self.part, &step), q + 3);
        let carry = b.is_negative(&b.offset(&b.neg(&sum), (2 << q) - 1))?;
        let man = b.add(&b.low(&sum, q + 1), &b.shift(&b.narrow(&carry), q));
        let zero = b.both(&self.below, &b.not(more))?;
        let draft = Float { zero, exp: self.exp.clone(), man: b.add(&man, &own), ..x.clone() };
        canonical(b, draft, &carry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::in_the_clear;
    use crate::format::Plain;

    type Secret = fn(&mut AnyBlocks, &Float) -> Result<Float, Failure>;

    /// Numbers around every border of a whole number, and the ends of the format.
    fn numbers() -> Vec<f32> {
        let halves = (-40..=40).map(|n| n as f32 / 4.0);
        let powers = (-30..=30).flat_map(|k| [1.0f32, 1.25, 1.5, 1.75].map(|m| m * 2f32.powi(k)));
        let around = halves.chain(powers).flat_map(|x| [x.next_down(), x, x.next_up()]);
        let ends = [0.0, 1.0e38, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN];
        let all = around.chain(ends).flat_map(|x| [x, -x]);
        // Numbers below the normal ones are zeros here.
        all.filter(|x| !x.is_subnormal()).collect()
    }

    #[test]
    fn they_are_what_the_processor_has() {
        let sign = |x: f32| if x == 0.0 || x.is_nan() { x } else { x.signum() };
        let all: [(&str, Secret, fn(f32) -> f32); 5] = [
            ("sign", super::sign, sign),
            ("round", round, f32::round_ties_even),
            ("floor", floor, f32::floor),
            ("ceil", ceil, f32::ceil),
            ("trunc", trunc, f32::trunc),
        ];
        let x = numbers();
        let secret = Plain::from_f32(&x).secret();
        for (name, f, of) in all {
            let y = in_the_clear(|b| f(b, &secret));
            for (x, y) in x.iter().zip(y.plain().to_f32()) {
                let want = of(*x);
                assert!(y == want || (y.is_nan() && want.is_nan()), "{name} {x:e}: {y:e}, not {want:e}");
            }
        }
    }
}
