//! The seam: each call of [`Device`] in terms of kernels.

use crate::backend::{Launch, Result};
use crate::memory::Buf;
use crate::source::Unit;
use crate::structure::{Units, units};
use crate::{Cuda, args};
use bytemuck::{Pod, Zeroable};
use megrez_kernels::{Device, Elem, Memory as _, Placement, Program, Usage};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word, bits};

/// The kernels' `Terms`: at most eight.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Terms {
    x: [u64; 8],
    factor: [u64; 8],
    count: u32,
    unused: u32,
}

impl Terms {
    fn of<W: Word>(terms: &[(W, &Buf<W>)]) -> Self {
        let mut out = Terms { count: terms.len() as u32, ..Terms::default() };
        for (i, (c, x)) in terms.iter().enumerate() {
            (out.x[i], out.factor[i]) = (x.at(), c.to_u64());
        }
        out
    }
}

/// The kernels' `Products`: at most four.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Products {
    x: [u64; 4],
    y: [u64; 4],
    factor: [u64; 4],
    count: u32,
    unused: u32,
}

/// The kernels' `Inputs`: at most eight.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
struct Inputs {
    x: [u64; 8],
    count: u32,
    unused: u32,
}

/// Vectors of 16 bytes that hold n elements.
pub(crate) fn vectors<W: Word>(n: usize) -> usize {
    (n * size_of::<W>()).div_ceil(16)
}

impl Cuda {
    /// Memory for `n` elements, filled by a kernel.
    pub(crate) fn made<T>(&self, n: usize, fill: impl FnOnce(u64) -> Result<()>) -> Result<Buf<T>> {
        let memory = self.allocate(n * size_of::<T>())?;
        fill(memory.at())?;
        Ok(Buf::new(memory, n))
    }

    /// Memory for `n` elements, for a kernel that fills several.
    pub(crate) fn room<T>(&self, n: usize) -> Result<Buf<T>> {
        self.made(n, |_| Ok(()))
    }

    fn keystream<T>(&self, stream: &Stream, n: usize, bits: usize) -> Result<Buf<T>> {
        self.made(n, |out| {
            self.run(
                &Unit::bits(),
                "keystream",
                bits.div_ceil(512),
                args![*stream.key_words(), out, bits as u64],
            )
        })
    }

    /// A view in kernel units, or an error that names it.
    fn units(&self, view: &View, size: usize) -> Result<Units> {
        units(view, size).ok_or_else(|| self.failed(format!("the view {view:?} has too many dimensions")))
    }
}

impl megrez_kernels::Memory for Cuda {
    type Buf<T: Elem> = Buf<T>;

    fn describe(&self) -> String {
        self.backend.describe()
    }

    fn has_ring(&self, ring: u32) -> bool {
        [8, 16, 32, 64].contains(&ring)
    }

    fn usage(&self) -> Result<Option<Usage>> {
        let s = self.statistics()?;
        let kernel_seconds = s.kernel_seconds();
        Ok(Some(Usage { kernel_seconds, memory: s.memory, peak_memory: s.peak_memory }))
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Buf<T>> {
        let bytes: &[u8] = bytemuck::cast_slice(&data);
        let padded = crate::memory::padded(bytes.len());
        let at = self.backend.upload(bytes, padded)?;
        Ok(Buf::new(crate::Memory::new(self.backend.clone(), at, padded), data.len()))
    }

    fn download<T: Elem>(&self, buf: Buf<T>) -> Result<Vec<T>> {
        let mut out = vec![T::default(); buf.len()];
        if !out.is_empty() {
            self.backend.download(buf.at(), bytemuck::cast_slice_mut(&mut out))?;
        }
        Ok(out)
    }
}

impl Device for Cuda {
    fn combine<W: Word>(&self, terms: &[(W, &Buf<W>)], constant: W, n: usize) -> Result<Buf<W>> {
        assert!(terms.iter().all(|(_, x)| x.len() == n));
        let (now, later) = terms.split_at(terms.len().min(8));
        let sum = self.made(n, |out| {
            let vectors = vectors::<W>(n);
            let args = args![Terms::of(now), constant.to_u64(), out, vectors as u64];
            self.run(&Unit::ring(W::BITS), "combine", vectors, args)
        })?;
        match later {
            [] => Ok(sum),
            _ => self.combine(&[&[(W::ONE, &sum)], later].concat(), W::ZERO, n),
        }
    }

    fn products<W: Word>(
        &self,
        products: &[(W, &Buf<W>, &Buf<W>)],
        terms: &[(W, &Buf<W>)],
    ) -> Result<Buf<W>> {
        let n = products[0].1.len();
        assert!(products.iter().all(|(_, x, y)| x.len() == n && y.len() == n));
        assert!(terms.iter().all(|(_, x)| x.len() == n));
        let (now, later) = products.split_at(products.len().min(4));
        let (terms_now, terms_later) = terms.split_at(terms.len().min(8));
        let mut operands = Products { count: now.len() as u32, ..Products::default() };
        for (i, (c, x, y)) in now.iter().enumerate() {
            (operands.x[i], operands.y[i], operands.factor[i]) = (x.at(), y.at(), c.to_u64());
        }
        let sum = self.made(n, |out| {
            let vectors = vectors::<W>(n);
            let args = args![operands, Terms::of(terms_now), out, vectors as u64];
            self.run(&Unit::ring(W::BITS), "products", vectors, args)
        })?;
        let rest = [&[(W::ONE, &sum)], terms_later].concat();
        match (later, terms_later) {
            ([], []) => Ok(sum),
            ([], _) => self.combine(&rest, W::ZERO, n),
            _ => self.products(later, &rest),
        }
    }

    fn shift_right<W: Word>(&self, x: &Buf<W>, k: u32) -> Result<Buf<W>> {
        let vectors = vectors::<W>(x.len());
        self.made(x.len(), |out| {
            self.run(&Unit::ring(W::BITS), "shift_right", vectors, args![x.at(), k, out, vectors as u64])
        })
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Buf<W>> {
        self.keystream(stream, n, n * W::BITS as usize)
    }

    fn matmul<W: Word>(&self, x: &Buf<W>, y: &Buf<W>, batch: usize, sizes: [usize; 3]) -> Result<Buf<W>> {
        assert_eq!(x.len(), batch * sizes[0] * sizes[1]);
        assert_eq!(y.len(), batch * sizes[1] * sizes[2]);
        self.multiply(x, y, batch, sizes)
    }

    fn conv<W: Word>(
        &self,
        x: &Buf<W>,
        x_shape: &Shape,
        w: &Buf<W>,
        w_shape: &Shape,
        geometry: &ConvGeometry,
    ) -> Result<Buf<W>> {
        let four = |shape: &Shape| {
            <[usize; 4]>::try_from(shape.dims()).expect("four dimensions, checked by the plan")
        };
        self.convolve(x, four(x_shape), w, four(w_shape), geometry)
    }

    fn view<T: Elem>(&self, x: &Buf<T>, view: &View) -> Result<Buf<T>> {
        assert!(view.fits(x.len()));
        let n = view.shape.elements();
        if n == x.len() && view.is_contiguous() {
            return Ok(x.clone());
        }
        let Units { view, unit, count } = self.units(view, size_of::<T>())?;
        self.made(n, |out| match view.turned() {
            Some((turned, blocks)) => {
                let launch = Launch { grid: [blocks, 1, 1], threads: 256, shared: 0 };
                let args = args![x.at(), view, out, turned as u32];
                self.launch(&Unit::structure(unit), "view_turned", launch, args)
            }
            None => self.run(&Unit::structure(unit), "view", count, args![x.at(), view, out, count as u64]),
        })
    }

    fn view_bits(&self, x: &Buf<u64>, view: &View) -> Result<Buf<u64>> {
        let n = view.shape.elements();
        let Units { view, .. } = self.units(view, 0)?;
        self.made(bits::words(n), |out| {
            self.run(&Unit::bits(), "view_bits", bits::words(n) * 64, args![x.at(), view, out, n as u64])
        })
    }

    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<Buf<T>> {
        let memory = self.zeroed(n * size_of::<T>())?;
        for Placement { source, target } in parts {
            assert!(target.fits(n) && target.shape.elements() == source.len());
            let Units { view, unit, count } = self.units(target, size_of::<T>())?;
            let args = args![source.at(), view, memory.at(), count as u64];
            self.run(&Unit::structure(unit), "place", count, args)?;
        }
        Ok(Buf::new(memory, n))
    }

    fn gather<T: Elem>(
        &self,
        x: &Buf<T>,
        [outer, axis, inner]: [usize; 3],
        indices: &[usize],
    ) -> Result<Buf<T>> {
        assert_eq!(x.len(), outer * axis * inner);
        let n = outer * indices.len() * inner;
        if n == 0 {
            return Ok(Buf::new(self.zeroed(0)?, 0));
        }
        let slice = inner * size_of::<T>();
        let unit = 1 << slice.trailing_zeros().min(4);
        let (inner, count) = (slice / unit, outer * indices.len() * slice / unit);
        let places = self.upload(indices.iter().map(|&i| i as u64).collect())?;
        self.made(n, |out| {
            let sizes = [axis, inner, indices.len(), count].map(|d| d as u64);
            let args = args![x.at(), places.at(), sizes[0], sizes[1], sizes[2], out, sizes[3]];
            self.run(&Unit::structure(unit), "gather", count, args)
        })
    }

    fn sum<W: Word>(&self, x: &Buf<W>, [outer, axis, inner]: [usize; 3]) -> Result<Buf<W>> {
        assert_eq!(x.len(), outer * axis * inner);
        let n = outer * inner;
        self.made(n, |out| {
            let unit = Unit::ring(W::BITS);
            if inner == 1 && axis >= 64 {
                self.run(&unit, "sum_rows", n * 32, args![x.at(), axis as u64, out, n as u64])
            } else {
                let args = args![x.at(), axis as u64, inner as u64, out, n as u64];
                self.run(&unit, "sum_columns", n, args)
            }
        })
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Buf<u64>> {
        self.keystream(stream, bits::words(n), n)
    }

    fn xor(&self, inputs: &[&Buf<u64>], negate: bool, n: usize) -> Result<Buf<u64>> {
        let words = bits::words(n);
        assert!(inputs.iter().all(|x| x.len() == words));
        let (now, later) = inputs.split_at(inputs.len().min(8));
        let mut operands = Inputs { count: now.len() as u32, ..Inputs::default() };
        for (place, x) in operands.x.iter_mut().zip(now) {
            *place = x.at();
        }
        let start = if negate { u64::MAX } else { 0 };
        let sum = self.made(words, |out| {
            let args = args![operands, start, out, n as u64, words as u64];
            self.run(&Unit::bits(), "exclusive_or", words, args)
        })?;
        match later {
            [] => Ok(sum),
            _ => self.xor(&[&[&sum], later].concat(), false, n),
        }
    }

    fn and(&self, a: &Buf<u64>, b: &Buf<u64>) -> Result<Buf<u64>> {
        assert_eq!(a.len(), b.len());
        let words = a.len();
        self.made(words, |out| {
            self.run(&Unit::bits(), "both", words, args![a.at(), b.at(), out, words as u64])
        })
    }

    fn msb<W: Word>(&self, x: &Buf<W>) -> Result<Buf<u64>> {
        let n = x.len();
        self.made(bits::words(n), |out| {
            // A warp takes 256 elements.
            let threads = (bits::words(n) * 64).div_ceil(256) * 32;
            self.run(&Unit::ring(W::BITS), "msb", threads, args![x.at(), out, n as u64])
        })
    }

    fn bit_times<W: Word>(&self, bit: &Buf<u64>, x: Option<&Buf<W>>, n: usize) -> Result<Buf<W>> {
        assert!(bit.len() == bits::words(n) && x.is_none_or(|x| x.len() == n));
        let vectors = vectors::<W>(n);
        self.made(n, |out| {
            let args = args![bit.at(), x.map_or(0, Buf::at), out, vectors as u64];
            self.run(&Unit::ring(W::BITS), "bit_times", vectors, args)
        })
    }

    fn pack_low<W: Word>(&self, x: &Buf<W>, width: u32) -> Result<Buf<u64>> {
        let words = bits::words(x.len() * width as usize);
        self.made(words, |out| {
            let args = args![x.at(), width, out, x.len() as u64, words as u64];
            self.run(&Unit::ring(W::BITS), "pack_low", words, args)
        })
    }

    fn unpack_low<W: Word>(&self, x: &Buf<u64>, width: u32, n: usize) -> Result<Buf<W>> {
        assert!(x.len() >= bits::words(n * width as usize));
        self.made(n, |out| {
            let vectors = vectors::<W>(n);
            let args = args![x.at(), width, out, n as u64, vectors as u64];
            self.run(&Unit::ring(W::BITS), "unpack_low", vectors, args)
        })
    }

    fn join_bits(&self, parts: &[(&Buf<u64>, usize)]) -> Result<Buf<u64>> {
        self.joined_bits(parts)
    }

    fn bit_planes<W: Word>(&self, x: &Buf<W>, from: u32, count: u32) -> Result<Buf<u64>> {
        assert!(from + count <= W::BITS);
        self.split_planes(x, from, count)
    }

    fn join_planes<W: Word>(&self, x: &Buf<u64>, n: usize) -> Result<Buf<W>> {
        self.joined_planes(x, n)
    }

    fn pack_planes(&self, x: &Buf<u64>, planes: usize, n: usize) -> Result<Buf<u64>> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        self.dense_planes(x, planes, n)
    }

    fn unpack_planes(&self, x: &Buf<u64>, planes: usize, n: usize) -> Result<Buf<u64>> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        self.sparse_planes(x, planes, n)
    }

    fn run_circuit(&self, program: &Program, inputs: &[&Buf<u64>], words: usize) -> Result<Vec<Buf<u64>>> {
        self.gates(program, inputs, words)
    }
}
