//! Masked lists by kernels, and the sizes of the tiles on which these work; `kernels/list.cu`
//! asserts that it counts alike.

use crate::backend::{Launch, Result};
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use megrez_kernels::{FieldShare, ListAlgebra, ListSpec, ListStreams, MaskedLists, on_host};
use megrez_prg::{FieldSampler, Stream};
use megrez_ring::{Word, bits};

/// Threads of a block of the kernels that deal and make lists.
const THREADS: u32 = 128;
/// Threads of a block of the kernel that scans lists.
const SCAN_THREADS: u32 = 256;
const SLACK: usize = 64;

/// Values per block and bytes of shared memory.
pub(crate) struct ListShape {
    pub deal_tile: usize,
    pub deal_shared: u32,
    pub list_tile: usize,
    pub list_shared: u32,
    pub scan_tile: usize,
}

impl ListShape {
    pub(crate) fn of(spec: &ListSpec) -> Self {
        let p = spec.prime.p();
        let per_word = spec.prime.digits();
        let longest = per_word.max(FieldSampler::new(p).per_draw()).max(FieldSampler::new(p - 1).per_draw());
        // See `stride_of` in the kernel file.
        let stride = |row: usize| {
            let words = row.div_ceil(4);
            if row < longest { row } else { 4 * (words + usize::from(words.is_multiple_of(2))) }
        };
        let bytes = |row: usize, values: usize| (2 * SLACK + values * stride(row)).next_multiple_of(16);
        // A tile fills whole words of the wire; it is near a multiple of the threads if it is not
        // small.
        let tile = |bytes_per_value: usize, row: usize| {
            let unit = per_word / common_divisor(per_word, row);
            let fit = (30_000 / bytes_per_value).min(1024);
            let threads = THREADS as usize;
            let fit = if fit > threads { fit / threads * threads } else { fit };
            (fit / unit).max(1) * unit
        };
        let (length, dealt) = (spec.length(), spec.dealt());
        let deal_tile = tile(stride(dealt), dealt);
        let list_tile = tile(2 * stride(length) + stride(dealt) + 1, length);
        let list_shared = 2 * bytes(length, list_tile) + bytes(dealt, list_tile) + bytes(1, list_tile);
        ListShape {
            deal_tile,
            deal_shared: bytes(dealt, deal_tile) as u32,
            list_tile,
            list_shared: list_shared as u32,
            scan_tile: SCAN_THREADS as usize * (32 / length).clamp(1, 16),
        }
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// The keys of the streams of a masked list, in the kernel's order; a key that is not used may be
/// any.
type Keys = [[u32; 8]; 4];

impl MaskedLists for Cuda {
    fn deal_list<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        masks: &Buf<W>,
        other: &Stream,
    ) -> Result<(Buf<u64>, Buf<u64>)> {
        let Some(spec) = list.kernel() else { return on_host::deal_list(self, list, masks, other) };
        let (n, shape) = (masks.len(), ListShape::of(spec));
        let shares = spec.prime.words(n * spec.dealt());
        let out = self.allocate(shares * 8)?;
        let signs = self.allocate(bits::words(n) * 8)?;
        let tiles = n.div_ceil(shape.deal_tile);
        let packing = (bits::words(n) * 64).div_ceil(THREADS as usize);
        let launch = Launch { grid: [tiles + packing, 1, 1], threads: THREADS, shared: shape.deal_shared };
        let args =
            args![masks.at(), spec.cut, *other.key_words(), out.at(), signs.at(), n as u64, tiles as u32];
        self.launch(&Unit::list(spec, W::BITS), "deal_list", launch, args)?;
        Ok((Buf::new(out, shares), Buf::new(signs, bits::words(n))))
    }

    fn masked_lists<W: Word>(
        &self,
        list: &dyn ListAlgebra,
        j: usize,
        values: &Buf<W>,
        share: Option<FieldShare<'_, Self>>,
        flips: &Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Vec<Buf<u64>>> {
        let (spec, share) = match (list.kernel(), share) {
            (Some(spec), Some(share)) => (spec, share),
            (_, share) => return on_host::masked_lists(self, list, j, values, share, flips, streams),
        };
        let (n, shape) = (values.len(), ListShape::of(spec));
        debug_assert_eq!(flips.len(), bits::words(n));
        let (packed, dealt) = match share {
            FieldShare::Packed(words) => {
                debug_assert_eq!(words.len(), spec.prime.words(n * spec.dealt()));
                (words.at(), streams.multiplier)
            }
            FieldShare::Stream(stream) => (0, stream),
        };
        let keys: Keys =
            [streams.multiplier, streams.zero_share, dealt, streams.rotation].map(|s| *s.key_words());
        let list = self.made(spec.prime.words(n * spec.length()), |out| {
            let tiles = n.div_ceil(shape.list_tile);
            let launch = Launch { grid: [tiles, 1, 1], threads: THREADS, shared: shape.list_shared };
            let args = args![j as u32, values.at(), spec.cut, packed, flips.at(), keys, out, n as u64];
            self.launch(&Unit::list(spec, W::BITS), "masked_list", launch, args)
        })?;
        Ok(vec![list])
    }

    fn scan_lists(&self, list: &dyn ListAlgebra, lists: [&[Buf<u64>]; 2], n: usize) -> Result<Buf<u64>> {
        let Some(spec) = list.kernel() else { return on_host::scan_lists(self, list, lists, n) };
        let lists = lists.map(|list| &list[0]);
        debug_assert!(lists.iter().all(|l| l.len() == spec.prime.words(n * spec.length())));
        let tiles = n.div_ceil(ListShape::of(spec).scan_tile);
        self.made(bits::words(n), |out| {
            let launch = Launch { grid: [tiles, 1, 1], threads: SCAN_THREADS, shared: 0 };
            // Lists say nothing of the ring; any width gives the same kernel.
            let args = args![lists[0].at(), lists[1].at(), out, n as u64];
            self.launch(&Unit::list(spec, 64), "scan_lists", launch, args)
        })
    }
}
