//! The opening of a truncated value (MIZAR's truncation, corrected), whole or only what is not
//! public of it.

use crate::cpu::element::and;
use crate::cpu::work::at_every_level;
use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_ring::Word;

/// A share of the truncation's mask, for a fused or a plain truncation.
pub struct Truncation<'a, W: Word, D: Memory> {
    /// Fraction bits dropped, f.
    pub bits: u32,
    /// [R]: a share of r >> f.
    pub high: &'a D::Buf<W>,
    /// [b]: a share of msb(r); only its low f bits matter.
    pub top: &'a D::Buf<W>,
}

/// A masked value opens truncated. With m' = m + 2^(ℓ−2) what is public of it is (m'>>f) −
/// 2^(ℓ−2−f), and [b] counts by 1 − msb m'.
pub trait OpenTruncated: Memory {
    /// Worker `j`'s share of the masked truncated value:
    /// [j=0]·((m'>>f) − 2^(ℓ−2−f)) − [R] + (1−msb m')·2^(ℓ−f)·[b] + [r_y] with m' = m + 2^(ℓ−2).
    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Self::Buf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let host = |x: &Self::Buf<W>| self.download(x.clone());
        let (masked, high, top) = (host(masked)?, host(t.high)?, host(t.top)?);
        let output_mask = host(output_mask)?;
        let share = |i: usize| truncated(j, masked[i], t.bits, high[i], top[i]).add(output_mask[i]);
        self.upload((0..masked.len()).map(share).collect())
    }

    /// A worker's share of what is not public of the masked truncated value, in Z_2^f:
    /// (1−msb m')·[b] + [u]. Only the low f bits of `top`, `mask` and the result matter.
    fn truncation_carry<W: Word>(
        &self,
        masked: &Self::Buf<W>,
        top: &Self::Buf<W>,
        mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let host = |x: &Self::Buf<W>| self.download(x.clone());
        let (masked, top, mask) = (host(masked)?, host(top)?, host(mask)?);
        let carry = |i: usize| W::from_u64(1 - moved(masked[i]).msb()).mul(top[i]).add(mask[i]);
        self.upload((0..masked.len()).map(carry).collect())
    }

    /// The masked truncated value from both workers' shares of its carry:
    /// (m'>>f) − 2^(ℓ−2−f) + 2^(ℓ−f)·(q_0 + q_1).
    fn close_truncated<W: Word>(
        &self,
        masked: &Self::Buf<W>,
        f: u32,
        carries: [&Self::Buf<W>; 2],
    ) -> Result<Self::Buf<W>, DeviceError> {
        let host = |x: &Self::Buf<W>| self.download(x.clone());
        let (masked, a, b) = (host(masked)?, host(carries[0])?, host(carries[1])?);
        let value = |i: usize| public(masked[i], f).0.add(a[i].add(b[i]).shl(W::BITS - f));
        self.upload((0..masked.len()).map(value).collect())
    }
}

/// m' = m + 2^(ℓ−2).
#[inline(always)]
fn moved<W: Word>(m: W) -> W {
    m.add(W::ONE.shl(W::BITS - 2))
}

/// What is public of the truncation of m: (m'>>f) − 2^(ℓ−2−f), and the factor of [b], (1−msb
/// m')·2^(ℓ−f).
pub(super) fn public<W: Word>(m: W, f: u32) -> (W, W) {
    let shifted = moved(m);
    let public = shifted.shr(f).sub(W::ONE.shl(W::BITS - 2 - f));
    (public, W::from_u64(1 - shifted.msb()).shl(W::BITS - f))
}

/// Worker `j`'s share of the truncated value.
pub(super) fn truncated<W: Word>(j: usize, m: W, f: u32, high: W, top: W) -> W {
    let (public, factor) = public(m, f);
    first(j, public).sub(high).add(factor.mul(top))
}

/// [j = 0]·x: a public summand enters worker 0's share only.
pub(super) fn first<W: Word>(j: usize, x: W) -> W {
    if j == 0 { x } else { W::ZERO }
}

impl OpenTruncated for Reference {}

impl OpenTruncated for Cpu {
    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Self::Buf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        Ok(self.build(masked.len(), |start, out| {
            let operands = [masked, t.high, t.top, output_mask].map(|x| &x[start..]);
            open(self.level, j, t.bits, operands, out);
        }))
    }

    fn truncation_carry<W: Word>(
        &self,
        masked: &Self::Buf<W>,
        top: &Self::Buf<W>,
        mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        Ok(self.build(masked.len(), |start, out| {
            carry(self.level, [masked, top, mask].map(|x| &x[start..]), out);
        }))
    }

    fn close_truncated<W: Word>(
        &self,
        masked: &Self::Buf<W>,
        f: u32,
        carries: [&Self::Buf<W>; 2],
    ) -> Result<Self::Buf<W>, DeviceError> {
        let [a, b] = carries;
        Ok(self.build(masked.len(), |start, out| {
            close(self.level, f, [masked, a, b].map(|x| &x[start..]), out);
        }))
    }
}

/// The public summand as in [`public`], and all ones where [b]·2^(ℓ−f) is to be added.
#[inline(always)]
pub(super) fn public_and_carries<W: Word>(m: W, f: u32) -> (W, W) {
    let shifted = moved(m);
    (shifted.shr(f).sub(W::ONE.shl(W::BITS - 2 - f)), W::from_u64(shifted.msb().wrapping_sub(1)))
}

at_every_level! {
    /// Operands are masked, high, top and output mask, all as long as `out`.
    fn open<W: Word>(j: usize, f: u32, operands: [&[W]; 4], out: &mut [W]) {
        let n = out.len();
        let [masked, high, top, output_mask] = operands.map(|x| &x[..n]);
        let first = if j == 0 { W::ZERO.sub(W::ONE) } else { W::ZERO };
        for i in 0..n {
            let (public, carries) = public_and_carries(masked[i], f);
            let carry = and(top[i].shl(W::BITS - f), carries);
            out[i] = and(public, first).sub(high[i]).add(carry).add(output_mask[i]);
        }
    }
}

at_every_level! {
    /// Operands are masked, top and mask.
    fn carry<W: Word>(operands: [&[W]; 3], out: &mut [W]) {
        let n = out.len();
        let [masked, top, mask] = operands.map(|x| &x[..n]);
        for i in 0..n {
            let carries = W::from_u64(moved(masked[i]).msb().wrapping_sub(1));
            out[i] = and(top[i], carries).add(mask[i]);
        }
    }
}

at_every_level! {
    /// Operands are masked and both carries.
    fn close<W: Word>(f: u32, operands: [&[W]; 3], out: &mut [W]) {
        let n = out.len();
        let [masked, a, b] = operands.map(|x| &x[..n]);
        for i in 0..n {
            let (public, _) = public_and_carries(masked[i], f);
            out[i] = public.add(a[i].add(b[i]).shl(W::BITS - f));
        }
    }
}
