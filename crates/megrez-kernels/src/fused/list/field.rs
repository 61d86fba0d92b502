//! Fields of lists: their arithmetic on the host, how elements are sampled and how they travel. No
//! division and no branch on an element.

use megrez_prg::{FieldSampler, Stream};
use megrez_ring::{Prime, bits};

/// The field of p elements.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    p: u64,
    reciprocal: u64,
    /// A multiple of p that is not below 2^62.
    offset: u64,
    prime: Option<Prime>,
}

impl Field {
    /// A small field, whose elements travel as the digits of words.
    pub fn small(prime: Prime) -> Self {
        Field::new(prime.p(), Some(prime))
    }

    /// The smallest prime above 2^bits, 1 ≤ bits ≤ 30; elements travel in bits + 1 bits each.
    pub fn above_power(bits: u32) -> Self {
        let is_prime = |n: &u64| (3..).step_by(2).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
        let p = ((1u64 << bits) + 1..).step_by(2).find(is_prime).expect("there is one below 2^(bits + 1)");
        Field::new(p, None)
    }

    fn new(p: u64, prime: Option<Prime>) -> Self {
        Field { p, reciprocal: u64::MAX / p, offset: (1u64 << 62).div_ceil(p) * p, prime }
    }

    /// p.
    pub fn p(self) -> u64 {
        self.p
    }

    /// The prime, if elements travel as the digits of words.
    pub fn prime(self) -> Option<Prime> {
        self.prime
    }

    /// Bits that hold an element.
    pub fn bits(self) -> u32 {
        (self.p - 1).ilog2() + 1
    }

    /// x mod p: the quotient by the reciprocal is right or one too small.
    pub fn reduce(self, x: u64) -> u64 {
        let quotient = ((u128::from(x) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = x - quotient * self.p;
        rest - self.p * u64::from(rest >= self.p)
    }

    /// x mod p for |x| < 2^62.
    pub fn residue(self, x: i64) -> u32 {
        self.reduce(self.offset.wrapping_add_signed(x)) as u32
    }

    /// Elements in the form of the wire.
    pub fn pack(self, elements: &[u32]) -> Vec<u64> {
        match self.prime {
            Some(prime) => prime.pack(elements.iter().map(|&e| e as u8)),
            None => bits::pack_low(elements.iter().map(|&e| e.into()), self.bits()),
        }
    }

    /// Undoes [`Field::pack`] for `n` elements, which are below p if the words came from there.
    pub fn unpack(self, words: &[u64], n: usize) -> Vec<u32> {
        match self.prime {
            Some(prime) => prime.unpack(words, n).into_iter().map(u32::from).collect(),
            None => (0..n).map(|i| bits::get_low(words, i, self.bits()) as u32).collect(),
        }
    }
}

/// `n` values uniform in [0, bound), within 2^-40 for 2^32 draws. The values of [`FieldSampler`],
/// which bounds of large fields are too large for: each 128-bit draw is read as a fraction of 1 and
/// multiplied by the bound as often as bound^k ≤ 2^56 allows.
pub fn sample(stream: &Stream, bound: u64, n: usize) -> Vec<u32> {
    if bound <= 128 {
        let mut out = vec![0; n];
        FieldSampler::new(bound).fill(stream, 0, &mut out);
        return out.into_iter().map(u32::from).collect();
    }
    fractions(stream, bound, n)
}

fn fractions(stream: &Stream, bound: u64, n: usize) -> Vec<u32> {
    let per_draw = (56.0 / (bound.max(2) as f64).log2()) as usize;
    let words = stream.words(2 * n.div_ceil(per_draw));
    let mut out = Vec::with_capacity(n + per_draw);
    for draw in words.chunks_exact(2) {
        let (mut low, mut high) = (draw[0], draw[1]);
        for _ in 0..per_draw {
            let l = u128::from(low) * u128::from(bound);
            let h = u128::from(high) * u128::from(bound) + (l >> 64);
            (low, high) = (l as u64, h as u64);
            out.push((h >> 64) as u32);
        }
    }
    out.truncate(n);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_are_the_smallest_and_reduction_is_exact() {
        for (bits, p) in [(2, 5), (3, 11), (7, 131), (8, 257), (16, 65537), (30, (1 << 30) + 3)] {
            let field = Field::above_power(bits);
            assert_eq!((field.p(), field.bits()), (p, bits + 1));
            for x in [0, 1, p - 1, p, p + 1, 2 * p, p * p - 1, p * p, u64::MAX - 1, u64::MAX] {
                assert_eq!(field.reduce(x), x % p);
                assert_eq!(field.reduce(x / 3), x / 3 % p);
            }
        }
    }

    #[test]
    fn sums_of_either_sign_have_residues() {
        for field in [Field::above_power(30), Field::small(Prime::above(2)), Field::small(Prime::above(64))] {
            for x in [0, 1, -1, 77, -78, (1 << 62) - 1, 1 - (1 << 62)] {
                assert_eq!(field.residue(x), x.rem_euclid(field.p() as i64) as u32);
            }
        }
    }

    #[test]
    fn small_fractions_are_those_of_the_sampler() {
        let stream = megrez_prg::Key::from_bytes([4; 32]).stream();
        for bound in 1..=128 {
            let mut expected = vec![0; 300];
            FieldSampler::new(bound).fill(&stream, 0, &mut expected);
            assert!(fractions(&stream, bound, 300).into_iter().eq(expected.into_iter().map(u32::from)));
        }
    }

    #[test]
    fn samples_are_uniform_below_the_bound() {
        let stream = megrez_prg::Key::from_bytes([3; 32]).stream();
        for bound in [2u64, 9, 256, 257] {
            let mut counts = vec![0f64; bound as usize];
            sample(&stream, bound, 1 << 18).into_iter().for_each(|v| counts[v as usize] += 1.0);
            let expected = f64::from(1 << 18) / bound as f64;
            let chi: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            assert!(chi < bound as f64 + 7.0 * (2.0 * bound as f64).sqrt(), "{bound}: {chi}");
        }
    }
}
