//! Products of words and a public matrix of narrow integers ([`megrez_weights::Matrix`]).
//!
//! A word is as many unsigned bytes as it has; a sum of products of bytes fits 32 bits, and the
//! machine adds four of them in one instruction. A block of columns is read once, in order, for all
//! rows: what limits a single row is how fast memory gives the matrix, a byte or two a weight.

use super::gemm::{Left, Target, product, tile_columns};
use super::work::{Disjoint, parallel};
use megrez_prg::Level;
use megrez_ring::Word;
use megrez_weights::{COLUMNS, Matrix};

/// Products of fewer multiplications than this run on one thread (about half a millisecond).
const WORTH_A_THREAD: usize = 1 << 23;

/// x [m, rows] · matrix, row-major.
pub fn product_with<W: Word>(level: Level, threads: usize, x: &[W], matrix: &Matrix) -> Vec<W> {
    let (k, n) = (matrix.rows(), matrix.columns());
    let m = x.len() / k;
    let mut out = vec![W::ZERO; m * n];
    if out.is_empty() {
        return out;
    }
    let threads = if m * k * n < WORTH_A_THREAD { 1 } else { threads };
    let shared = Disjoint::new(&mut out);
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() && W::STORED >= 32 && is_x86_feature_detected!("avx512vnni") {
        x86::products(threads, x, matrix, m, &shared);
        return out;
    }
    // Words of the matrix are made as the general product packs them.
    let blocks = n.div_ceil(COLUMNS);
    let parts = blocks.min(if threads > 1 { 4 * threads } else { 1 });
    let part = blocks.div_ceil(parts) * COLUMNS;
    parallel(threads, n.div_ceil(part), |task| {
        let first = task * part;
        let count = part.min(n - first);
        let nr = tile_columns::<W>(level);
        let pack = |k0: usize, depth: usize, j0: usize, sliver: &mut [W]| {
            let columns = nr.min(count - j0);
            for (q, sliver) in sliver.chunks_exact_mut(nr).enumerate().take(depth) {
                for (j, word) in sliver.iter_mut().enumerate().take(columns) {
                    *word = W::from_i64(matrix.word(k0 + q, first + j0 + j));
                }
            }
        };
        let target = Target { base: first, row: n, run: usize::MAX, block: 0, first: 0 };
        product(level, Left { data: x, m, k }, count, &pack, &shared, target);
    });
    out
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use megrez_weights::{EXACT_ROWS, ROWS};
    use std::arch::x86_64::*;

    /// The most bytes of a word.
    const BYTES: usize = 8;

    /// Every row of x times every block of columns; needs AVX-512 F, BW and VNNI.
    pub fn products<W: Word>(threads: usize, x: &[W], matrix: &Matrix, m: usize, shared: &Disjoint<'_, W>) {
        let (k, n, groups) = (matrix.rows(), matrix.columns(), matrix.groups());
        let bytes = W::BYTES;
        let size = groups * bytes * ROWS;
        // Of every group of rows of the matrix, byte by byte, what multiplies its four rows.
        let mut parts = vec![0u8; m * size];
        for (x, parts) in x.chunks_exact(k).zip(parts.chunks_exact_mut(size)) {
            for (x, parts) in x.chunks(ROWS).zip(parts.chunks_exact_mut(bytes * ROWS)) {
                for (r, word) in x.iter().enumerate() {
                    let word = word.to_u64().to_le_bytes();
                    (0..bytes).for_each(|b| parts[b * ROWS + r] = word[b]);
                }
            }
        }
        let planes = matrix.width().planes();
        let block_bytes = groups * COLUMNS * ROWS;
        let blocks = n.div_ceil(COLUMNS);
        let per_task = blocks.div_ceil(if threads > 1 { 8 * threads } else { 1 });
        parallel(threads, blocks.div_ceil(per_task), |task| {
            for block in task * per_task..blocks.min((task + 1) * per_task) {
                let first = block * COLUMNS;
                let count = COLUMNS.min(n - first);
                for i in 0..m {
                    let mut words = [0u64; COLUMNS];
                    for plane in 0..planes {
                        let weights = &matrix.plane(plane)[block * block_bytes..][..block_bytes];
                        let x = &parts[i * size..][..size];
                        let x = x.chunks(EXACT_ROWS * bytes);
                        for (x, weights) in x.zip(weights.chunks(EXACT_ROWS * COLUMNS)) {
                            let groups = weights.len() / (COLUMNS * ROWS);
                            let mut sums = [[0i32; COLUMNS]; BYTES];
                            // SAFETY: the caller has seen that the machine has the instructions; x
                            // has `groups` times four bytes for every byte of a word, the weights
                            // `groups` times four for each of the columns.
                            unsafe {
                                match bytes {
                                    8 => sums_of_block::<8>(x.as_ptr(), weights.as_ptr(), groups, &mut sums),
                                    6 => sums_of_block::<6>(x.as_ptr(), weights.as_ptr(), groups, &mut sums),
                                    5 => sums_of_block::<5>(x.as_ptr(), weights.as_ptr(), groups, &mut sums),
                                    _ => sums_of_block::<4>(x.as_ptr(), weights.as_ptr(), groups, &mut sums),
                                }
                            }
                            for (b, sums) in sums.iter().enumerate().take(bytes) {
                                let shift = 8 * (b + plane) as u32;
                                if shift < 64 {
                                    words.iter_mut().zip(sums).for_each(|(word, &sum)| {
                                        *word = word.wrapping_add((i64::from(sum) as u64) << shift);
                                    });
                                }
                            }
                        }
                    }
                    // SAFETY: every task has blocks of columns of its own.
                    let out = unsafe { shared.part(i * n + first..i * n + first + count) };
                    for ((out, word), &scale) in out.iter_mut().zip(words).zip(&matrix.scales()[first..]) {
                        *out = W::from_u64(word).mul(W::from_i64(i64::from(scale)));
                    }
                }
            }
        });
    }

    /// For every byte of the words and every column of a block the sum of all products, of
    /// [`EXACT_ROWS`] rows at most.
    ///
    /// # Safety
    /// The machine has AVX-512 F and VNNI; `x` has groups · N · 4 bytes, `weights` groups · 128.
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn sums_of_block<const N: usize>(
        x: *const u8,
        weights: *const u8,
        groups: usize,
        out: &mut [[i32; COLUMNS]; BYTES],
    ) {
        let mut sums = [[_mm512_setzero_si512(); 2]; N];
        for group in 0..groups {
            // SAFETY: group < groups, so all addresses are inside, as the contract says.
            unsafe {
                let weights = weights.add(group * COLUMNS * ROWS);
                let low = _mm512_loadu_si512(weights.cast());
                let high = _mm512_loadu_si512(weights.add(64).cast());
                let x = x.add(group * N * ROWS);
                for (b, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(x.add(b * ROWS).cast::<i32>().read_unaligned());
                    sums[0] = _mm512_dpbusd_epi32(sums[0], x, low);
                    sums[1] = _mm512_dpbusd_epi32(sums[1], x, high);
                }
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            let (low, high) = out.split_at_mut(16);
            // SAFETY: each half has room for one vector of sixteen numbers.
            unsafe {
                _mm512_storeu_si512(low.as_mut_ptr().cast(), sums[0]);
                _mm512_storeu_si512(high.as_mut_ptr().cast(), sums[1]);
            }
        }
    }
}
