//! Masked lists by kernels.

use crate::backend::{Launch, Result};
use crate::list_shape::{ListShape, SCAN_THREADS, THREADS};
use crate::memory::Buf;
use crate::source::Unit;
use crate::{Cuda, args};
use megrez_kernels::{FieldShare, ListAlgebra, ListStreams, MaskedLists, on_host};
use megrez_prg::Stream;
use megrez_ring::{Word, bits};

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
        assert_eq!(flips.len(), bits::words(n));
        let (packed, dealt) = match share {
            FieldShare::Packed(words) => {
                assert_eq!(words.len(), spec.prime.words(n * spec.dealt()));
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
        assert!(lists.iter().all(|l| l.len() == spec.prime.words(n * spec.length())));
        let tiles = n.div_ceil(ListShape::of(spec).scan_tile);
        self.made(bits::words(n), |out| {
            let launch = Launch { grid: [tiles, 1, 1], threads: SCAN_THREADS, shared: 0 };
            // Lists say nothing of the ring; any width gives the same kernel.
            let args = args![lists[0].at(), lists[1].at(), out, n as u64];
            self.launch(&Unit::list(spec, 64), "scan_lists", launch, args)
        })
    }
}
