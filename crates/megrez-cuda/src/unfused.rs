//! A worker's masked bit list step by step, each with its result in device memory: what the fused
//! kernel is compared with. No protocol runs this.

use crate::backend::Result;
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use megrez_kernels::{Entries, FieldShare, ListSpec, ListStreams};
use megrez_prg::{FieldSampler, Stream};
use megrez_ring::Word;

impl Cuda {
    /// The same words as [`megrez_kernels::MaskedLists::masked_lists`].
    ///
    /// # Errors
    /// If the device fails, or the list is not one of bits.
    pub fn unfused_list<W: Word>(
        &self,
        spec: &ListSpec,
        j: usize,
        masked: &Buf<W>,
        share: FieldShare<'_, Cuda>,
        flips: &Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Buf<u64>> {
        if spec.entries != Entries::Bits {
            return Err(self.failed("only lists of bits have an unfused form"));
        }
        let unit = Unit::unfused(spec, W::BITS);
        let (p, length, n) = (spec.prime.p(), spec.length(), masked.len());
        let all = (n * length) as u64;
        let sampled = |kernel, stream: &Stream, bound: u64, count: usize| {
            let threads = count.div_ceil(4 * FieldSampler::new(bound).per_draw());
            self.made::<u8>(count, |out| {
                self.run(&unit, kernel, threads, args![*stream.key_words(), out, count as u64])
            })
        };
        let dealt = n * spec.dealt();
        let share = match share {
            FieldShare::Stream(stream) => sampled("sample_elements", stream, p, dealt)?,
            FieldShare::Packed(words) => self.made(dealt, |out| {
                self.run(&unit, "unpack", words.len(), args![words.at(), out, dealt as u64])
            })?,
        };
        let worker = j as u32;
        let differences = self.made::<u8>(n * length, |out| {
            let args = args![worker, masked.at(), spec.cut, share.at(), out, all];
            self.run(&unit, "differences", n * length, args)
        })?;
        drop(share);
        let sums = self.made::<u8>(n * length, |out| {
            self.run(&unit, "sums_before", n * length, args![differences.at(), out, all])
        })?;
        let entries = self.made::<u8>(n * length, |out| {
            let places = [flips.at(), sums.at(), differences.at()];
            let args = args![worker, masked.at(), spec.cut, places[0], places[1], places[2], out, all];
            self.run(&unit, "entries", n * length, args)
        })?;
        drop((sums, differences));
        let factors = sampled("sample_multipliers", streams.multiplier, p - 1, n * length)?;
        let scaled = self.made::<u8>(n * length, |out| {
            self.run(&unit, "scale", n * length, args![entries.at(), factors.at(), out, all])
        })?;
        drop((entries, factors));
        let zeros = sampled("sample_elements", streams.zero_share, p, n * length)?;
        let list = self.made::<u8>(n * length, |out| {
            let args = args![worker, scaled.at(), zeros.at(), out, all];
            self.run(&unit, "add_zero_shares", n * length, args)
        })?;
        drop((scaled, zeros));
        let rotations = sampled("sample_rotations", streams.rotation, length as u64, n)?;
        let rotated = self.made::<u8>(n * length, |out| {
            self.run(&unit, "rotate_lists", n * length, args![list.at(), rotations.at(), out, all])
        })?;
        drop((list, rotations));
        let words = spec.prime.words(n * length);
        self.made(words, |out| self.run(&unit, "pack", words, args![rotated.at(), out, all]))
    }
}
