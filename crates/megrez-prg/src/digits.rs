//! Base-b digits of 128-bit fractions, several fractions at a time: what sampling and the wire form
//! of field elements have in common on machines without 512-bit arithmetic. The code is the same
//! for all of them; where there is AVX2, the compiler makes vectors of it. With 512 bits sampling
//! has code of its own for the same numbers.

use crate::Level;

/// Fractions at a time: [`Digits::split`] writes whole groups of them.
pub const LANES: usize = 4;
/// Bytes that may be written past the last digit of the last group.
pub const OVERSHOOT: usize = 8;

/// The low half of a word.
const LOW: u64 = u32::MAX as u64;
/// Bits of a fraction that gives single digits.
const FINE: u32 = 52;
/// The most digits of a fraction, in eights.
const PIECES: usize = 8;

/// What splitting needs for one base. Digits are taken `group` at a time: c = the next digits as
/// one integer below b^group, by one long multiplication; then f = c·(floor(2^52 / b^group) + 1) is
/// c / b^group as a 52-bit fraction, too large by less than one unit of the last digit since
/// b^(2·group) ≤ 2^52, and multiplications by b give digit after digit.
#[derive(Clone)]
pub struct Digits {
    pub(crate) base: u64,
    pub(crate) count: usize,
    pub(crate) group: usize,
    /// b^n and floor(2^52 / b^n) + 1, of the last, shorter group and of a whole one.
    pub(crate) powers: [(u64, u64); 2],
}

impl Digits {
    /// The first `count` ≤ 64 digits of base 1 ≤ b ≤ 128.
    pub const fn new(base: u64, count: usize) -> Self {
        assert!(base >= 1 && base <= 128 && count >= 1 && count <= 8 * PIECES);
        let mut group = 1;
        while group < count && group < 26 && (base as u128).pow(2 * (group as u32 + 1)) <= 1 << FINE {
            group += 1;
        }
        let mut powers = [(0, 0); 2];
        let counts = [count % group, group];
        let mut i = 0;
        while i < 2 {
            let power = base.pow(counts[i] as u32);
            powers[i] = (power, (1 << FINE) / power + 1);
            i += 1;
        }
        Digits { base, count, group, powers }
    }

    /// Bytes that `out` of [`split`](Self::split) has for so many fractions.
    pub const fn room(&self, fractions: usize) -> usize {
        fractions.next_multiple_of(LANES) * self.count + OVERSHOOT
    }

    /// The digits after the point of fractions of 2^128 (low word, high word), the most significant
    /// first, each plus `offset`, one fraction after the other. `out` has [`room`](Self::room);
    /// what it holds after the last digit is of no use any more.
    pub fn split(&self, level: Level, fractions: &[[u64; 2]], offset: u8, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx2() {
            // SAFETY: the level is a witness that the machine has these instructions.
            return unsafe { self.split_avx2(fractions, offset, out) };
        }
        let _ = level;
        self.split_all(fractions, offset, out);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn split_avx2(&self, fractions: &[[u64; 2]], offset: u8, out: &mut [u8]) {
        self.split_all(fractions, offset, out);
    }

    #[inline(always)]
    fn split_all(&self, fractions: &[[u64; 2]], offset: u8, out: &mut [u8]) {
        let (whole, rest) = fractions.as_chunks::<LANES>();
        for (i, lanes) in whole.iter().enumerate() {
            self.split_lanes(lanes, offset, &mut out[i * LANES * self.count..]);
        }
        if !rest.is_empty() {
            let mut lanes = [[0; 2]; LANES];
            lanes[..rest.len()].copy_from_slice(rest);
            self.split_lanes(&lanes, offset, &mut out[whole.len() * LANES * self.count..]);
        }
    }

    #[inline(always)]
    fn split_lanes(&self, fractions: &[[u64; 2]; LANES], offset: u8, out: &mut [u8]) {
        // The four 32-bit limbs of the fractions, the lowest first.
        let mut limbs = [[0u64; LANES]; 4];
        for (l, &[low, high]) in fractions.iter().enumerate() {
            (limbs[0][l], limbs[1][l], limbs[2][l], limbs[3][l]) =
                (low & LOW, low >> 32, high & LOW, high >> 32);
        }
        let base = self.base & LOW;
        let offsets = u64::from(offset) * 0x0101_0101_0101_0101;
        let mut pieces = [[0u64; LANES]; PIECES];
        let mut bytes = [0u64; LANES];
        let mut done = 0;
        while done < self.count {
            let n = self.group.min(self.count - done);
            let (power, reciprocal) = self.powers[usize::from(n == self.group)];
            let (power, low, high) = (power & LOW, reciprocal & LOW, reciprocal >> 32);
            let mut digits = [0u64; LANES];
            for limb in &mut limbs {
                for (limb, digits) in limb.iter_mut().zip(&mut digits) {
                    let product = (*limb & LOW) * power + *digits;
                    (*limb, *digits) = (product & LOW, product >> 32);
                }
            }
            // As a fraction.
            for digits in &mut digits {
                *digits = (*digits & LOW) * low + (((*digits & LOW) * high) << 32);
            }
            for _ in 0..n {
                for (fraction, bytes) in digits.iter_mut().zip(&mut bytes) {
                    let product = (*fraction & LOW) * base + (((*fraction >> 32) * base) << 32);
                    *bytes = (*bytes << 8) | (product >> FINE);
                    *fraction = product & ((1 << FINE) - 1);
                }
                done += 1;
                if done.is_multiple_of(8) {
                    pieces[done / 8 - 1] = bytes;
                    bytes = [0; LANES];
                }
            }
        }
        let last = self.count % 8;
        if last > 0 {
            pieces[self.count / 8] = bytes.map(|bytes| bytes << (8 * (8 - last)));
        }
        // In order, so that what is written too much is overwritten.
        for lane in 0..LANES {
            let out = &mut out[lane * self.count..][..8 * self.count.div_ceil(8)];
            for (out, piece) in out.as_chunks_mut::<8>().0.iter_mut().zip(&pieces) {
                *out = (piece[lane] + offsets).to_be_bytes();
            }
        }
    }
}
