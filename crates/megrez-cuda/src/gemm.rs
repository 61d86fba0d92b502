//! Products of matrices and images: which kernel, and how it is cut into blocks.

use crate::backend::Launch;
use crate::backend::Result;
use crate::memory::{Buf, LimbOrder, Memory};
use crate::source::{GemmTile, Unit};
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_plan::ConvGeometry;
use megrez_ring::Word;

/// Elements along the sum per step of the tensor-core kernels.
const STEP: usize = 32;
/// Steps after which the lowest diagonals might wrap.
const STEPS_PER_SPLIT: usize = 32767 / STEP;
/// Batches per launch.
const BATCHES: usize = 1 << 15;

/// The kernels' `Problem`.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Problem {
    left: u64,
    right: u64,
    out: u64,
    left_batch: u64,
    right_batch: u64,
    out_batch: u64,
    rows: u32,
    columns: u32,
    steps: u32,
    steps_per_split: u32,
    splits: u32,
    first_batch: u32,
    height: u32,
    width: u32,
    pixels: u32,
    out_width: u32,
    kernel_width: u32,
    channel_blocks: u32,
    groups: u32,
    stride: [i32; 2],
    pad: [i32; 2],
    dilation: [i32; 2],
    channels_out: u32,
}

/// The kernels' `Window`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Window {
    channels: u32,
    height: u32,
    width: u32,
    channels_out: u32,
    rows: u32,
    columns: u32,
    per_group: u32,
    out_per_group: u32,
    kernel: [u32; 2],
    stride: [i32; 2],
    pad: [i32; 2],
    dilation: [i32; 2],
}

fn ints(sizes: [usize; 2]) -> [i32; 2] {
    sizes.map(|s| s as i32)
}

impl Cuda {
    fn gemm_unit<W: Word>(&self) -> Unit {
        Unit::gemm(W::BITS, self.backend.shared_memory(), self.backend.groups())
    }

    fn gemm_tile<W: Word>(&self) -> GemmTile {
        GemmTile::of(W::BITS, self.backend.shared_memory(), self.backend.groups())
    }

    pub(crate) fn multiply<W: Word>(
        &self,
        x: &Buf<W>,
        y: &Buf<W>,
        batch: usize,
        [m, k, n]: [usize; 3],
    ) -> Result<Buf<W>> {
        let (elements, bytes) = (batch * m * n, batch * m * n * size_of::<W>());
        if k == 0 || elements == 0 {
            return Ok(Buf::new(self.zeroed(bytes)?, elements));
        }
        if [m, k, n].iter().any(|&d| d > 1 << 30) || batch > 1 << 30 {
            return Err(self.failed(format!("a product of {batch} × {m}×{k}×{n} is too large")));
        }
        let wide = W::BITS >= 32;
        if wide && m <= 8 {
            return self.multiply_thin(x, y, batch, [m, k, n]);
        }
        let worth = m >= 16 && n >= 16 && k >= STEP && m * n * k >= 1 << 18;
        if wide && worth && k.div_ceil(STEP) <= usize::from(u16::MAX) {
            let out = self.multiply_limbs(x, y, batch, [m, k, n])?;
            return Ok(Buf::new(out, elements));
        }
        let out = self.allocate(bytes)?;
        let blocks = m.div_ceil(64) * n.div_ceil(64);
        let [rows, depth, columns] = [m, k, n].map(|d| d as u32);
        self.batches(batch, |first, count| {
            let launch = Launch { grid: [blocks, 1, count], threads: 256, shared: 0 };
            let args = args![x.at(), y.at(), out.at(), rows, depth, columns, first];
            self.launch(&self.gemm_unit::<W>(), "multiply_words", launch, args)
        })?;
        Ok(Buf::new(out, elements))
    }

    fn batches(&self, batch: usize, mut launch: impl FnMut(u32, usize) -> Result<()>) -> Result<()> {
        (0..batch).step_by(BATCHES).try_for_each(|first| launch(first as u32, BATCHES.min(batch - first)))
    }

    /// Few rows: the right operand is read once, by as many blocks as fill the device.
    fn multiply_thin<W: Word>(
        &self,
        x: &Buf<W>,
        y: &Buf<W>,
        batch: usize,
        [m, k, n]: [usize; 3],
    ) -> Result<Buf<W>> {
        let elements = batch * m * n;
        let out = self.zeroed(elements * size_of::<W>())?;
        let across = n.div_ceil(256);
        let splits = (6 * self.backend.processors()).div_ceil(across * batch).clamp(1, k.div_ceil(64));
        let depth = k.div_ceil(splits).next_multiple_of(64);
        let [rows, length, columns, depth32] = [m, k, n, depth].map(|d| d as u32);
        self.batches(batch, |first, count| {
            let launch = Launch { grid: [across, k.div_ceil(depth), count], threads: 256, shared: 0 };
            let args = args![x.at(), y.at(), out.at(), rows, length, columns, depth32, first];
            self.launch(&self.gemm_unit::<W>(), "multiply_thin", launch, args)
        })?;
        Ok(Buf::new(out, elements))
    }

    fn multiply_limbs<W: Word>(
        &self,
        x: &Buf<W>,
        y: &Buf<W>,
        batch: usize,
        [m, k, n]: [usize; 3],
    ) -> Result<Memory> {
        let (unit, tile) = (self.gemm_unit::<W>(), self.gemm_tile::<W>());
        let steps = k.div_ceil(STEP);
        let row_bytes = steps * STEP * size_of::<W>();
        let (rows, columns) = (m.next_multiple_of(tile.rows), n.next_multiple_of(tile.columns));

        let left = self.allocate(batch * rows * row_bytes)?;
        let quarters = batch * rows * steps * 8;
        let args = args![x.at(), left.at(), m as u64, rows as u64, k as u64, steps as u32, quarters as u64];
        self.run(&unit, "limbs_of_rows", quarters, args)?;
        let right = y.limbs(LimbOrder::Columns([batch, k, n]), || {
            self.limbs_of_columns(y, [batch, k, n], columns, 0)
        })?;
        let problem = Problem {
            left: left.at(),
            right: right.at(),
            left_batch: (rows * row_bytes) as u64,
            right_batch: (columns * row_bytes) as u64,
            out_batch: (m * n) as u64,
            rows: m as u32,
            columns: n as u32,
            steps: steps as u32,
            ..Problem::default()
        };
        self.product::<W>("multiply_limbs", problem, batch, batch * m * n)
    }

    /// Limbs of the columns of matrices of k×n, each filled to `rows` rows, as of a right operand,
    /// or, where `groups` matrices share a row, of a left one.
    fn limbs_of_columns<W: Word>(
        &self,
        x: &Buf<W>,
        [matrices, k, n]: [usize; 3],
        rows: usize,
        groups: usize,
    ) -> Result<Memory> {
        let steps = k.div_ceil(STEP);
        let out = self.allocate(matrices * rows * steps * STEP * size_of::<W>())?;
        let sizes = [k, n, rows].map(|d| d as u64);
        let (steps32, groups) = (steps as u32, groups as u32);
        self.batches(matrices, |first, count| {
            let launch = Launch { grid: [rows.div_ceil(32), steps, count], threads: 256, shared: 0 };
            let args = args![x.at(), out.at(), sizes[0], sizes[1], sizes[2], steps32, groups, first];
            self.launch(&self.gemm_unit::<W>(), "limbs_of_columns", launch, args)
        })?;
        Ok(out)
    }

    /// Runs a tensor-core kernel, cut along the sum where that fills the device or keeps sums
    /// exact.
    fn product<W: Word>(
        &self,
        kernel: &'static str,
        mut problem: Problem,
        batch: usize,
        elements: usize,
    ) -> Result<Memory> {
        let tile = self.gemm_tile::<W>();
        let steps = problem.steps as usize;
        let tiles =
            (problem.rows as usize).div_ceil(tile.rows) * (problem.columns as usize).div_ceil(tile.columns);
        let wanted = (self.backend.processors() / (tiles * batch)).clamp(1, steps.div_ceil(8));
        let per_split = steps.div_ceil(wanted).min(STEPS_PER_SPLIT);
        let splits = steps.div_ceil(per_split);
        (problem.steps_per_split, problem.splits) = (per_split as u32, splits as u32);
        let bytes = elements * size_of::<W>();
        let out = if splits > 1 { self.zeroed(bytes)? } else { self.allocate(bytes)? };
        problem.out = out.at();
        self.batches(batch, |first, count| {
            problem.first_batch = first;
            let launch = Launch { grid: [tiles * splits, 1, count], threads: 256, shared: tile.shared };
            self.launch(&self.gemm_unit::<W>(), kernel, launch, args![problem])
        })?;
        Ok(out)
    }

    pub(crate) fn convolve<W: Word>(
        &self,
        x: &Buf<W>,
        x_shape: [usize; 4],
        w: &Buf<W>,
        w_shape: [usize; 4],
        g: &ConvGeometry,
    ) -> Result<Buf<W>> {
        let [images, channels, height, width] = x_shape;
        let [channels_out, per_group, kh, kw] = w_shape;
        let Some([rows, columns]) = g.output([height, width], [kh, kw]) else {
            return Err(self.failed(format!("a convolution of {x_shape:?} by {w_shape:?} does not fit")));
        };
        let (pixels, taps, out_per_group) = (rows * columns, kh * kw, channels_out / g.groups);
        let elements = images * channels_out * pixels;
        if elements == 0 {
            return Ok(Buf::new(self.zeroed(0)?, 0));
        }
        let reach = [
            height,
            width,
            kh * g.dilation[0],
            kw * g.dilation[1],
            rows * g.stride[0],
            columns * g.stride[1],
        ];
        let sizes = [images * pixels, channels, channels_out, per_group * taps, height * width];
        if reach.iter().chain(&g.pad).any(|&d| d > 1 << 28) || sizes.iter().any(|&d| d > 1 << 30) {
            return Err(self.failed(format!("a convolution of {x_shape:?} by {w_shape:?} is too large")));
        }
        let unit = self.gemm_unit::<W>();
        let worth = W::BITS >= 32
            && per_group >= 4
            && out_per_group >= 16
            && images * pixels >= 16
            && images * pixels * out_per_group * per_group * taps >= 1 << 18;
        if !worth {
            let out = self.allocate(elements * size_of::<W>())?;
            let window = Window {
                channels: channels as u32,
                height: height as u32,
                width: width as u32,
                channels_out: channels_out as u32,
                rows: rows as u32,
                columns: columns as u32,
                per_group: per_group as u32,
                out_per_group: out_per_group as u32,
                kernel: [kh as u32, kw as u32],
                stride: ints(g.stride),
                pad: ints([g.pad[0], g.pad[1]]),
                dilation: ints(g.dilation),
            };
            let args = args![x.at(), w.at(), out.at(), window, elements as u64];
            self.run(&unit, "convolve_words", elements, args)?;
            return Ok(Buf::new(out, elements));
        }

        let blocks = per_group.div_ceil(STEP);
        let step_bytes = STEP * size_of::<W>();
        let left = self.limbs_of_columns(
            x,
            [images * g.groups, per_group, height * width],
            height * width,
            g.groups,
        )?;
        let padded = out_per_group.next_multiple_of(self.gemm_tile::<W>().columns);
        let order = LimbOrder::Weights([g.groups, out_per_group, per_group, taps]);
        let right = w.limbs(order, || {
            let quarters = g.groups * padded * taps * blocks * 8;
            let out = self.allocate(quarters / 8 * step_bytes)?;
            let [rows, padded, channels, taps, blocks] =
                [out_per_group, padded, per_group, taps, blocks].map(|d| d as u32);
            let args = args![w.at(), out.at(), rows, padded, channels, taps, blocks, quarters as u64];
            self.run(&unit, "limbs_of_weights", quarters, args)?;
            Ok(out)
        })?;
        let problem = Problem {
            left: left.at(),
            right: right.at(),
            left_batch: (blocks * step_bytes) as u64,
            right_batch: (padded * taps * blocks * step_bytes) as u64,
            out_batch: (out_per_group * pixels) as u64,
            rows: (images * pixels) as u32,
            columns: out_per_group as u32,
            steps: (taps * blocks) as u32,
            height: height as u32,
            width: width as u32,
            pixels: pixels as u32,
            out_width: columns as u32,
            kernel_width: kw as u32,
            channel_blocks: blocks as u32,
            groups: g.groups as u32,
            stride: ints(g.stride),
            pad: ints([g.pad[0], g.pad[1]]),
            dilation: ints(g.dilation),
            channels_out: channels_out as u32,
            ..Problem::default()
        };
        let out = self.product::<W>("convolve_limbs", problem, g.groups, elements)?;
        Ok(Buf::new(out, elements))
    }
}
