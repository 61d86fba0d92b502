//! Tables of a function by pieces: what the dealer deals of them, and what a worker opens from its
//! share.

use crate::cpu::element::and;
use crate::cpu::work::{Disjoint, at_every_level, parallel};
use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_plan::Lookup;
use megrez_ring::Word;
use std::sync::Arc;

/// A function by pieces, by a table that the dealer deals. A table has 2^n entries of d + 1 words;
/// word i of entry q of value e stands at (q·(d+1) + i)·values + e.
pub trait LookupTables: Memory {
    /// The dealer's tables. With r_h and r_l the parts of the mask, entry q holds the coefficients
    /// C_i of the piece of segment q − r_h, moved by r_l: Σ C_i·t^i = Σ c_i(q − r_h)·(t − r_l)^i.
    fn lookup_tables<W: Word>(&self, f: &Lookup, masks: &Self::Buf<W>) -> Result<Self::Buf<W>, DeviceError> {
        let masks = self.download(masks.clone())?;
        let (n, width, segments) = (masks.len(), f.coefficients(), f.segments());
        let mut tables = vec![W::ZERO; n * f.pieces.len()];
        for (e, r) in masks.iter().enumerate() {
            let (high, low) = split(f, *r);
            for q in 0..segments {
                let h = (q + segments - high) % segments;
                let mut piece: Vec<W> =
                    f.pieces[h * width..][..width].iter().map(|&c| W::from_i64(c)).collect();
                moved(&mut piece, low.neg());
                let places = tables[q * width * n..].iter_mut().skip(e).step_by(n.max(1));
                places.zip(piece).for_each(|(place, c)| *place = c);
            }
        }
        self.upload(tables)
    }

    /// A worker's share of the masked value: Σ [C_i]·m_l^i of entry m_h, and [r_y].
    fn open_looked_up<W: Word>(
        &self,
        f: &Lookup,
        masked: &Self::Buf<W>,
        tables: &Self::Buf<W>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let host = |x: &Self::Buf<W>| self.download(x.clone());
        let (masked, tables, output_mask) = (host(masked)?, host(tables)?, host(output_mask)?);
        let share = |e: usize| looked_up(f, &masked, &tables, e).add(output_mask[e]);
        self.upload((0..masked.len()).map(share).collect())
    }
}

/// The parts of a masked value or of a mask: the bits that choose a segment, and the `low` below
/// them.
pub(super) fn split<W: Word>(f: &Lookup, x: W) -> (usize, W) {
    let y = x.to_u64() >> f.cut;
    let low = y & ((1 << f.low) - 1);
    let high = y >> f.low & u64::MAX >> (64 - f.depth());
    (high as usize, W::from_u64(low))
}

/// The coefficients of p(t + by) from those of p.
fn moved<W: Word>(p: &mut [W], by: W) {
    for k in 1..p.len() {
        for i in (k - 1..p.len() - 1).rev() {
            p[i] = p[i].add(by.mul(p[i + 1]));
        }
    }
}

/// A worker's share of what entry m_h gives at m_l.
#[inline(always)]
fn looked_up<W: Word>(f: &Lookup, masked: &[W], tables: &[W], e: usize) -> W {
    let (n, width) = (masked.len(), f.coefficients());
    let (high, low) = split(f, masked[e]);
    let word = |i: usize| tables[(high * width + i) * n + e];
    (0..width).rev().fold(W::ZERO, |sum, i| sum.mul(low).add(word(i)))
}

impl LookupTables for Reference {}

/// Values whose tables are made together.
const LANES: usize = 8;

impl LookupTables for Cpu {
    /// No index depends on a mask: a table is turned by its bits, one after the other.
    fn lookup_tables<W: Word>(&self, f: &Lookup, masks: &Self::Buf<W>) -> Result<Self::Buf<W>, DeviceError> {
        let (n, entries) = (masks.len(), f.pieces.len());
        let pieces: Vec<W> = f.pieces.iter().map(|&c| W::from_i64(c)).collect();
        let mut tables = vec![W::ZERO; n * entries];
        let threads = if n * entries < 1 << 16 { 1 } else { self.threads };
        let room = Disjoint::new(&mut tables);
        // Blocks of tasks are some lines of the cache wide in every row.
        const TASK: usize = 64;
        parallel(threads, n.div_ceil(TASK), |task| {
            let mut table = vec![[W::ZERO; LANES]; entries];
            let mut turned = table.clone();
            for start in (task * TASK..n.min((task + 1) * TASK)).step_by(LANES) {
                let lanes = LANES.min(n - start);
                let mut block = [W::ZERO; LANES];
                block[..lanes].copy_from_slice(&masks[start..start + lanes]);
                tables_of(self.level, f, &pieces, &block, &mut table, &mut turned);
                for (row, words) in table.iter().enumerate() {
                    // SAFETY: every task has columns of its own.
                    let out = unsafe { room.part(row * n + start..row * n + start + lanes) };
                    out.copy_from_slice(&words[..lanes]);
                }
            }
        });
        Ok(Arc::new(tables))
    }

    fn open_looked_up<W: Word>(
        &self,
        f: &Lookup,
        masked: &Self::Buf<W>,
        tables: &Self::Buf<W>,
        output_mask: &Self::Buf<W>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        Ok(self.build(masked.len(), |start, out: &mut [W]| {
            for (i, out) in out.iter_mut().enumerate() {
                let e = start + i;
                *out = looked_up(f, masked, tables, e).add(output_mask[e]);
            }
        }))
    }
}

at_every_level! {
    /// The tables of some masks, word by word beside each other, into `table`; `turned` is as
    /// large.
    fn tables_of<W: Word>(f: &Lookup, pieces: &[W], masks: &[W; LANES], table: &mut Vec<[W; LANES]>, turned: &mut Vec<[W; LANES]>) {
        let (width, entries) = (f.coefficients(), pieces.len());
        table.iter_mut().zip(pieces).for_each(|(lanes, &c)| *lanes = [c; LANES]);
        for bit in 0..f.index_bits() {
            let take: [W; LANES] =
                std::array::from_fn(|e| W::ZERO.sub(W::from_u64(masks[e].to_u64() >> (f.cut + f.low + bit) & 1)));
            let by = width << bit;
            for at in 0..entries {
                let (stay, come) = (&table[at], &table[(at + entries - by) % entries]);
                let turned = &mut turned[at];
                for e in 0..LANES {
                    turned[e] = stay[e].add(and(come[e].sub(stay[e]), take[e]));
                }
            }
            std::mem::swap(table, turned);
        }
        let by: [W; LANES] =
            std::array::from_fn(|e| W::from_u64(masks[e].to_u64() >> f.cut & ((1 << f.low) - 1)).neg());
        for piece in table.chunks_exact_mut(width) {
            for k in 1..width {
                for i in (k - 1..width - 1).rev() {
                    for e in 0..LANES {
                        piece[i][e] = piece[i][e].add(by[e].mul(piece[i + 1][e]));
                    }
                }
            }
        }
    }
}
