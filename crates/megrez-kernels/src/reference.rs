//! Every kernel in the plainest code: the statement of what a device computes, and the oracle of
//! the differential suite.
//!
//! For tests only: it is slow. Fused steps run as their traits state them in plain code (`fused`),
//! which is not constant-time: branches and memory indices depend on shares, rotations and Δ there,
//! and on none of them in [`crate::Cpu`]'s forms.

use crate::device::{Device, Placement};
use crate::host::Reference;
use crate::memory::{DeviceError, Elem};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::Stream;
use megrez_ring::{Shape, Word, bits};
use megrez_weights::Matrix;
use std::sync::Arc;

type Buf<T> = Arc<Vec<T>>;
type Result<T> = std::result::Result<T, DeviceError>;

fn made<T>(data: Vec<T>) -> Result<Buf<T>> {
    Ok(Arc::new(data))
}

impl Device for Reference {
    fn combine<W: Word>(&self, terms: &[(W, &Buf<W>)], constant: W, n: usize) -> Result<Buf<W>> {
        made((0..n).map(|i| terms.iter().fold(constant, |sum, (c, x)| sum.add(c.mul(x[i])))).collect())
    }

    fn products<W: Word>(
        &self,
        products: &[(W, &Buf<W>, &Buf<W>)],
        terms: &[(W, &Buf<W>)],
    ) -> Result<Buf<W>> {
        let n = products[0].1.len();
        let at = |i: usize| {
            let sum = products.iter().fold(W::ZERO, |sum, (c, x, y)| sum.add(c.mul(x[i].mul(y[i]))));
            terms.iter().fold(sum, |sum, (c, x)| sum.add(c.mul(x[i])))
        };
        made((0..n).map(at).collect())
    }

    fn shift_right<W: Word>(&self, x: &Buf<W>, k: u32) -> Result<Buf<W>> {
        made(x.iter().map(|x| x.shr(k)).collect())
    }

    fn random<W: Word>(&self, stream: &Stream, n: usize) -> Result<Buf<W>> {
        let words = stream.words((n * W::STORED as usize).div_ceil(64));
        made(bytemuck::cast_slice::<u64, W>(&words)[..n].to_vec())
    }

    fn times_public<W: Word>(&self, x: &Buf<W>, matrix: &Matrix) -> Result<Buf<W>> {
        let (rows, columns) = (matrix.rows(), matrix.columns());
        let entry = |x: &[W], n: usize| {
            let terms = x.iter().enumerate().map(|(k, x)| x.mul(W::from_i64(matrix.word(k, n))));
            terms.fold(W::ZERO, W::add)
        };
        made(x.chunks_exact(rows).flat_map(|x| (0..columns).map(move |n| entry(x, n))).collect())
    }

    fn matmul<W: Word>(&self, x: &Buf<W>, y: &Buf<W>, batch: usize, [m, k, n]: [usize; 3]) -> Result<Buf<W>> {
        let mut out = vec![W::ZERO; batch * m * n];
        for b in 0..batch {
            for i in 0..m {
                for q in 0..k {
                    let a = x[(b * m + i) * k + q];
                    for j in 0..n {
                        let o = &mut out[(b * m + i) * n + j];
                        *o = o.add(a.mul(y[(b * k + q) * n + j]));
                    }
                }
            }
        }
        made(out)
    }

    fn conv<W: Word>(
        &self,
        x: &Buf<W>,
        x_shape: &Shape,
        w: &Buf<W>,
        w_shape: &Shape,
        g: &ConvGeometry,
    ) -> Result<Buf<W>> {
        let [n, c, height, width] = x_shape.dims().try_into().expect("NCHW, checked by the plan");
        let [out, per_group, kh, kw] = w_shape.dims().try_into().expect("OIHW, checked by the plan");
        let [rows, columns] = g.output([height, width], [kh, kw]).expect("checked by the plan");
        let mut result = vec![W::ZERO; n * out * rows * columns];
        for image in 0..n {
            for o in 0..out {
                let first_channel = o / (out / g.groups) * per_group;
                for row in 0..rows {
                    for column in 0..columns {
                        let mut sum = W::ZERO;
                        for ch in 0..per_group {
                            for i in 0..kh {
                                for j in 0..kw {
                                    let y = row * g.stride[0] + i * g.dilation[0];
                                    let z = column * g.stride[1] + j * g.dilation[1];
                                    let (Some(y), Some(z)) =
                                        (y.checked_sub(g.pad[0]), z.checked_sub(g.pad[1]))
                                    else {
                                        continue;
                                    };
                                    if y < height && z < width {
                                        let x =
                                            x[((image * c + first_channel + ch) * height + y) * width + z];
                                        sum = sum.add(x.mul(w[((o * per_group + ch) * kh + i) * kw + j]));
                                    }
                                }
                            }
                        }
                        result[((image * out + o) * rows + row) * columns + column] = sum;
                    }
                }
            }
        }
        made(result)
    }

    fn view<T: Elem>(&self, x: &Buf<T>, view: &View) -> Result<Buf<T>> {
        made(view.indices().map(|i| x[i]).collect())
    }

    fn view_bits(&self, x: &Buf<u64>, view: &View) -> Result<Buf<u64>> {
        let mut indices = view.indices();
        made(bits::pack(view.shape.elements(), |_| {
            bits::get(x, indices.next().expect("as many as elements"))
        }))
    }

    fn place<T: Elem>(&self, parts: &[Placement<'_, T, Self>], n: usize) -> Result<Buf<T>> {
        let mut out = vec![T::default(); n];
        for part in parts {
            for (value, i) in part.source.iter().zip(part.target.indices()) {
                out[i] = *value;
            }
        }
        made(out)
    }

    fn gather<T: Elem>(
        &self,
        x: &Buf<T>,
        [outer, axis, inner]: [usize; 3],
        indices: &[usize],
    ) -> Result<Buf<T>> {
        let mut out = Vec::with_capacity(outer * indices.len() * inner);
        for o in 0..outer {
            for i in indices {
                out.extend_from_slice(&x[(o * axis + i) * inner..][..inner]);
            }
        }
        made(out)
    }

    fn sum<W: Word>(&self, x: &Buf<W>, [outer, axis, inner]: [usize; 3]) -> Result<Buf<W>> {
        let mut out = vec![W::ZERO; outer * inner];
        for o in 0..outer {
            for a in 0..axis {
                for i in 0..inner {
                    out[o * inner + i] = out[o * inner + i].add(x[(o * axis + a) * inner + i]);
                }
            }
        }
        made(out)
    }

    fn random_bits(&self, stream: &Stream, n: usize) -> Result<Buf<u64>> {
        let mut words = stream.words(bits::words(n));
        bits::clear_tail(&mut words, n);
        made(words)
    }

    fn xor(&self, inputs: &[&Buf<u64>], negate: bool, n: usize) -> Result<Buf<u64>> {
        let start = if negate { u64::MAX } else { 0 };
        let mut out: Vec<u64> =
            (0..bits::words(n)).map(|i| inputs.iter().fold(start, |word, x| word ^ x[i])).collect();
        bits::clear_tail(&mut out, n);
        made(out)
    }

    fn and(&self, a: &Buf<u64>, b: &Buf<u64>) -> Result<Buf<u64>> {
        made(a.iter().zip(b.iter()).map(|(a, b)| a & b).collect())
    }

    fn msb<W: Word>(&self, x: &Buf<W>) -> Result<Buf<u64>> {
        made(bits::pack(x.len(), |i| x[i].msb()))
    }

    fn bit_times<W: Word>(&self, bit: &Buf<u64>, x: Option<&Buf<W>>, n: usize) -> Result<Buf<W>> {
        let value = |i: usize| W::from_u64(bits::get(bit, i)).mul(x.map_or(W::ONE, |x| x[i]));
        made((0..n).map(value).collect())
    }

    fn pack_low<W: Word>(&self, x: &Buf<W>, width: u32) -> Result<Buf<u64>> {
        made(bits::pack_low(x.iter().map(|x| x.to_u64()), width))
    }

    fn unpack_low<W: Word>(&self, x: &Buf<u64>, width: u32, n: usize) -> Result<Buf<W>> {
        made((0..n).map(|i| W::from_u64(bits::get_low(x, i, width))).collect())
    }
}
