//! Tables of signs: small, and dealt offline; on the host unless a device knows better.

use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_ring::{Word, bits};

/// Comparison by a table that the dealer deals, of `width` bits above the `cut` lowest.
pub trait SignTables: Memory {
    /// The dealer's tables: entry i < 2^(width−1) of value e is msb((i − r') mod 2^width) ⊕ a with
    /// r' = (r >> cut) mod 2^width, at bit e·2^(width−1) + i.
    fn sign_table<W: Word>(
        &self,
        cut: u32,
        width: u32,
        masks: &Self::Buf<W>,
        bits: &Self::Buf<u64>,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let (masks, a) = (self.download(masks.clone())?, self.download(bits.clone())?);
        let entries = 1usize << (width - 1);
        let low = u64::MAX >> (64 - width);
        let table = bits::pack(masks.len() * entries, |at| {
            let (e, i) = (at / entries, (at % entries) as u64);
            let difference = i.wrapping_sub(masks[e].to_u64() >> cut) & low;
            (difference >> (width - 1)) ^ bits::get(&a, e)
        });
        self.upload(table)
    }

    /// Worker `j`'s share of msb(m' − r') ⊕ a from its share of the tables, m' = (m >> cut) mod
    /// 2^width. The upper half of a table is the complement of the lower; worker 0 adds it. Every
    /// entry is read, whatever m' is.
    fn look_up_sign<W: Word>(
        &self,
        cut: u32,
        width: u32,
        j: usize,
        masked: &Self::Buf<W>,
        table: &Self::Buf<u64>,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let (masked, table) = (self.download(masked.clone())?, self.download(table.clone())?);
        let entries = 1usize << (width - 1);
        let share = bits::pack(masked.len(), |e| {
            let m = masked[e].to_u64() >> cut;
            let wanted = m & (entries as u64 - 1);
            let upper = (m >> (width - 1)) & u64::from(j == 0);
            (0..entries as u64).fold(upper, |found, i| {
                let difference = i ^ wanted;
                // 1 if i is the wanted entry, without a branch.
                let here = (difference | difference.wrapping_neg()) >> 63 ^ 1;
                found ^ (here & bits::get(&table, e * entries + i as usize))
            })
        });
        self.upload(share)
    }
}

impl SignTables for Reference {}

impl SignTables for Cpu {}
