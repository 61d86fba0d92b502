//! The sizes of the tiles on which the kernels of masked lists work; `kernels/list.cu` asserts that
//! it counts alike.

use megrez_kernels::ListSpec;
use megrez_prg::FieldSampler;

/// Threads of a block of the kernels that deal and make lists.
pub(crate) const THREADS: u32 = 128;

/// Threads of a block of the kernel that scans lists.
pub(crate) const SCAN_THREADS: u32 = 256;

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
