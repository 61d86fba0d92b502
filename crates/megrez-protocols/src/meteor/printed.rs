//! METEOR as printed: what the paper says its steps cost online, for tables beside ours, and its
//! most significant bit in the clear, for the study of what goes wrong with it. No party runs it.
//! Costs are bits per element over all three parties, and rounds: Table 1 (which is per party) and
//! §6. ⌈log2 q⌉ bits are an element of F_q there, q the smallest prime not below ℓ.

/// Bits per element over all parties, and rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Printed {
    /// Bits.
    pub bits: f64,
    /// Rounds.
    pub rounds: u32,
}

/// A product of any number of factors, of integers or of fixed-point numbers with their truncation;
/// and the multiplexer.
pub fn product(ring: u32) -> Printed {
    Printed { bits: 3.0 * f64::from(ring), rounds: 1 }
}

/// The smallest prime not below `n`.
fn prime_from(n: u32) -> u32 {
    let is_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    (n.max(2)..).find(is_prime).expect("there is a prime below 2n")
}

/// The most significant bit, Fig. 3.
pub fn msb(ring: u32) -> Printed {
    let per_element = f64::from((prime_from(ring) - 1).ilog2() + 1);
    // ⌈log4(ℓ + 1)⌉.
    let levels = (ring.ilog2() + 1).div_ceil(2);
    Printed { bits: (4.0 * f64::from(ring) + 3.0) * per_element, rounds: levels + 2 }
}

/// ReLU, Fig. 9.
pub fn relu(ring: u32) -> Printed {
    let (msb, mux) = (msb(ring), product(ring));
    Printed { bits: msb.bits + mux.bits, rounds: msb.rounds + mux.rounds }
}

/// The largest of `n`, by a tournament of ReLUs (§6.3).
pub fn maximum(ring: u32, n: u32) -> Printed {
    let one = relu(ring);
    Printed { bits: f64::from(n - 1) * one.bits, rounds: one.rounds * n.next_power_of_two().ilog2() }
}

/// The most significant bit of x = m + ψ, Fig. 3, in the clear: what the parties' shares of each
/// step stand for.
///
/// msb(x) = msb(m) ⊕ msb(ψ) ⊕ c with c = [s ≥ b], s = 2ψ and b = L − 2m modulo L = 2^ℓ. Entry i of
/// a list, from the most significant bit, is 1 + (1 − 2λ)·(s_i − b_i) + Σ (s_k ⊕ b_k) over the bits
/// k above, in F_q; the product of all entries and a factor that is not 0 is opened as d, and c =
/// [d ≠ 0] ⊕ λ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extraction {
    /// ℓ, at most 64.
    pub ring: u32,
    /// The prime.
    pub q: u32,
    /// b = ~(2m mod L) in place of L − 2m: never s, which is even.
    pub complement: bool,
}

impl Extraction {
    /// As printed: q is the smallest prime not below ℓ.
    pub fn printed(ring: u32) -> Self {
        Extraction { ring, q: prime_from(ring), complement: false }
    }

    /// b never equal to s, and room for entries up to ℓ + 1.
    pub fn corrected(ring: u32) -> Self {
        Extraction { ring, q: prime_from(ring + 2), complement: true }
    }

    /// msb(x), and whether d = 0, which everybody sees. `flip` is λ.
    pub fn run(self, x: u64, psi: u64, flip: bool) -> (u64, bool) {
        let mask = u64::MAX >> (64 - self.ring);
        let m = x.wrapping_sub(psi) & mask;
        let doubled = 2 * (m & mask >> 1);
        let (s, b) =
            (2 * (psi & mask >> 1), if self.complement { !doubled } else { doubled.wrapping_neg() } & mask);
        let (mut sum, mut zero) = (0, false);
        for i in (0..self.ring).rev() {
            let [s, b] = [s, b].map(|v| (v >> i & 1) as i64);
            let difference = if flip { b - s } else { s - b };
            zero |= (1 + difference + sum).rem_euclid(i64::from(self.q)) == 0;
            sum += s ^ b;
        }
        let carry = u64::from(!zero) ^ u64::from(flip);
        (m >> (self.ring - 1) ^ psi >> (self.ring - 1) & 1 ^ carry, zero)
    }

    /// The product of the masks of the first entries of the list, which N-MULT wants before b is
    /// known. Of entry i the mask is u_i + Σ (1 − 2·b_k)·s_k over the bits k above: `u_i` of its
    /// first summand, which is opened under a fresh mask, and `s_k` of bit k of s. Bits of `b` from
    /// the most significant.
    pub fn mask_product(self, u: &[u32], s: &[u32], b: &[bool]) -> u32 {
        let q = i64::from(self.q);
        let (mut above, mut product) = (0, 1);
        for ((&u, &s), &b) in u.iter().zip(s).zip(b) {
            product = (product * (i64::from(u) + above)).rem_euclid(q);
            above += if b { -i64::from(s) } else { i64::from(s) };
        }
        product as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_those_of_the_paper() {
        assert_eq!(product(64), Printed { bits: 192.0, rounds: 1 });
        // (4/3·ℓ + 1)·⌈log2 q⌉ a party, in ⌈log4(ℓ + 1)⌉ + 2 rounds, with q = 67.
        assert_eq!(msb(64), Printed { bits: 1813.0, rounds: 6 });
        assert_eq!(relu(64), Printed { bits: 2005.0, rounds: 7 });
        assert_eq!(maximum(64, 4), Printed { bits: 6015.0, rounds: 14 });
        for ring in 2u32..=64 {
            let rounds = (0..).find(|k| 4u64.pow(*k) > u64::from(ring)).unwrap() + 2;
            assert_eq!(msb(ring).rounds, rounds, "{ring}");
        }
    }
}
