//! Large vectors in parts: memory is bounded by the part, and rounds are those of one part times their number.

use crate::blocks::Blocks;
use crate::float::Float;
use std::ops::Range;

/// The most lanes that programs compute on at once. On shares a lane of an addition takes about 3 kB while it runs; smaller
/// parts are hardly faster and take more rounds.
pub const LANES: usize = 1 << 16;

/// `n` results, made at most `most` at a time by `part`, which gets their range.
///
/// # Errors
/// Those of `part`.
///
/// # Panics
/// If there are none.
pub fn in_parts<B: Blocks>(
    b: &mut B,
    n: usize,
    most: usize,
    mut part: impl FnMut(&mut B, Range<usize>) -> Result<Float<B>, B::Error>,
) -> Result<Float<B>, B::Error> {
    let most = most.max(1);
    let mut parts = vec![];
    for start in (0..n).step_by(most) {
        parts.push(part(b, start..n.min(start + most))?);
    }
    match parts.len() {
        1 => Ok(parts.remove(0)),
        _ => Ok(Float::concat(b, &parts.iter().collect::<Vec<_>>())),
    }
}

/// f of every lane.
///
/// # Errors
/// Those of `f`.
pub fn each<B: Blocks>(
    b: &mut B,
    x: &Float<B>,
    mut f: impl FnMut(&mut B, &Float<B>) -> Result<Float<B>, B::Error>,
) -> Result<Float<B>, B::Error> {
    in_parts(b, x.lanes(b), LANES, |b, range| {
        let x = x.slice(b, range);
        f(b, &x)
    })
}

/// f of the lanes of two vectors.
///
/// # Errors
/// Those of `f`.
pub fn pairwise<B: Blocks>(
    b: &mut B,
    x: &Float<B>,
    y: &Float<B>,
    mut f: impl FnMut(&mut B, &Float<B>, &Float<B>) -> Result<Float<B>, B::Error>,
) -> Result<Float<B>, B::Error> {
    in_parts(b, x.lanes(b), LANES, |b, range| {
        let (x, y) = (x.slice(b, range.clone()), y.slice(b, range));
        f(b, &x, &y)
    })
}
