//! The CPU device: the fastest instructions that the machine has, chosen when it runs, on some
//! threads.

mod conv;
pub(crate) mod element;
pub(crate) mod field;
mod gemm;
pub(crate) mod narrow;
mod planes;
mod structure;
#[cfg(test)]
mod tests;
pub(crate) mod work;

use crate::circuit::Program;
use crate::device::{Device, Placement};
use crate::host::Cpu;
use crate::memory::{DeviceError, Elem};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word, bits};
use megrez_weights::Matrix;
use std::sync::Arc;

type Buf<T> = Arc<Vec<T>>;
type Result<T> = std::result::Result<T, DeviceError>;

impl Device for Cpu {
    fn combine<W: Word>(&self, terms: &[(W, &Buf<W>)], constant: W, n: usize) -> Result<Buf<W>> {
        let terms: Vec<(W, &[W])> = terms.iter().map(|(c, x)| (*c, &x[..n])).collect();
        Ok(self.build(n, |start, out| element::combine(self.level, &terms, constant, start, out)))
    }

    fn products<W: Word>(
        &self,
        products: &[(W, &Buf<W>, &Buf<W>)],
        terms: &[(W, &Buf<W>)],
    ) -> Result<Buf<W>> {
        let n = products[0].1.len();
        let products: Vec<(W, &[W], &[W])> =
            products.iter().map(|(c, x, y)| (*c, &x[..n], &y[..n])).collect();
        let terms: Vec<(W, &[W])> = terms.iter().map(|(c, x)| (*c, &x[..n])).collect();
        Ok(self.build(n, |start, out| element::products(self.level, &products, &terms, start, out)))
    }

    fn shift_right<W: Word>(&self, x: &Buf<W>, k: u32) -> Result<Buf<W>> {
        Ok(self.build(x.len(), |start, out| element::shift_right(self.level, &x[start..], k, out)))
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Buf<W>> {
        Ok(self.build(n, |start, out| element::random(self.level, stream, start, out)))
    }

    fn matmul<W: Word>(&self, x: &Buf<W>, y: &Buf<W>, batch: usize, sizes: [usize; 3]) -> Result<Buf<W>> {
        Ok(Arc::new(gemm::matmul(self.level, self.threads, x, y, batch, sizes)))
    }

    fn times_public<W: Word>(&self, x: &Buf<W>, matrix: &Matrix) -> Result<Buf<W>> {
        Ok(Arc::new(narrow::product_with(self.level, self.threads, x, matrix)))
    }

    fn conv<W: Word>(
        &self,
        x: &Buf<W>,
        x_shape: &Shape,
        w: &Buf<W>,
        w_shape: &Shape,
        geometry: &ConvGeometry,
    ) -> Result<Buf<W>> {
        Ok(Arc::new(conv::conv(self.level, self.threads, x, x_shape, w, w_shape, geometry)))
    }

    fn view<T: Elem>(&self, x: &Buf<T>, view: &View) -> Result<Buf<T>> {
        // Buffers do not change, so a view that only renames the shape shares its input.
        if view.is_contiguous() && view.shape.elements() == x.len() {
            return Ok(x.clone());
        }
        Ok(Arc::new(structure::view(x, view)))
    }

    fn view_bits(&self, x: &Buf<u64>, view: &View) -> Result<Buf<u64>> {
        Ok(Arc::new(structure::view_bits(x, view)))
    }

    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<Buf<T>> {
        let mut out = vec![T::zeroed(); n];
        parts.iter().for_each(|part| structure::place(part.source, &part.target, &mut out));
        Ok(Arc::new(out))
    }

    fn gather<T: Elem>(&self, x: &Buf<T>, sizes: [usize; 3], indices: &[usize]) -> Result<Buf<T>> {
        Ok(Arc::new(structure::gather(x, sizes, indices)))
    }

    fn sum<W: Word>(&self, x: &Buf<W>, sizes: [usize; 3]) -> Result<Buf<W>> {
        Ok(Arc::new(structure::sum(self.level, x, sizes)))
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Buf<u64>> {
        let words = bits::words(n);
        let mut out = self.build_vec(words, |start, out| element::random(self.level, stream, start, out));
        bits::clear_tail(&mut out, n);
        Ok(Arc::new(out))
    }

    fn xor(&self, inputs: &[&Buf<u64>], negate: bool, n: usize) -> Result<Buf<u64>> {
        let negate = if negate { u64::MAX } else { 0 };
        let mut out = self.build_vec(bits::words(n), |start, out: &mut [u64]| {
            out.fill(negate);
            for x in inputs {
                out.iter_mut().zip(&x[start..]).for_each(|(o, x)| *o ^= x);
            }
        });
        bits::clear_tail(&mut out, n);
        Ok(Arc::new(out))
    }

    fn join_bits(&self, parts: &[(&Buf<u64>, usize)]) -> Result<Buf<u64>> {
        let mut filled = 0;
        let mut out = Vec::with_capacity(bits::words(parts.iter().map(|(_, n)| n).sum()));
        for (part, n) in parts {
            bits::append(&mut out, filled, part, *n);
            filled += n;
        }
        Ok(Arc::new(out))
    }

    fn and(&self, a: &Buf<u64>, b: &Buf<u64>) -> Result<Buf<u64>> {
        Ok(self.build(a.len(), |start, out: &mut [u64]| {
            let operands = a[start..].iter().zip(&b[start..]);
            out.iter_mut().zip(operands).for_each(|(o, (a, b))| *o = a & b);
        }))
    }

    fn msb<W: Word>(&self, x: &Buf<W>) -> Result<Buf<u64>> {
        Ok(self.build(bits::words(x.len()), |start, out| element::msb(self.level, &x[start * 64..], out)))
    }

    fn bit_times<W: Word>(&self, bit: &Buf<u64>, x: Option<&Buf<W>>, n: usize) -> Result<Buf<W>> {
        Ok(self.build(n, |start, out| {
            element::bit_times(self.level, &bit[start / 64..], x.map(|x| &x[start..]), out);
        }))
    }

    fn pack_low<W: Word>(&self, x: &Buf<W>, width: u32) -> Result<Buf<u64>> {
        let mut out = vec![0; bits::words(x.len() * width as usize)];
        let threads = if x.len() < 1 << 18 { 1 } else { self.threads };
        // 64 elements are `width` words.
        work::chunks(threads, &mut out, 1024 * width as usize, |i, out| {
            let from = i * 1024 * 64;
            element::pack_low(self.level, &x[from..x.len().min(from + 1024 * 64)], width, out);
        });
        Ok(Arc::new(out))
    }

    fn unpack_low<W: Word>(&self, x: &Buf<u64>, width: u32, n: usize) -> Result<Buf<W>> {
        Ok(self.build(n, |start, out| element::unpack_low(self.level, x, width, start, out)))
    }

    fn bit_planes<W: Word>(&self, x: &Buf<W>, from: u32, count: u32) -> Result<Buf<u64>> {
        Ok(Arc::new(planes::bit_planes((self.level, self.threads), x, from, count)))
    }

    fn join_planes<W: Word>(&self, x: &Buf<u64>, n: usize) -> Result<Buf<W>> {
        Ok(Arc::new(planes::join_planes((self.level, self.threads), x, n)))
    }

    fn pack_planes(&self, x: &Buf<u64>, planes: usize, n: usize) -> Result<Buf<u64>> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        Ok(Arc::new(bits::dense(x, planes, n)))
    }

    fn unpack_planes(&self, x: &Buf<u64>, planes: usize, n: usize) -> Result<Buf<u64>> {
        if n.is_multiple_of(64) {
            return Ok(x.clone());
        }
        Ok(Arc::new(bits::spaced(x, 0, planes, n)))
    }

    fn run_circuit(&self, program: &Program, inputs: &[&Buf<u64>], words: usize) -> Result<Vec<Buf<u64>>> {
        let inputs: Vec<&[u64]> = inputs.iter().map(|x| x.as_slice()).collect();
        let outputs = planes::run_circuit((self.level, self.threads), program, &inputs, words);
        Ok(outputs.into_iter().map(Arc::new).collect())
    }
}
