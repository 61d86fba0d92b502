//! Every kernel in the plainest code: the statement of what a device computes, and the oracle of the differential suite.
//!
//! For tests only: it is slow, and it is not constant-time: branches, memory indices and divisions depend on shares,
//! multipliers, rotations and Δ here, and on none of them in [`crate::Cpu`].

use crate::device::*;
use crate::list::{Entries, ListSpec, ListStreams};
use megrez_plan::{ConvGeometry, View};
use megrez_prg::{FieldSampler, Stream};
use megrez_ring::{Shape, Word, bits};
use std::sync::Arc;

/// The reference device: host memory, one thread, for tests.
#[derive(Clone, Default)]
pub struct Reference;

type Buf<T> = Arc<Vec<T>>;
type Result<T> = std::result::Result<T, DeviceError>;

fn made<T>(data: Vec<T>) -> Result<Buf<T>> {
    Ok(Arc::new(data))
}

/// [j = 0]·x: a public summand enters worker 0's share only.
fn first<W: Word>(j: usize, x: W) -> W {
    if j == 0 { x } else { W::ZERO }
}

/// [j=0]·((m'>>f) − 2^(ℓ−2−f)) − [R] + (1−msb m')·2^(ℓ−f)·[b], and the first summand and the factor of [b] by themselves.
fn truncated<W: Word>(m: W, f: u32) -> (W, W) {
    let shifted = m.add(W::ONE.shl(W::BITS - 2));
    let public = shifted.shr(f).sub(W::ONE.shl(W::BITS - 2 - f));
    let factor = W::from_u64(1 - shifted.msb()).shl(W::BITS - f);
    (public, factor)
}

/// The digits of the low `width − 1` bits of `value`, most significant first.
fn digits(value: u64, widths: &[u32]) -> impl Iterator<Item = u64> + '_ {
    let mut left: u32 = widths.iter().sum();
    widths.iter().map(move |&w| {
        left -= w;
        (value >> left) & ((1 << w) - 1)
    })
}

/// Worker `j`'s entries of one value, before multiplier, zero-share and rotation. `m` is cut to λ bits; `share` is its
/// share of the dealt elements. All arithmetic is modulo p on small integers.
fn entries(spec: &ListSpec, j: usize, m: u64, flip: u64, share: &[u8], mut each: impl FnMut(u32)) {
    let field = spec.prime;
    let p = field.p() as u32;
    let one = if j == 0 { 1 } else { 0 };
    let sign = (m >> (spec.width - 1)) & 1;
    match &spec.entries {
        Entries::Bits => {
            // s_i = [m_i ≠ ρ_i]; the padding entry compares 0 with 1. t_i = Σ_{k<i} s_k − s_i + 1 vanishes at the first
            // difference only; β_i = 0 says that this difference decides for the sign that the dealer is to see.
            let mut sum = 0;
            for i in 0..spec.width {
                let last = i == spec.width - 1;
                let bit = if last { 0 } else { ((m >> (spec.width - 2 - i)) & 1) as u32 };
                let rho = if last { one } else { u32::from(share[i as usize]) };
                let s = if bit == 1 { one + p - rho } else { rho };
                let beta = (sign as u32) ^ bit ^ (flip as u32);
                each(field.reduce(sum + p - field.reduce(s) + one + one * beta));
                sum = field.reduce(sum + s);
            }
        }
        Entries::Digits(widths) => {
            // eq_d, gt_d from the dealt indicators [ρ_d = q]; the last indicator is one minus the others. The entry of
            // digit d is Σ_{k<d}(1 − eq_k) + 1 − dir_d.
            let want_greater = sign ^ flip == 1;
            let mut share = share;
            let mut unequal = 0;
            for (d, (digit, &w)) in digits(m, widths).zip(widths).enumerate() {
                let count = (1usize << w) - 1;
                let (dealt, rest) = share.split_at(count);
                share = rest;
                let all: u32 = dealt.iter().map(|&e| u32::from(e)).sum();
                let below: u32 = dealt[..digit as usize].iter().map(|&e| u32::from(e)).sum();
                let equal = match dealt.get(digit as usize) {
                    Some(&e) => u32::from(e),
                    None => one + (field.p() as u32) * 256 - all,
                };
                let (greater, equal) = (field.reduce(below), field.reduce(equal));
                let less_or_equal = one + p - greater;
                let last = d == widths.len() - 1;
                let direction = match (want_greater, last) {
                    (true, _) => greater,
                    (false, true) => less_or_equal,
                    (false, false) => less_or_equal + p - equal,
                };
                each(field.reduce(unequal + one + p - field.reduce(direction)));
                unequal = field.reduce(unequal + one + p - equal);
            }
        }
    }
}

impl Device for Reference {
    type Buf<T: Elem> = Buf<T>;

    fn describe(&self) -> String {
        "cpu (reference)".into()
    }

    fn upload<T: Elem>(&self, data: Vec<T>) -> Result<Buf<T>> {
        made(data)
    }

    fn download<T: Elem>(&self, buf: Buf<T>) -> Result<Vec<T>> {
        Ok(Arc::try_unwrap(buf).unwrap_or_else(|shared| shared.to_vec()))
    }

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
        let words = stream.words((n * W::BITS as usize).div_ceil(64));
        made(bytemuck::cast_slice::<u64, W>(&words)[..n].to_vec())
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

    fn deal_list<W: Word>(
        &self,
        spec: &ListSpec,
        masks: &Buf<W>,
        other: &Stream,
    ) -> Result<(Buf<u64>, Buf<u64>)> {
        let field = spec.prime;
        let mut shares = vec![0u8; masks.len() * spec.dealt()];
        FieldSampler::new(field.p()).fill(other, 0, &mut shares);
        let cut_mask = u64::MAX >> (64 - spec.width);
        let low = cut_mask >> 1;
        for (value, share) in masks.iter().zip(shares.chunks_mut(spec.dealt())) {
            // ρ is the complement of the cut mask's low bits: ρ = r̂ − 1 modulo 2^(λ−1).
            let rho = (value.to_u64() >> spec.cut).wrapping_sub(1) & low;
            let subtract = |element: &mut u8, secret: u64| {
                *element = field.reduce(secret as u32 + field.p() as u32 - u32::from(*element)) as u8;
            };
            match &spec.entries {
                Entries::Bits => {
                    for (i, element) in share.iter_mut().enumerate() {
                        subtract(element, (rho >> (spec.width as usize - 2 - i)) & 1);
                    }
                }
                Entries::Digits(widths) => {
                    let mut elements = share.iter_mut();
                    for (digit, &w) in digits(rho, widths).zip(widths) {
                        for q in 0..(1 << w) - 1 {
                            let element = elements.next().expect("as many as dealt");
                            subtract(element, u64::from(digit == q));
                        }
                    }
                }
            }
        }
        let sign = bits::pack(masks.len(), |i| {
            ((masks[i].to_u64() >> spec.cut).wrapping_neg() & cut_mask) >> (spec.width - 1)
        });
        Ok((made(field.pack(shares.into_iter()))?, made(sign)?))
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
        let (field, n, length) = (spec.prime, masked.len(), spec.length());
        let p = field.p() as u32;
        let share = match share {
            FieldShare::Packed(words) => field.unpack(words, n * spec.dealt()),
            FieldShare::Stream(stream) => {
                let mut share = vec![0; n * spec.dealt()];
                FieldSampler::new(field.p()).fill(stream, 0, &mut share);
                share
            }
        };
        let sample = |stream: &Stream, bound: u64, offset: u8, n: usize| {
            let mut out = vec![0; n];
            FieldSampler::new(bound).fill(stream, offset, &mut out);
            out
        };
        let multiplier = sample(streams.multiplier, field.p() - 1, 1, n * length);
        let zero_share = sample(streams.zero_share, field.p(), 0, n * length);
        let rotation = sample(streams.rotation, length as u64, 0, n);
        let mut lists = vec![0u8; n * length];
        for e in 0..n {
            let m = (masked[e].to_u64() >> spec.cut) & (u64::MAX >> (64 - spec.width));
            let mut q = 0;
            let list = &mut lists[e * length..][..length];
            entries(spec, j, m, bits::get(flips, e), &share[e * spec.dealt()..][..spec.dealt()], |entry| {
                let z = u32::from(zero_share[e * length + q]);
                let z = if j == 0 { z } else { p - z };
                let place = (q + usize::from(rotation[e])) % length;
                list[place] = field.reduce(entry * u32::from(multiplier[e * length + q]) + z) as u8;
                q += 1;
            });
        }
        made(field.pack(lists.into_iter()))
    }

    fn scan_lists(&self, spec: &ListSpec, lists: [&Buf<u64>; 2], n: usize) -> Result<Buf<u64>> {
        let [a, b] = lists.map(|words| spec.prime.unpack(words, n * spec.length()));
        let p = spec.prime.p() as u32;
        let zero = |(a, b): (&u8, &u8)| {
            let sum = u32::from(*a) + u32::from(*b);
            sum == 0 || sum == p
        };
        made(bits::pack(n, |e| {
            let range = e * spec.length()..(e + 1) * spec.length();
            // No early exit: which entry is zero must not show in the time it takes.
            let found = a[range.clone()].iter().zip(&b[range]).fold(false, |found, pair| found | zero(pair));
            u64::from(!found)
        }))
    }

    fn open_truncated<W: Word>(
        &self,
        j: usize,
        masked: &Buf<W>,
        t: &Truncation<'_, W, Self>,
        output_mask: &Buf<W>,
    ) -> Result<Buf<W>> {
        let at = |i: usize| {
            let (public, factor) = truncated(masked[i], t.bits);
            first(j, public).sub(t.high[i]).add(factor.mul(t.top[i])).add(output_mask[i])
        };
        made((0..masked.len()).map(at).collect())
    }

    fn open_selected<W: Word>(&self, j: usize, s: &Selected<'_, W, Self>) -> Result<Buf<W>> {
        let at = |i: usize| {
            let f = W::from_u64(bits::get(s.choice, i));
            let delta = W::from_u64(s.flip.map_or(0, |flip| bits::get(flip, i)));
            let epsilon = W::ONE.sub(delta.add(delta));
            // A share of σ = a ⊕ δ times a dealt secret: δ·[secret] + ε·[secret·a].
            let flipped = |secret: W, secret_bit: W| delta.mul(secret).add(epsilon.mul(secret_bit));
            let sigma = first(j, delta).add(epsilon.mul(s.bit[i]));
            let (value, value_sigma) = match &s.truncation {
                None => {
                    let m = s.masked[i];
                    let value = first(j, m).sub(s.mask[i]);
                    (value, m.mul(sigma).sub(flipped(s.mask[i], s.mask_bit[i])))
                }
                Some((t, top_bit)) => {
                    let (public, factor) = truncated(s.masked[i], t.bits);
                    let value = first(j, public).sub(t.high[i]).add(factor.mul(t.top[i]));
                    let masked_part = public.mul(sigma).sub(flipped(t.high[i], s.mask_bit[i]));
                    (value, masked_part.add(factor.mul(flipped(t.top[i], top_bit[i]))))
                }
            };
            let sign = W::ONE.sub(f.add(f));
            f.mul(value).add(sign.mul(value_sigma)).add(s.output_mask[i])
        };
        made((0..s.masked.len()).map(at).collect())
    }
}
