//! Exact samples of the discrete Gaussian distribution, P(x) ∝ e^(−x²/2σ²) on the integers, by
//! rejection in integer arithmetic: Canonne, Kamath, Steinke, "The Discrete Gaussian for
//! Differential Privacy" (2020), Algorithms 1 to 3, with σ an integer and t = σ. No floating-point
//! number is rounded on the way, so no low bit tells anything about what noise is added to.
//!
//! Deviates from the paper in one event: a geometric number above 256, which comes with
//! a probability of e^−256, begins anew, so that all numbers fit their words.
//!
//! How long a sample takes depends on it: whoever measures a party's own work to the nanosecond
//! learns something about its noise. No message waits for a single sample.

use crate::Stream;

/// The largest σ: squares of squares then fit 128 bits.
pub const MAX_DEVIATION: u64 = 1 << 54;

/// More turns of the geometric distribution than this are begun anew.
const MOST_TURNS: u64 = 1 << 8;

/// Words that are drawn from the stream at a time.
const AHEAD: usize = 512;

/// Uniform words of a stream, one after the other.
struct Words<'a> {
    stream: &'a Stream,
    block: u64,
    words: [u64; AHEAD],
    at: usize,
}

impl<'a> Words<'a> {
    fn new(stream: &'a Stream) -> Self {
        Words { stream, block: 0, words: [0; AHEAD], at: AHEAD }
    }

    fn word(&mut self) -> u64 {
        if self.at == AHEAD {
            self.stream.fill(self.block, &mut self.words);
            self.block += (AHEAD / crate::BLOCK_WORDS) as u64;
            self.at = 0;
        }
        self.at += 1;
        self.words[self.at - 1]
    }

    /// Uniform below `bound` > 0, by rejection.
    fn below(&mut self, bound: u128) -> u128 {
        let bits = u128::BITS - (bound - 1).leading_zeros();
        loop {
            let drawn = match bits {
                0 => return 0,
                1..=64 => u128::from(self.word() >> (64 - bits)),
                _ => (u128::from(self.word()) << 64 | u128::from(self.word())) >> (128 - bits),
            };
            if drawn < bound {
                return drawn;
            }
        }
    }

    /// True with probability e^(−num/den), num ≤ den: the first k of which a coin of num/(den·k)
    /// fails is odd.
    fn decays_below_one(&mut self, num: u128, den: u128) -> bool {
        let mut k = 1;
        while self.below(den * k) < num {
            k += 1;
        }
        k % 2 == 1
    }

    /// True with probability e^(−num/den).
    fn decays(&mut self, num: u128, den: u128) -> bool {
        (0..num / den).all(|_| self.decays_below_one(1, 1)) && self.decays_below_one(num % den, den)
    }

    /// A sample of the discrete Laplace distribution, P(x) ∝ e^(−|x|/t).
    fn laplace(&mut self, t: u64) -> i64 {
        loop {
            let low = self.below(t.into());
            if !self.decays_below_one(low, t.into()) {
                continue;
            }
            let mut turns = 0;
            while turns <= MOST_TURNS && self.decays_below_one(1, 1) {
                turns += 1;
            }
            let size = low as u64 + t * turns;
            let negative = self.word() & 1 == 1;
            // Zero has one sign.
            if turns <= MOST_TURNS && !(negative && size == 0) {
                return if negative { -(size as i64) } else { size as i64 };
            }
        }
    }

    fn gaussian(&mut self, deviation: u64) -> i64 {
        loop {
            let x = self.laplace(deviation);
            let off = u128::from(x.unsigned_abs().abs_diff(deviation));
            if self.decays(off * off, 2 * u128::from(deviation) * u128::from(deviation)) {
                return x;
            }
        }
    }
}

/// Fills `out` with independent samples of standard deviation `deviation`, those of a stream that
/// serves nothing else; zeros for 0.
///
/// # Panics
/// If `deviation` is above [`MAX_DEVIATION`].
pub fn fill(stream: &Stream, deviation: u64, out: &mut [i64]) {
    assert!(deviation <= MAX_DEVIATION, "checked with the plan");
    if deviation == 0 {
        out.fill(0);
        return;
    }
    let mut words = Words::new(stream);
    out.iter_mut().for_each(|sample| *sample = words.gaussian(deviation));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    fn samples(deviation: u64, n: usize) -> Vec<i64> {
        let mut out = vec![0; n];
        fill(&Key::from_bytes([deviation as u8; 32]).stream(), deviation, &mut out);
        out
    }

    /// Against the probabilities themselves, in bins of at least a few expected samples.
    #[test]
    #[cfg_attr(miri, ignore = "many samples, which say nothing of memory")]
    fn small_deviations_have_the_distribution_of_the_definition() {
        let n = 400_000;
        for deviation in [1u64, 2, 3, 7] {
            let square = (deviation * deviation) as f64;
            let weight = |x: i64| (-(x * x) as f64 / (2.0 * square)).exp();
            let most = 12 * deviation as i64;
            let total: f64 = (-most..=most).map(weight).sum();
            let samples = samples(deviation, n);
            let (mut chi2, mut bins) = (0.0, 0);
            for x in -most..=most {
                let expected = n as f64 * weight(x) / total;
                if expected < 10.0 {
                    continue;
                }
                let seen = samples.iter().filter(|&&s| s == x).count() as f64;
                chi2 += (seen - expected).powi(2) / expected;
                bins += 1;
            }
            let freedom = f64::from(bins);
            assert!(bins > 6 && chi2 < freedom + 6.0 * (2.0 * freedom).sqrt(), "{deviation}: {chi2}");
        }
    }

    /// Large deviations by their moments, and by how many lie within one and two of them.
    #[test]
    #[cfg_attr(miri, ignore = "many samples, which say nothing of memory")]
    fn large_deviations_have_the_moments_of_a_gaussian() {
        let n = 200_000;
        for deviation in [1_000u64, 1 << 20, (1 << 36) + 12345, MAX_DEVIATION] {
            let scaled: Vec<f64> =
                samples(deviation, n).iter().map(|&x| x as f64 / deviation as f64).collect();
            let moment = |k: i32| scaled.iter().map(|x| x.powi(k)).sum::<f64>() / n as f64;
            let root = (n as f64).sqrt();
            assert!(moment(1).abs() < 5.0 / root, "{deviation}: mean {}", moment(1));
            assert!((moment(2) - 1.0).abs() < 5.0 * 2f64.sqrt() / root, "{deviation}: {}", moment(2));
            assert!((moment(4) - 3.0).abs() < 5.0 * 96f64.sqrt() / root, "{deviation}: {}", moment(4));
            for (within, share) in [(1.0, 0.682_689), (2.0, 0.954_500)] {
                let seen = scaled.iter().filter(|x| x.abs() <= within).count() as f64 / n as f64;
                assert!((seen - share).abs() < 5.0 * (share * (1.0 - share)).sqrt() / root, "{deviation}");
            }
            // The lowest bit is a fair coin: nothing is rounded.
            let odd = samples(deviation, n).iter().filter(|x| *x & 1 == 1).count() as f64 / n as f64;
            assert!((odd - 0.5).abs() < 5.0 * 0.5 / root, "{deviation}: {odd}");
        }
    }

    #[test]
    fn no_deviation_is_no_noise_and_a_stream_says_it_all() {
        assert!(samples(0, 100).iter().all(|&x| x == 0));
        assert_eq!(samples(5, 40), samples(5, 60)[..40]);
    }
}
