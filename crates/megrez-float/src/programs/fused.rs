//! Sums and dot products that are rounded once: no figure of SECFLOAT's, but its blocks.
//!
//! All terms of a block are aligned to the largest exponent among them, E, and added as integers
//! whose lowest bit is 2^−F of that of the largest term; the sum is normalised and rounded once.
//! Products enter with their exact mantissas, rounded to 27 bits but never normalised. Blocks have
//! at most [`TERMS`] terms, or [`PRODUCTS`] products; their sums are rounded to [`BETWEEN`], two
//! bits more than single precision, and are the terms of the next level.
//!
//! More than [`TERMS`] terms, up to [`MANY`], are one block all the same: they are sorted by their
//! exponents in place of aligned, in fewer rounds, and hardly anything is lost.
//!
//! How far off, in units in the last place (ULP) of Σ|terms|, before the one rounding of the
//! result, for n ≤ 2^K terms of a block:
//!
//! - A term more than 31 binades below E is dropped: less than 2^−8 ULP of 2^E (a product, which is
//!   below 4·2^exp, less than 2^−7), 2^(K−8) in all. ULP of blocks' largest terms, summed over the
//!   blocks, are at most 2 ULP of Σ|terms|.
//! - A product is rounded to 27 bits: off by at most 2^−26 of itself, 1/4 ULP in all.
//! - A block's sum in 26 bits: off by at most 2^−26 of itself, 1/4 ULP in all.
//! - Of sorted terms three sums are cut, each by less than 2^−12 ULP of a number of E's window; and
//!   4096 terms are dropped that are 49 binades or more below its bottom, each less than 2^−25 ULP:
//!   together below 2^−10.
//!
//! | | dropped below | products | between | together, below |
//! | --- | --- | --- | --- | --- |
//! | sums, up to 64 terms | 1/4 | | | 1/4 |
//! | … up to 4096 | 2^−10 | | | 2^−10 |
//! | … up to 4096·64 | 2^−9 + 1/4 | | 1/4 | 5/8 |
//! | dot products, up to 16 | 1/8 | 1/4 | | 3/8 |
//! | … up to 16·64 | 1/4 + 1/4 | 1/4 | 1/4 | 1 |
//! | … up to 16·4096 | 1/4 + 2^−10 | 1/4 | 1/4 | 7/8 |
//!
//! Rounding every addition instead, in halves, loses up to ½ ULP of a partial sum ⌈log n⌉ times. An
//! infinity that a block's sum becomes stays one.

mod aligned;
mod sorted;

use super::parts::in_parts;
use crate::blocks::{Blocks, Extend, Factor, Msb, Select};
use crate::convert::rounded;
use crate::finish::{Class, two};
use crate::float::Float;
use crate::format::Format;
use crate::mul::mul;
use crate::single::Single;

/// Most terms of a block.
pub const TERMS: usize = 64;
/// Most products of a block.
pub const PRODUCTS: usize = 16;
/// Most terms of a block whose terms are counted by their exponents.
pub const MANY: usize = 4096;
/// The format of a block's sum that is a term again.
pub const BETWEEN: Format = Format { p: 8, q: 25 };

/// Bits of a product's mantissa, in [1, 4).
const PRODUCT: u32 = 27;
/// Places of a step of a shift.
const STEP: u32 = 16;
/// 1 and −0: what fills a block up. −0 adds nothing, also not to −0.
const ONE: u64 = 0x3f80_0000;
const NOTHING: u64 = 0x8000_0000;

/// ±man·2^(exp − frac), or what is no such number.
struct Terms<B: Blocks> {
    /// The mantissa; its top bit is zero. Zero for a zero.
    man: B::Int,
    /// Bits of it after the point.
    frac: u32,
    /// Exponents; of zeros, none that is above another term's.
    exp: B::Int,
    sign: B::Bit,
    flags: Flags<B>,
}

/// What is not seen in the sum of the mantissas: of a term, or of all.
struct Flags<B: Blocks> {
    /// One is +∞.
    plus: B::Bit,
    /// One is −∞.
    minus: B::Bit,
    /// One is NaN, and the others may be wrong.
    nan: B::Bit,
    /// All are −0.
    nothing: B::Bit,
}

impl<B: Blocks> Flags<B> {
    fn each(&self, f: impl Fn(&B::Bit) -> B::Bit) -> Self {
        let [plus, minus, nan, nothing] = [&self.plus, &self.minus, &self.nan, &self.nothing].map(f);
        Self { plus, minus, nan, nothing }
    }
}

/// The terms that are numbers of some format.
fn of_numbers<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Terms<B>, B::Error> {
    let q = x.format.q;
    let top = b.not(&x.zero);
    let man = Extend { x: &x.man, width: q + 2, signed: false, msb: Msb::Shared(&top) };
    let man = B::one(b.extend(&[man])?);
    let [minus, nothing] = two(b.gates(&[(&x.sign, &x.inf), (&x.sign, &x.zero)])?);
    let flags = Flags { plus: b.xor(&x.inf, &minus), minus, nan: x.nan.clone(), nothing };
    Ok(Terms { man, frac: q, exp: x.exp.clone(), sign: x.sign.clone(), flags })
}

/// The terms x·y.
fn of_products<B: Blocks>(b: &mut B, x: &Float<B>, y: &Float<B>) -> Result<Terms<B>, B::Error> {
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
fn total<B: Blocks>(b: &B, x: &B::Int, mut n: usize, lanes: usize) -> B::Int {
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
struct Special<B: Blocks> {
    inf: B::Bit,
    nan: B::Bit,
    unbounded: B::Bit,
    /// Is −∞, if it is infinite.
    minus: B::Bit,
    /// Is −0, as all terms are.
    nothing: B::Bit,
}

/// From the flags of all terms, whether one is infinite, whether there are infinities of both
/// signs, and the ANDs of these two with NaN: of the clash, and of the infinity.
fn special<B: Blocks>(
    b: &B,
    flags: &Flags<B>,
    inf: B::Bit,
    clash: B::Bit,
    (clashing, infinite): (&B::Bit, &B::Bit),
) -> Special<B> {
    let nan = b.union(&clash, &flags.nan, clashing);
    let unbounded = b.union(&inf, &flags.nan, infinite);
    Special { inf, nan, unbounded, minus: flags.minus.clone(), nothing: flags.nothing.clone() }
}

/// The two's complement integer times 2^exp, rounded once.
fn settled<B: Blocks>(
    b: &mut B,
    format: Format,
    (sum, exp): (&B::Int, &B::Int),
    of: Special<B>,
) -> Result<Float<B>, B::Error> {
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

/// A term of a block: which one, if any, of which result.
type Place = (Option<usize>, usize);

/// Blocks of at most `most` of `n` terms, as even as can be: how many blocks, and terms of each.
fn split(n: usize, most: usize) -> (usize, usize) {
    let blocks = n.div_ceil(most);
    (blocks, n.div_ceil(blocks))
}

/// `results` sums of `n` terms, which `make` makes by their places: block after block of sums, one
/// for each result, and how many blocks there are.
fn level<B: Blocks>(
    b: &mut B,
    (n, most): (usize, usize),
    results: usize,
    make: impl Fn(&mut B, &[Place]) -> Result<Terms<B>, B::Error> + Sync,
) -> Result<(Float<B>, usize), B::Error> {
    let (blocks, terms) = split(n, most);
    let format = if blocks == 1 { Format::FLOAT32 } else { BETWEEN };
    let sums = in_parts(b, blocks * results, terms, |b, range| {
        let place = |i: usize, at: usize| {
            let term = at / results * terms + i;
            ((term < n).then_some(term), at % results)
        };
        let places: Vec<Place> = (0..terms).flat_map(|i| range.clone().map(move |at| place(i, at))).collect();
        let made = make(b, &places)?;
        match most {
            MANY => sorted::block(b, &made, terms, range.len(), format),
            _ => aligned::block(b, &made, terms, range.len(), format, most == PRODUCTS),
        }
    })?;
    Ok((sums, blocks))
}

/// Levels above the first.
fn rest<B: Blocks>(
    b: &mut B,
    (mut sums, mut n): (Float<B>, usize),
    results: usize,
) -> Result<Float<B>, B::Error> {
    while n > 1 {
        let padded = filled(b, &sums, NOTHING);
        let most = if n <= TERMS { TERMS } else { MANY };
        (sums, n) = level(b, (n, most), results, |b, places| {
            let x = padded.gather(b, &at(places, padded.lanes(b), |term, result| term * results + result));
            of_numbers(b, &x)
        })?;
    }
    Ok(sums)
}

/// x with one more lane, of single precision's `bits`.
fn filled<B: Blocks>(b: &B, x: &Float<B>, bits: u64) -> Float<B> {
    let shift = x.format.q - Format::FLOAT32.q;
    Float::concat(b, &[x, &Float::constant(b, x.format, bits << shift, 1)])
}

/// Lanes of terms of a vector of so many lanes, the last of which fills up.
fn at(places: &[Place], lanes: usize, of: impl Fn(usize, usize) -> usize) -> Vec<usize> {
    places.iter().map(|&(term, result)| term.map_or(lanes - 1, |term| of(term, result))).collect()
}

/// The sums of the terms of each lane: `terms` holds n blocks of `lanes` single-precision numbers.
/// Rounded once, within the bounds of the [module](self); of one term, itself. Sums of zeros are
/// +0, unless all are −0; of infinities of both signs, NaN.
///
/// # Errors
/// If the blocks fail.
///
/// # Panics
/// If there are no terms, or the format is another.
pub fn fused_sum<B: Blocks>(b: &mut B, terms: &Float<B>, lanes: usize) -> Result<Float<B>, B::Error> {
    assert_eq!(terms.format, Format::FLOAT32, "sums are those of single precision");
    let n = terms.lanes(b) / lanes;
    assert!(n > 0 && n * lanes == terms.lanes(b), "blocks of {lanes} numbers");
    rest(b, (terms.clone(), n), lanes)
}

/// `results` dot products of n terms: term t of result r is the product of the lanes of x and y
/// that `left(t, r)` and `right(t, r)` name. Products are exact but for 2^−26 of themselves, and
/// sums as [`fused_sum`]; of one term, the product correctly rounded.
///
/// # Errors
/// If the blocks fail.
///
/// # Panics
/// If there are no terms, or the format is another.
pub fn fused_dots<B: Blocks>(
    b: &mut B,
    (x, left): (&Float<B>, &(dyn Fn(usize, usize) -> usize + Sync)),
    (y, right): (&Float<B>, &(dyn Fn(usize, usize) -> usize + Sync)),
    n: usize,
    results: usize,
) -> Result<Float<B>, B::Error> {
    assert_eq!(x.format, Format::FLOAT32, "dot products are those of single precision");
    assert!(n > 0, "a dot product has a term");
    if n == 1 {
        return in_parts(b, results, 1, |b, range| {
            let lanes =
                |of: &dyn Fn(usize, usize) -> usize| range.clone().map(|r| of(0, r)).collect::<Vec<_>>();
            let (x, y) = (x.gather(b, &lanes(left)), y.gather(b, &lanes(right)));
            mul(b, &x, &y)
        });
    }
    let (x, y) = (filled(b, x, NOTHING), filled(b, y, ONE));
    let first = level(b, (n, PRODUCTS), results, |b, places| {
        let (x, y) =
            (x.gather(b, &at(places, x.lanes(b), left)), y.gather(b, &at(places, y.lanes(b), right)));
        of_products(b, &x, &y)
    })?;
    rest(b, first, results)
}
