//! The rest of a division, exactly: x − n·y with n = x/y towards zero.
//!
//! With mantissas X and Y and exponents d apart it is X·2^d mod Y. 2^d is taken in factors: one of
//! 2^(d mod 24), and up to ten of 2^24, each multiplied to the rest so far, which is then below
//! 2^48 and brought below Y again. Its quotient comes from one reciprocal of Y, and is right or one
//! too small: of the rest 20 bits are left out, an eighth of Y, and the reciprocal is good for
//! 2^−29 of a quotient below 2^25.

use super::trig::normalise;
use crate::add::keys;
use crate::any::{AnyBlocks, Extend, Factor, Failure, Int, Lookup, Msb, Select};
use crate::blocks::{Blocks, Table};
use crate::finish::{Class, finish, outside};
use crate::float::Float;
use crate::format::Format;
use crate::reciprocal::reciprocal;
use crate::single::only;

/// Bits of a mantissa, and the exponent of a factor.
const STEP: u32 = 24;
/// The most factors of 2^24: exponents are up to 253 apart.
const STEPS: usize = 10;
/// Bits of a rest that may be Y too much.
const REST: u32 = STEP + 2;
/// Bits of a rest that a quotient does without.
const CUT: u32 = 20;
/// Fraction bits of the reciprocal of Y/2^23.
const INVERSE: u32 = 32;

/// x − n·y with n = x/y towards zero, with the sign of x; NaN for infinite x and for zero y.
///
/// # Errors
/// If the blocks fail.
pub fn fmod(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Float, Failure> {
    let format = Format::FLOAT32;
    assert!(x.format == format && y.format == format, "math functions are those of single precision");
    let [(_, x_man), (_, y_man)] = keys(b, [x, y], 1)?;
    let inverse = reciprocal(b, &b.shift(&y_man, 4), 27)?;
    let man = Extend { x: &y_man, width: REST, signed: false, msb: Msb::Zero };
    let divisor = Divisor { man: only(b.extend(&[man])?), inverse };

    let apart = b.sub(&x.exp, &y.exp);
    let table = Table::new(8, &[STEP], STEPS, |d| {
        let whole = (1..=STEPS as u64).map(|i| u64::from(d >= i * u64::from(STEP)));
        [1 << (d % u64::from(STEP))].into_iter().chain(whole).collect()
    });
    let index = b.low(&apart, 8);
    let row = only(b.lookup(&[Lookup { index: &index, table: &table }])?);
    let product = b.product(Factor::small(&x_man), Factor::unsigned(&row.ints[0]), 2 * STEP)?;
    let upper = b.cut(&product, CUT)?;
    let mut rest = divisor.rest(b, &product, &upper)?;
    for more in &row.bits {
        let product = b.shift(&b.low(&rest, STEP), STEP);
        let upper = b.shift(&b.low(&rest, STEP), STEP - CUT);
        let next = divisor.rest(b, &product, &upper)?;
        let step = b.times(more, &b.sub(&next, &rest))?;
        rest = b.add(&rest, &step);
    }

    // A smaller x is its own rest.
    let rest = normalise(b, &b.low(&rest, STEP), STEP - 1)?;
    let own = b.is_negative(&apart)?;
    let exp = b.add(&rest.exp, &y.exp);
    let steps = [b.sub(&x.man, &rest.man), b.sub(&x.exp, &exp)];
    let flip = b.xor(&x.zero, &rest.zero);
    let (infinite, null) = (x.unbounded(b), y.vanishing(b));
    let rows = b.select(&[
        Select { bit: &own, ints: steps.iter().collect(), bits: vec![&flip] },
        Select { bit: &infinite, ints: vec![], bits: vec![&null] },
    ])?;
    let man = b.add(&rest.man, &rows[0].ints[0]);
    let exp = b.add(&exp, &rows[0].ints[1]);
    let zero = b.xor(&rest.zero, &rows[0].bits[0]);
    // x infinite or not a number, y zero or not a number.
    let wrong = b.union(&infinite, &null, &rows[1].bits[0]);
    let both = b.both(&zero, &wrong)?;
    let special = b.union(&zero, &wrong, &both);
    let class = Class { zero: special.clone(), inf: wrong, special, sign: x.sign.clone() };
    let range = outside(b, format, &exp)?;
    let carry = b.public_bits(&vec![false; x.lanes(b)]);
    finish(b, format, &exp, &man, &carry, range.each_ref(), class)
}

/// A mantissa Y with a zero bit on top, and its reciprocal.
struct Divisor {
    man: Int,
    inverse: Int,
}

impl Divisor {
    /// v mod Y in 26 bits, for v below 2^24·Y of which `upper` are all but the lowest 20 bits.
    fn rest(&self, b: &mut AnyBlocks, v: &Int, upper: &Int) -> Result<Int, Failure> {
        let drop = INVERSE + STEP - 1 - CUT;
        let quotient = b.product(Factor::unsigned(upper), Factor::small(&self.inverse), REST + drop)?;
        let quotient = b.cut(&quotient, drop)?;
        let product = b.product(Factor::unsigned(&quotient), Factor::small(&self.man), REST)?;
        let rest = b.sub(&b.low(v, REST), &product);
        let less = b.sub(&rest, &self.man);
        let fits = b.is_negative(&less)?;
        let step = b.times(&fits, &b.sub(&rest, &less))?;
        Ok(b.add(&less, &step))
    }
}
