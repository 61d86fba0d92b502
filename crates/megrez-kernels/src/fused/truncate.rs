//! The opening of a truncated value (MIZAR's truncation, corrected).

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

/// A masked value opens truncated.
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
}

/// What is public of the truncation of m: (m'>>f) − 2^(ℓ−2−f), and the factor of [b], (1−msb
/// m')·2^(ℓ−f).
pub(super) fn public<W: Word>(m: W, f: u32) -> (W, W) {
    let shifted = m.add(W::ONE.shl(W::BITS - 2));
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
}

/// The public summand as in [`public`], and all ones where [b]·2^(ℓ−f) is to be added.
#[inline(always)]
pub(super) fn public_and_carries<W: Word>(m: W, f: u32) -> (W, W) {
    let shifted = m.add(W::ONE.shl(W::BITS - 2));
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
