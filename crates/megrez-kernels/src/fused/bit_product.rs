//! Products of matrices of bits over F_2, lane by lane.

use crate::cpu::work::{at_every_level, chunks};
use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_plan::BitMatrices;
use megrez_ring::bits;

/// Matrices of packed bits are multiplied over F_2.
pub trait BitProducts: Memory {
    /// The bits [`BitMatrices::output`] of x·y.
    fn bit_product(
        &self,
        x: &Self::Buf<u64>,
        y: &Self::Buf<u64>,
        sizes: BitMatrices,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let host = |x: &Self::Buf<u64>| self.download(<Self::Buf<u64> as Clone>::clone(x));
        let (x, y) = (host(x)?, host(y)?);
        let (rows, columns, lanes) = (sizes.rows, sizes.columns, sizes.lanes());
        self.upload(bits::pack(sizes.elements(), |at| {
            let (l, j) = (at % lanes, at / lanes % columns);
            let (i, b) = (at / lanes / columns % rows, at / lanes / columns / rows);
            (0..sizes.inner).fold(0, |sum, k| {
                let [of_x, of_y] = sizes.operands([b, i, j, l], k);
                sum ^ (bits::get(&x, of_x) & bits::get(&y, of_y))
            })
        }))
    }
}

impl BitProducts for Reference {}

impl BitProducts for Cpu {
    fn bit_product(
        &self,
        x: &Self::Buf<u64>,
        y: &Self::Buf<u64>,
        sizes: BitMatrices,
    ) -> Result<Self::Buf<u64>, DeviceError> {
        let (n, lanes) = (sizes.elements(), sizes.lanes());
        if n == 0 {
            return self.upload(vec![]);
        }
        let words = bits::words(lanes);
        let [of_x, of_y] = sizes.lanes.map(|own| Lanes { own: own == lanes, lanes, words });
        // A pair of matrices, y's rows and the result's on words of their own.
        let (of_rows, of_columns) = (sizes.rows * sizes.inner, sizes.inner * sizes.columns);
        let result = sizes.rows * sizes.columns * words;
        let mut wide = vec![0; sizes.batch * result];
        let work = wide.len() * sizes.inner;
        // So many pairs at a time, as the threads' share.
        let pairs = sizes.batch.div_ceil(4 * self.threads).max(1);
        let threads = if work < WORTH_A_THREAD { 1 } else { self.threads };
        chunks(threads, &mut wide, pairs * result, |task, out| {
            for (b, out) in (task * pairs..).zip(out.chunks_exact_mut(result)) {
                let x = of_x.spread(x, b * of_rows, of_rows);
                let y = of_y.spread(y, b * of_columns, of_columns);
                let rows = x.chunks_exact(sizes.inner * of_x.width());
                for (x, out) in rows.zip(out.chunks_exact_mut(sizes.columns * words)) {
                    multiply(self.level, (x, of_x.width()), (&y, of_y.width()), words, out);
                }
            }
        });
        match lanes.is_multiple_of(64) {
            true => self.upload(wide),
            false => self.upload(bits::dense(&wide, n / lanes, lanes)),
        }
    }
}

/// Fewer words that are multiplied than this are one thread's work.
const WORTH_A_THREAD: usize = 1 << 17;

/// How an operand's elements become words.
#[derive(Clone, Copy)]
struct Lanes {
    /// Whether it has a bit for each lane, or one for all.
    own: bool,
    lanes: usize,
    words: usize,
}

impl Lanes {
    /// Words of an element.
    fn width(self) -> usize {
        if self.own { self.words } else { 1 }
    }

    /// `count` elements from `first` on. Past the lanes bits are zero where each has its own.
    fn spread(self, x: &[u64], first: usize, count: usize) -> Vec<u64> {
        if !self.own {
            return (first..first + count).map(|i| bits::get(x, i).wrapping_neg()).collect();
        }
        bits::spaced(x, first * self.lanes, count, self.lanes)
    }
}

/// Words that are added up side by side.
const BLOCK: usize = 8;

at_every_level! {
    /// A row of x by all columns of y, elements as wide as is said; `out` is [columns, words].
    #[allow(clippy::needless_range_loop, reason = "iterators over arrays are called, not inlined, here")]
    fn multiply<>(x: (&[u64], usize), y: (&[u64], usize), words: usize, out: &mut [u64]) {
        let (inner, columns) = (x.0.len() / x.1, out.len() / words);
        for (j, out) in out.chunks_exact_mut(words).enumerate() {
            let mut from = 0;
            while from < words {
                let count = BLOCK.min(words - from);
                let mut sum = [0u64; BLOCK];
                for k in 0..inner {
                    let at_x = k * x.1 + if x.1 == 1 { 0 } else { from };
                    let at_y = (k * columns + j) * y.1 + if y.1 == 1 { 0 } else { from };
                    if count == BLOCK && x.1 == 1 && y.1 > 1 {
                        let (x, y) = (x.0[at_x], &y.0[at_y..at_y + BLOCK]);
                        for i in 0..BLOCK {
                            sum[i] ^= x & y[i];
                        }
                    } else if count == BLOCK && x.1 > 1 && y.1 > 1 {
                        let (x, y) = (&x.0[at_x..at_x + BLOCK], &y.0[at_y..at_y + BLOCK]);
                        for i in 0..BLOCK {
                            sum[i] ^= x[i] & y[i];
                        }
                    } else {
                        for (i, sum) in sum[..count].iter_mut().enumerate() {
                            let of = |all: (&[u64], usize), at: usize| all.0[if all.1 == 1 { at } else { at + i }];
                            *sum ^= of(x, at_x) & of(y, at_y);
                        }
                    }
                }
                out[from..from + count].copy_from_slice(&sum[..count]);
                from += count;
            }
        }
    }
}
