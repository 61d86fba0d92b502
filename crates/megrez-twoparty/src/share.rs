//! What a party holds of secret integers and bits. Neither prints.

use megrez_float::blocks::mask;
use megrez_ring::bits;

/// Additive shares modulo 2^width, one a lane; the bits above are zero.
#[derive(Clone)]
pub struct Ints {
    /// Bits of each.
    pub width: u32,
    /// This party's shares.
    pub v: Vec<u64>,
}

/// Shares of bits modulo 2, packed; bits past the end are zero.
#[derive(Clone)]
pub struct Bits {
    /// How many.
    pub n: usize,
    /// This party's shares: bit i is bit i mod 64 of word i / 64.
    pub w: Vec<u64>,
}

impl Ints {
    /// Reduces `v` modulo 2^width.
    #[must_use]
    pub fn new(width: u32, mut v: Vec<u64>) -> Self {
        let m = mask(width);
        v.iter_mut().for_each(|x| *x &= m);
        Self { width, v }
    }

    /// f of every lane, modulo 2^width.
    #[must_use]
    pub fn map(&self, width: u32, f: impl Fn(u64) -> u64) -> Self {
        let m = mask(width);
        Self { width, v: self.v.iter().map(|&x| f(x) & m).collect() }
    }

    /// f of two lanes, modulo 2^w.
    #[must_use]
    pub fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        assert_eq!(self.width, other.width, "widths differ");
        assert_eq!(self.v.len(), other.v.len(), "lanes differ");
        let m = mask(self.width);
        Self { width: self.width, v: self.v.iter().zip(&other.v).map(|(&x, &y)| f(x, y) & m).collect() }
    }

    /// Bit `i` of every lane.
    #[must_use]
    pub fn bit(&self, i: u32) -> Bits {
        Bits::pack(self.v.len(), |lane| self.v[lane] >> i)
    }
}

impl Bits {
    /// Bits given by the lowest bit of a function of the lane.
    #[must_use]
    pub fn pack(n: usize, bit: impl FnMut(usize) -> u64) -> Self {
        Self { n, w: bits::pack(n, bit) }
    }

    /// Bit `i`, 0 or 1.
    #[inline]
    #[must_use]
    pub fn get(&self, i: usize) -> u64 {
        bits::get(&self.w, i)
    }

    /// a ⊕ b.
    #[must_use]
    pub fn xor(&self, other: &Self) -> Self {
        assert_eq!(self.n, other.n, "lanes differ");
        Self { n: self.n, w: self.w.iter().zip(&other.w).map(|(a, b)| a ^ b).collect() }
    }

    /// a ⊕ 1 in every lane if `flip`.
    #[must_use]
    pub fn flip(&self, flip: bool) -> Self {
        let mut w: Vec<u64> = self.w.iter().map(|a| a ^ u64::from(flip).wrapping_neg()).collect();
        bits::clear_tail(&mut w, self.n);
        Self { n: self.n, w }
    }

    /// Every bit as an integer of one bit.
    #[must_use]
    pub fn narrow(&self) -> Ints {
        Ints { width: 1, v: (0..self.n).map(|i| self.get(i)).collect() }
    }
}
