//! Silent extension: many correlated blocks from few, by learning parity with regular noise. Yang,
//! Weng, Lan, Zhang and Wang, CCS 2020 ("Ferret"), Fig. 7, semi-honest, with the trees of
//! `ot/point.rs` in place of its own.
//!
//! Of K transfers with random choices the sender has blocks q, the receiver choices c and t = q ⊕
//! c·Δ. A public matrix with ten ones in each of N rows makes N of them: A·q, A·c and A·t. These
//! would be guessed from few; so T of the N choices are turned, one in each block of 2^H, with what
//! a tree of that many leaves adds to the blocks: w at the sender, w ⊕ e·Δ at the receiver, e
//! having one 1 in each block. To the sender, who knows A, the N choices are random as long as
//! learning parity with such noise is hard.
//!
//! An iteration takes [`BASE`] of the stock, K and H for each tree, and adds N; the first ones are
//! made by SoftSpoken. A 1-of-2^b transfer takes b: with the blocks as coefficients in GF(2^128),
//! q = Σ qᵢ·xⁱ and t = Σ tᵢ·xⁱ differ by Δ·c for the number c = Σ cᵢ·xⁱ that was chosen, and so
//! Δ_c = Δ·c, all of them different. The receiver says where its choices differ from the random
//! ones: b bits.
//!
//! Deviates from the paper: no consistency checks (the parties are semi-honest); half trees;
//! several iterations run beside each other where the stock has their bases, so that m of them take
//! about log(m)/log(15) steps; one matrix for all iterations.
//!
//! rounds  bits for each of N − BASE
//! 1       T·H/(N − BASE)       receiver → sender, 0.01
//! 1       128·T·H/(N − BASE)   sender → receiver, 1.34
//! 1       b                    receiver → sender with a transfer's corrections; none for random
//!                              choices
//!
//! Parameters: twice N and K of the one-time setup in its implementation, as many ones. Security:
//! `docs/security/secfloat.md`.

use super::code::Code;
use super::extension::{OtReceiver, OtSender};
use super::stock::{BASE, H, K, N, Refill, Stock, T};
use super::{Hash, point, softspoken};
use megrez_prg::{BLOCK_WORDS, Key, RandomError, Stream};
use megrez_ring::bits;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Ones in a row of the matrix.
const ONES: usize = 10;
/// Bits of a group of SoftSpoken, which makes the first base.
pub const FIRST_GROUP: u32 = 4;
/// Bytes that stocks hold at most, both directions and all iterations of a refill together, for
/// steps of up to 2^16 lanes.
pub const MEMORY: u64 = 400 << 20;
/// Rows of the matrix that are drawn, and transfers whose blocks are put together, at a time.
const CHUNK: usize = 1 << 12;

/// Bytes of the corrections of SoftSpoken, if it makes the first base.
fn first_bytes(refill: Refill) -> usize {
    if refill.first { softspoken::random_bytes(FIRST_GROUP, BASE) } else { 0 }
}

/// Bytes of a refill from the receiver to the sender, and then from the sender to the receiver.
#[must_use]
pub fn refill_bytes(refill: Refill) -> [usize; 2] {
    [first_bytes(refill) + bits::bytes(refill.levels()), 16 * refill.levels()]
}

/// The matrix: a stream that both parties have, and draw again for every iteration. Public.
pub struct Matrix(pub Stream);

impl Matrix {
    /// Gives the places of each row's ones to `each`, row after row.
    fn rows(&self, mut each: impl FnMut(usize, &[usize; ONES])) {
        // Two places from each word; 2^32 is no multiple of K, which prefers some by 2^−16.
        let place = |word: u64| ((word * K as u64) >> 32) as usize;
        let mut words = vec![0; CHUNK * ONES / 2];
        for first in (0..N).step_by(CHUNK) {
            self.0.fill((first * ONES / 2 / BLOCK_WORDS) as u64, &mut words);
            for (row, words) in (first..N).zip(words.chunks_exact(ONES / 2)) {
                let mut places = [0; ONES];
                for (pair, word) in places.chunks_exact_mut(2).zip(words) {
                    pair.copy_from_slice(&[place(word & 0xffff_ffff), place(word >> 32)]);
                }
                each(row, &places);
            }
        }
    }
}

/// b·xⁱ in GF(2^128) modulo x^128 + x^7 + x^2 + x + 1, for i below 64.
fn times_power(b: u128, i: u32) -> u128 {
    if i == 0 {
        return b;
    }
    let over = b >> (128 - i);
    b << i ^ over ^ over << 1 ^ over << 2 ^ over << 7
}

/// Bytes of corrections of `n` transfers with given choices.
#[must_use]
pub fn correction_bytes(code: Code, n: usize) -> usize {
    code.choice_bits() as usize * bits::bytes(n)
}

/// The side that chooses.
pub struct Receiver {
    first: Box<dyn OtReceiver>,
    matrix: Arc<Matrix>,
    hash: Hash,
    stock: Stock,
    /// Random choices and blocks, the last ones used first.
    choices: Zeroizing<Vec<u8>>,
    blocks: Vec<u128>,
    /// How many trees have been.
    trees: u64,
    /// What the answer is waited for with: the bases of iterations, and the leaf that each tree
    /// lacks.
    asked: Vec<(Vec<u8>, Vec<u128>, Vec<usize>)>,
}

impl Receiver {
    /// On SoftSpoken with groups of [`FIRST_GROUP`] bits, which nothing else uses.
    pub fn new(first: Box<dyn OtReceiver>, matrix: Arc<Matrix>, hash: Hash) -> Self {
        let (choices, blocks) = (Zeroizing::new(vec![]), vec![]);
        Self { first, matrix, hash, stock: Stock::default(), choices, blocks, trees: 0, asked: vec![] }
    }

    /// The last `n` of the stock.
    fn last(&mut self, n: usize) -> (Vec<u8>, Vec<u128>) {
        let at = self.blocks.len() - n;
        (self.choices.split_off(at), self.blocks.split_off(at))
    }
}

impl OtReceiver for Receiver {
    fn at(&self, _: u64) -> Option<Box<dyn OtReceiver>> {
        None
    }
    fn extend(&mut self, code: Code, choices: &[Vec<u64>], n: usize) -> (Vec<u8>, Vec<u128>) {
        let b = code.choice_bits() as usize;
        self.stock.take(b * n);
        let (random, t) = self.last(b * n);
        let mut corrections = Vec::with_capacity(correction_bytes(code, n));
        for (plane, random) in choices.iter().zip(random.chunks(n.max(1))) {
            let words = bits::pack(n, |j| u64::from(random[j]) ^ bits::get(plane, j));
            corrections.extend_from_slice(&bytemuck::cast_slice(&words)[..bits::bytes(n)]);
        }
        let blocks = (0..n).map(|j| (0..b).fold(0, |t_j, i| t_j ^ times_power(t[i * n + j], i as u32)));
        (corrections, blocks.collect())
    }
    fn extend_random(&mut self, n: usize) -> (Vec<u8>, Vec<u64>, Vec<u128>) {
        self.stock.take(n);
        let (choices, blocks) = self.last(n);
        (vec![], bits::pack(n, |j| u64::from(choices[j])), blocks)
    }
    fn lacking(&self, needed: usize) -> Option<Refill> {
        self.stock.lacking(needed)
    }
    fn ask(&mut self, refill: Refill) -> Result<Vec<u8>, RandomError> {
        let mut out = vec![];
        if refill.first {
            let (corrections, choices, blocks) = self.first.extend_random(BASE);
            out = corrections;
            self.choices.extend((0..BASE).map(|j| bits::get(&choices, j) as u8));
            self.blocks.extend(blocks);
        }
        let random = Key::random()?.stream().words(refill.iterations * T);
        let mut turned = vec![];
        for holes in random.chunks(T) {
            let (choices, blocks) = self.last(BASE);
            let holes: Vec<usize> = holes.iter().map(|w| *w as usize % (1 << H)).collect();
            // Level by level the side that the path does not take.
            let side = |j: usize| holes[j / H as usize] >> (H as usize - 1 - j % H as usize) & 1 ^ 1;
            turned.extend((0..T * H as usize).map(|j| u64::from(choices[K + j]) ^ side(j) as u64));
            self.asked.push((choices, blocks, holes));
        }
        let words = bits::pack(turned.len(), |j| turned[j]);
        out.extend_from_slice(&bytemuck::cast_slice(&words)[..bits::bytes(turned.len())]);
        Ok(out)
    }
    fn fill(&mut self, refill: Refill, answer: &[u8]) {
        let mut sums = answer.chunks_exact(16).map(|b| u128::from_le_bytes(b.try_into().expect("16 bytes")));
        for (choices, blocks, holes) in std::mem::take(&mut self.asked) {
            let at = self.blocks.len();
            self.blocks.reserve(N);
            self.choices.resize(at + N, 0);
            for (i, &hole) in holes.iter().enumerate() {
                let t = &blocks[K + i * H as usize..][..H as usize];
                let sums: Vec<u128> =
                    t.iter().map(|t| sums.next().expect("one for each level") ^ t).collect();
                self.blocks.extend(point::regrow(&self.hash, hole, &sums, self.trees));
                self.choices[at + (i << H | hole)] = 1;
                self.trees += 1;
            }
            let (made, turned) = (&mut self.blocks[at..], &mut self.choices[at..]);
            let (blocks, choices) = (&blocks[..K], &choices[..K]);
            self.matrix.rows(|row, places| {
                let sum = |(x, c), &at| (x ^ blocks[at], c ^ choices[at]);
                (made[row], turned[row]) = places.iter().fold((made[row], turned[row]), sum);
            });
        }
        self.stock.fill(refill);
    }
}

/// The side with the messages.
pub struct Sender {
    first: Box<dyn OtSender>,
    matrix: Arc<Matrix>,
    hash: Hash,
    delta: Zeroizing<u128>,
    stock: Stock,
    /// Blocks, the last ones used first.
    blocks: Vec<u128>,
    trees: u64,
}

impl Sender {
    /// On SoftSpoken with groups of [`FIRST_GROUP`] bits, which nothing else uses.
    pub fn new(first: Box<dyn OtSender>, matrix: Arc<Matrix>, hash: Hash) -> Self {
        let delta = Zeroizing::new(first.offsets(Code::new(1))[1]);
        Self { first, matrix, hash, delta, stock: Stock::default(), blocks: vec![], trees: 0 }
    }
}

impl OtSender for Sender {
    fn at(&self, _: u64) -> Option<Box<dyn OtSender>> {
        None
    }
    fn offsets(&self, code: Code) -> Vec<u128> {
        let offset = |x: usize| {
            (0..code.choice_bits())
                .filter(|i| x >> i & 1 == 1)
                .fold(0, |sum, i| sum ^ times_power(*self.delta, i))
        };
        (0..code.messages()).map(offset).collect()
    }
    fn stream(&mut self, code: Code, n: usize, corrections: &[u8], sink: &mut dyn FnMut(&[u128])) {
        let b = code.choice_bits() as usize;
        self.stock.take(b * n);
        let q = self.blocks.split_off(self.blocks.len() - b * n);
        let size = bits::bytes(n);
        let turn = |i: usize, j: usize| {
            let bit = corrections[i * size + j / 8] >> (j % 8) & 1;
            *self.delta & u128::from(bit).wrapping_neg()
        };
        let one = |j: usize| (0..b).fold(0, |sum, i| sum ^ times_power(q[i * n + j] ^ turn(i, j), i as u32));
        for first in (0..n).step_by(CHUNK) {
            let some: Vec<u128> = (first..n.min(first + CHUNK)).map(one).collect();
            sink(&some);
        }
    }
    fn extend_random(&mut self, n: usize, _: &[u8]) -> Vec<u128> {
        self.stock.take(n);
        self.blocks.split_off(self.blocks.len() - n)
    }
    fn lacking(&self, needed: usize) -> Option<Refill> {
        self.stock.lacking(needed)
    }
    fn answer(&mut self, refill: Refill, asked: &[u8]) -> Result<Vec<u8>, RandomError> {
        let (first, turned) = asked.split_at(first_bytes(refill));
        if refill.first {
            self.blocks.extend(self.first.extend_random(BASE, first));
        }
        let bases: Vec<Vec<u128>> =
            (0..refill.iterations).map(|_| self.blocks.split_off(self.blocks.len() - BASE)).collect();
        let random = Zeroizing::new(Key::random()?.stream().words(2 * refill.iterations * T));
        let mut roots = random.chunks_exact(2).map(|w| u128::from(w[0]) << 64 | u128::from(w[1]));
        let mut out = Vec::with_capacity(16 * refill.levels());
        let mut level = 0;
        for base in bases {
            let at = self.blocks.len();
            self.blocks.reserve(N);
            for q in base[K..].chunks_exact(H as usize) {
                let root = roots.next().expect("one for each tree");
                let (leaves, sums) = point::grow(&self.hash, *self.delta, root, self.trees, H);
                self.blocks.extend(leaves);
                self.trees += 1;
                for (q, sum) in q.iter().zip(sums) {
                    let bit = turned[level / 8] >> (level % 8) & 1;
                    let block = q ^ *self.delta & u128::from(bit).wrapping_neg();
                    out.extend_from_slice(&(block ^ sum).to_le_bytes());
                    level += 1;
                }
            }
            let made = &mut self.blocks[at..];
            self.matrix.rows(|row, places| {
                made[row] = places.iter().fold(made[row], |sum, &at| sum ^ base[at]);
            });
        }
        self.stock.fill(refill);
        Ok(out)
    }
}
