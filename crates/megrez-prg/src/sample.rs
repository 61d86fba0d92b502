//! Bounded sampling: uniform elements of F_p from stream words.
//!
//! Each 128-bit draw (two words, low word first) is read as a fraction of 1 and multiplied by the
//! bound again and again; the integer parts are the samples. With k samples a draw the distance
//! from uniform is at most bound^k / 2^128 a draw. k is the largest number with bound^k ≤ 2^56, so
//! a message of up to 2^32 draws is within 2^-40 of uniform.

use crate::digits::{Digits, OVERSHOOT};
use crate::{BLOCK_WORDS, Level, Stream};

/// Draws uniform values below a small bound from a stream: value i always comes from draw i / k, so
/// that any holder of the stream computes any value.
#[derive(Clone)]
pub struct FieldSampler {
    bound: u64,
    per_draw: usize,
    digits: Digits,
    #[cfg(target_arch = "x86_64")]
    order: x86::Order,
}

/// Draws that are made and split at a time: 4 KiB of stream, which stays in the nearest cache.
const DRAWS: usize = 256;
/// Draws per block of the stream.
const BLOCK_DRAWS: usize = BLOCK_WORDS / 2;
/// The widest vector code splits this many draws at a time.
const VECTOR_DRAWS: usize = 32;

impl FieldSampler {
    /// A sampler of [0, bound), 1 ≤ bound ≤ 128.
    pub const fn new(bound: u64) -> Self {
        assert!(bound >= 1 && bound <= 128, "bounds are those of small fields");
        // Bound 1 has one value only, however many a draw is said to give.
        let base = if bound == 1 { 2 } else { bound };
        let (mut per_draw, mut power) = (0, base);
        while power <= 1 << 56 {
            power *= base;
            per_draw += 1;
        }
        FieldSampler {
            bound,
            per_draw,
            digits: Digits::new(bound, per_draw),
            #[cfg(target_arch = "x86_64")]
            order: x86::order(per_draw),
        }
    }

    /// How many values one 128-bit draw gives.
    pub const fn per_draw(&self) -> usize {
        self.per_draw
    }

    /// The bound.
    pub const fn bound(&self) -> u64 {
        self.bound
    }

    /// Values 0 … `out.len()` − 1, each plus `offset`: `offset` 1 with bound p − 1 samples F_p*.
    pub fn fill(&self, stream: &Stream, offset: u8, out: &mut [u8]) {
        let mut buffer = vec![];
        for (c, chunk) in out.chunks_mut(DRAWS * self.per_draw).enumerate() {
            let first = (c * DRAWS * self.per_draw) as u64;
            chunk.copy_from_slice(self.window(
                Level::detect(),
                stream,
                first,
                chunk.len(),
                offset,
                &mut buffer,
            ));
        }
    }

    /// Values `first` … `first + n − 1`, each plus `offset`, in `buffer`, whose former content is
    /// of no use any more. Chunks of a long message are made one by one, anywhere, without keeping
    /// the message.
    pub fn window<'a>(
        &self,
        level: Level,
        stream: &Stream,
        first: u64,
        n: usize,
        offset: u8,
        buffer: &'a mut Vec<u8>,
    ) -> &'a mut [u8] {
        let k = self.per_draw;
        // Start with a whole block; its values before `first` are made and not looked at.
        let block = first / (k * BLOCK_DRAWS) as u64;
        let skip = (first - block * (k * BLOCK_DRAWS) as u64) as usize;
        let draws = (skip + n).div_ceil(k);
        let room = draws.next_multiple_of(VECTOR_DRAWS) * k + OVERSHOOT;
        if buffer.len() < room {
            buffer.resize(room, 0);
        }
        let mut words = [0u64; 2 * DRAWS];
        for start in (0..draws).step_by(DRAWS) {
            let count = (draws - start).min(DRAWS);
            let words = &mut words[..2 * count];
            stream.fill_at_level(level, block + (start / BLOCK_DRAWS) as u64, words);
            self.split_all(level, words, offset, &mut buffer[start * k..]);
        }
        &mut buffer[skip..skip + n]
    }

    /// Splits consecutive draws; `out` has room for the overshoot of the vector code.
    fn split_all(&self, level: Level, words: &[u64], offset: u8, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if level.has_avx512() {
            let mut done = 0;
            for words in words.chunks(4 * BLOCK_WORDS * 2) {
                let mut padded = [0; 2 * VECTOR_DRAWS];
                let words = match words.try_into() {
                    Ok(words) => words,
                    Err(_) => {
                        padded[..words.len()].copy_from_slice(words);
                        &padded
                    }
                };
                let out = &mut out[done * self.per_draw..][..VECTOR_DRAWS * self.per_draw + OVERSHOOT];
                // SAFETY: the level is a witness that the machine has these instructions.
                unsafe { x86::split32(&self.digits, &self.order, words, offset, out) };
                done += VECTOR_DRAWS;
            }
            return;
        }
        self.digits.split(level, words.as_chunks().0, offset, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::VECTOR_DRAWS;
    use crate::digits::Digits;
    use std::arch::x86_64::*;

    /// With at most 16 samples a draw: for every byte of the output of eight draws, which byte of
    /// which accumulator.
    pub type Order = [[u8; 64]; 2];

    /// The order of so many samples a draw.
    pub const fn order(per_draw: usize) -> Order {
        let mut order = [[0; 64]; 2];
        let mut at = 0;
        while per_draw <= 16 && at < 8 * per_draw {
            let (draw, sample) = (at / per_draw, at % per_draw);
            let lane = [0, 2, 4, 6, 1, 3, 5, 7][draw];
            // An accumulator's first sample is the highest byte that is used.
            let used = if sample >= 8 {
                per_draw - 8
            } else if per_draw < 8 {
                per_draw
            } else {
                8
            };
            order[at / 64][at % 64] = (sample / 8 * 64 + lane * 8 + used - 1 - sample % 8) as u8;
            at += 1;
        }
        order
    }

    /// Eight draws wide, four times.
    const WIDE: usize = 4;

    /// Splits 32 draws.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512ifma,avx512vbmi")]
    pub fn split32(
        digits: &Digits,
        order: &Order,
        words: &[u64; 2 * VECTOR_DRAWS],
        offset: u8,
        out: &mut [u8],
    ) {
        match digits.count.div_ceil(8) {
            1 => split::<1>(digits, order, words, offset, out),
            2 => split::<2>(digits, order, words, offset, out),
            3 => split::<3>(digits, order, words, offset, out),
            _ => split::<7>(digits, order, words, offset, out),
        }
    }

    /// Splits 32 draws of at most 8·P samples.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512ifma,avx512vbmi")]
    fn split<const P: usize>(
        digits: &Digits,
        order: &Order,
        words: &[u64; 2 * VECTOR_DRAWS],
        offset: u8,
        out: &mut [u8],
    ) {
        let &Digits { base: bound, count: per_draw, group, .. } = digits;
        assert!(per_draw <= 8 * P && out.len() >= VECTOR_DRAWS * per_draw + super::OVERSHOOT);
        let splat = |x: u64| _mm512_set1_epi64(x as i64);
        let zero = _mm512_setzero_si512();
        // The four 32-bit limbs of the fractions; only the low half of a lane counts. Unpacking
        // puts draw d of the first four into lane 2d, and of the others into lane 2(d − 4) + 1.
        let mut limbs = [[zero; 4]; WIDE];
        for (limbs, words) in limbs.iter_mut().zip(words.as_chunks::<16>().0) {
            // SAFETY: sixteen words are two vectors; the loads are unaligned.
            let (a, b) = unsafe {
                (_mm512_loadu_si512(words.as_ptr().cast()), _mm512_loadu_si512(words.as_ptr().add(8).cast()))
            };
            let (low, high) = (_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
            *limbs = [low, _mm512_srli_epi64::<32>(low), high, _mm512_srli_epi64::<32>(high)];
        }
        let mut bytes = [[zero; WIDE]; P];
        let base = splat(bound);
        let mut acc = [zero; WIDE];
        let mut i = 0;
        while i < per_draw {
            let count = group.min(per_draw - i);
            let (power, reciprocal) = digits.powers[usize::from(count == group)];
            let (multiplier, reciprocal) = (splat(power), splat(reciprocal));
            let mut fraction = [zero; WIDE];
            for (x, fraction) in limbs.iter_mut().zip(&mut fraction) {
                let mut carry = zero;
                for limb in x {
                    let product = _mm512_add_epi64(_mm512_mul_epu32(*limb, multiplier), carry);
                    *limb = product;
                    carry = _mm512_srli_epi64::<32>(product);
                }
                *fraction = _mm512_mullo_epi64(carry, reciprocal);
            }
            for _ in 0..count {
                for (acc, fraction) in acc.iter_mut().zip(&mut fraction) {
                    *acc = _mm512_madd52hi_epu64(_mm512_slli_epi64::<8>(*acc), *fraction, base);
                    *fraction = _mm512_madd52lo_epu64(zero, *fraction, base);
                }
                i += 1;
                if i % 8 == 0 {
                    bytes[i / 8 - 1] = acc;
                    acc = [zero; WIDE];
                }
            }
        }
        if !per_draw.is_multiple_of(8) {
            bytes[per_draw / 8] = acc;
        }
        let offset = _mm512_set1_epi8(offset as i8);
        if P <= 2 {
            for (wide, out) in out.chunks_mut(8 * per_draw).enumerate().take(WIDE) {
                // One permutation of bytes puts the samples of eight draws in order.
                let (a, b) = (bytes[0][wide], bytes[P - 1][wide]);
                for (part, order) in out.chunks_mut(64).zip(order) {
                    // SAFETY: a table is 64 bytes; the load is unaligned.
                    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
                    let samples = _mm512_add_epi8(_mm512_permutex2var_epi8(a, order, b), offset);
                    let lanes = u64::MAX >> (64 - part.len());
                    // SAFETY: exactly the bytes of `part` are written.
                    unsafe { _mm512_mask_storeu_epi8(part.as_mut_ptr().cast(), lanes, samples) };
                }
            }
            return;
        }
        // Many samples a draw: eight bytes at a time, in order, so that what is written too much is
        // overwritten. The first sample of a lane is to be its lowest byte; in the last piece it is
        // not the highest yet.
        let pieces = per_draw.div_ceil(8);
        let align = _mm_cvtsi64_si128(((8 * pieces - per_draw) * 8) as i64);
        let reverse = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0809_0a0b_0c0d_0e0f, 0x0001_0203_0405_0607));
        let mut lanes = [[[0u64; 8]; WIDE]; P];
        for (piece, (lanes, bytes)) in lanes.iter_mut().zip(bytes).enumerate().take(pieces) {
            for (lanes, bytes) in lanes.iter_mut().zip(bytes) {
                let bytes = if piece + 1 == pieces { _mm512_sll_epi64(bytes, align) } else { bytes };
                let samples = _mm512_add_epi8(_mm512_shuffle_epi8(bytes, reverse), offset);
                // SAFETY: eight words are one vector; the store is unaligned.
                unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), samples) };
            }
        }
        for wide in 0..WIDE {
            for (draw, lane) in [0, 2, 4, 6, 1, 3, 5, 7].into_iter().enumerate() {
                let out = &mut out[(wide * 8 + draw) * per_draw..][..8 * pieces];
                for (out, lanes) in out.as_chunks_mut::<8>().0.iter_mut().zip(&lanes) {
                    *out = lanes[wide][lane].to_le_bytes();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    /// The values of one draw, by the definition.
    fn split(sampler: &FieldSampler, draw: &[u64]) -> Vec<u8> {
        let (mut low, mut high) = (draw[0], draw[1]);
        let next = |_| {
            let l = u128::from(low) * u128::from(sampler.bound);
            let h = u128::from(high) * u128::from(sampler.bound) + (l >> 64);
            (low, high) = (l as u64, h as u64);
            (h >> 64) as u8
        };
        (0..sampler.per_draw).map(next).collect()
    }

    /// The bounds that are tried: all, or under Miri, which is slow, one.
    fn bounds(from: u64) -> impl Iterator<Item = u64> {
        (from..=128).filter(|bound| !cfg!(miri) || *bound == 67)
    }

    #[test]
    #[cfg_attr(miri, ignore = "many samples, which say nothing of memory")]
    fn samples_are_uniform() {
        for bound in [2u64, 3, 28, 66, 67, 127] {
            let sampler = FieldSampler::new(bound);
            let stream = Key::from_bytes([bound as u8; 32]).stream();
            let mut out = vec![0u8; 200_000];
            sampler.fill(&stream, 0, &mut out);
            let mut counts = vec![0f64; bound as usize];
            out.iter().for_each(|&v| counts[v as usize] += 1.0);
            let expected = out.len() as f64 / bound as f64;
            let chi2: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            let freedom = bound as f64 - 1.0;
            assert!(chi2 < freedom + 6.0 * (2.0 * freedom).sqrt() + 6.0, "bound {bound}: chi2 {chi2}");
        }
    }

    #[test]
    fn every_level_gives_every_window_of_the_same_samples() {
        let stream = Key::from_bytes([9; 32]).stream();
        for bound in bounds(1) {
            let sampler = FieldSampler::new(bound);
            let k = sampler.per_draw();
            let draws = if cfg!(miri) { 100 } else { 700 };
            let words = stream.words(2 * draws);
            let mut expected = vec![];
            for draw in words.chunks(2) {
                expected.extend(split(&sampler, draw).into_iter().map(|value| value + 1));
            }
            let mut filled = vec![0; (draws - 50) * k + 1];
            sampler.fill(&stream, 1, &mut filled);
            assert!(filled == expected[..filled.len()]);
            let mut buffer = vec![];
            for level in Level::all() {
                for (first, n) in
                    [(0, 0), (0, 1), (1, 1), (k, 5), (4 * k - 1, 300), (77, 255 * k), (256 * k, 300 * k + 3)]
                        .into_iter()
                        .take(if cfg!(miri) { 5 } else { 7 })
                {
                    let window = sampler.window(level, &stream, first as u64, n, 1, &mut buffer);
                    assert!(window == &expected[first..first + n], "{} {bound} {first} {n}", level.name());
                }
            }
        }
    }

    #[test]
    fn the_edges_of_draws_are_split_alike() {
        for bound in bounds(1) {
            let sampler = FieldSampler::new(bound);
            let k = sampler.per_draw();
            // Fractions just below and at multiples of bound^-k, where the last digit changes.
            let mut words = vec![];
            let power = u128::from(bound).pow(k as u32);
            for i in 0..64u128 {
                let at = (u128::MAX / power).wrapping_mul(power / 64 * i + i);
                words.extend(
                    [at, at.wrapping_sub(1), at.wrapping_add(power)]
                        .iter()
                        .flat_map(|x| [*x as u64, (*x >> 64) as u64]),
                );
            }
            words.extend([0, 0, u64::MAX, u64::MAX, 0, u64::MAX, u64::MAX, 0]);
            let mut expected = vec![];
            for draw in words.chunks(2) {
                expected.extend(split(&sampler, draw));
            }
            for level in Level::all() {
                let mut out = vec![0; (words.len() / 2).next_multiple_of(VECTOR_DRAWS) * k + OVERSHOOT];
                sampler.split_all(level, &words, 0, &mut out);
                assert!(out[..expected.len()] == expected, "{} {bound}", level.name());
            }
        }
    }

    #[test]
    fn the_distance_from_uniform_is_below_2_to_the_minus_40_per_message() {
        for bound in 2..=128u64 {
            let k = FieldSampler::new(bound).per_draw() as u32;
            let samples = |k| u128::from(bound).pow(k);
            assert!(samples(k) <= 1 << 56 && samples(k + 1) > 1 << 56);
        }
    }

    #[test]
    fn any_prefix_is_the_same() {
        let stream = Key::from_bytes([7; 32]).stream();
        let sampler = FieldSampler::new(67);
        let n = if cfg!(miri) { 500 } else { 5000 };
        let (mut long, mut short) = (vec![0; n], vec![0; n / 4 - 1]);
        sampler.fill(&stream, 1, &mut long);
        sampler.fill(&stream, 1, &mut short);
        assert_eq!(short, long[..short.len()]);
        assert!(long.iter().all(|&v| (1..=67).contains(&v)));
    }
}
