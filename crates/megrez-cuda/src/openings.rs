//! The fused openings, and what is summed up for them: each is one kernel.

use crate::backend::Result;
use crate::device::vectors;
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_kernels::{
    BitProducts, Memory as _, OpenSelected, OpenTruncated, Selected, SignedSums, Truncation,
};
use megrez_plan::BitMatrices;
use megrez_ring::{Word, bits};

/// The kernels' `Selected`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Selection {
    masked: u64,
    mask: u64,
    choice: u64,
    flip: u64,
    bit: u64,
    mask_bit: u64,
    top: u64,
    top_bit: u64,
    output_mask: u64,
}

impl OpenTruncated for Cuda {
    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Buf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &Buf<W>,
    ) -> Result<Buf<W>> {
        let vectors = vectors::<W>(masked.len());
        self.made(masked.len(), |out| {
            let args = args![
                j as u32,
                t.bits,
                masked.at(),
                t.high.at(),
                t.top.at(),
                output_mask.at(),
                out,
                vectors as u64
            ];
            self.run(&Unit::ring(W::BITS), "open_truncated", vectors, args)
        })
    }

    fn truncation_carry<W: Word>(&self, masked: &Buf<W>, top: &Buf<W>, mask: &Buf<W>) -> Result<Buf<W>> {
        let vectors = vectors::<W>(masked.len());
        self.made(masked.len(), |out| {
            let args = args![masked.at(), top.at(), mask.at(), out, vectors as u64];
            self.run(&Unit::ring(W::BITS), "truncation_carry", vectors, args)
        })
    }

    fn close_truncated<W: Word>(&self, masked: &Buf<W>, f: u32, [a, b]: [&Buf<W>; 2]) -> Result<Buf<W>> {
        let vectors = vectors::<W>(masked.len());
        self.made(masked.len(), |out| {
            let args = args![f, masked.at(), a.at(), b.at(), out, vectors as u64];
            self.run(&Unit::ring(W::BITS), "close_truncated", vectors, args)
        })
    }
}

impl SignedSums for Cuda {
    fn signed_sum<W: Word>(
        &self,
        base: &Buf<W>,
        rows: &Buf<W>,
        terms: &[usize],
        signs: &Buf<u64>,
    ) -> Result<Buf<W>> {
        let (n, count) = (base.len(), terms.len() as u64);
        let terms = self.upload(terms.iter().map(|&row| row as u64).collect())?;
        self.made(n, |out| {
            let args = args![base.at(), rows.at(), terms.at(), count, signs.at(), out, n as u64];
            self.run(&Unit::ring(W::BITS), "signed_sum", n, args)
        })
    }
}

impl BitProducts for Cuda {
    fn bit_product(&self, x: &Buf<u64>, y: &Buf<u64>, sizes: BitMatrices) -> Result<Buf<u64>> {
        let (n, [of_x, of_y]) = (sizes.elements(), sizes.lanes.map(|lanes| lanes as u64));
        let [rows, inner, columns] = [sizes.rows, sizes.inner, sizes.columns].map(|size| size as u64);
        let words = bits::words(n);
        self.made(words, |out| {
            let args = args![x.at(), y.at(), out, n as u64, rows, inner, columns, of_x, of_y];
            self.run(&Unit::bits(), "bit_product", words, args)
        })
    }
}

impl OpenSelected for Cuda {
    fn open_selected<W: Word>(&self, j: usize, s: &Selected<'_, W, Self>) -> Result<Buf<W>> {
        let (n, vectors) = (s.masked.len(), vectors::<W>(s.masked.len()));
        let mut selection = Selection {
            masked: s.masked.at(),
            mask: s.mask.at(),
            choice: s.choice.at(),
            flip: s.flip.map_or(0, Buf::at),
            bit: s.bit.at(),
            mask_bit: s.mask_bit.at(),
            top: 0,
            top_bit: 0,
            output_mask: s.output_mask.at(),
        };
        let unit = Unit::ring(W::BITS);
        self.made(n, |out| match &s.truncation {
            None => {
                self.run(&unit, "open_selected", vectors, args![j as u32, selection, out, vectors as u64])
            }
            Some((t, top_bit)) => {
                (selection.mask, selection.top, selection.top_bit) = (t.high.at(), t.top.at(), top_bit.at());
                let args = args![j as u32, t.bits, selection, out, vectors as u64];
                self.run(&unit, "open_selected_truncated", vectors, args)
            }
        })
    }
}
