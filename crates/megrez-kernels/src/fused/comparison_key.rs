//! Keys of a distributed comparison function: what the dealer deals of them, and what a worker
//! computes from its own, without a message.
//!
//! The function of m' is G·β with G = [m̂ ≥ r̂], where m̂ and r̂ are the low λ−1 bits of m' = (m >>
//! cut) mod 2^λ and r' alike, and β = (1 − 2·msb r')·(1, r >> f, msb r); the last only with a
//! truncation. It is a [half-tree](super::half_tree) of depth λ−1 whose path is r̂, from its
//! highest bit on, with a *value correction* every [`DIGIT`] levels:
//!
//!   V_d = (−1)^{t_1}·(β − Conv(s_0) + Conv(s_1))   at the path's node below digit d.
//!
//! Worker j walks down at m̂. For each digit it adds (−1)^j·(Conv(s) + t·V_d) over the nodes left
//! of its own, and in the last digit also over its own: outside of the path both workers' summands
//! cancel, on it they are β. So the sum is β if the path leaves m̂ to the left, or ends with it.
//!
//! Security: `docs/security/keys.md`.

mod cpu;
// Exhaustive: far too slow for an interpreter.
#[cfg(all(test, not(miri)))]
mod tests;

use super::half_tree::{Permutations, halves, mask128, pair, root};
use crate::{DeviceError, Memory, Reference};
use megrez_plan::DIGIT;
use megrez_prg::Stream;
use megrez_ring::Word;

/// What a key compares, and what it pays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySpec {
    /// Low bits that are not looked at, k.
    pub cut: u32,
    /// Bits that are, the sign included: 2 ≤ λ ≤ ℓ − k.
    pub width: u32,
    /// f, the fraction bits dropped in the same step; 0 without a truncation.
    pub truncate: u32,
}

impl KeySpec {
    /// Levels of the tree, λ − 1: each has a correction of 128 bits.
    pub fn levels(&self) -> usize {
        self.width as usize - 1
    }

    /// Digits of a walk: each has a value correction.
    pub fn digits(&self) -> usize {
        self.levels().div_ceil(DIGIT)
    }

    /// Words that are paid: (1, r), or (1, r >> f, msb r).
    pub fn parts(&self) -> usize {
        if self.truncate == 0 { 2 } else { 3 }
    }

    /// λ − 1 low bits of a cut word.
    fn path<W: Word>(&self, x: W) -> u64 {
        x.to_u64() >> self.cut & ((1 << self.levels()) - 1)
    }

    /// The top bit of a cut word.
    fn top<W: Word>(&self, x: W) -> u64 {
        x.to_u64() >> (self.cut + self.width - 1) & 1
    }

    /// β of a mask: words of which the first [`Self::parts`] count.
    pub fn payload<W: Word>(&self, r: W) -> [W; 3] {
        let sign = W::ONE.sub(W::from_u64(2 * self.top(r)));
        [W::ONE, r.shr(self.truncate), W::from_u64(r.msb())].map(|word| sign.mul(word))
    }

    /// The levels of digit d.
    fn levels_of(&self, d: usize) -> std::ops::Range<usize> {
        d * DIGIT..((d + 1) * DIGIT).min(self.levels())
    }

    /// Digit d of m̂.
    fn digit<W: Word>(&self, x: W, d: usize) -> usize {
        let levels = self.levels_of(d);
        (self.path(x) >> (self.levels() - levels.end)) as usize & ((1 << levels.len()) - 1)
    }
}

/// What the dealer sends of the keys of n values. Words of corrections are pairs, the low half
/// first.
pub struct DealtKeys<W: Word, D: Memory> {
    /// The first level's corrections, of value e at pair e: for worker 1.
    pub first: D::Buf<u64>,
    /// Those of level i ≥ 1, of value e at pair (i − 1)·n + e: for both.
    pub others: D::Buf<u64>,
    /// The first two words of V_d: word p of value e at (2d + p)·n + e, for both.
    pub values: D::Buf<W>,
    /// The third at d·n + e, of which the low f bits count, for both; empty without a truncation.
    pub tops: D::Buf<W>,
}

/// A worker's key of n values.
pub struct KeyShare<'a, W: Word, D: Memory> {
    /// Its roots: pair e of the stream.
    pub root: &'a Stream,
    /// Worker 1's; worker 0 has none.
    pub first: Option<&'a D::Buf<u64>>,
    /// As [`DealtKeys::others`].
    pub others: &'a D::Buf<u64>,
    /// As [`DealtKeys::values`].
    pub values: &'a D::Buf<W>,
    /// As [`DealtKeys::tops`].
    pub tops: &'a D::Buf<W>,
}

/// Comparison by a key.
pub trait ComparisonKeys: Memory {
    /// The dealer's keys for these masks, under `permutations` ([`PERMUTATION_WORDS`] words), from
    /// the workers' streams of roots.
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Self::Buf<u64>,
        masks: &Self::Buf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>, DeviceError> {
        let masks = self.download(masks.clone())?;
        let pi = Permutations::new(&self.download(<Self::Buf<u64> as Clone>::clone(permutations))?);
        let n = masks.len();
        let roots = roots.map(|stream| stream.words(2 * n));
        let mut dealt = Words::new(spec, n);
        for (e, &r) in masks.iter().enumerate() {
            let mut s = [0, 1].map(|j| root(j, &roots[j], e));
            let delta = s[0] ^ s[1];
            for d in 0..spec.digits() {
                for level in spec.levels_of(d) {
                    let right = mask128(spec.path(r) >> (spec.levels() - 1 - level));
                    let h = s.map(|s| pi.tree(s));
                    let correction = h[0] ^ h[1] ^ (delta & !right);
                    for j in [0, 1] {
                        s[j] = h[j] ^ (correction & mask128(s[j] as u64)) ^ (s[j] & right);
                    }
                    dealt.correct(level, e, n, correction);
                }
                let negative = W::from_u64(s[1] as u64 & 1);
                let sign = W::ONE.sub(negative.add(negative));
                for (p, beta) in spec.payload(r).into_iter().enumerate().take(spec.parts()) {
                    let [a, b] = s.map(|s| pi.converted(s, p));
                    let value = sign.mul(beta.sub(a).add(b));
                    match p {
                        2 => dealt.tops[d * n + e] = value,
                        _ => dealt.values[(2 * d + p) * n + e] = value,
                    }
                }
            }
        }
        Ok(DealtKeys {
            first: self.upload(dealt.first)?,
            others: self.upload(dealt.others)?,
            values: self.upload(dealt.values)?,
            tops: self.upload(dealt.tops)?,
        })
    }

    /// A worker's shares of the words of G·β, one buffer for each. Its walk depends on m.
    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Self::Buf<u64>,
        masked: &Self::Buf<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<Self::Buf<W>>, DeviceError> {
        let masked = self.download(masked.clone())?;
        let words = |x: &Self::Buf<u64>| self.download(<Self::Buf<u64> as Clone>::clone(x));
        let pi = Permutations::new(&words(permutations)?);
        let n = masked.len();
        let roots = key.root.words(2 * n);
        let (first, others) = (key.first.map(words).transpose()?, words(key.others)?);
        let (values, tops) = (self.download(key.values.clone())?, self.download(key.tops.clone())?);
        let j = usize::from(first.is_some());
        let mut sums = vec![vec![W::ZERO; n]; spec.parts()];
        for (e, &m) in masked.iter().enumerate() {
            let mut own = root(j, &roots, e);
            for d in 0..spec.digits() {
                let mut nodes = vec![own];
                for level in spec.levels_of(d) {
                    let correction = match level {
                        0 => first.as_ref().map_or(0, |first| pair(first, e)),
                        _ => pair(&others, (level - 1) * n + e),
                    };
                    let children = nodes.iter().flat_map(|&s| {
                        let left = pi.tree(s) ^ (correction & mask128(s as u64));
                        [left, left ^ s]
                    });
                    nodes = children.collect();
                }
                let digit = spec.digit(m, d);
                own = nodes[digit];
                let last = usize::from(d + 1 == spec.digits());
                for s in &nodes[..digit + last] {
                    let t = W::from_u64(*s as u64 & 1);
                    for (p, sums) in sums.iter_mut().enumerate() {
                        let value = if p == 2 { tops[d * n + e] } else { values[(2 * d + p) * n + e] };
                        let summand = pi.converted::<W>(*s, p).add(t.mul(value));
                        sums[e] = if j == 0 { sums[e].add(summand) } else { sums[e].sub(summand) };
                    }
                }
            }
        }
        sums.into_iter().map(|sums| self.upload(sums)).collect()
    }
}

/// The dealer's messages while they are made.
struct Words<W> {
    first: Vec<u64>,
    others: Vec<u64>,
    values: Vec<W>,
    tops: Vec<W>,
}

impl<W: Word> Words<W> {
    fn new(spec: KeySpec, n: usize) -> Self {
        let tops = if spec.truncate == 0 { 0 } else { spec.digits() * n };
        Words {
            first: vec![0; 2 * n],
            others: vec![0; 2 * (spec.levels() - 1) * n],
            values: vec![W::ZERO; 2 * spec.digits() * n],
            tops: vec![W::ZERO; tops],
        }
    }

    fn correct(&mut self, level: usize, e: usize, n: usize, correction: u128) {
        let (words, at) = match level {
            0 => (&mut self.first, e),
            _ => (&mut self.others, (level - 1) * n + e),
        };
        words[2 * at..2 * at + 2].copy_from_slice(&halves(correction));
    }
}

impl ComparisonKeys for Reference {}
