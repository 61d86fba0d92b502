//! Masked lists: two workers let a dealer compare values that it does not see (MIZAR, Fig. 4 and
//! its relatives).
//!
//! A list's *algebra* ([`ListAlgebra`]) stands with the protocol whose figure it is. What all lists
//! have in common stands here: randomness, sharings of zero, rotation, the form of the wire. A
//! device with a kernel for a list runs it; every other runs the algebra on the host, so that a new
//! list is one file before it is fast.

mod algebra;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod cpu;
mod field;
pub mod on_host;
mod rows;
mod spec;

pub use algebra::{FieldShare, ListAlgebra, ListInput, ListStreams};
pub use field::Field;
pub use spec::{Entries, ListSpec};

use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_prg::Stream;
use megrez_ring::Word;
use std::sync::Arc;

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
