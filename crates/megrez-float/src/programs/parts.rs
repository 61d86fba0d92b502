//! Large vectors in parts: memory is bounded, and parts run beside each other where the blocks have
//! threads for them. Rounds are those of one part times how many follow each other.

use crate::any::{AnyBlocks, Failure};
use crate::blocks::Blocks;
use crate::float::Float;
use std::ops::Range;

/// The most lanes that programs compute on at once, in all threads together. On shares a lane of an
/// addition takes about 3 kB while it runs; smaller parts are hardly faster and take more rounds.
pub const LANES: usize = 1 << 16;

/// Lanes that are worth a thread of their own.
pub(crate) const WORTH: usize = 1 << 12;

/// How many of `n` results, each of so many `lanes`, are made at once by one of `threads`.
pub(crate) fn part_size(n: usize, lanes: usize, threads: usize) -> usize {
    let most = (LANES / threads / lanes).max(1);
    n.div_ceil(threads).max(WORTH.div_ceil(lanes)).min(most)
}

/// `n` results by `part`, which gets a range of them. Each takes `lanes` lanes while it is made:
/// there are as many in a part as there is room for, or as many as keep all threads busy.
///
/// # Errors
/// Those of `part`.
///
/// # Panics
/// If there are none.
pub fn in_parts(
    b: &mut AnyBlocks,
    n: usize,
    lanes: usize,
    part: impl Fn(&mut AnyBlocks, Range<usize>) -> Result<Float, Failure> + Sync,
) -> Result<Float, Failure> {
    let size = part_size(n, lanes, b.threads());
    let mut parts = b.parts(n.div_ceil(size), |b, i| part(b, i * size..n.min((i + 1) * size)))?;
    match parts.len() {
        1 => Ok(parts.remove(0)),
        _ => Ok(Float::concat(b, &parts.iter().collect::<Vec<_>>())),
    }
}

/// f of every lane.
///
/// # Errors
/// Those of `f`.
pub fn each(
    b: &mut AnyBlocks,
    x: &Float,
    f: impl Fn(&mut AnyBlocks, &Float) -> Result<Float, Failure> + Sync,
) -> Result<Float, Failure> {
    in_parts(b, x.lanes(b), 1, |b, range| {
        let x = x.slice(b, range);
        f(b, &x)
    })
}

/// f of the lanes of two vectors.
///
/// # Errors
/// Those of `f`.
pub fn pairwise(
    b: &mut AnyBlocks,
    x: &Float,
    y: &Float,
    f: impl Fn(&mut AnyBlocks, &Float, &Float) -> Result<Float, Failure> + Sync,
) -> Result<Float, Failure> {
    in_parts(b, x.lanes(b), 1, |b, range| {
        let (x, y) = (x.slice(b, range.clone()), y.slice(b, range));
        f(b, &x, &y)
    })
}
