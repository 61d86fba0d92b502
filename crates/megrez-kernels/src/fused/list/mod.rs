//! Masked lists: two workers let a dealer compare values that it does not see (MIZAR, Fig. 4 and
//! its relatives).
//!
//! A list's *algebra* ([`ListAlgebra`]) stands with the protocol whose figure it is. What all lists
//! have in common stands here: randomness, sharings of zero, rotation, the form of the wire. A
//! device with a kernel for a list runs it; every other runs the algebra on the host, so that a new
//! list is one file before it is fast.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod cpu;
mod field;
pub mod on_host;
mod spec;

pub use field::Field;
pub use spec::{Entries, ListSpec};

use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_prg::Stream;
use megrez_ring::Word;
use std::sync::Arc;

/// What the entries of a value's lists are, in plain code beside the figure.
pub trait ListAlgebra {
    /// The field of the entries.
    fn field(&self) -> Field;
    /// Entries of a list.
    fn length(&self) -> usize;
    /// Lists per value, all under one rotation.
    fn lists(&self) -> usize {
        1
    }
    /// Elements per value that the dealer deals offline.
    fn dealt(&self) -> usize {
        0
    }
    /// The dealer's part for the mask r of a value: gives each secret that it deals; returns the
    /// bit that it keeps.
    fn deal(&self, _r: u64, _secret: &mut dyn FnMut(u64)) -> u64 {
        0
    }
    /// A worker's share of the entries, each with its multiplier: those of the first place, one per
    /// list, then those of the next. Any integers below 2^62 that stand for residues modulo p.
    fn entries(&self, worker: &ListInput<'_>, entry: &mut dyn FnMut(i64));
    /// Whether the entries of one place, one per list, are what the dealer looks for.
    fn is_wanted(&self, entries: &[u32]) -> bool {
        entries[0] == 0
    }
    /// The shape by which devices know a list that they may have kernels for.
    fn kernel(&self) -> Option<&ListSpec> {
        None
    }
}

/// What a worker knows of one value.
pub struct ListInput<'a> {
    /// The worker, 0 or 1.
    pub j: usize,
    /// What is compared: a masked value, or the worker's share.
    pub value: u64,
    /// The workers' common bit.
    pub flip: u64,
    /// The worker's shares of the dealt elements.
    pub dealt: &'a [i64],
    /// The workers' multipliers, those of the first list first.
    pub multipliers: &'a [i64],
}

/// The workers' common streams for their lists. Entry q of list c of value e has sample (c·n +
/// e)·length + q.
pub struct ListStreams<'a> {
    /// Multipliers in [1, p − 1]: samples of bound p − 1, plus one.
    pub multiplier: &'a Stream,
    /// Zero-shares in [0, p − 1].
    pub zero_share: &'a Stream,
    /// Rotations: value e has sample e of bound `length`.
    pub rotation: &'a Stream,
}

/// A worker's share of elements of F_p that the dealer dealt.
pub enum FieldShare<'a, D: Memory> {
    /// Received, in the dense form of the wire.
    Packed(&'a D::Buf<u64>),
    /// From the stream shared with the dealer: element i is value i of [`megrez_prg::FieldSampler`]
    /// with bound p.
    Stream(&'a Stream),
}

/// The steps of a comparison by lists; [`on_host`], unless a device has kernels.
pub trait MaskedLists: Memory {
    /// The dealer's side: from the full masks r, worker 0's packed shares of the dealt elements
    /// (worker 1's come from `other`), and the bits that the dealer keeps.
    fn deal_list<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        masks: &Self::Buf<W>,
        other: &Stream,
    ) -> Result<(Self::Buf<u64>, Self::Buf<u64>), DeviceError> {
        on_host::deal_list(self, list, masks, other)
    }

    /// Worker `j`'s lists, each packed for the wire, for its values and the workers' common bits:
    /// entries times multipliers, with a zero-share that worker 0 adds and worker 1 subtracts,
    /// rotated.
    fn masked_lists<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        j: usize,
        values: &Self::Buf<W>,
        share: Option<FieldShare<'_, Self>>,
        flips: &Self::Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Self::Buf<u64>>, DeviceError> {
        on_host::masked_lists(self, list, j, values, share, flips, streams)
    }

    /// The dealer's answer for `n` values from each worker's lists: bit e is 1 if no place of value
    /// e is what the dealer looks for. All entries are read, wherever that place is.
    fn scan_lists(
        &self,
        list: &dyn ListAlgebra,
        lists: [&[Self::Buf<u64>]; 2],
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        on_host::scan_lists(self, list, lists, n)
    }
}

impl MaskedLists for Reference {}

impl MaskedLists for Cpu {
    fn deal_list<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        masks: &Self::Buf<W>,
        other: &Stream,
    ) -> Result<(Self::Buf<u64>, Self::Buf<u64>), DeviceError> {
        let Some(spec) = list.kernel() else { return on_host::deal_list(self, list, masks, other) };
        let (dealt, kept) = cpu::deal_list((self.level, self.threads), spec, masks, other);
        Ok((Arc::new(dealt), Arc::new(kept)))
    }

    fn masked_lists<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        j: usize,
        values: &Self::Buf<W>,
        share: Option<FieldShare<'_, Self>>,
        flips: &Self::Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Self::Buf<u64>>, DeviceError> {
        let at = (self.level, self.threads);
        match (list.kernel(), share) {
            (Some(spec), Some(share)) => {
                Ok(vec![Arc::new(cpu::masked_list(at, spec, j, values, &share, flips, streams))])
            }
            (_, share) => on_host::masked_lists(self, list, j, values, share, flips, streams),
        }
    }

    fn scan_lists(
        &self,
        list: &dyn ListAlgebra,
        lists: [&[Self::Buf<u64>]; 2],
        n: usize,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let Some(spec) = list.kernel() else { return on_host::scan_lists(self, list, lists, n) };
        let lists = lists.map(|list| list[0].as_slice());
        Ok(Arc::new(cpu::scan_lists((self.level, self.threads), spec, lists, n)))
    }
}
