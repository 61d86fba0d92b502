//! Tables of functions by pieces, by kernels.

use crate::backend::Result;
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_kernels::{LookupTables, Memory as _};
use megrez_plan::Lookup;
use megrez_ring::Word;

/// The kernels' `Table`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Table {
    cut: u32,
    low: u32,
    segments: u32,
    width: u32,
}

impl Table {
    fn of(f: &Lookup) -> Self {
        let (segments, width) = (f.segments() as u32, f.coefficients() as u32);
        Table { cut: f.cut, low: f.low, segments, width }
    }
}

impl Cuda {
    /// The pieces of a function, as words of the ring.
    pub(crate) fn pieces<W: Word>(&self, f: &Lookup) -> Result<Buf<W>> {
        self.upload(f.pieces.iter().map(|&c| W::from_i64(c)).collect())
    }
}

impl LookupTables for Cuda {
    fn lookup_tables<W: Word>(&self, f: &Lookup, masks: &Buf<W>) -> Result<Buf<W>> {
        let (n, pieces) = (masks.len(), self.pieces::<W>(f)?);
        self.made(n * f.pieces.len(), |out| {
            let args = args![Table::of(f), pieces.at(), masks.at(), out, n as u64];
            self.run(&Unit::tables(W::BITS), "lookup_tables", n * f.segments(), args)
        })
    }

    fn open_looked_up<W: Word>(
        &self,
        f: &Lookup,
        masked: &Buf<W>,
        tables: &Buf<W>,
        output_mask: &Buf<W>,
    ) -> Result<Buf<W>> {
        let n = masked.len();
        self.made(n, |out| {
            let args = args![Table::of(f), masked.at(), tables.at(), output_mask.at(), out, n as u64];
            self.run(&Unit::tables(W::BITS), "open_looked_up", n, args)
        })
    }
}
