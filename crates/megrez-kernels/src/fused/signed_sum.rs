//! Sums of words with signs that are public: a public polynomial of masked bits, whose products of
//! masks are shared.

use crate::cpu::element::{and, mask};
use crate::cpu::work::at_every_level;
use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_ring::{Word, bits};

/// Rows of words are added up, each element with a sign of its own.
pub trait SignedSums: Memory {
    /// base + Σ_k s_k · row `terms[k]` of `rows`, rows being as long as `base`. s_k is 0 where
    /// plane 2k of `signs` is 0; else −1 where plane 2k + 1 is 1, and 1 where it is not.
    fn signed_sum<W: Word>(
        &self,
        base: &Self::Buf<W>,
        rows: &Self::Buf<W>,
        terms: &[usize],
        signs: &Self::Buf<u64>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let signs = self.download(<Self::Buf<u64> as Clone>::clone(signs))?;
        let (base, rows) = (self.download(base.clone())?, self.download(rows.clone())?);
        let (n, words) = (base.len(), bits::words(base.len()));
        let plane = |k: usize, i: usize| bits::get(&signs[k * words..], i);
        let of = |i: usize| {
            let term = |sum: W, (k, &row): (usize, &usize)| match (plane(2 * k, i), plane(2 * k + 1, i)) {
                (0, _) => sum,
                (_, 0) => sum.add(rows[row * n + i]),
                _ => sum.sub(rows[row * n + i]),
            };
            terms.iter().enumerate().fold(base[i], term)
        };
        self.upload((0..n).map(of).collect())
    }
}

impl SignedSums for Reference {}

impl SignedSums for Cpu {
    fn signed_sum<W: Word>(
        &self,
        base: &Self::Buf<W>,
        rows: &Self::Buf<W>,
        terms: &[usize],
        signs: &Self::Buf<u64>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let (n, words) = (base.len(), bits::words(base.len()));
        Ok(self.build(n, |start, out: &mut [W]| {
            let len = out.len();
            out.copy_from_slice(&base[start..start + len]);
            let word = start / 64;
            for (k, row) in terms.iter().enumerate() {
                let plane = |k: usize| &signs[k * words + word..k * words + word + bits::words(len)];
                let row = &rows[row * n + start..row * n + start + len];
                add_signed(self.level, row, plane(2 * k), plane(2 * k + 1), out);
            }
        }))
    }
}

at_every_level! {
    /// Adds ±x where it counts.
    fn add_signed<W: Word>(x: &[W], counts: &[u64], minus: &[u64], out: &mut [W]) {
        for (w, (out, x)) in out.chunks_mut(64).zip(x.chunks(64)).enumerate() {
            let (counts, minus) = (counts[w], counts[w] & minus[w]);
            for (i, (out, x)) in out.iter_mut().zip(x).enumerate() {
                let negative = mask::<W>(minus, i);
                let x = and(*x, mask(counts, i));
                // −x is ¬x + 1.
                let signed = W::from_u64(x.to_u64() ^ negative.to_u64()).sub(negative);
                *out = out.add(signed);
            }
        }
    }
}
