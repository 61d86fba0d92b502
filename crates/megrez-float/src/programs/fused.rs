//! Sums and dot products that are rounded once: no figure of SECFLOAT's, but its blocks.
//!
//! All terms of a block are aligned to the largest exponent among them, E, and added as integers
//! whose lowest bit is 2^−F of that of the largest term; the sum is normalised and rounded once.
//! Products enter with their exact mantissas, rounded to 27 bits but never normalised. Blocks have
//! at most [`TERMS`] terms, or [`PRODUCTS`] products; their sums are rounded to [`BETWEEN`], two
//! bits more than single precision, and are the terms of the next level.
//!
//! More than [`TERMS`] terms, up to [`SORTED`], are one block all the same: they are sorted by
//! their exponents in place of aligned, in fewer rounds, and hardly anything is lost.
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
mod terms;

use super::parts::in_parts;
use crate::any::{AnyBlocks, Failure};
use crate::float::Float;
use crate::format::Format;
use crate::mul::mul;
use terms::{Terms, of_numbers, of_products};

pub use sorted::SORTED;
pub use terms::BETWEEN;

/// Most terms of a block.
pub const TERMS: usize = 64;
/// Most products of a block.
pub const PRODUCTS: usize = 16;
/// 1 and −0: what fills a block up. −0 adds nothing, also not to −0.
const ONE: u64 = 0x3f80_0000;
const NOTHING: u64 = 0x8000_0000;

/// How the terms of a block come together.
#[derive(Clone, Copy)]
enum Form {
    /// Products, aligned.
    Products,
    /// Numbers, aligned.
    Aligned,
    /// Numbers, sorted.
    Sorted,
}

impl Form {
    /// Most terms of a block.
    fn most(self) -> usize {
        match self {
            Self::Products => PRODUCTS,
            Self::Aligned => TERMS,
            Self::Sorted => SORTED,
        }
    }
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
fn level(
    b: &mut AnyBlocks,
    (n, form): (usize, Form),
    results: usize,
    make: impl Fn(&mut AnyBlocks, &[Place]) -> Result<Terms, Failure> + Sync,
) -> Result<(Float, usize), Failure> {
    let (blocks, terms) = split(n, form.most());
    let format = if blocks == 1 { Format::FLOAT32 } else { BETWEEN };
    let sums = in_parts(b, blocks * results, terms, |b, range| {
        let place = |i: usize, at: usize| {
            let term = at / results * terms + i;
            ((term < n).then_some(term), at % results)
        };
        let places: Vec<Place> = (0..terms).flat_map(|i| range.clone().map(move |at| place(i, at))).collect();
        let made = make(b, &places)?;
        match form {
            Form::Products => aligned::block(b, &made, terms, range.len(), format, true),
            Form::Aligned => aligned::block(b, &made, terms, range.len(), format, false),
            Form::Sorted => sorted::block(b, &made, terms, range.len(), format),
        }
    })?;
    Ok((sums, blocks))
}

/// Levels above the first.
fn rest(b: &mut AnyBlocks, (mut sums, mut n): (Float, usize), results: usize) -> Result<Float, Failure> {
    while n > 1 {
        let padded = filled(b, &sums, NOTHING);
        let form = if n <= TERMS { Form::Aligned } else { Form::Sorted };
        (sums, n) = level(b, (n, form), results, |b, places| {
            let x = padded.gather(b, &at(places, padded.lanes(b), |term, result| term * results + result));
            of_numbers(b, &x)
        })?;
    }
    Ok(sums)
}

/// x with one more lane, of single precision's `bits`.
fn filled(b: &AnyBlocks, x: &Float, bits: u64) -> Float {
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
pub fn fused_sum(b: &mut AnyBlocks, terms: &Float, lanes: usize) -> Result<Float, Failure> {
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
pub fn fused_dots(
    b: &mut AnyBlocks,
    (x, left): (&Float, &(dyn Fn(usize, usize) -> usize + Sync)),
    (y, right): (&Float, &(dyn Fn(usize, usize) -> usize + Sync)),
    n: usize,
    results: usize,
) -> Result<Float, Failure> {
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
    let first = level(b, (n, Form::Products), results, |b, places| {
        let (x, y) =
            (x.gather(b, &at(places, x.lanes(b), left)), y.gather(b, &at(places, y.lanes(b), right)));
        of_products(b, &x, &y)
    })?;
    rest(b, first, results)
}
