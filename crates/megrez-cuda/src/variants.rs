//! Slow ways beside the fast ones, for the tables of MIZAR that compare them. No protocol runs
//! these.

use crate::backend::Result;
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_ring::Word;

/// How a sum is reduced modulo p.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// By an integer division.
    Divide,
    /// By a multiplication with ⌊2^32 / p⌋.
    Barrett,
    /// By folding, where p = 2^k − 1.
    Mersenne,
}

/// The kernels' `Modulus`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Modulus {
    p: u32,
    factor: u32,
    bits: u32,
    how: u32,
}

impl Cuda {
    /// Each element modulo p by division, or modulo 2^ℓ by a mask without p.
    ///
    /// # Errors
    /// If the device fails.
    pub fn reduced<W: Word>(&self, x: &Buf<W>, p: Option<u64>) -> Result<Buf<W>> {
        let (kernel, by) = p.map_or(("masked", u64::MAX), |p| ("divided", p));
        self.made(x.len(), |out| {
            self.run(&Unit::variants(W::BITS), kernel, x.len(), args![x.at(), by, out, x.len() as u64])
        })
    }

    /// Sums from the start of each list of 64 elements below p, modulo p, where p < 2^15.
    ///
    /// # Errors
    /// If the device fails.
    pub fn prefix_sums(&self, x: &Buf<u32>, p: u32, reduction: Reduction, scan: bool) -> Result<Buf<u32>> {
        let how = match reduction {
            Reduction::Divide => 0,
            Reduction::Barrett => 1,
            Reduction::Mersenne => 2,
        };
        let modulus = Modulus { p, factor: ((1u64 << 32) / u64::from(p)) as u32, bits: p.count_ones(), how };
        let (kernel, threads) =
            if scan { ("prefix_scan", x.len().div_ceil(2)) } else { ("prefix_naive", x.len()) };
        self.made(x.len(), |out| {
            self.run(&Unit::variants(32), kernel, threads, args![x.at(), modulus, out, x.len() as u64])
        })
    }
}
