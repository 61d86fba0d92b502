//! Convolutions as products of matrices: the kernel (output channels × taps) by the image's patches
//! (taps × output pixels). Patches are copied sliver by sliver while the product runs, from a
//! zero-padded copy of a few images, so memory stays at the size of those images.

use super::gemm::{FEW_COLUMNS, Left, Target, few_columns, product, tile_columns, tiles};
use super::work::{Disjoint, at_every_level, chunks, parallel};
use megrez_plan::ConvGeometry;
use megrez_prg::Level;
use megrez_ring::{Shape, Word};

/// Images are taken together until they have this many output pixels.
const PIXELS: usize = 2048;
/// Fewer output channels in a group than this are not worth a product of matrices.
const FEW_CHANNELS: usize = 3;
/// Fewer multiplications than this are done on one thread.
const WORTH_A_THREAD: usize = 1 << 24;

/// The numbers of one convolution.
#[derive(Clone, Copy)]
struct Sizes {
    channels: usize,
    image: [usize; 2],
    padded: [usize; 2],
    out: usize,
    per_group: usize,
    kernel: [usize; 2],
    rows: usize,
    columns: usize,
    g: ConvGeometry,
}

impl Sizes {
    /// Taps of one output channel.
    fn taps(&self) -> usize {
        self.per_group * self.kernel[0] * self.kernel[1]
    }
    fn pixels(&self) -> usize {
        self.rows * self.columns
    }
    fn padded_image(&self) -> usize {
        self.channels * self.padded[0] * self.padded[1]
    }
    /// Where a tap of a group stands, from the pixel's first.
    fn tap(&self, group: usize, tap: usize) -> usize {
        let [kh, kw] = self.kernel;
        let (channel, i, j) = (group * self.per_group + tap / (kh * kw), tap / kw % kh, tap % kw);
        (channel * self.padded[0] + i * self.g.dilation[0]) * self.padded[1] + j * self.g.dilation[1]
    }
    /// Where the first tap of an output pixel stands.
    fn pixel(&self, pixel: usize) -> usize {
        let (image, pixel) = (pixel / self.pixels(), pixel % self.pixels());
        let (row, column) = (pixel / self.columns, pixel % self.columns);
        image * self.padded_image() + row * self.g.stride[0] * self.padded[1] + column * self.g.stride[1]
    }
}

/// NCHW by OIHW.
pub fn conv<W: Word>(
    level: Level,
    threads: usize,
    x: &[W],
    x_shape: &Shape,
    w: &[W],
    w_shape: &Shape,
    g: &ConvGeometry,
) -> Vec<W> {
    let [n, channels, height, width] = x_shape.dims().try_into().expect("NCHW, checked by the plan");
    let [out, per_group, kh, kw] = w_shape.dims().try_into().expect("OIHW, checked by the plan");
    let [rows, columns] = g.output([height, width], [kh, kw]).expect("checked by the plan");
    let padded = [height + g.pad[0] + g.pad[2], width + g.pad[1] + g.pad[3]];
    let s = Sizes {
        channels,
        image: [height, width],
        padded,
        out,
        per_group,
        kernel: [kh, kw],
        rows,
        columns,
        g: *g,
    };
    let mut result = vec![W::ZERO; n * out * rows * columns];
    if result.is_empty() || s.taps() == 0 {
        return result;
    }
    let threads = if result.len() * s.taps() < WORTH_A_THREAD { 1 } else { threads };
    let together = PIXELS.div_ceil(s.pixels()).clamp(1, n);
    let mut room = vec![];
    for (x, result) in
        x.chunks(together * channels * height * width).zip(result.chunks_mut(together * out * rows * columns))
    {
        let images = result.len() / (out * rows * columns);
        let x = if padded == [height, width] { x } else { pad(&s, x, images, threads, &mut room) };
        some_images(level, threads, &s, x, w, images, result);
    }
    result
}

/// The images with zeros around them.
fn pad<'a, W: Word>(s: &Sizes, x: &[W], images: usize, threads: usize, room: &'a mut Vec<W>) -> &'a [W] {
    let [height, width] = s.image;
    // The borders stay zero from one group of images to the next.
    room.resize(images * s.padded_image(), W::ZERO);
    let threads = if x.len() < 1 << 18 { 1 } else { threads };
    chunks(threads, room, s.padded[0] * s.padded[1], |plane, room| {
        for (row, from) in x[plane * height * width..][..height * width].chunks_exact(width).enumerate() {
            room[(row + s.g.pad[0]) * s.padded[1] + s.g.pad[1]..][..width].copy_from_slice(from);
        }
    });
    room
}

fn some_images<W: Word>(
    level: Level,
    threads: usize,
    s: &Sizes,
    x: &[W],
    w: &[W],
    images: usize,
    result: &mut [W],
) {
    let (m, taps) = (s.out / s.g.groups, s.taps());
    let n = images * s.pixels();
    if m < FEW_CHANNELS {
        return few_channels(level, threads, s, x, w, result);
    }
    let nr = tile_columns::<W>(level);
    let shared = Disjoint::new(result);
    let left = |group: usize, rows: std::ops::Range<usize>| Left {
        data: &w[(group * m + rows.start) * taps..(group * m + rows.end) * taps],
        m: rows.len(),
        k: taps,
    };
    if n < FEW_COLUMNS {
        let part = m.div_ceil(2 * threads).max(16);
        let parts = m.div_ceil(part);
        for group in 0..s.g.groups {
            let place: Vec<usize> = (0..taps).map(|t| s.tap(group, t)).collect();
            let patches: Vec<W> = (0..n).flat_map(|j| place.iter().map(move |t| x[s.pixel(j) + t])).collect();
            parallel(threads, parts, |task| {
                let rows = task * part..m.min((task + 1) * part);
                few_columns(level, left(group, 0..m), rows, &patches, |i, j, sum| {
                    let at = (j / s.pixels() * s.out + group * m + i) * s.pixels() + j % s.pixels();
                    // SAFETY: every task has output channels of its own.
                    unsafe { shared.part(at..at + 1)[0] = sum };
                });
            });
        }
        return;
    }
    let tiles = tiles(threads.div_ceil(s.g.groups), m, taps, n, nr);
    parallel(threads, s.g.groups * tiles.len(), |task| {
        let (group, (rows, columns)) = (task / tiles.len(), &tiles[task % tiles.len()]);
        let place: Vec<usize> = (0..taps).map(|t| s.tap(group, t)).collect();
        let pixels: Vec<usize> = columns.clone().map(|j| s.pixel(j)).collect();
        let pack = |k0: usize, depth: usize, j0: usize, sliver: &mut [W]| {
            let pixels = &pixels[j0..pixels.len().min(j0 + nr)];
            pack(level, x, &place[k0..k0 + depth], pixels, nr, sliver);
        };
        // The tile's columns may begin inside an image.
        let (image, within) = (columns.start / s.pixels(), columns.start % s.pixels());
        let base = (image * s.out + group * m + rows.start) * s.pixels();
        let target =
            Target { base, row: s.pixels(), run: s.pixels(), block: s.out * s.pixels(), first: within };
        product(level, left(group, rows.clone()), columns.len(), &pack, &shared, target);
    });
}

/// Rows of patches: one per tap, `nr` pixels each.
fn pack<W: Word>(level: Level, x: &[W], taps: &[usize], pixels: &[usize], nr: usize, sliver: &mut [W]) {
    let neighbours = pixels.len() == nr && pixels.windows(2).all(|p| p[1] == p[0] + 1);
    if neighbours {
        for (sliver, tap) in sliver.chunks_exact_mut(nr).zip(taps) {
            sliver.copy_from_slice(&x[pixels[0] + tap..][..nr]);
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() && W::STORED >= 32 {
        let last = pixels.iter().max().zip(taps.iter().max()).map(|(p, t)| p + t);
        assert!(last.is_none_or(|last| last < x.len()) && sliver.len() >= taps.len() * nr);
        assert_eq!(nr * size_of::<W>(), 128);
        // SAFETY: the level is a witness of the instructions, the lengths are checked, and the type
        // is as wide as it tells.
        unsafe {
            match W::STORED {
                64 => x86::pack(x.as_ptr().cast::<u64>(), taps, pixels, sliver.as_mut_ptr().cast()),
                _ => x86::pack(x.as_ptr().cast::<u32>(), taps, pixels, sliver.as_mut_ptr().cast()),
            }
        }
        return;
    }
    let _ = level;
    for (sliver, tap) in sliver.chunks_exact_mut(nr).zip(taps) {
        for (out, pixel) in sliver.iter_mut().zip(pixels) {
            *out = x[pixel + tap];
        }
    }
}

/// Depthwise and nearly so: every output row is a sum of scaled input rows.
fn few_channels<W: Word>(level: Level, threads: usize, s: &Sizes, x: &[W], w: &[W], result: &mut [W]) {
    let (m, taps) = (s.out / s.g.groups, s.taps());
    chunks(threads, result, s.pixels(), |plane, result| {
        let (image, channel) = (plane / s.out, plane % s.out);
        let x = &x[image * s.padded_image()..][..s.padded_image()];
        for (tap, &w) in w[channel * taps..][..taps].iter().enumerate() {
            let at = s.tap(channel / m, tap);
            for (row, out) in result.chunks_exact_mut(s.columns).enumerate() {
                scaled_row(level, out, &x[at + row * s.g.stride[0] * s.padded[1]..], s.g.stride[1], w);
            }
        }
    });
}

at_every_level! {
    /// out[c] += w · x[c · stride].
    fn scaled_row<W: Word>(out: &mut [W], x: &[W], stride: usize, w: W) {
        if stride == 1 {
            out.iter_mut().zip(x).for_each(|(o, x)| *o = o.add(w.mul(*x)));
        } else {
            out.iter_mut().zip(x.iter().step_by(stride)).for_each(|(o, x)| *o = o.add(w.mul(*x)));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// A word whose vectors have masked loads.
    pub trait Lanes: Copy {
        const LANES: usize;
        /// The lanes of `mask` from `from`, the others from `rest`.
        ///
        /// # Safety
        /// The machine has AVX-512 F; the lanes of `mask` may be read.
        unsafe fn load(rest: __m512i, mask: u16, from: *const Self) -> __m512i;
    }

    impl Lanes for u64 {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn load(rest: __m512i, mask: u16, from: *const u64) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_mask_loadu_epi64(rest, mask as u8, from.cast()) }
        }
    }

    impl Lanes for u32 {
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn load(rest: __m512i, mask: u16, from: *const u32) -> __m512i {
            // SAFETY: as the trait's contract says.
            unsafe { _mm512_mask_loadu_epi32(rest, mask, from.cast()) }
        }
    }

    /// For each tap the pixels at `x + tap`, as two vectors. Pixels that are neighbours in the
    /// image are loaded together.
    ///
    /// # Safety
    /// The machine has AVX-512 F; x[tap + pixel] exists for all taps and pixels; at most two
    /// vectors of pixels, and room for two vectors per tap in `sliver`.
    #[target_feature(enable = "avx512f")]
    pub unsafe fn pack<T: Lanes>(x: *const T, taps: &[usize], pixels: &[usize], sliver: *mut T) {
        // Per vector: the lanes of each run of neighbours and where lane 0 would stand, perhaps
        // outside of the image.
        let mut runs = [[(0u16, 0isize); 16]; 2];
        let mut counts = [0; 2];
        for ((runs, count), pixels) in runs.iter_mut().zip(&mut counts).zip(pixels.chunks(T::LANES)) {
            for (lane, &pixel) in pixels.iter().enumerate() {
                let start = pixel as isize - lane as isize;
                if *count == 0 || runs[*count - 1].1 != start {
                    *count += 1;
                    runs[*count - 1].1 = start;
                }
                runs[*count - 1].0 |= 1 << lane;
            }
        }
        for (i, &tap) in taps.iter().enumerate() {
            for v in 0..2 {
                let mut vector = _mm512_setzero_si512();
                for &(mask, start) in &runs[v][..counts[v]] {
                    // SAFETY: only pixels of the image are read; the pointer itself may be outside.
                    vector = unsafe { T::load(vector, mask, x.wrapping_offset(start + tap as isize)) };
                }
                // SAFETY: there is room for two vectors per tap.
                unsafe { _mm512_storeu_si512(sliver.add((2 * i + v) * T::LANES).cast(), vector) };
            }
        }
    }
}
