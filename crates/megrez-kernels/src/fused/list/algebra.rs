//! What a list's algebra says, and what it is asked about.

use super::{Field, ListSpec};
use crate::memory::Memory;
use megrez_prg::Stream;

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
