//! Elements of Z_2^ℓ as machine words.

use std::fmt::Debug;

/// An element of the ring Z_2^ℓ, ℓ = `BITS`; all operations wrap.
///
/// `u32` and `u64` are the rings that users choose; `u8` and `u16` exist because protocols are
/// tested exhaustively on small rings, by the same code.
pub trait Word:
    bytemuck::Pod + Copy + Eq + Ord + Debug + Default + Send + Sync + std::hash::Hash + 'static
{
    /// ℓ, the width in bits.
    const BITS: u32;
    /// The ring element 0.
    const ZERO: Self;
    /// The ring element 1.
    const ONE: Self;

    /// The low ℓ bits of `x`.
    fn from_u64(x: u64) -> Self;
    /// The element as an integer in [0, 2^ℓ).
    fn to_u64(self) -> u64;

    /// `x` modulo 2^ℓ, negative numbers in two's complement.
    #[inline(always)]
    fn from_i64(x: i64) -> Self {
        Self::from_u64(x as u64)
    }
    /// The element as an integer in [−2^(ℓ−1), 2^(ℓ−1)).
    #[inline(always)]
    fn to_i64(self) -> i64 {
        let unused = 64 - Self::BITS;
        ((self.to_u64() << unused) as i64) >> unused
    }
    /// a + b.
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self::from_u64(self.to_u64().wrapping_add(b.to_u64()))
    }
    /// a − b.
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self::from_u64(self.to_u64().wrapping_sub(b.to_u64()))
    }
    /// a · b.
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self::from_u64(self.to_u64().wrapping_mul(b.to_u64()))
    }
    /// −a.
    #[inline(always)]
    fn neg(self) -> Self {
        Self::ZERO.sub(self)
    }
    /// The logical shift a >> k, k < ℓ.
    #[inline(always)]
    fn shr(self, k: u32) -> Self {
        Self::from_u64(self.to_u64() >> k)
    }
    /// a · 2^k, k < ℓ.
    #[inline(always)]
    fn shl(self, k: u32) -> Self {
        Self::from_u64(self.to_u64() << k)
    }
    /// The most significant bit, 0 or 1.
    #[inline(always)]
    fn msb(self) -> u64 {
        self.to_u64() >> (Self::BITS - 1)
    }
}

macro_rules! word {
    ($($t:ty),*) => {$(
        impl Word for $t {
            const BITS: u32 = <$t>::BITS;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn from_u64(x: u64) -> Self { x as $t }
            #[inline(always)]
            fn to_u64(self) -> u64 { self as u64 }
        }
    )*};
}
word!(u8, u16, u32, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_views_wrap_at_the_ring() {
        assert_eq!(<u8 as Word>::from_i64(-1), 255);
        assert_eq!(Word::to_i64(0x80u8), -128);
        assert_eq!(Word::to_i64(u64::MAX), -1);
        assert_eq!(Word::mul(200u8, 2), 144);
        assert_eq!(Word::msb(0x8000u16), 1);
    }
}
