//! Jobs of which some are done in the clear, and what is left of the others.

use crate::any::{AnyBlocks, Handle, Mixed, Object};
use crate::blocks::{Extend, Factor, Msb, two_complement};
use crate::clear::Ints;
use std::borrow::Cow;
use std::convert::Infallible;

use Mixed::{Known, Secret};

/// The result of one job, or what is left of it for the blocks below.
pub(super) enum Step<R, L> {
    Done(R),
    Left(L),
}

use Step::{Done, Left};

/// Results of all jobs, of which those that are left run together; nothing runs if none is.
pub(super) fn run<L, R, E>(
    steps: Vec<Step<R, L>>,
    below: impl FnOnce(&[L]) -> Result<Vec<R>, E>,
) -> Result<Vec<R>, E> {
    let (mut left, mut done) = (vec![], vec![]);
    for step in steps {
        match step {
            Done(result) => done.push(Some(result)),
            Left(job) => {
                left.push(job);
                done.push(None);
            }
        }
    }
    let mut ran = if left.is_empty() { vec![] } else { below(&left)? }.into_iter();
    Ok(done.into_iter().map(|d| d.unwrap_or_else(|| ran.next().expect("one for each job"))).collect())
}

/// The result of one job in the clear.
pub(super) fn sure<T>(results: Result<Vec<T>, Infallible>) -> T {
    let Ok(results) = results;
    results.into_iter().next().expect("one job gives one result")
}

pub(super) fn secrets<S, K>(all: Vec<S>) -> Vec<Mixed<S, K>> {
    all.into_iter().map(Secret).collect()
}

pub(super) fn is_zero<S>(x: &Mixed<S, Ints>) -> bool {
    matches!(x, Known(k) if k.v.iter().all(|&v| v == 0))
}

/// [`Msb`] of a secret integer, for the blocks below.
pub(super) enum Hint<'a> {
    Unknown,
    Zero,
    One,
    Shared(Cow<'a, Handle>),
}

impl Hint<'_> {
    pub fn msb(&self) -> Msb<'_, Object> {
        match self {
            Hint::Unknown => Msb::Unknown,
            Hint::Zero => Msb::Zero,
            Hint::One => Msb::One,
            Hint::Shared(bit) => Msb::Shared(&**bit),
        }
    }
}

/// A secret factor, or an integer to extend.
pub(super) struct Side<'a> {
    pub x: &'a Handle,
    pub signed: bool,
    pub msb: Hint<'a>,
}

impl Side<'_> {
    pub fn factor(&self) -> Factor<'_, Object> {
        Factor { x: self.x, signed: self.signed, msb: self.msb.msb() }
    }

    pub fn extend(&self, width: u32) -> Extend<'_, Object> {
        Extend { x: self.x, width, signed: self.signed, msb: self.msb.msb() }
    }
}

/// A product of a secret and a known factor, which is k·2^shift.
pub(super) struct Weighted<'a> {
    pub side: Side<'a>,
    /// Bits of the product without its `shift` lowest.
    pub width: u32,
    pub k: Vec<u64>,
    pub shift: u32,
}

/// Known factors as 64-bit words whose products are right modulo 2^64.
pub(super) fn words(f: &Factor<'_, AnyBlocks>, k: &Ints) -> Vec<u64> {
    k.v.iter().map(|&v| if f.signed { two_complement(v, k.width) } else { v }).collect()
}

/// Steps of jobs on integers.
pub(super) fn ints<'a, S, R>(jobs: &[&'a Mixed<S, Ints>], clear: impl Fn(&Ints) -> R) -> Vec<Step<R, &'a S>> {
    let step = |x: &&'a Mixed<S, Ints>| match x {
        Known(x) => Done(clear(x)),
        Secret(x) => Left(x),
    };
    jobs.iter().map(step).collect()
}

/// As [`ints`], with a number beside each.
pub(super) fn with_places<'a, S, R>(
    jobs: &[(&'a Mixed<S, Ints>, u32)],
    clear: impl Fn(&Ints, u32) -> R,
) -> Vec<Step<R, (&'a S, u32)>> {
    let step = |&(x, at): &(&'a Mixed<S, Ints>, u32)| match x {
        Known(x) => Done(clear(x, at)),
        Secret(x) => Left((x, at)),
    };
    jobs.iter().map(step).collect()
}
