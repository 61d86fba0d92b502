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
//! With [`megrez_plan::Beyond`] r_h has a bits more, above the n: *blocks* of 2^n leaves. The tree
//! has depth a + n; its path is the upper a bits, from the highest on, then the n as above. Of m_h,
//! P says in which block it is and p where there. x lies in segment h ∈ (−2^n, 2^{n+1}) where r_h
//! is leaf i of block P (h = p − i) or of block P − 1 (h = 2^n + p − i): these two are looked at,
//! with zeros, pieces and the line as they follow from h. All that is further to the right are
//! whole blocks, those from A = P + 2^{a−1} to P − 2, cyclically:
//!
//!   E = [r_h's block is one of them] = D(P − 1) − D(A) + [A > P − 1],   D(k) = [it is below k],
//!
//! and D comes of value corrections that pay (1, −r) at every [`DIGIT`] levels of the upper part,
//! V = (−1)^{t_1}·(β − Conv(s_0) + Conv(s_1)) at the path's node there: a worker that walks down to
//! k adds up what it is paid left of its own way. Then constant·E + slope·(m·E − r·E) is the line.
//!
//! Security: `docs/security/keys.md`.

mod cpu;

use super::half_tree::{Permutations, halves, mask128, pair, root};
use super::lookup::split;
use crate::{DeviceError, Memory, Reference};
use megrez_plan::{DIGIT, Lookup, MAX_DEGREE};
use megrez_prg::Stream;
use megrez_ring::Word;
use std::ops::Range;

/// The most coefficients of a piece.
const WIDEST: usize = MAX_DEGREE as usize + 1;

/// What the dealer sends of the keys of N values. Seeds are pairs of words, the low half first.
pub struct DealtLookup<W: Word, D: Memory> {
    /// The first level's corrections, of value e at pair e: for worker 1.
    pub first: D::Buf<u64>,
    /// Those of level i ≥ 1, of value e at pair (i − 1)·N + e: for both.
    pub others: D::Buf<u64>,
    /// V: word k of value e at k·N + e, for both; those of the leaves, then those of each digit.
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
    /// Its share of the mask: the value's part that a line beside the segments is of.
    pub mask: &'a D::Buf<W>,
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
        let tree = Tree::of(f);
        for (e, &r) in masks.iter().enumerate() {
            let mut s = [0, 1].map(|j| root(j, &roots[j], e));
            let delta = s[0] ^ s[1];
            // −1 if t of worker 1's seed is set.
            let paid = |s: [u128; 2], k: usize, beta: W| {
                let t = W::from_u64(s[1] as u64 & 1);
                let [a, b]: [W; 2] = s.map(|s| pi.converted(s, k));
                W::ONE.sub(t.add(t)).mul(beta.sub(a).add(b))
            };
            for level in 0..tree.depth() {
                let right = mask128(r.to_u64() >> tree.bit(level));
                let h = s.map(|s| pi.tree(s));
                let correction = h[0] ^ h[1] ^ (delta & !right);
                s = [0, 1].map(|j| h[j] ^ (correction & mask128(s[j] as u64)) ^ (s[j] & right));
                let (words, at) = match level {
                    0 => (&mut dealt.first, e),
                    _ => (&mut dealt.others, (level - 1) * n + e),
                };
                words[2 * at..2 * at + 2].copy_from_slice(&halves(correction));
                if let Some(digit) = tree.ends(level) {
                    for (part, beta) in beside(r).into_iter().enumerate().take(tree.parts) {
                        dealt.values[tree.word(f.coefficients(), digit, part) * n + e] = paid(s, part, beta);
                    }
                }
            }
            let low = split(f, r).1;
            for k in 0..f.coefficients() {
                dealt.values[k * n + e] = paid(s, k, power(low.neg(), k));
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
        let mask = host(key.mask)?;
        let roots = key.root.words(2 * n);
        let (first, others) = (key.first.map(words).transpose()?, words(key.others)?);
        let (j, tree, turns) = (usize::from(first.is_some()), Tree::of(f), Turns::<W>::new(f));
        for (e, &m) in masked.iter().enumerate() {
            let children = |nodes: &[u128], level: usize| -> [Vec<u128>; 2] {
                let correction = match level {
                    0 => first.as_ref().map_or(0, |first| pair(first, e)),
                    _ => pair(&others, (level - 1) * n + e),
                };
                let left = |s: u128| pi.tree(s) ^ (correction & mask128(s as u64));
                [nodes.iter().map(|&s| left(s)).collect(), nodes.iter().map(|&s| left(s) ^ s).collect()]
            };
            let own = root(j, &roots, e);
            // Down to a block, and what is paid to the left of the way there.
            let walk = |block: usize| {
                let (mut s, mut sums) = (own, [W::ZERO; 2]);
                for digit in 0..tree.digits() {
                    let mut nodes = vec![s];
                    for level in tree.levels_of(digit) {
                        let [left, right] = children(&nodes, level);
                        nodes = left.into_iter().zip(right).flat_map(|(left, right)| [left, right]).collect();
                    }
                    let taken = tree.digit(block, digit);
                    s = nodes[taken];
                    for (part, sum) in sums.iter_mut().enumerate().take(tree.parts) {
                        for node in &nodes[..taken] {
                            let t = W::from_u64(*node as u64 & 1);
                            let paid = t.mul(values[tree.word(f.coefficients(), digit, part) * n + e]);
                            *sum = sum.add(pi.converted(*node, part)).add(paid);
                        }
                    }
                }
                (s, sums)
            };
            let (high, low) = split(f, m);
            let (mut starts, mut sum, mut known) = (vec![own], W::ZERO, W::ZERO);
            if let Some(blocks) = tree.blocks(high) {
                let ([before, at], far) = ([walk(blocks.before), walk(blocks.at)], walk(blocks.far));
                let right: [W; 2] = [0, 1].map(|part| before.1[part].sub(far.1[part]));
                (sum, known) = turns.beside(m, right, blocks.wraps, (j, mask[e]));
                starts = vec![before.0, at.0];
            }
            let mut leaves = vec![];
            for start in starts {
                let mut nodes = vec![start];
                for level in tree.above..tree.depth() {
                    nodes = children(&nodes, level).concat();
                }
                leaves.extend(nodes);
            }
            for (q, &s) in leaves.iter().enumerate() {
                let t = W::from_u64(s as u64 & 1);
                for (i, choose) in CHOOSE.iter().enumerate().take(f.coefficients()) {
                    let c = turns.of(i, high)[q];
                    for (k, &choose) in choose[..=i].iter().enumerate() {
                        let paid = pi.converted::<W>(s, k).add(t.mul(values[k * n + e]));
                        let weight = W::from_u64(choose).mul(power(low, i - k));
                        sum = sum.add(c.mul(weight).mul(paid));
                    }
                }
            }
            let share = if j == 0 { sum } else { sum.neg() };
            out[e] = out[e].add(share).add(known);
        }
        self.upload(out)
    }
}

/// How the tree of a function is made up.
struct Tree {
    /// Levels that choose a block, a, and those that choose a leaf there, n.
    above: usize,
    below: usize,
    /// The lowest bit that chooses a leaf.
    first: usize,
    /// Words that a digit pays.
    parts: usize,
}

/// The blocks that a worker goes to for a masked value.
struct Blocks {
    /// P − 1, P and A.
    before: usize,
    at: usize,
    far: usize,
    /// A > P − 1.
    wraps: bool,
}

impl Tree {
    fn of(f: &Lookup) -> Tree {
        let below = f.index_bits() as usize;
        Tree {
            above: f.depth() - below,
            below,
            first: (f.cut + f.low) as usize,
            parts: f.beyond.map_or(0, |beyond| beyond.parts()),
        }
    }

    fn depth(&self) -> usize {
        self.above + self.below
    }

    /// The bit of a word that a level goes by.
    fn bit(&self, level: usize) -> usize {
        match level < self.above {
            true => self.first + self.depth() - 1 - level,
            false => self.first + level - self.above,
        }
    }

    fn digits(&self) -> usize {
        self.above.div_ceil(DIGIT)
    }

    fn levels_of(&self, digit: usize) -> Range<usize> {
        digit * DIGIT..((digit + 1) * DIGIT).min(self.above)
    }

    /// The digit that ends with this level.
    fn ends(&self, level: usize) -> Option<usize> {
        let ends = level < self.above && ((level + 1).is_multiple_of(DIGIT) || level + 1 == self.above);
        ends.then_some(level / DIGIT)
    }

    /// A digit of a block's number.
    fn digit(&self, block: usize, digit: usize) -> usize {
        let levels = self.levels_of(digit);
        block >> (self.above - levels.end) & ((1 << levels.len()) - 1)
    }

    /// Where a digit's value corrections lie among the words of one value, those of a leaf being
    /// the first: with [`Beyond`](megrez_plan::Beyond) only.
    fn word(&self, width: usize, digit: usize, part: usize) -> usize {
        width + digit * self.parts + part
    }

    /// Where to go for a masked value whose upper bits these are, if there is more than one block.
    fn blocks(&self, high: usize) -> Option<Blocks> {
        if self.above == 0 {
            return None;
        }
        let (at, all) = (high >> self.below, (1 << self.above) - 1);
        let (before, far) = (at.wrapping_sub(1) & all, at ^ 1 << (self.above - 1));
        Some(Blocks { before, at, far, wraps: far > before })
    }
}

/// What the digits pay, of which the first parts count.
fn beside<W: Word>(r: W) -> [W; 2] {
    [W::ONE, r.neg()]
}

/// The pieces as a worker reads them: one after the other as the leaves that it looks at go on.
struct Turns<W> {
    /// Coefficient i of place q at i·places + q.
    pieces: Vec<W>,
    places: usize,
    segments: usize,
    blocks: bool,
    /// The line beside the segments.
    line: [W; 2],
}

impl<W: Word> Turns<W> {
    fn new(f: &Lookup) -> Self {
        let (width, segments) = (f.coefficients(), f.segments());
        let line = f.beyond.map_or([0; 2], |beyond| [beyond.constant, beyond.slope]).map(W::from_i64);
        let blocks = f.beyond.is_some();
        let places = if blocks { 3 * segments } else { 2 * segments };
        // The first unit of segment h, as a word.
        let start = |h: usize| W::from_u64(h as u64).shl(f.low + f.cut);
        let piece = |i: usize, h: usize| W::from_i64(f.pieces[h * width + i]);
        let coefficient = |at: usize| {
            let (i, q) = (at / places, at % places);
            if !blocks {
                // Segment −q, twice, so that every turn of it is in one piece.
                return piece(i, (2 * segments - q) % segments);
            }
            // From segment 2^{n+1} − 1 down to −2^n.
            match (2 * segments - 1).checked_sub(q) {
                None => W::ZERO,
                Some(h) if h < segments => piece(i, h),
                Some(h) => match i {
                    0 => line[0].add(line[1].mul(start(h))),
                    1 => line[1].shl(f.cut),
                    _ => W::ZERO,
                },
            }
        };
        let pieces = (0..width * places).map(coefficient).collect();
        Turns { pieces, places, segments, blocks, line }
    }

    /// Coefficient i of the segments that the leaves of a masked value stand for, by its upper
    /// bits.
    fn of(&self, i: usize, high: usize) -> &[W] {
        let n = self.segments;
        let (turn, leaves) = match self.blocks {
            true => (n - 1 - high % n, 2 * n),
            false => (n - high, n),
        };
        &self.pieces[i * self.places + turn..][..leaves]
    }

    /// The line to the right of all leaves that are looked at, of worker j with its share of the
    /// mask: what is to be added to its sum, of E and −r·E as it was paid them, and to its share.
    fn beside(&self, m: W, right: [W; 2], wraps: bool, (j, mask): (usize, W)) -> (W, W) {
        let [constant, slope] = self.line;
        let of_m = constant.add(slope.mul(m));
        let own = if j == 0 { of_m } else { W::ZERO }.sub(slope.mul(mask));
        let known = if wraps { own } else { W::ZERO };
        (of_m.mul(right[0]).add(slope.mul(right[1])), known)
    }
}

/// i over k.
const CHOOSE: [[u64; WIDEST]; WIDEST] = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 2, 1, 0], [1, 3, 3, 1]];

fn power<W: Word>(x: W, k: usize) -> W {
    (0..k).fold(W::ONE, |product, _| product.mul(x))
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
            others: vec![0; 2 * (f.depth() - 1) * n],
            values: vec![W::ZERO; f.corrected() * n],
        }
    }
}

impl LookupKeys for Reference {}
