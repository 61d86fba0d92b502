//! Terms as integers with exponents, and a float of the integer that they sum up to.

use crate::any::{AnyBlocks, Bit, Extend, Factor, Failure, Int, Msb, Select};
use crate::blocks::Blocks;
use crate::convert::rounded;
use crate::finish::{Class, two};
use crate::float::Float;
use crate::format::Format;
use crate::single::only;

/// The format of a block's sum that is a term again.
pub const BETWEEN: Format = Format { p: 8, q: 25 };

/// Bits of a product's mantissa, in [1, 4).
const PRODUCT: u32 = 27;
/// Places of a step of a shift.
pub(super) const STEP: u32 = 16;

/// ±man·2^(exp − frac), or what is no such number.
pub(super) struct Terms {
    /// The mantissa; its top bit is zero. Zero for a zero.
    pub man: Int,
    /// Bits of it after the point.
    pub frac: u32,
    /// Exponents; of zeros, none that is above another term's.
    pub exp: Int,
    pub sign: Bit,
    pub flags: Flags,
}

/// What is not seen in the sum of the mantissas: of a term, or of all.
pub(super) struct Flags {
    /// One is +∞.
    pub plus: Bit,
    /// One is −∞.
    pub minus: Bit,
    /// One is NaN, and the others may be wrong.
    pub nan: Bit,
    /// All are −0.
    pub nothing: Bit,
}

impl Flags {
    pub fn each(&self, f: impl Fn(&Bit) -> Bit) -> Self {
        let [plus, minus, nan, nothing] = [&self.plus, &self.minus, &self.nan, &self.nothing].map(f);
        Self { plus, minus, nan, nothing }
    }
}

/// The terms that are numbers of some format.
pub(super) fn of_numbers(b: &mut AnyBlocks, x: &Float) -> Result<Terms, Failure> {
    let q = x.format.q;
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: q + 2, signed: false, msb: Msb::Shared(&top) };
    let man = only(b.extend(&[man])?);
    let [minus, nothing] = two(b.gates(&[(&x.sign, &x.inf), (&x.sign, &x.zero)])?);
    let flags = Flags { plus: b.xor(&x.inf, &minus), minus, nan: x.nan.clone(), nothing };
    Ok(Terms { man, frac: q, exp: x.exp.clone(), sign: x.sign.clone(), flags })
}

/// The terms x·y.
pub(super) fn of_products(b: &mut AnyBlocks, x: &Float, y: &Float) -> Result<Terms, Failure> {
    let format = x.format;
    assert_eq!(format, y.format, "formats differ");
    let (x_top, y_top) = (b.not(&x.zero), b.not(&y.zero));
    let product = b.product(
        Factor { x: &x.man, signed: false, msb: Msb::Shared(&x_top) },
        Factor { x: &y.man, signed: false, msb: Msb::Shared(&y_top) },
        2 * format.q + 3,
    )?;
    // Half of what is cut off is added first. No product is so near 4 that this reaches 4.
    let cut = (2 * format.q + 2).saturating_sub(PRODUCT);
    let man = if cut > 0 { b.cut(&b.offset(&product, 1 << (cut - 1)), cut)? } else { product };
    let sign = b.xor(&x.sign, &y.sign);
    let zeros = (x.vanishing(b), y.vanishing(b));
    let infs = (x.unbounded(b), y.unbounded(b));
    let gates = b.and(&[(&zeros.0, &zeros.1), (&infs.0, &infs.1)])?;
    let zero = b.union(&zeros.0, &zeros.1, &gates[0]);
    let inf = b.union(&infs.0, &infs.1, &gates[1]);
    // A zero's exponent goes below all others.
    let exp = b.add(&x.exp, &y.exp);
    let least = b.constant(x.lanes(b), format.exp_width(), (2 * (format.min_exp() - 1)) as u64);
    let rows = b.select(&[
        Select { bit: &zero, ints: vec![&b.sub(&least, &exp)], bits: vec![&inf, &sign] },
        Select { bit: &inf, ints: vec![], bits: vec![&sign] },
    ])?;
    let exp = b.add(&exp, &rows[0].ints[0]);
    let (nan, nothing, minus) = (rows[0].bits[0].clone(), rows[0].bits[1].clone(), rows[1].bits[0].clone());
    let flags = Flags { plus: b.xor(&inf, &minus), minus, nan, nothing };
    Ok(Terms { man, frac: 2 * format.q - cut, exp, sign, flags })
}

/// The sum of `n` blocks of `lanes` integers.
pub(super) fn total(b: &AnyBlocks, x: &Int, mut n: usize, lanes: usize) -> Int {
    let mut x = x.clone();
    while n > 1 {
        let (half, pairs) = (n.div_ceil(2), n / 2);
        let at = |from: usize, to: usize| b.gather(&x, &(from * lanes..to * lanes).collect::<Vec<_>>());
        x = b.concat(&[&b.add(&at(0, pairs), &at(half, n)), &at(pairs, half)]);
        n = half;
    }
    x
}

/// What a sum is instead of what its integer says.
pub(super) struct Special {
    pub inf: Bit,
    pub nan: Bit,
    pub unbounded: Bit,
    /// Is −∞, if it is infinite.
    pub minus: Bit,
    /// Is −0, as all terms are.
    pub nothing: Bit,
}

/// From the flags of all terms, whether one is infinite, whether there are infinities of both
/// signs, and the ANDs of these two with NaN: of the clash, and of the infinity.
pub(super) fn special(
    b: &AnyBlocks,
    flags: &Flags,
    inf: Bit,
    clash: Bit,
    (clashing, infinite): (&Bit, &Bit),
) -> Special {
    let nan = b.union(&clash, &flags.nan, clashing);
    let unbounded = b.union(&inf, &flags.nan, infinite);
    Special { inf, nan, unbounded, minus: flags.minus.clone(), nothing: flags.nothing.clone() }
}

/// The two's complement integer times 2^exp, rounded once.
pub(super) fn settled(
    b: &mut AnyBlocks,
    format: Format,
    (sum, exp): (&Int, &Int),
    of: Special,
) -> Result<Float, Failure> {
    // Where all terms are −0 the sum is zero, and not negative.
    let negative = b.is_negative(sum)?;
    let sign = b.xor(&negative, &of.nothing);
    let rows = b.select(&[
        Select { bit: &negative, ints: vec![sum], bits: vec![] },
        Select { bit: &of.inf, ints: vec![], bits: vec![&b.xor(&sign, &of.minus)] },
    ])?;
    let size = b.sub(sum, &b.scale(&rows[0].ints[0], 2));
    let sign = b.xor(&sign, &rows[1].bits[0]);
    rounded(b, format, &size, exp, Some(&of.unbounded), |b, zero, both| {
        let both = both.expect("asked for");
        Class {
            zero: b.xor(&b.xor(zero, both), &of.nan),
            special: b.union(zero, &of.unbounded, both),
            inf: of.unbounded.clone(),
            sign,
        }
    })
}
