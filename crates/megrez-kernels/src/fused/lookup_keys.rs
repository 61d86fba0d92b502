//! Keys of functions by pieces: what the dealer deals in place of a table, and what a worker opens
//! from its own, without a message before.
//!
//! A key is that of a point function, a [half-tree](super::half_tree) of depth n whose path is r_h,
//! from its lowest bit on:
//! at leaf r_h it pays β = (1, −r_l, …, (−r_l)^d), elsewhere zeros, in shares of the two workers,
//!
//!   [β]_j = (−1)^j·(Conv(s) + t·V),   V = (−1)^{t_1}·(β − Conv(s_0) + Conv(s_1)) at leaf r_h.
//!
//! Leaf q stands for segment m_h − q, whose piece is public. So without knowing which of the leaves
//! it is, the workers have shares of the piece of segment m_h − r_h at m_l − r_l:
//!
//!   Σ_i c_i·(m_l − r_l)^i = Σ_i Σ_{k ≤ i} (i over k)·m_l^{i−k} Σ_q c_i(m_h − q)·[β_k]_q.
//!
//! Security: `docs/security/keys.md`.

use super::half_tree::{
    Permutations, Seeds, correct, halves, mask128, masked, pair, place, root, sigma, t_of, within, xor,
};
use super::lookup::split;
use crate::cpu::element::and;
use crate::cpu::work::{Disjoint, at_every_level, parallel};
use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_plan::{Lookup, MAX_DEGREE};
use megrez_prg::{Level, Stream};
use megrez_ring::Word;
use std::sync::Arc;

/// The most coefficients of a piece.
const WIDEST: usize = MAX_DEGREE as usize + 1;

/// What the dealer sends of the keys of N values. Seeds are pairs of words, the low half first.
pub struct DealtLookup<W: Word, D: Memory> {
    /// The first level's corrections, of value e at pair e: for worker 1.
    pub first: D::Buf<u64>,
    /// Those of level i ≥ 1, of value e at pair (i − 1)·N + e: for both.
    pub others: D::Buf<u64>,
    /// V: word k of value e at k·N + e, for both.
    pub values: D::Buf<W>,
}

/// A worker's keys of N values.
pub struct LookupKey<'a, W: Word, D: Memory> {
    /// Its roots: pair e of the stream.
    pub root: &'a Stream,
    /// Worker 1's; worker 0 has none.
    pub first: Option<&'a D::Buf<u64>>,
    /// As [`DealtLookup::others`].
    pub others: &'a D::Buf<u64>,
    /// As [`DealtLookup::values`].
    pub values: &'a D::Buf<W>,
}

/// A function by pieces, by keys.
pub trait LookupKeys: Memory {
    /// The dealer's keys for these masks, under `permutations` ([`super::PERMUTATION_WORDS`]
    /// words), from the workers' streams of roots.
    fn deal_lookup<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Self::Buf<u64>,
        masks: &Self::Buf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtLookup<W, Self>, DeviceError> {
        let masks = self.download(masks.clone())?;
        let pi = Permutations::new(&self.download(<Self::Buf<u64> as Clone>::clone(permutations))?);
        let n = masks.len();
        let roots = roots.map(|stream| stream.words(2 * n));
        let mut dealt = Words::new(f, n);
        for (e, &r) in masks.iter().enumerate() {
            let (high, low) = split(f, r);
            let mut s = [0, 1].map(|j| root(j, &roots[j], e));
            let delta = s[0] ^ s[1];
            for level in 0..f.index_bits() as usize {
                let right = mask128(high as u64 >> level);
                let h = s.map(|s| pi.tree(s));
                let correction = h[0] ^ h[1] ^ (delta & !right);
                s = [0, 1].map(|j| h[j] ^ (correction & mask128(s[j] as u64)) ^ (s[j] & right));
                let (words, at) = match level {
                    0 => (&mut dealt.first, e),
                    _ => (&mut dealt.others, (level - 1) * n + e),
                };
                words[2 * at..2 * at + 2].copy_from_slice(&halves(correction));
            }
            let sign = sign_of::<W>(s[1]);
            for (k, beta) in paid(low).into_iter().enumerate().take(f.coefficients()) {
                let [a, b]: [W; 2] = s.map(|s| pi.converted(s, k));
                dealt.values[k * n + e] = sign.mul(beta.sub(a).add(b));
            }
        }
        Ok(DealtLookup {
            first: self.upload(dealt.first)?,
            others: self.upload(dealt.others)?,
            values: self.upload(dealt.values)?,
        })
    }

    /// A worker's share of the masked value: its share of the piece's value, and [r_y].
    fn open_by_keys<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Self::Buf<u64>,
        masked: &Self::Buf<W>,
        key: &LookupKey<'_, W, Self>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let words = |x: &Self::Buf<u64>| self.download(<Self::Buf<u64> as Clone>::clone(x));
        let host = |x: &Self::Buf<W>| self.download(x.clone());
        let pi = Permutations::new(&words(permutations)?);
        let (masked, values, mut out) = (host(masked)?, host(key.values)?, host(output_mask)?);
        let n = masked.len();
        let roots = key.root.words(2 * n);
        let (first, others) = (key.first.map(words).transpose()?, words(key.others)?);
        let j = usize::from(first.is_some());
        for (e, &m) in masked.iter().enumerate() {
            let (high, low) = split(f, m);
            let mut seeds = vec![root(j, &roots, e)];
            for level in 0..f.index_bits() as usize {
                let correction = match level {
                    0 => first.as_ref().map_or(0, |first| pair(first, e)),
                    _ => pair(&others, (level - 1) * n + e),
                };
                let left = |s: u128| pi.tree(s) ^ (correction & mask128(s as u64));
                let (lefts, rights) = (seeds.iter().map(|&s| left(s)), seeds.iter().map(|&s| left(s) ^ s));
                seeds = lefts.chain(rights).collect();
            }
            let mut sum = W::ZERO;
            for (q, &s) in seeds.iter().enumerate() {
                let t = W::from_u64(s as u64 & 1);
                let segment = (high + f.segments() - q) % f.segments();
                let piece = &f.pieces[segment * f.coefficients()..][..f.coefficients()];
                for (i, &c) in piece.iter().enumerate() {
                    for k in 0..=i {
                        let paid = pi.converted::<W>(s, k).add(t.mul(values[k * n + e]));
                        let weight = W::from_u64(CHOOSE[i][k]).mul(power(low, i - k));
                        sum = sum.add(W::from_i64(c).mul(weight).mul(paid));
                    }
                }
            }
            out[e] = if j == 0 { out[e].add(sum) } else { out[e].sub(sum) };
        }
        self.upload(out)
    }
}

/// i over k.
const CHOOSE: [[u64; WIDEST]; WIDEST] = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 2, 1, 0], [1, 3, 3, 1]];

fn power<W: Word>(x: W, k: usize) -> W {
    (0..k).fold(W::ONE, |product, _| product.mul(x))
}

/// β, all powers of −r_l.
fn paid<W: Word>(low: W) -> [W; WIDEST] {
    std::array::from_fn(|k| power(low.neg(), k))
}

/// −1 if t of worker 1's seed is set.
fn sign_of<W: Word>(s: u128) -> W {
    let t = W::from_u64(s as u64 & 1);
    W::ONE.sub(t.add(t))
}

/// The dealer's messages while they are made.
struct Words<W> {
    first: Vec<u64>,
    others: Vec<u64>,
    values: Vec<W>,
}

impl<W: Word> Words<W> {
    fn new(f: &Lookup, n: usize) -> Self {
        Words {
            first: vec![0; 2 * n],
            others: vec![0; 2 * (f.index_bits() as usize - 1) * n],
            values: vec![W::ZERO; f.coefficients() * n],
        }
    }
}

impl LookupKeys for Reference {}

/// Values whose keys are made together, and seeds that are expanded together: enough to keep the
/// unit that computes AES busy, and few enough for the nearest cache.
const DEALT: usize = 64;
const EXPANDED: usize = 1 << 9;
/// As often as that a thread goes on with its buffers.
const TASK: usize = 8;

impl LookupKeys for Cpu {
    /// No branch and no index depends on a mask.
    fn deal_lookup<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Self::Buf<u64>,
        masks: &Self::Buf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtLookup<W, Self>, DeviceError> {
        let (n, levels, width) = (masks.len(), f.index_bits() as usize, f.coefficients());
        let pi = Permutations::new(permutations);
        let roots = roots.map(|stream| stream.words(2 * n));
        let mut dealt = Words::new(f, n);
        let (first, others) = (Disjoint::new(&mut dealt.first), Disjoint::new(&mut dealt.others));
        let values = Disjoint::new(&mut dealt.values);
        let threads = if n < 4 * DEALT { 1 } else { self.threads };
        parallel(threads, n.div_ceil(DEALT), |task| {
            let (start, end) = (task * DEALT, n.min((task + 1) * DEALT));
            let (count, masks) = (end - start, &masks[start..end]);
            // Worker 0's seeds, then worker 1's.
            let mut seeds = Seeds::default();
            for (j, roots) in roots.iter().enumerate() {
                seeds.sigma.extend((start..end).map(|e| sigma(halves(root(j, roots, e)))));
            }
            for depth in 0..levels {
                let (room, at) = match depth {
                    0 => (&first, start),
                    _ => (&others, (depth - 1) * n + start),
                };
                // SAFETY: every task has values of its own.
                let corrections = unsafe { room.part(2 * at..2 * (at + count)) };
                seeds.permute(&pi, 0);
                correct(self.level, f.cut + f.low + depth as u32, masks, &mut seeds, corrections);
            }
            for k in 0..width {
                let (block, word) = place::<W>(k);
                if word == 0 {
                    seeds.permute(&pi, 1 + block);
                }
                // SAFETY: every task has values of its own.
                let out = unsafe { values.part(k * n + start..k * n + end) };
                for (i, out) in out.iter_mut().enumerate() {
                    let [a, b]: [W; 2] = [i, count + i].map(|i| seeds.converted(k, i));
                    let beta = power(split(f, masks[i]).1.neg(), k);
                    let value = beta.sub(a).add(b);
                    // −1 if t of worker 1's seed is set.
                    let negative = W::from_u64(t_of(seeds.sigma[count + i]));
                    *out = value.sub(and(value.add(value), negative));
                }
            }
        });
        Ok(DealtLookup {
            first: Arc::new(dealt.first),
            others: Arc::new(dealt.others),
            values: Arc::new(dealt.values),
        })
    }

    fn open_by_keys<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Self::Buf<u64>,
        masked: &Self::Buf<W>,
        key: &LookupKey<'_, W, Self>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let (n, width, segments) = (masked.len(), f.coefficients(), f.segments());
        let roots = key.root.words(2 * n);
        let j = usize::from(key.first.is_some());
        let worker = Worker { f, pi: Permutations::new(permutations), roots: &roots, n, key, j };
        // Coefficient i of segment −q at place q, twice, so that every turn of it is in one piece.
        let mut pieces = vec![W::ZERO; 2 * width * segments];
        for (at, place) in pieces.iter_mut().enumerate() {
            let (i, q) = (at / (2 * segments), at % segments);
            *place = W::from_i64(f.pieces[(segments - q) % segments * width + i]);
        }
        let mut out = output_mask.to_vec();
        let room = Disjoint::new(&mut out);
        let together = (EXPANDED / segments).max(1);
        let threads = if n * segments < 1 << 12 { 1 } else { self.threads };
        let task = together * TASK;
        parallel(threads, n.div_ceil(task), |i| {
            let mut work = Work::default();
            for start in (i * task..n.min((i + 1) * task)).step_by(together) {
                let end = n.min(start + together);
                worker.expand(self.level, start, end, &mut work);
                // SAFETY: every task has values of its own.
                let out = unsafe { room.part(start..end) };
                let paid = work.paid.chunks_exact(width * segments);
                for (out, (m, paid)) in out.iter_mut().zip(masked[start..end].iter().zip(paid)) {
                    let (high, low) = split(f, *m);
                    let sum = weighted(self.level, paid, &pieces, segments, segments - high, low);
                    *out = if j == 0 { out.add(sum) } else { out.sub(sum) };
                }
            }
        });
        Ok(Arc::new(out))
    }
}

/// A worker with its keys.
struct Worker<'a, W: Word> {
    f: &'a Lookup,
    pi: Permutations,
    roots: &'a [u64],
    n: usize,
    key: &'a LookupKey<'a, W, Cpu>,
    j: usize,
}

/// Where keys are expanded.
#[derive(Default)]
struct Work<W> {
    /// Of each value all nodes of a level.
    seeds: Seeds,
    children: Vec<[u64; 2]>,
    /// ±[β_k]_q, for each value k times q.
    paid: Vec<W>,
}

impl<W: Word> Worker<'_, W> {
    /// Pays for all leaves of some values.
    fn expand(&self, level: Level, start: usize, end: usize, work: &mut Work<W>) {
        let (f, n, count) = (self.f, self.n, end - start);
        let (width, segments) = (f.coefficients(), f.segments());
        let Work { seeds, children, paid } = work;
        seeds.sigma.clear();
        seeds.sigma.extend((start..end).map(|e| sigma(halves(root(self.j, self.roots, e)))));
        for depth in 0..f.index_bits() as usize {
            seeds.permute(&self.pi, 0);
            children.resize(count << (depth + 1), [0; 2]);
            for i in 0..count {
                let correction = match depth {
                    0 => self.key.first.map_or(0, |first| pair(first, start + i)),
                    _ => pair(self.key.others, (depth - 1) * n + start + i),
                };
                let nodes = i << depth..(i + 1) << depth;
                let below = &mut children[2 * nodes.start..2 * nodes.end];
                let (lefts, rights) = below.split_at_mut(nodes.len());
                let (seeds, images) = (&seeds.sigma[nodes.clone()], &seeds.images[nodes]);
                grow(level, sigma(halves(correction)), seeds, images, lefts, rights);
            }
            std::mem::swap(&mut seeds.sigma, children);
        }
        paid.resize(count * width * segments, W::ZERO);
        for k in 0..width {
            let (block, word) = place::<W>(k);
            if word == 0 {
                seeds.permute(&self.pi, 1 + block);
            }
            for i in 0..count {
                let (value, leaves) = (self.key.values[k * n + start + i], i * segments..(i + 1) * segments);
                let paid = &mut paid[(i * width + k) * segments..][..segments];
                pay(level, value, k, &seeds.sigma[leaves.clone()], &seeds.images[leaves], paid);
            }
        }
    }
}

at_every_level! {
    /// The children of one level. Correction and seeds are σ of what they are.
    fn grow<>(correction: [u64; 2], seeds: &[[u64; 2]], images: &[[u64; 2]], lefts: &mut [[u64; 2]], rights: &mut [[u64; 2]]) {
        let n = seeds.len();
        let (images, lefts, rights) = (&images[..n], &mut lefts[..n], &mut rights[..n]);
        for i in 0..n {
            lefts[i] = xor(sigma(xor(images[i], seeds[i])), masked(correction, t_of(seeds[i])));
            rights[i] = xor(lefts[i], seeds[i]);
        }
    }
}

at_every_level! {
    /// Word k of Conv(s) + t·V of leaves.
    fn pay<W: Word>(value: W, k: usize, seeds: &[[u64; 2]], images: &[[u64; 2]], paid: &mut [W]) {
        let n = paid.len();
        let (seeds, images, (half, shift)) = (&seeds[..n], &images[..n], within::<W>(k));
        for i in 0..n {
            let word = W::from_u64((seeds[i][half] ^ images[i][half]) >> shift);
            paid[i] = word.add(and(value, W::from_u64(t_of(seeds[i]))));
        }
    }
}

at_every_level! {
    /// Σ_i Σ_{k ≤ i} (i over k)·m_l^{i−k} Σ_q c_i(m_h − q)·β_k(q), the pieces turned by `turn`.
    fn weighted<W: Word>(paid: &[W], pieces: &[W], segments: usize, turn: usize, low: W) -> W {
        let width = paid.len() / segments;
        let mut sum = W::ZERO;
        for i in 0..width {
            let c = &pieces[2 * i * segments + turn..][..segments];
            for k in 0..=i {
                let products = c.iter().zip(&paid[k * segments..][..segments]);
                let product = products.fold(W::ZERO, |sum, (c, paid)| sum.add(c.mul(*paid)));
                sum = sum.add(product.mul(W::from_u64(CHOOSE[i][k])).mul(power(low, i - k)));
            }
        }
        sum
    }
}
