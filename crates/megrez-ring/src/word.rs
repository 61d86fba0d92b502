//! Elements of Z_2^ℓ as machine words.

use std::borrow::Cow;
use std::fmt::Debug;

/// An element of the ring Z_2^ℓ, ℓ = `BITS`; all operations wrap.
///
/// `u32`, [`U40`], [`U48`] and `u64` are the rings that users choose; `u8` and `u16` exist because
/// protocols are tested exhaustively on small rings, by the same code.
pub trait Word:
    bytemuck::Pod + Copy + Eq + Ord + Debug + Default + Send + Sync + std::hash::Hash + 'static
{
    /// ℓ, the width in bits.
    const BITS: u32;
    /// Bits that it takes in memory.
    const STORED: u32 = 8 * size_of::<Self>() as u32;
    /// Bytes that it takes on the wire.
    const BYTES: usize = Self::BITS.div_ceil(8) as usize;
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

/// Ring elements as they travel: ℓ bits each in whole bytes, little endian.
#[must_use]
pub fn to_wire<W: Word>(words: &[W]) -> Cow<'_, [u8]> {
    if W::BYTES == size_of::<W>() {
        return Cow::Borrowed(bytemuck::cast_slice(words));
    }
    let mut bytes = vec![0; words.len() * W::BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(W::BYTES).zip(words) {
        bytes.copy_from_slice(&word.to_u64().to_le_bytes()[..W::BYTES]);
    }
    Cow::Owned(bytes)
}

/// Undoes [`to_wire`]; bytes that make no whole element are left out.
#[must_use]
pub fn from_wire<W: Word>(bytes: &[u8]) -> Vec<W> {
    let bytes = &bytes[..bytes.len() / W::BYTES * W::BYTES];
    if W::BYTES == size_of::<W>() {
        return bytemuck::pod_collect_to_vec(bytes);
    }
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..W::BYTES].copy_from_slice(bytes);
        W::from_u64(u64::from_le_bytes(word))
    };
    bytes.chunks_exact(W::BYTES).map(word).collect()
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

/// A ring of fewer bits than the machine's words have: they are added and multiplied as such, and
/// what stands above ℓ bits counts for nothing. It is there in memory and never on the wire.
macro_rules! narrow {
    ($($(#[$doc:meta])* $name:ident = $bits:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, bytemuck::Zeroable, bytemuck::Pod)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl Word for $name {
            const BITS: u32 = $bits;
            const ZERO: Self = Self(0);
            const ONE: Self = Self(1);
            #[inline(always)]
            fn from_u64(x: u64) -> Self { Self(x) }
            #[inline(always)]
            fn to_u64(self) -> u64 { self.0 & (u64::MAX >> (64 - $bits)) }
            #[inline(always)]
            fn add(self, b: Self) -> Self { Self(self.0.wrapping_add(b.0)) }
            #[inline(always)]
            fn sub(self, b: Self) -> Self { Self(self.0.wrapping_sub(b.0)) }
            #[inline(always)]
            fn mul(self, b: Self) -> Self { Self(self.0.wrapping_mul(b.0)) }
            #[inline(always)]
            fn shl(self, k: u32) -> Self { Self(self.0 << k) }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool { self.to_u64() == other.to_u64() }
        }
        impl Eq for $name {}
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering { self.to_u64().cmp(&other.to_u64()) }
        }
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> { Some(self.cmp(other)) }
        }
        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) { self.to_u64().hash(state); }
        }
        impl Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { self.to_u64().fmt(f) }
        }
    )*};
}
narrow! {
    /// An element of Z_2^40.
    U40 = 40;
    /// An element of Z_2^48.
    U48 = 48;
}

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

    #[test]
    fn what_stands_above_the_ring_counts_for_nothing() {
        fn holds<W: Word>() {
            let bits = W::BITS;
            let (low, any) = (u64::MAX >> (64 - bits), 0xdead_beef_0123_4567u64);
            let plain = |x: u128| x as u64 & low;
            for (x, y) in [(any, !any), (low, 1), (1 << (bits - 1), 1 << (bits - 1)), (u64::MAX, any << 3)] {
                // The same elements with other bits above.
                for (a, b) in [(x, y), (x & low, y & low), (x | !low, y & low)] {
                    let [a, b] = [a, b].map(W::from_u64);
                    let [x, y] = [x, y].map(|v| u128::from(v & low));
                    let modulus = 1u128 << bits;
                    assert_eq!(a.add(b).to_u64(), plain(x + y));
                    assert_eq!(a.sub(b).to_u64(), plain(x + modulus - y));
                    assert_eq!(a.mul(b).to_u64(), plain(x * y));
                    assert_eq!(a.neg().to_u64(), plain(modulus - x));
                    assert_eq!(a.shr(3).to_u64(), plain(x >> 3));
                    assert_eq!(a.shl(3).to_u64(), plain(x << 3));
                    assert_eq!(a.msb(), plain(x >> (bits - 1)));
                    let signed = if a.msb() == 1 { x as i128 - modulus as i128 } else { x as i128 };
                    assert_eq!(i128::from(a.to_i64()), signed);
                    assert_eq!(W::from_i64(a.to_i64()), a);
                    assert_eq!(a.cmp(&b), x.cmp(&y));
                    let wire = to_wire(&[a, b]).into_owned();
                    assert_eq!(wire.len(), 2 * W::BYTES);
                    assert_eq!(wire[..W::BYTES], (x as u64).to_le_bytes()[..W::BYTES]);
                    assert_eq!(from_wire::<W>(&wire), [a, b]);
                    assert_eq!(from_wire::<W>(&wire[..2 * W::BYTES - 1]).len(), 1);
                }
            }
        }
        holds::<u8>();
        holds::<u16>();
        holds::<u32>();
        holds::<U40>();
        holds::<U48>();
        holds::<u64>();
    }
}
