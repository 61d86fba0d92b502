//! Products of matrices over rings.
//!
//! The general product keeps a tile of the result in registers: `MR` rows by `NR` columns, over a
//! slice of `DEPTH` of the inner dimension. The right matrix is packed sliver by sliver (`NR`
//! columns of the slice, 32 KiB, in the nearest cache) and every sliver meets all rows of the left
//! one, whose slice is packed once and stays in the second cache. Few rows or few columns are bound
//! by reading the larger matrix and have forms of their own that read it once, in order.

use super::work::{Disjoint, at_every_level, parallel};
use megrez_prg::Level;
use megrez_ring::Word;

/// The inner dimension is cut into slices of this many.
const DEPTH: usize = 256;
/// Rows of the left matrix that are packed together: with `DEPTH` words of 8 bytes, half of the
/// second cache.
const ROWS: usize = 256;
/// A tile has this many rows.
const MR: usize = 8;
/// A tile has at most this many columns.
pub const MAX_NR: usize = 32;
/// Products of fewer multiplications than this run on one thread (about half a millisecond).
const WORTH_A_THREAD: usize = 1 << 24;

/// The left matrix of a product, row-major.
#[derive(Clone, Copy)]
pub struct Left<'a, W> {
    /// Its elements.
    pub data: &'a [W],
    /// Rows.
    pub m: usize,
    /// Columns.
    pub k: usize,
}

/// Where the result goes: element (i, j) at base + (c / run)·block + c % run + i·row with c =
/// first + j.
#[derive(Clone, Copy)]
pub struct Target {
    /// Offset of element (0, 0).
    pub base: usize,
    /// Distance of rows.
    pub row: usize,
    /// Columns that are neighbours.
    pub run: usize,
    /// Distance of runs.
    pub block: usize,
    /// Where in its run the first column stands.
    pub first: usize,
}

/// Columns of a tile at this level.
pub fn tile_columns<W: Word>(level: Level) -> usize {
    match W::STORED {
        32 if level.has_avx512() => 32,
        _ => 16,
    }
}

/// left · right, where `pack(k0, depth, j0, sliver)` writes rows k0 … k0 + depth − 1 of the right
/// matrix from column j0 on as rows of [`tile_columns`] elements; what it writes past column n does
/// not matter. Elements of the result are replaced, and no other product may write them meanwhile.
pub fn product<W: Word>(
    level: Level,
    left: Left<'_, W>,
    n: usize,
    pack: &(impl Fn(usize, usize, usize, &mut [W]) + Sync),
    out: &Disjoint<'_, W>,
    target: Target,
) {
    let Left { data, m, k } = left;
    let nr = tile_columns::<W>(level);
    let mut sliver = vec![W::ZERO; DEPTH.min(k.max(1)) * nr];
    // Packing a row block pays if enough slivers use it.
    let packs = n >= 4 * nr;
    let mut packed = vec![W::ZERO; if packs { ROWS.min(m.next_multiple_of(MR)) * DEPTH.min(k) } else { 0 }];
    let mut tile = [W::ZERO; MR * MAX_NR];
    for i0 in (0..m).step_by(ROWS) {
        let rows = ROWS.min(m - i0);
        for k0 in (0..k.max(1)).step_by(DEPTH) {
            let depth = DEPTH.min(k - k0);
            if packs {
                pack_left(left, i0, rows, k0, depth, &mut packed);
            }
            for j0 in (0..n).step_by(nr) {
                pack(k0, depth, j0, &mut sliver[..depth * nr]);
                let columns = nr.min(n - j0);
                for i in (0..rows).step_by(MR) {
                    let count = MR.min(rows - i);
                    // Rows past the end repeat the last one and are dropped with the tile's unused
                    // rows.
                    let (a, step): ([&[W]; MR], usize) = if packs {
                        let block = &packed[i * depth..(i + MR) * depth];
                        (std::array::from_fn(|r| &block[r.min(block.len())..]), MR)
                    } else {
                        let row = |r: usize| (i0 + i + r.min(count - 1)) * k + k0;
                        (std::array::from_fn(|r| &data[row(r)..row(r) + depth]), 1)
                    };
                    multiply_tile(level, a, step, &sliver[..depth * nr], depth, &mut tile[..MR * nr]);
                    for (r, tile) in tile.chunks_exact(nr).enumerate().take(count) {
                        store(&tile[..columns], j0, i0 + i + r, k0 == 0, out, target);
                    }
                }
            }
        }
    }
}

/// Rows i0 … i0 + rows − 1, columns k0 … k0 + depth − 1 in groups of `MR` rows, column by column.
fn pack_left<W: Word>(left: Left<'_, W>, i0: usize, rows: usize, k0: usize, depth: usize, packed: &mut [W]) {
    for (block, i) in packed.chunks_exact_mut(MR * depth.max(1)).zip((i0..i0 + rows).step_by(MR)) {
        let count = MR.min(i0 + rows - i);
        let row = |r: usize| &left.data[(i + r.min(count - 1)) * left.k + k0..][..depth];
        let rows: [&[W]; MR] = std::array::from_fn(row);
        for (q, column) in block.as_chunks_mut::<MR>().0.iter_mut().enumerate() {
            *column = std::array::from_fn(|r| rows[r][q]);
        }
    }
}

/// Puts one row of a tile in its place.
#[inline(always)]
fn store<W: Word>(tile: &[W], j0: usize, row: usize, replace: bool, out: &Disjoint<'_, W>, t: Target) {
    let mut at = 0;
    while at < tile.len() {
        let (block, offset) = ((t.first + j0 + at) / t.run, (t.first + j0 + at) % t.run);
        let count = (tile.len() - at).min(t.run - offset);
        let start = t.base + row * t.row + block * t.block + offset;
        // SAFETY: callers let no other product write the elements of this one, and the parts live
        // one after another.
        let out = unsafe { out.part(start..start + count) };
        let tile = &tile[at..at + count];
        if replace {
            out.copy_from_slice(tile);
        } else {
            out.iter_mut().zip(tile).for_each(|(o, t)| *o = o.add(*t));
        }
        at += count;
    }
}

/// tile = Σ_q a[r][q·step] · b[q][·].
#[inline(always)]
fn multiply_tile<W: Word>(level: Level, a: [&[W]; MR], step: usize, b: &[W], depth: usize, tile: &mut [W]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() && W::STORED >= 32 {
        if depth == 0 {
            return tile.fill(W::ZERO);
        }
        let nr = tile_columns::<W>(level);
        assert!(
            a.iter().all(|a| a.len() > (depth - 1) * step) && b.len() >= depth * nr && tile.len() >= MR * nr
        );
        // SAFETY: the level is a witness of the instructions; the lengths were just checked, and
        // the pointers are cast to the type that they have, as the width tells.
        unsafe {
            match W::STORED {
                64 if W::BITS <= x86::Low52::BITS => x86::tile::<x86::Low52>(
                    a.map(|a| a.as_ptr().cast()),
                    step,
                    b.as_ptr().cast(),
                    depth,
                    tile.as_mut_ptr().cast(),
                ),
                64 => x86::tile::<u64>(
                    a.map(|a| a.as_ptr().cast()),
                    step,
                    b.as_ptr().cast(),
                    depth,
                    tile.as_mut_ptr().cast(),
                ),
                _ => x86::tile::<u32>(
                    a.map(|a| a.as_ptr().cast()),
                    step,
                    b.as_ptr().cast(),
                    depth,
                    tile.as_mut_ptr().cast(),
                ),
            }
        }
        return;
    }
    plain_tile::<W>(level, a, step, b, depth, tile);
}

at_every_level! {
    /// The tile without intrinsics, four rows at a time.
    fn plain_tile<W: Word>(a: [&[W]; MR], step: usize, b: &[W], depth: usize, tile: &mut [W]) {
        for (a, tile) in a.chunks_exact(4).zip(tile.chunks_exact_mut(64)) {
            let mut sums = [[W::ZERO; 16]; 4];
            for (q, b) in b.as_chunks::<16>().0.iter().enumerate().take(depth) {
                for (sums, a) in sums.iter_mut().zip(a) {
                    let a = a[q * step];
                    for (sum, b) in sums.iter_mut().zip(b) {
                        *sum = sum.add(a.mul(*b));
                    }
                }
            }
            tile.as_chunks_mut::<16>().0.iter_mut().zip(sums).for_each(|(tile, sums)| *tile = sums);
        }
    }
}

at_every_level! {
    /// out[i][·] += Σ_q a[i][q] · b[q][·] for few rows i: `b` is read once, in order, four rows at
    /// a time.
    fn few_rows<W: Word>(a: &[&[W]], b: &[W], width: usize, columns: std::ops::Range<usize>, out: &mut [&mut [W]]) {
        let depth = a.first().map_or(0, |a| a.len());
        let row = |q: usize| &b[q * width..][columns.clone()];
        let mut q = 0;
        while q + 4 <= depth {
            let [b0, b1, b2, b3] = [row(q), row(q + 1), row(q + 2), row(q + 3)];
            for (out, a) in out.iter_mut().zip(a) {
                let [a0, a1, a2, a3] = [a[q], a[q + 1], a[q + 2], a[q + 3]];
                for ((((out, b0), b1), b2), b3) in out.iter_mut().zip(b0).zip(b1).zip(b2).zip(b3) {
                    let sum = a0.mul(*b0).add(a1.mul(*b1)).add(a2.mul(*b2).add(a3.mul(*b3)));
                    *out = out.add(sum);
                }
            }
            q += 4;
        }
        for q in q..depth {
            for (out, a) in out.iter_mut().zip(a) {
                for (out, b) in out.iter_mut().zip(row(q)) {
                    *out = out.add(a[q].mul(*b));
                }
            }
        }
    }
}

at_every_level! {
    /// The products of each of four rows `a` with the vector `b`.
    fn dots<W: Word>(a: [&[W]; 4], b: &[W]) -> [W; 4] {
        let a = a.map(|a| &a[..b.len()]);
        let mut sums = [W::ZERO; 4];
        for (q, &b) in b.iter().enumerate() {
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum = sum.add(a[q].mul(b));
            }
        }
        sums
    }
}

/// Few columns: each is given as a contiguous vector, `columns` of length k one after another;
/// element (i, j) of the product is handed to `each`. The left matrix is read once, four rows at a
/// time.
pub fn few_columns<W: Word>(
    level: Level,
    left: Left<'_, W>,
    rows: std::ops::Range<usize>,
    columns: &[W],
    mut each: impl FnMut(usize, usize, W),
) {
    let k = left.k;
    for i in rows.clone().step_by(4) {
        let row = |r: usize| &left.data[(i + r).min(rows.end - 1) * k..][..k];
        let a = std::array::from_fn(row);
        for (j, column) in columns.chunks_exact(k.max(1)).enumerate() {
            for (r, sum) in dots(level, a, column).into_iter().enumerate().take(rows.end - i) {
                each(i + r, j, sum);
            }
        }
    }
}

/// How a product is divided: row and column ranges, each worth a thread's while.
pub fn tiles(
    threads: usize,
    m: usize,
    k: usize,
    n: usize,
    nr: usize,
) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let work = m.saturating_mul(k).saturating_mul(n);
    let parts = if work < WORTH_A_THREAD { 1 } else { threads * if threads > 1 { 2 } else { 1 } };
    // Rows first: row parts share nothing but the packing of the right matrix; columns where rows
    // are few.
    let row_parts = parts.min(m.div_ceil(ROWS)).max(1);
    let column_parts = parts.div_ceil(row_parts).min(n.div_ceil(8 * nr)).max(1);
    let split = |total: usize, parts: usize, unit: usize| {
        let size = total.div_ceil(parts).next_multiple_of(unit).max(unit);
        (0..total).step_by(size).map(move |at| at..total.min(at + size))
    };
    split(m, row_parts, MR)
        .flat_map(|rows| split(n, column_parts, nr).map(move |columns| (rows.clone(), columns)))
        .collect()
}

/// Asks for elements that the next sliver needs: rows are far apart, so no hardware guesses it.
#[inline(always)]
fn prefetch<T>(data: &[T], count: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in data[..count.min(data.len())].chunks((64 / size_of::<T>()).max(1)) {
        // SAFETY: every x86-64 has the instruction, and it reads nothing.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast())
        };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (data, count);
}

/// Fewer rows than this are multiplied in the form for few rows: more where the right matrix is far
/// away in memory.
const FEW_ROWS: usize = 5;
const FEW_ROWS_FAR: usize = 12;
const FAR: usize = 1 << 20;
/// Fewer columns than this are multiplied in the form for few columns.
pub const FEW_COLUMNS: usize = 8;

/// `batch` products of m×k by k×n.
pub fn matmul<W: Word>(
    level: Level,
    threads: usize,
    x: &[W],
    y: &[W],
    batch: usize,
    [m, k, n]: [usize; 3],
) -> Vec<W> {
    let mut out = vec![W::ZERO; batch * m * n];
    if out.is_empty() || k == 0 {
        return out;
    }
    let work = batch * m * k * n;
    let threads = if work < WORTH_A_THREAD { 1 } else { threads };
    let nr = tile_columns::<W>(level);
    let shared = Disjoint::new(&mut out);
    let left = |b: usize| Left { data: &x[b * m * k..][..m * k], m, k };
    let right = |b: usize| &y[b * k * n..][..k * n];
    let few = if k * n < FAR { FEW_ROWS } else { FEW_ROWS_FAR };
    if n < FEW_COLUMNS && m >= few || n == 1 {
        let part = m.div_ceil(2 * threads).max(64);
        let parts = m.div_ceil(part);
        parallel(threads, batch * parts, |task| {
            let (b, rows) = (task / parts, task % parts * part..m.min((task % parts + 1) * part));
            let y = right(b);
            let columns: Vec<W> = (0..n).flat_map(|j| (0..k).map(move |q| y[q * n + j])).collect();
            // SAFETY: every task has rows of its own.
            let out = unsafe { shared.part((b * m + rows.start) * n..(b * m + rows.end) * n) };
            few_columns(level, left(b), rows.clone(), &columns, |i, j, sum| {
                out[(i - rows.start) * n + j] = sum
            });
        });
    } else if m < few {
        // The part of the result in work stays in the nearest cache, with four rows of the right
        // matrix.
        let part = n.div_ceil(threads).min((4096 / m).next_multiple_of(64)).min(1024);
        let parts = n.div_ceil(part);
        parallel(threads, batch * parts, |task| {
            let (b, columns) = (task / parts, task % parts * part..n.min((task % parts + 1) * part));
            // SAFETY: every task has columns of its own.
            let part = |i: usize| unsafe {
                shared.part((b * m + i) * n + columns.start..(b * m + i) * n + columns.end)
            };
            let mut out: Vec<&mut [W]> = (0..m).map(part).collect();
            let rows: Vec<&[W]> = left(b).data.chunks_exact(k).collect();
            few_rows(level, &rows, right(b), n, columns.clone(), &mut out);
        });
    } else {
        let tiles = tiles(threads.div_ceil(batch), m, k, n, nr);
        parallel(threads, batch * tiles.len(), |task| {
            let (b, (rows, columns)) = (task / tiles.len(), &tiles[task % tiles.len()]);
            let y = right(b);
            let left = Left { data: &left(b).data[rows.start * k..rows.end * k], m: rows.len(), k };
            let pack = |k0: usize, depth: usize, j0: usize, sliver: &mut [W]| {
                let (from, count) = (columns.start + j0, nr.min(columns.len() - j0));
                for (q, sliver) in sliver.chunks_exact_mut(nr).enumerate().take(depth) {
                    let row = &y[(k0 + q) * n + from..];
                    if count == nr {
                        sliver.copy_from_slice(&row[..nr]);
                        prefetch(&row[nr..], nr);
                    } else {
                        sliver[..count].copy_from_slice(&row[..count]);
                    }
                }
            };
            let base = (b * m + rows.start) * n + columns.start;
            product(
                level,
                left,
                columns.len(),
                &pack,
                &shared,
                Target { base, row: n, run: usize::MAX, block: 0, first: 0 },
            );
        });
    }
    out
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::MR;
    use std::arch::x86_64::*;

    /// Lanes of a 512-bit vector. All functions need AVX-512 F, DQ and IFMA.
    pub trait Lanes: Copy {
        const LANES: usize;
        /// # Safety
        /// The machine has AVX-512 F.
        unsafe fn splat(self) -> __m512i;
        /// a · b + c.
        ///
        /// # Safety
        /// The machine has AVX-512 F, DQ and IFMA.
        unsafe fn multiply_add(a: __m512i, b: __m512i, c: __m512i) -> __m512i;
    }

    impl Lanes for u64 {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn splat(self) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_set1_epi64(self as i64) }
        }
        #[inline(always)]
        unsafe fn multiply_add(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_add_epi64(_mm512_mullo_epi64(a, b), c) }
        }
    }

    /// A word of a ring of at most 52 bits: what stands above counts for nothing, and one
    /// instruction multiplies and adds, in half of the time.
    #[derive(Clone, Copy)]
    #[repr(transparent)]
    pub struct Low52(u64);

    impl Low52 {
        /// Bits of a factor that the instruction reads, and of the product that it adds.
        pub const BITS: u32 = 52;
    }

    impl Lanes for Low52 {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn splat(self) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_set1_epi64(self.0 as i64) }
        }
        #[inline(always)]
        unsafe fn multiply_add(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_madd52lo_epu64(c, a, b) }
        }
    }

    impl Lanes for u32 {
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn splat(self) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_set1_epi32(self as i32) }
        }
        #[inline(always)]
        unsafe fn multiply_add(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_add_epi32(_mm512_mullo_epi32(a, b), c) }
        }
    }

    /// A tile of `MR` rows by two vectors, in sixteen registers.
    ///
    /// # Safety
    /// The machine has AVX-512 F, DQ and IFMA. Every `a` has (depth − 1)·step + 1 elements, `b` has
    /// depth·2·LANES, `tile` room for MR·2·LANES.
    #[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
    pub unsafe fn tile<T: Lanes>(a: [*const T; MR], step: usize, b: *const T, depth: usize, tile: *mut T) {
        let mut sums = [[_mm512_setzero_si512(); 2]; MR];
        let mut at = 0;
        for q in 0..depth {
            // SAFETY: q < depth and at = q·step, so all addresses are inside, as the contract says.
            unsafe {
                let b = b.add(q * 2 * T::LANES);
                let low = _mm512_loadu_si512(b.cast());
                let high = _mm512_loadu_si512(b.add(T::LANES).cast());
                for (sums, a) in sums.iter_mut().zip(a) {
                    let a = a.add(at).read().splat();
                    sums[0] = T::multiply_add(a, low, sums[0]);
                    sums[1] = T::multiply_add(a, high, sums[1]);
                }
            }
            at += step;
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (half, sum) in sums.into_iter().enumerate() {
                // SAFETY: `tile` has room for MR rows of two vectors.
                unsafe { _mm512_storeu_si512(tile.add((2 * r + half) * T::LANES).cast(), sum) };
            }
        }
    }
}
