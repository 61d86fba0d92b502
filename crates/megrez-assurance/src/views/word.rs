//! Rings small enough to enumerate.

use megrez_ring::Word;

/// An element of Z_2^B, 1 ≤ B ≤ 8; always reduced, and a byte on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Tiny<const B: u32>(u8);

// SAFETY: a transparent byte, for which zero is valid.
unsafe impl<const B: u32> bytemuck::Zeroable for Tiny<B> {}
// SAFETY: a transparent byte; every bit pattern may be read, and arithmetic reduces.
unsafe impl<const B: u32> bytemuck::Pod for Tiny<B> {}

impl<const B: u32> Word for Tiny<B> {
    const BITS: u32 = B;
    const ZERO: Self = Tiny(0);
    const ONE: Self = Tiny(1);
    #[inline(always)]
    fn from_u64(x: u64) -> Self {
        Tiny((x & (u64::MAX >> (64 - B))) as u8)
    }
    #[inline(always)]
    fn to_u64(self) -> u64 {
        u64::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_wraps_at_the_width() {
        let [three, five] = [3, 5].map(Tiny::<3>::from_u64);
        assert_eq!(three.add(five).to_u64(), 0);
        assert_eq!(three.mul(five).to_u64(), 7);
        assert_eq!(five.to_i64(), -3);
        assert_eq!(five.msb(), 1);
        assert_eq!(Tiny::<3>::from_i64(-1).shr(1).to_u64(), 3);
        assert_eq!(three.shl(1).to_u64(), 6);
    }
}
