//! Keys of comparisons and of functions by pieces, by kernels: AES by planes of bits, since GPUs
//! have no instruction for it.

use crate::backend::Result;
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_kernels::{
    ComparisonKeys, DealtKeys, DealtLookup, KeyShare, KeySpec, LookupKey, LookupKeys, PERMUTATION_WORDS,
};
use megrez_plan::Lookup;
use megrez_prg::Stream;
use megrez_ring::Word;

/// Permutations, and words of the round keys of each: as the kernels have them.
const ROUND_KEYS: usize = PERMUTATION_WORDS / 2 * 88;

/// The kernels' `Compared`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Compared {
    cut: u32,
    width: u32,
    truncate: u32,
    parts: u32,
}

impl Compared {
    fn of(spec: KeySpec) -> Self {
        let KeySpec { cut, width, truncate } = spec;
        Compared { cut, width, truncate, parts: spec.parts() as u32 }
    }
}

/// The kernels' `Pieces`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Pieces {
    cut: u32,
    low: u32,
    above: u32,
    below: u32,
    width: u32,
    parts: u32,
    constant: i64,
    slope: i64,
}

impl Pieces {
    fn of(f: &Lookup) -> Self {
        let below = f.index_bits();
        let (parts, constant, slope) =
            f.beyond.map_or((0, 0, 0), |b| (b.parts() as u32, b.constant, b.slope));
        let (above, width) = (f.depth() as u32 - below, f.coefficients() as u32);
        Pieces { cut: f.cut, low: f.low, above, below, width, parts, constant, slope }
    }
}

/// Pairs of words of what is sent of a tree of `levels` levels for each of `n` values: the first
/// level's corrections, and the others'.
fn corrections(levels: usize, n: usize) -> [usize; 2] {
    [2 * n, 2 * (levels - 1) * n]
}

impl Cuda {
    /// The round keys of the public permutations.
    fn round_keys(&self, permutations: &Buf<u64>) -> Result<Buf<u32>> {
        assert_eq!(permutations.len(), PERMUTATION_WORDS);
        self.made(ROUND_KEYS, |out| {
            let args = args![permutations.at(), out];
            self.run(&Unit::keys(64), "expand_keys", PERMUTATION_WORDS / 2, args)
        })
    }
}

impl ComparisonKeys for Cuda {
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Buf<u64>,
        masks: &Buf<W>,
        [root_0, root_1]: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>> {
        let (n, keys) = (masks.len(), self.round_keys(permutations)?);
        let [first, others] = corrections(spec.levels(), n);
        let [first, others] = [self.room(first)?, self.room(others)?];
        let values = self.room(2 * spec.digits() * n)?;
        let tops = self.room(if spec.truncate == 0 { 0 } else { spec.digits() * n })?;
        let args = args![
            keys.at(),
            Compared::of(spec),
            masks.at(),
            *root_0.key_words(),
            *root_1.key_words(),
            first.at(),
            others.at(),
            values.at(),
            tops.at(),
            n as u64
        ];
        self.run(&Unit::keys(W::BITS), "deal_comparison", n, args)?;
        Ok(DealtKeys { first, others, values, tops })
    }

    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Buf<u64>,
        masked: &Buf<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<Buf<W>>> {
        let (n, keys) = (masked.len(), self.round_keys(permutations)?);
        let sums = (0..spec.parts()).map(|_| self.room(n)).collect::<Result<Vec<Buf<W>>>>()?;
        let at = |p: usize| sums.get(p).map_or(0, Buf::at);
        let args = args![
            keys.at(),
            Compared::of(spec),
            u32::from(key.first.is_some()),
            masked.at(),
            *key.root.key_words(),
            key.first.map_or(0, Buf::at),
            key.others.at(),
            key.values.at(),
            key.tops.at(),
            at(0),
            at(1),
            at(2),
            n as u64
        ];
        self.run(&Unit::keys(W::BITS), "evaluate_comparison", n, args)?;
        Ok(sums)
    }
}

impl LookupKeys for Cuda {
    fn deal_lookup<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Buf<u64>,
        masks: &Buf<W>,
        [root_0, root_1]: [&Stream; 2],
    ) -> Result<DealtLookup<W, Self>> {
        let (n, keys) = (masks.len(), self.round_keys(permutations)?);
        let [first, others] = corrections(f.depth(), n);
        let [first, others] = [self.room(first)?, self.room(others)?];
        let values = self.room(f.corrected() * n)?;
        let args = args![
            keys.at(),
            Pieces::of(f),
            masks.at(),
            *root_0.key_words(),
            *root_1.key_words(),
            first.at(),
            others.at(),
            values.at(),
            n as u64
        ];
        self.run(&Unit::keys(W::BITS), "deal_pieces", n, args)?;
        Ok(DealtLookup { first, others, values })
    }

    fn open_by_keys<W: Word>(
        &self,
        f: &Lookup,
        permutations: &Buf<u64>,
        masked: &Buf<W>,
        key: &LookupKey<'_, W, Self>,
        output_mask: &Buf<W>,
    ) -> Result<Buf<W>> {
        let (n, keys, pieces) = (masked.len(), self.round_keys(permutations)?, self.pieces::<W>(f)?);
        self.made(n, |out| {
            let args = args![
                keys.at(),
                Pieces::of(f),
                pieces.at(),
                u32::from(key.first.is_some()),
                masked.at(),
                *key.root.key_words(),
                key.first.map_or(0, Buf::at),
                key.others.at(),
                key.values.at(),
                key.mask.at(),
                output_mask.at(),
                out,
                n as u64
            ];
            // A warp for each value.
            self.run(&Unit::keys(W::BITS), "open_pieces", 32 * n, args)
        })
    }
}
