//! What the paper says its steps cost online, for tables beside ours: bits per element over all three parties, and rounds. METEOR,
//! Table 1 (which is per party) and §6. ⌈log2 q⌉ bits are an element of F_q there, q the smallest prime not below ℓ.

/// Bits per element over all parties, and rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Printed {
    /// Bits.
    pub bits: f64,
    /// Rounds.
    pub rounds: u32,
}

/// A product of any number of factors, of integers or of fixed-point numbers with their truncation; and the multiplexer.
pub fn product(ring: u32) -> Printed {
    Printed { bits: 3.0 * f64::from(ring), rounds: 1 }
}

/// The most significant bit, Fig. 3.
pub fn msb(ring: u32) -> Printed {
    let is_prime = |n: &u32| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let q = (ring..).find(is_prime).expect("there is a prime below 2ℓ");
    let per_element = f64::from((q - 1).ilog2() + 1);
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
