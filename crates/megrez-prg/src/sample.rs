//! Bounded sampling: uniform elements of F_p from stream words.
//!
//! Each 128-bit draw (two words, low word first) is read as a fraction of 1 and multiplied by the bound again and again;
//! the integer parts are the samples. With k samples a draw the distance from uniform is at most bound^k / 2^128 a draw.
//! k is the largest number with bound^k ≤ 2^56, so a message of up to 2^32 draws is within 2^-40 of uniform.

use crate::Stream;

/// Draws uniform values below a small bound from a stream: value i always comes from draw i / k, so that any holder of
/// the stream computes any value.
#[derive(Clone)]
pub struct FieldSampler {
    bound: u64,
    per_draw: usize,
}

impl FieldSampler {
    /// A sampler of [0, bound), 2 ≤ bound ≤ 128.
    pub const fn new(bound: u64) -> Self {
        assert!(bound >= 2 && bound <= 128, "bounds are those of small fields");
        let (mut per_draw, mut power) = (0, bound);
        while power <= 1 << 56 {
            power *= bound;
            per_draw += 1;
        }
        FieldSampler { bound, per_draw }
    }

    /// How many values one 128-bit draw gives.
    pub const fn per_draw(&self) -> usize {
        self.per_draw
    }

    /// The bound.
    pub const fn bound(&self) -> u64 {
        self.bound
    }

    /// Splits one draw into its values.
    #[inline(always)]
    pub fn split(&self, low: u64, high: u64, mut each: impl FnMut(usize, u8)) {
        let (mut low, mut high) = (low, high);
        for i in 0..self.per_draw {
            let l = u128::from(low) * u128::from(self.bound);
            let h = u128::from(high) * u128::from(self.bound) + (l >> 64);
            (low, high) = (l as u64, h as u64);
            each(i, (h >> 64) as u8);
        }
    }

    /// Values 0 … `out.len()` − 1, each plus `offset`: `offset` 1 with bound p − 1 samples F_p*.
    pub fn fill(&self, stream: &Stream, offset: u8, out: &mut [u8]) {
        let mut words = [0u64; 256];
        let per_chunk = words.len() / 2 * self.per_draw;
        for (c, chunk) in out.chunks_mut(per_chunk).enumerate() {
            let draws = chunk.len().div_ceil(self.per_draw);
            stream.fill((c * words.len() / crate::BLOCK_WORDS) as u64, &mut words[..2 * draws]);
            for (group, draw) in chunk.chunks_mut(self.per_draw).zip(words.chunks_exact(2)) {
                self.split(draw[0], draw[1], |i, value| {
                    if let Some(slot) = group.get_mut(i) {
                        *slot = value + offset;
                    }
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
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
    fn the_distance_from_uniform_is_below_2_to_the_minus_40_per_message() {
        for bound in 2..=128u64 {
            let k = FieldSampler::new(bound).per_draw() as i32;
            assert!((bound as f64).powi(k) <= 2f64.powi(56) && (bound as f64).powi(k + 1) > 2f64.powi(56));
        }
    }

    #[test]
    fn any_prefix_is_the_same() {
        let stream = Key::from_bytes([7; 32]).stream();
        let sampler = FieldSampler::new(67);
        let (mut long, mut short) = (vec![0; 5000], vec![0; 1234]);
        sampler.fill(&stream, 1, &mut long);
        sampler.fill(&stream, 1, &mut short);
        assert_eq!(short, long[..1234]);
        assert!(long.iter().all(|&v| (1..=67).contains(&v)));
    }
}
