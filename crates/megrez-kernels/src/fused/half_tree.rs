//! Half-trees of seeds (Guo, Yang, Wang, Zhang, Xie, Liu and Zhao, EUROCRYPT 2023), from which keys
//! of functions are made: what a dealer deals for a path, and how a worker goes down.
//!
//! A seed has 128 bits, the lowest of which is the bit t. With Δ = s_0 ⊕ s_1 for the two workers'
//! seeds of a node on the path, and s_0 = s_1 of every other node,
//!
//!   left child = H(s) ⊕ t·CW,   right child = left ⊕ s,   CW = H(s_0) ⊕ H(s_1) ⊕ (1 − α_i)·Δ
//!
//! for bit α_i of the path; Δ is the same all the way down. H(s) = π(σ(s)) ⊕ σ(s) with σ(a‖b) = (a
//! ⊕ b)‖a. Conv, which makes words of a seed, is the same under two other permutations, so that no
//! input of one is an input of another. They are AES-128 under three public keys that the dealer
//! draws for each use. Worker 0's root has t = 0, so it never needs the first CW.

use crate::cpu::element::and;
use crate::cpu::work::at_every_level;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Block};
use megrez_ring::Word;

/// Words of the three public keys.
pub const PERMUTATION_WORDS: usize = 6;

/// Blocks that the widest instructions encrypt together.
const TOGETHER: usize = 64;

/// The public permutations, of the tree and of the two blocks of Conv.
pub(super) struct Permutations([Aes128Enc; 3]);

impl Permutations {
    pub fn new(words: &[u64]) -> Self {
        let key = |i: usize| pair(words, i).to_le_bytes();
        Permutations([0, 1, 2].map(|i| Aes128Enc::new(&key(i).into())))
    }

    fn hash(&self, of: usize, s: u128) -> u128 {
        let mut block: Block = sigma_of(s).to_le_bytes().into();
        self.0[of].encrypt_block(&mut block);
        u128::from_le_bytes(block.into()) ^ sigma_of(s)
    }

    /// H.
    pub fn tree(&self, s: u128) -> u128 {
        self.hash(0, s)
    }

    /// Word p of Conv(s).
    pub fn converted<W: Word>(&self, s: u128, p: usize) -> W {
        let (block, word) = place::<W>(p);
        W::from_u64((self.hash(1 + block, s) >> (word * W::STORED as usize)) as u64)
    }
}

/// The block of Conv in which word p lies, and which word of that it is.
pub(super) fn place<W: Word>(p: usize) -> (usize, usize) {
    let each = 128 / W::STORED as usize;
    (p / each, p % each)
}

/// A linear map σ for which σ and x ↦ σ(x) ⊕ x are one to one.
#[inline(always)]
fn sigma_of(s: u128) -> u128 {
    (s << 64) ^ (s & (u128::MAX << 64)) ^ (s >> 64)
}

/// All ones if the lowest bit is set.
#[inline(always)]
pub(super) fn mask128(bit: u64) -> u128 {
    0u128.wrapping_sub(u128::from(bit & 1))
}

/// Seeds lie as pairs of words, the low half first.
#[inline(always)]
pub(super) fn pair(words: &[u64], at: usize) -> u128 {
    u128::from(words[2 * at]) | u128::from(words[2 * at + 1]) << 64
}

pub(super) fn halves(x: u128) -> [u64; 2] {
    [x as u64, (x >> 64) as u64]
}

/// Worker j's root of value e: its bit t is j.
pub(super) fn root(j: usize, words: &[u64], e: usize) -> u128 {
    pair(words, e) & !1 | j as u128
}

/// Seeds, and what a permutation makes of them, as a processor has them beside each other. A seed
/// stands as S = σ(s), whose halves are those of s and their sum: σ is linear, so trees are made of
/// such seeds without going back.
#[derive(Default)]
pub(super) struct Seeds {
    /// S.
    pub sigma: Vec<[u64; 2]>,
    /// π(S).
    pub images: Vec<[u64; 2]>,
}

/// The half of its block in which word p of Conv lies, and the bit at which it begins there.
#[inline(always)]
pub(super) fn within<W: Word>(p: usize) -> (usize, usize) {
    let bit = place::<W>(p).1 * W::STORED as usize;
    (bit / 64, bit % 64)
}

/// σ of a block.
#[inline(always)]
pub(super) fn sigma([low, high]: [u64; 2]) -> [u64; 2] {
    [high, low ^ high]
}

/// All ones where the bit t of the seed is 1.
#[inline(always)]
pub(super) fn t_of(sigma: [u64; 2]) -> u64 {
    0u64.wrapping_sub((sigma[0] ^ sigma[1]) & 1)
}

#[inline(always)]
pub(super) fn xor(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0] ^ b[0], a[1] ^ b[1]]
}

#[inline(always)]
pub(super) fn masked([low, high]: [u64; 2], mask: u64) -> [u64; 2] {
    [low & mask, high & mask]
}

impl Seeds {
    /// Word p of Conv of seed i, from its image under the permutation of that block.
    #[inline(always)]
    pub fn converted<W: Word>(&self, p: usize, i: usize) -> W {
        let (half, shift) = within::<W>(p);
        W::from_u64((self.sigma[i][half] ^ self.images[i][half]) >> shift)
    }

    /// The images of all seeds under one of the permutations.
    pub fn permute(&mut self, pi: &Permutations, of: usize) {
        let n = self.sigma.len();
        // The last few would be encrypted one after the other.
        let whole = n.next_multiple_of(TOGETHER);
        self.sigma.resize(whole, [0; 2]);
        self.images.resize(whole, [0; 2]);
        let from: &[[u8; 16]] = bytemuck::cast_slice(&self.sigma);
        let to: &mut [[u8; 16]] = bytemuck::cast_slice_mut(&mut self.images);
        let blocks = (Array::cast_slice_from_core(from), Array::cast_slice_from_core_mut(to));
        pi.0[of].encrypt_blocks_b2b(blocks.0, blocks.1).expect("both are as long");
        self.sigma.truncate(n);
        self.images.truncate(n);
    }
}

at_every_level! {
    /// The corrections of one level from the images of both workers' seeds, and both one level
    /// down, to the right where this bit of the mask is 1.
    pub(super) fn correct<W: Word>(bit: u32, masks: &[W], seeds: &mut Seeds, out: &mut [u64]) {
        let n = masks.len();
        let (seeds_0, seeds_1) = seeds.sigma.split_at_mut(n);
        let (images_0, images_1) = seeds.images.split_at(n);
        for e in 0..n {
            let right = 0u64.wrapping_sub(masks[e].to_u64() >> bit & 1);
            let hashes = [xor(images_0[e], seeds_0[e]), xor(images_1[e], seeds_1[e])];
            // S = [high, low ⊕ high].
            let [a, b] = xor(seeds_0[e], seeds_1[e]);
            let correction = xor(xor(hashes[0], hashes[1]), masked([a ^ b, a], !right));
            out[2 * e..2 * e + 2].copy_from_slice(&correction);
            for (s, hash) in [(&mut seeds_0[e], hashes[0]), (&mut seeds_1[e], hashes[1])] {
                let left = sigma(xor(hash, masked(correction, t_of(*s))));
                *s = xor(left, masked(*s, right));
            }
        }
    }
}

at_every_level! {
    /// The children of all nodes, from their images: node k's are 2k and 2k + 1. Corrections are σ
    /// of those that were dealt.
    pub(super) fn children<>(seeds: &Seeds, corrections: &[[u64; 2]], next: &mut [[u64; 2]]) {
        let n = corrections.len();
        let rows = seeds.sigma.chunks_exact(n).zip(seeds.images.chunks_exact(n));
        for ((seeds, images), next) in rows.zip(next.chunks_exact_mut(2 * n)) {
            let (left, right) = next.split_at_mut(n);
            for e in 0..n {
                let s = seeds[e];
                left[e] = xor(sigma(xor(images[e], s)), masked(corrections[e], t_of(s)));
                right[e] = xor(left[e], s);
            }
        }
    }
}

at_every_level! {
    /// For each value, adds up word p of Conv of its first `limits` nodes.
    pub(super) fn add_words<W: Word>(p: usize, seeds: &Seeds, limits: &[u64], sums: &mut [W]) {
        let (n, (half, shift)) = (limits.len(), within::<W>(p));
        let rows = seeds.sigma.chunks_exact(n).zip(seeds.images.chunks_exact(n));
        for (q, (seeds, images)) in rows.enumerate() {
            for e in 0..n {
                let counted = W::from_u64(0u64.wrapping_sub(u64::from((q as u64) < limits[e])));
                let word = (seeds[e][half] ^ images[e][half]) >> shift;
                sums[e] = sums[e].add(and(W::from_u64(word), counted));
            }
        }
    }
}

at_every_level! {
    /// For each value, how many of its first `limits` nodes have t = 1.
    pub(super) fn count<>(seeds: &[[u64; 2]], limits: &[u64], counts: &mut [u64]) {
        for (q, seeds) in seeds.chunks_exact(limits.len()).enumerate() {
            for e in 0..limits.len() {
                counts[e] += t_of(seeds[e]) & u64::from((q as u64) < limits[e]);
            }
        }
    }
}
