//! The CPU device: the fastest instructions that the machine has, chosen when it runs, on some threads.

mod conv;
mod field;
mod gemm;
mod list;
mod work;

use crate::device::*;
use crate::{ListSpec, Reference};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::{Level, Stream};
use megrez_ring::{Shape, Word};
use std::sync::Arc;

type Buf<T> = Arc<Vec<T>>;
type Result<T> = std::result::Result<T, DeviceError>;

/// Host memory and the machine's vector units.
#[derive(Clone)]
pub struct Cpu {
    threads: usize,
    level: Level,
}

impl Default for Cpu {
    fn default() -> Self {
        Cpu::new(std::thread::available_parallelism().map_or(1, |n| n.get()))
    }
}

impl Cpu {
    /// A device that uses up to `threads` threads where a kernel is worth it.
    pub fn new(threads: usize) -> Self {
        Cpu::at_level(Level::detect(), threads)
    }

    /// A device that uses the instructions of one level only: for tests, which compare all levels of a machine.
    pub fn at_level(level: Level, threads: usize) -> Self {
        Cpu { threads: threads.max(1), level }
    }
}

impl Device for Cpu {
    type Buf<T: Elem> = Buf<T>;

    fn describe(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("cpu ({}, {} thread{plural})", self.level.name(), self.threads)
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Buf<T>> {
        Ok(Arc::new(data))
    }

    fn download<T: Elem>(&self, buf: Buf<T>) -> Result<Vec<T>> {
        Ok(Arc::try_unwrap(buf).unwrap_or_else(|shared| shared.to_vec()))
    }

    fn combine<W: Word>(&self, terms: &[(W, &Buf<W>)], constant: W, n: usize) -> Result<Buf<W>> {
        Reference.combine(terms, constant, n)
    }

    fn products<W: Word>(
        &self,
        products: &[(W, &Buf<W>, &Buf<W>)],
        terms: &[(W, &Buf<W>)],
    ) -> Result<Buf<W>> {
        Reference.products(products, terms)
    }

    fn shift_right<W: Word>(&self, x: &Buf<W>, k: u32) -> Result<Buf<W>> {
        Reference.shift_right(x, k)
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Buf<W>> {
        Reference.random(stream, n)
    }

    fn matmul<W: Word>(&self, x: &Buf<W>, y: &Buf<W>, batch: usize, sizes: [usize; 3]) -> Result<Buf<W>> {
        Ok(Arc::new(gemm::matmul(self.level, self.threads, x, y, batch, sizes)))
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
        Reference.view(x, view)
    }

    fn view_bits(&self, x: &Buf<u64>, view: &View) -> Result<Buf<u64>> {
        Reference.view_bits(x, view)
    }

    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<Buf<T>> {
        let parts: Vec<Placement<'_, T, Reference>> =
            parts.iter().map(|p| Placement { source: p.source, target: p.target.clone() }).collect();
        Reference.place(&parts, n)
    }

    fn gather<T: Elem>(&self, x: &Buf<T>, sizes: [usize; 3], indices: &[usize]) -> Result<Buf<T>> {
        Reference.gather(x, sizes, indices)
    }

    fn sum<W: Word>(&self, x: &Buf<W>, sizes: [usize; 3]) -> Result<Buf<W>> {
        Reference.sum(x, sizes)
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Buf<u64>> {
        Reference.random_bits(stream, n)
    }

    fn xor(&self, inputs: &[&Buf<u64>], negate: bool, n: usize) -> Result<Buf<u64>> {
        Reference.xor(inputs, negate, n)
    }

    fn and(&self, a: &Buf<u64>, b: &Buf<u64>) -> Result<Buf<u64>> {
        Reference.and(a, b)
    }

    fn msb<W: Word>(&self, x: &Buf<W>) -> Result<Buf<u64>> {
        Reference.msb(x)
    }

    fn bit_times<W: Word>(&self, bits: &Buf<u64>, x: Option<&Buf<W>>, n: usize) -> Result<Buf<W>> {
        Reference.bit_times(bits, x, n)
    }

    fn pack_low<W: Word>(&self, x: &Buf<W>, width: u32) -> Result<Buf<u64>> {
        Reference.pack_low(x, width)
    }

    fn unpack_low<W: Word>(&self, x: &Buf<u64>, width: u32, n: usize) -> Result<Buf<W>> {
        Reference.unpack_low(x, width, n)
    }

    fn deal_list<W: Word>(
        &self,
        spec: &ListSpec,
        masks: &Buf<W>,
        other: &Stream,
    ) -> Result<(Buf<u64>, Buf<u64>)> {
        let (dealt, sign) = list::deal_list((self.level, self.threads), spec, masks, other);
        Ok((Arc::new(dealt), Arc::new(sign)))
    }

    fn masked_list<W: Word>(
        &self,
        spec: &ListSpec,
        j: usize,
        masked: &Buf<W>,
        share: FieldShare<'_, Self>,
        flips: &Buf<u64>,
        streams: &ListStreams<'_>,
    ) -> Result<Buf<u64>> {
        let share = match share {
            FieldShare::Packed(words) => list::Share::Packed(words),
            FieldShare::Stream(stream) => list::Share::Stream(stream),
        };
        let streams = [streams.multiplier, streams.zero_share, streams.rotation];
        Ok(Arc::new(list::masked_list((self.level, self.threads), spec, j, masked, share, flips, streams)))
    }

    fn scan_lists(&self, spec: &ListSpec, lists: [&Buf<u64>; 2], n: usize) -> Result<Buf<u64>> {
        Ok(Arc::new(list::scan_lists((self.level, self.threads), spec, lists.map(|l| &l[..]), n)))
    }

    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Buf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &Buf<W>,
    ) -> Result<Buf<W>> {
        let t = Truncation { bits: t.bits, high: t.high, top: t.top };
        Reference.open_truncated(j, masked, &t, output_mask)
    }

    fn open_selected<W: Word>(&self, j: usize, s: &Selected<'_, W, Self>) -> Result<Buf<W>> {
        let truncation = s
            .truncation
            .as_ref()
            .map(|(t, top_bit)| (Truncation { bits: t.bits, high: t.high, top: t.top }, *top_bit));
        let s = Selected {
            masked: s.masked,
            mask: s.mask,
            choice: s.choice,
            flip: s.flip,
            bit: s.bit,
            mask_bit: s.mask_bit,
            truncation,
            output_mask: s.output_mask,
        };
        Reference.open_selected(j, &s)
    }
}
