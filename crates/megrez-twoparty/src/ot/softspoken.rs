//! SoftSpoken extension (Roy, CRYPTO 2022, the semi-honest protocol) for 1-of-2^b choices; k = 1 is
//! IKNP.
//!
//! Group g stands for k secret bits Δ_g of the sender. The receiver has 2^k seeds of the group, the
//! sender all but number Δ_g. With r_x the bits of seed x, the receiver sums u = Σ r_x and v = Σ
//! x·r_x, the sender w = Σ (x ⊕ Δ_g)·r_x, in which the missing seed does not occur: w = v ⊕ Δ_g·u,
//! one such equation for each OT. The receiver sends d = u ⊕ c, with c the position's bits of its
//! choices' codewords ([`Code`]), and the sender adds Δ_g·d, so q = v ⊕ Δ_g·c. Folded to 128 bits,
//! the sender has a block q and the receiver t = q ⊕ Δ_c, and the sender knows Δ_x for every x:
//! hashing q ⊕ Δ_x gives it 2^b pads, and the receiver the one that it chose.
//!
//! Deviates from the paper: no consistency check (the parties are semi-honest); the code is a
//! repeated simplex code, so that 1-of-16 costs (16/k)·15 bits and not four times 128/k; one set of
//! groups and Δ serves all codes.
//!
//! receiver → sender (128/k)·(2 − 2^(1−b)) bits for each OT, one less for the first row where
//! choices are random; both sides expand 2^k times as many bits. The sender sees u under one-time
//! pads r_(Δ), uniform whatever the choices are.

use super::code::{Code, MAX_CHOICE};
use super::extension::{OtReceiver, OtSender};
use super::transpose::{MAX_WORDS, Rows};
use megrez_prg::{BLOCK_WORDS, Level, Stream};
use megrez_ring::bits;
use std::sync::Arc;
use zeroize::Zeroizing;

/// OTs that are expanded together.
const CHUNK: usize = 64 * MAX_WORDS;

/// How many groups of k bits the longest code needs.
pub const fn groups(k: u32) -> usize {
    let code = Code::new(MAX_CHOICE);
    code.copies(k) * code.positions()
}

/// A row of bits of one chunk.
type Row = [u64; MAX_WORDS];

/// Parts of the seeds' streams, each used once: every chunk takes the next blocks of all streams.
struct Expansion {
    k: u32,
    /// Seeds by group, in the order of the coefficient that they are summed with.
    seeds: Arc<Vec<Vec<Stream>>>,
    next: u64,
    level: Level,
}

impl Expansion {
    fn new(k: u32, seeds: Vec<Vec<Stream>>) -> Self {
        Self { k, seeds: Arc::new(seeds), next: 0, level: Level::detect() }
    }

    /// The same streams from block `next` on.
    fn at(&self, next: u64) -> Self {
        Self { seeds: Arc::clone(&self.seeds), next, ..*self }
    }

    /// `sum` = Σ r_y and `bit[i]` = Σ over the y with bit i of r_y, for seeds y = `first` … 2^k − 1
    /// of a group.
    fn fold(&self, group: usize, first: usize, words: usize, bit: &mut [Row], sum: &mut Row) {
        bit.iter_mut().for_each(|row| row[..words].fill(0));
        // Sums of whole subtrees, as carries of a binary counter: each seed is read once.
        let mut stack = [[0; MAX_WORDS]; 8];
        let mut current = [0; MAX_WORDS];
        for y in 0..1usize << self.k {
            match y.checked_sub(first) {
                Some(seed) => {
                    self.seeds[group][seed].fill_at_level(self.level, self.next, &mut current[..words]);
                }
                None => current[..words].fill(0),
            }
            let mut height = 0;
            while y >> height & 1 == 1 {
                add(&mut bit[height][..words], &current);
                add(&mut current[..words], &stack[height]);
                height += 1;
            }
            let to = if height == self.k as usize { &mut *sum } else { &mut stack[height] };
            to[..words].copy_from_slice(&current[..words]);
        }
    }

    /// The streams' parts used by `n` OTs of a chunk are used up.
    fn advance(&mut self, words: usize) {
        self.next += (words / BLOCK_WORDS) as u64;
    }
}

fn add(to: &mut [u64], from: &[u64]) {
    to.iter_mut().zip(from).for_each(|(t, f)| *t ^= f);
}

/// Words of a chunk of `n` OTs: whole blocks of the streams.
fn words(n: usize) -> usize {
    bits::words(n).next_multiple_of(BLOCK_WORDS)
}

/// (first, how many) of every chunk of `n` OTs.
fn chunks(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).step_by(CHUNK).map(move |first| (first, CHUNK.min(n - first)))
}

/// (group, position) of every row of the code.
fn places(code: Code, k: u32) -> impl Iterator<Item = (usize, usize)> {
    (0..code.copies(k) * code.positions()).map(move |g| (g, g % code.positions()))
}

/// The folded rows that bit 0 of a group belongs to.
fn targets(code: Code, k: u32, group: usize) -> impl Iterator<Item = usize> {
    let (copy, fold) = (group / code.positions(), code.fold(group % code.positions()));
    let rows = code.rows();
    (0..rows).filter(move |r| fold >> r & 1 == 1).map(move |r| (copy * rows + r) * k as usize)
}

/// Bytes that the receiver sends for `n` OTs with given choices.
#[must_use]
pub fn correction_bytes(k: u32, code: Code, n: usize) -> usize {
    code.copies(k) * code.positions() * bits::bytes(n)
}

/// Bytes that the receiver sends for `n` 1-of-2 OTs with random choices.
#[must_use]
pub fn random_bytes(k: u32, n: usize) -> usize {
    correction_bytes(k, Code::new(1), n) - bits::bytes(n)
}

/// The side that chooses. It has all seeds.
pub struct Receiver(Expansion);

impl Receiver {
    /// From 2^k seeds for each of [`groups`] groups.
    #[must_use]
    pub fn new(k: u32, seeds: Vec<Vec<Stream>>) -> Self {
        Self(Expansion::new(k, seeds))
    }

    /// OTs for given choices, or for random ones, which it returns.
    fn expand(
        &mut self,
        code: Code,
        n: usize,
        choices: Option<&[Vec<u64>]>,
    ) -> (Vec<u8>, Vec<u64>, Vec<u128>) {
        let k = self.0.k;
        let mut corrections = Vec::with_capacity(correction_bytes(k, code, n));
        let mut blocks = Vec::with_capacity(n);
        let mut drawn = vec![];
        let mut rows = Rows::new();
        let mut v = vec![[0; MAX_WORDS]; k as usize];
        let mut u = [0; MAX_WORDS];
        for (first, count) in chunks(n) {
            let words = words(count);
            rows.clear();
            for (group, position) in places(code, k) {
                self.0.fold(group, 0, words, &mut v, &mut u);
                for row in targets(code, k, group) {
                    v.iter().enumerate().for_each(|(i, v)| rows.add(row + i, &v[..words]));
                }
                if choices.is_none() && group == 0 {
                    bits::clear_tail(&mut u, count);
                    drawn.extend_from_slice(&u[..bits::words(count)]);
                    continue;
                }
                let planes = choices.map_or(std::slice::from_ref(&drawn), |c| c);
                for (bit, plane) in planes.iter().enumerate() {
                    if code.generator(position) >> bit & 1 == 1 {
                        add(&mut u[..bits::words(count)], &plane[first / 64..]);
                    }
                }
                corrections.extend_from_slice(&bytemuck::cast_slice(&u)[..bits::bytes(count)]);
            }
            rows.columns(count, &mut blocks);
            self.0.advance(words);
        }
        (corrections, drawn, blocks)
    }
}

impl OtReceiver for Receiver {
    fn at(&self, place: u64) -> Option<Box<dyn OtReceiver>> {
        Some(Box::new(Self(self.0.at(place))))
    }
    fn extend(&mut self, code: Code, choices: &[Vec<u64>], n: usize) -> (Vec<u8>, Vec<u128>) {
        let (corrections, _, blocks) = self.expand(code, n, Some(choices));
        (corrections, blocks)
    }
    fn extend_random(&mut self, n: usize) -> (Vec<u8>, Vec<u64>, Vec<u128>) {
        self.expand(Code::new(1), n, None)
    }
}

/// The side with the messages. It lacks one seed of each group.
pub struct Sender {
    expansion: Expansion,
    delta: Zeroizing<Vec<u8>>,
}

impl Sender {
    /// From the number of the missing seed and all seeds (the missing one is not looked at) for
    /// each of [`groups`] groups.
    #[must_use]
    pub fn new(k: u32, delta: Vec<u8>, seeds: Vec<Vec<Stream>>) -> Self {
        let order = |(delta, seeds): (&u8, Vec<Stream>)| {
            (1..seeds.len()).map(|y| seeds[y ^ usize::from(*delta)].clone()).collect()
        };
        let seeds = delta.iter().zip(seeds).map(order).collect();
        Self { expansion: Expansion::new(k, seeds), delta: Zeroizing::new(delta) }
    }

    fn expand(
        &mut self,
        code: Code,
        n: usize,
        corrections: &[u8],
        random: bool,
        sink: &mut dyn FnMut(&[u128]),
    ) {
        let k = self.expansion.k;
        let mut blocks = Vec::with_capacity(n.min(CHUNK));
        let mut rows = Rows::new();
        let mut w = vec![[0; MAX_WORDS]; k as usize];
        let mut u = [0; MAX_WORDS];
        let mut corrections = corrections;
        for (_, count) in chunks(n) {
            let words = words(count);
            rows.clear();
            for (group, _) in places(code, k) {
                self.expansion.fold(group, 1, words, &mut w, &mut u);
                let mut d = [0; MAX_WORDS];
                if !(random && group == 0) {
                    let (head, tail) = corrections.split_at(bits::bytes(count));
                    bytemuck::cast_slice_mut(&mut d)[..head.len()].copy_from_slice(head);
                    corrections = tail;
                }
                for (i, w) in w.iter_mut().enumerate() {
                    let keep = u64::from(self.delta[group] >> i & 1).wrapping_neg();
                    w.iter_mut().zip(&d).for_each(|(w, d)| *w ^= d & keep);
                }
                for row in targets(code, k, group) {
                    w.iter().enumerate().for_each(|(i, w)| rows.add(row + i, &w[..words]));
                }
            }
            blocks.clear();
            rows.columns(count, &mut blocks);
            sink(&blocks);
            self.expansion.advance(words);
        }
    }
}

impl OtSender for Sender {
    fn at(&self, place: u64) -> Option<Box<dyn OtSender>> {
        Some(Box::new(Self { expansion: self.expansion.at(place), delta: self.delta.clone() }))
    }
    fn offsets(&self, code: Code) -> Vec<u128> {
        let k = self.expansion.k;
        let mut offsets = vec![0; code.messages()];
        for (group, position) in places(code, k) {
            let folded = targets(code, k, group).fold(0, |f, row| f | u128::from(self.delta[group]) << row);
            for (x, offset) in offsets.iter_mut().enumerate() {
                *offset ^= if code.bit(x, position) { folded } else { 0 };
            }
        }
        offsets
    }
    fn stream(&mut self, code: Code, n: usize, corrections: &[u8], sink: &mut dyn FnMut(&[u128])) {
        self.expand(code, n, corrections, false, sink);
    }
    fn extend_random(&mut self, n: usize, corrections: &[u8]) -> Vec<u128> {
        let mut blocks = Vec::with_capacity(n);
        self.expand(Code::new(1), n, corrections, true, &mut |some| blocks.extend_from_slice(some));
        blocks
    }
}
