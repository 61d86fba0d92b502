//! Exact arithmetic on small rationals, and numbers worth trying.

use megrez_float::{Format, Plain};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// A class, and for finite numbers the sign, exponent and mantissa.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    Nan,
    Inf(bool),
    Zero(bool),
    Finite(bool, i64, u128),
}

pub fn number(format: Format, bits: u64) -> Number {
    let x = Plain::from_bits(format, &[bits]);
    if x.nan[0] {
        return Number::Nan;
    }
    if x.inf[0] {
        return Number::Inf(x.sign[0]);
    }
    if x.zero[0] {
        return Number::Zero(x.sign[0]);
    }
    let exp = (bits >> format.q & ((1 << format.p) - 1)) as i64 - format.max_exp();
    Number::Finite(x.sign[0], exp, u128::from(x.man[0]))
}

fn special(format: Format, sign: bool, exp: u64) -> u64 {
    u64::from(sign) << (format.p + format.q) | exp << format.q
}

pub fn zero(format: Format, sign: bool) -> u64 {
    special(format, sign, 0)
}

pub fn inf(format: Format, sign: bool) -> u64 {
    special(format, sign, (1 << format.p) - 1)
}

pub fn nan(format: Format) -> u64 {
    inf(format, false) | 1 << (format.q - 1)
}

/// Rounds n·2^exp, where `rest` says that a little more follows, to nearest even; flushes and
/// overflows.
pub fn round(format: Format, sign: bool, exp: i64, n: u128, rest: bool) -> u64 {
    assert!(n >> (format.q + 3) != 0, "too few bits to round");
    let drop = 127 - n.leading_zeros() - format.q;
    let (kept, low, half) = (n >> drop, n & ((1 << drop) - 1), 1 << (drop - 1));
    let up = low > half || low == half && (rest || kept & 1 == 1);
    let mut kept = kept + u128::from(up);
    let mut exp = exp + i64::from(drop + format.q);
    if kept >> (format.q + 1) == 1 {
        kept >>= 1;
        exp += 1;
    }
    if exp < format.min_exp() {
        return zero(format, sign);
    }
    if exp > format.max_exp() {
        return inf(format, sign);
    }
    special(format, sign, (exp + format.max_exp()) as u64) | kept as u64 & ((1 << format.q) - 1)
}

/// Encodings: special ones, powers of two, runs of ones, single low bits, random ones; and
/// neighbours of each other.
pub struct Numbers {
    pub format: Format,
    rng: StdRng,
}

impl Numbers {
    pub fn new(format: Format, seed: u64) -> Self {
        Self { format, rng: StdRng::seed_from_u64(seed) }
    }

    fn mantissa(&mut self) -> u64 {
        let q = self.format.q;
        let top = 1u64 << q;
        let k = self.rng.random_range(0..q);
        (match self.rng.random_range(0..8) {
            0 => 0,
            1 => top - 1,
            2 => 1 << k,
            3 => top - (1 << k),
            4 => (1 << k) - 1,
            5 => self.rng.random::<u64>() >> 40 << k,
            _ => self.rng.random(),
        }) & (top - 1)
    }

    pub fn one(&mut self) -> u64 {
        let Format { p, q } = self.format;
        let top = (1u64 << p) - 1;
        let exp = match self.rng.random_range(0..16) {
            0 => 0,
            1 => top,
            2 => 1,
            3 => top - 1,
            4..9 => (top / 2 + self.rng.random_range(0..40)).wrapping_sub(20) & top,
            _ => self.rng.random_range(0..=top),
        };
        u64::from(self.rng.random::<bool>()) << (p + q) | exp << q | self.mantissa()
    }

    /// Two numbers; half the time of close exponents, so that they cancel, tie, or just miss each
    /// other.
    pub fn pair(&mut self) -> (u64, u64) {
        let Format { p, q } = self.format;
        let (x, mut y) = (self.one(), self.one());
        if self.rng.random() {
            let exp = (x >> q & ((1 << p) - 1)) as i64;
            let apart = match self.rng.random_range(0..4) {
                0 => 0,
                1 => self.rng.random_range(-2..=2),
                2 => i64::from(q) + self.rng.random_range(-1..=4),
                _ => self.rng.random_range(-40..=40),
            };
            let exp = (exp + apart).clamp(0, (1 << p) - 1) as u64;
            y = y & !(((1 << p) - 1) << q) | exp << q;
        }
        if self.rng.random_range(0..16) == 0 {
            y = x ^ u64::from(self.rng.random::<bool>()) << (p + q) ^ self.rng.random_range(0..3);
        }
        (x, y)
    }

    pub fn pairs(&mut self, n: usize) -> (Vec<u64>, Vec<u64>) {
        (0..n).map(|_| self.pair()).unzip()
    }
}
