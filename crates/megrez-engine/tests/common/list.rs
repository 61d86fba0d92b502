//! The sign bit's masked list in plain code: MIZAR's Fig. 4 as printed, the corrections one by one,
//! and the shortcuts that tests must be able to catch.

use super::{Rng, mask};

/// In which order the entries go to the dealer.
#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    AsComputed,
    Rotated,
    Permuted,
}

/// Which protocol.
#[derive(Clone, Copy)]
pub struct Protocol {
    pub ring: u32,
    pub p: u64,
    /// ρ = 2^(ℓ−1) − r̂ and padding (1, 0), as printed; else the complement of r̂ and padding (0,
    /// 1).
    pub printed_rho: bool,
    pub zero_shares: bool,
    pub order: Order,
    /// Whether the workers flip the comparison by a common random bit.
    pub flip: bool,
    /// Multipliers by six bits modulo p − 1.
    pub biased: bool,
}

impl Protocol {
    pub fn printed(ring: u32, p: u64) -> Self {
        Protocol {
            ring,
            p,
            printed_rho: true,
            zero_shares: false,
            order: Order::Permuted,
            flip: true,
            biased: false,
        }
    }

    pub fn corrected(ring: u32, p: u64) -> Self {
        Protocol { printed_rho: false, zero_shares: true, order: Order::Rotated, ..Self::printed(ring, p) }
    }
}

/// One execution: everything that anybody sees.
pub struct Run {
    /// Both shares of every dealt element, padding last.
    pub rho: [Vec<u64>; 2],
    pub flip: u64,
    pub lists: [Vec<u64>; 2],
    /// The result, sgn(x).
    pub sign: u64,
}

/// Worker j's entry i for a bit of m̂, before the multiplier: (sum over earlier entries of s, s) →
/// entry.
pub fn entry(p: u64, j: u64, sum: u64, bit: u64, rho: u64, beta: u64) -> (u64, u64) {
    let one = 1 - j;
    let s = (one * bit + if bit == 1 { p - rho } else { rho }) % p;
    ((sum + p - s + one * (1 + beta)) % p, s)
}

impl Protocol {
    pub fn bit_of(&self, value: u64, i: u32) -> u64 {
        (value >> (self.ring - 2 - i)) & 1
    }

    pub fn run(&self, x: u64, r: u64, rng: &mut Rng) -> Run {
        let Protocol { ring, p, .. } = *self;
        let (whole, half) = (mask(ring), 1 << (ring - 1));
        let low = half - 1;
        let m = x.wrapping_add(r) & whole;
        let minus_r = r.wrapping_neg() & whole;
        // The dealer's side. 2^(ℓ−1) does not fit ℓ−1 bits: what is left of it is 0.
        let rho = if self.printed_rho { (half - (minus_r & low)) & low } else { r.wrapping_sub(1) & low };
        let mut shares: [Vec<u64>; 2] = [vec![], vec![]];
        for i in 0..ring - 1 {
            let other = rng.below(p);
            shares[0].push((self.bit_of(rho, i) + p - other) % p);
            shares[1].push(other);
        }
        shares[0].push(u64::from(!self.printed_rho));
        shares[1].push(0);
        let pad = u64::from(self.printed_rho);
        // The workers' side.
        let flip = if self.flip { rng.below(2) } else { 0 };
        let (sign_m, mut sums) = (m >> (ring - 1), [0, 0]);
        let mut list: Vec<[u64; 2]> = (0..ring)
            .map(|i| {
                let bit = if i == ring - 1 { pad } else { self.bit_of(m, i) };
                let w = 1 + if self.biased { rng.below(64) % (p - 1) } else { rng.below(p - 1) };
                let z = if self.zero_shares { rng.below(p) } else { 0 };
                [0, 1].map(|j| {
                    let rho = shares[j][i as usize];
                    let (value, s) = entry(p, j as u64, sums[j], bit, rho, sign_m ^ bit ^ flip);
                    sums[j] = (sums[j] + s) % p;
                    (w * value + if j == 0 { z } else { p - z }) % p
                })
            })
            .collect();
        match self.order {
            Order::AsComputed => {}
            Order::Rotated => list.rotate_left(rng.below(u64::from(ring)) as usize),
            Order::Permuted => {
                (1..list.len()).for_each(|i| list.swap(i, rng.below(i as u64 + 1) as usize));
            }
        }
        let zero = list.iter().any(|v| (v[0] + v[1]) % p == 0);
        let sign = (minus_r >> (ring - 1)) ^ u64::from(!zero) ^ flip;
        Run { rho: shares, flip, lists: [0, 1].map(|j| list.iter().map(|v| v[j]).collect()), sign }
    }
}
