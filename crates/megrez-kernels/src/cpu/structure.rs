//! Rearranging elements and bits. A view is reduced to few dimensions first; then runs of
//! neighbours are copied whole.

use super::work::at_every_level;
use megrez_plan::View;
use megrez_ring::{Word, bits};

/// A view without dimensions of size 1 and with neighbouring dimensions joined where one stride
/// tells both. The last dimension stands apart: `outer` holds (size, stride) of the others.
struct Simple {
    outer: Vec<(usize, isize)>,
    inner: (usize, isize),
    offset: usize,
}

fn simplify(view: &View) -> Simple {
    let mut dims: Vec<(usize, isize)> = vec![];
    for (&size, &stride) in view.shape.dims().iter().zip(&view.strides) {
        match dims.last_mut() {
            _ if size == 1 => {}
            Some(last) if last.1 == stride * size as isize => *last = (last.0 * size, stride),
            _ => dims.push((size, stride)),
        }
    }
    let inner = dims.pop().unwrap_or((1, 1));
    Simple { outer: dims, inner, offset: view.offset }
}

impl Simple {
    /// Calls `each` with the place of every run's first element, in order.
    fn runs(&self, each: impl FnMut(usize)) {
        walk(&self.outer, self.offset as isize, each);
    }
}

/// The places `offset + Σ i_d·stride_d`, in order.
fn walk(dims: &[(usize, isize)], offset: isize, mut each: impl FnMut(usize)) {
    let mut position = vec![0usize; dims.len()];
    let mut at = offset;
    for _ in 0..dims.iter().map(|d| d.0).product() {
        each(at as usize);
        for (position, &(size, stride)) in position.iter_mut().zip(dims).rev() {
            *position += 1;
            at += stride;
            if *position < size {
                break;
            }
            at -= stride * size as isize;
            *position = 0;
        }
    }
}

/// Element `i` of a run.
#[inline(always)]
fn step(start: usize, i: usize, stride: isize) -> usize {
    (start as isize + i as isize * stride) as usize
}

/// See [`crate::Device::view`].
pub fn view<T: bytemuck::Pod>(x: &[T], view: &View) -> Vec<T> {
    let total = view.shape.elements();
    if total == 0 {
        return vec![];
    }
    let simple = simplify(view);
    let (n, stride) = simple.inner;
    if stride != 1
        && n > 1
        && let Some(t) = simple.outer.iter().position(|d| d.1 == 1 && d.0 >= 8)
    {
        return transpose(x, &simple, t, total);
    }
    let mut out = Vec::with_capacity(total);
    match stride {
        1 => simple.runs(|start| out.extend_from_slice(&x[start..start + n])),
        0 => simple.runs(|start| out.extend(std::iter::repeat_n(x[start], n))),
        _ => simple.runs(|start| out.extend((0..n).map(|i| x[step(start, i, stride)]))),
    }
    out
}

/// A view whose neighbours in the input are far apart in the output, along outer dimension `t`:
/// reads lines of eight neighbours and writes eight rows at a time.
fn transpose<T: bytemuck::Pod>(x: &[T], simple: &Simple, t: usize, total: usize) -> Vec<T> {
    let mut out = vec![T::zeroed(); total];
    let (n, stride) = simple.inner;
    let rows = simple.outer[t].0;
    // Output strides of the outer dimensions.
    let mut places = vec![n; simple.outer.len()];
    for d in (1..places.len()).rev() {
        places[d - 1] = places[d] * simple.outer[d].0;
    }
    let mut from = simple.outer.clone();
    let mut to: Vec<(usize, isize)> = from.iter().zip(&places).map(|(d, &p)| (d.0, p as isize)).collect();
    from.remove(t);
    to.remove(t);
    let mut starts = vec![];
    walk(&to, 0, |place| starts.push(place));
    let mut starts = starts.into_iter();
    walk(&from, simple.offset as isize, |source| {
        let target = starts.next().expect("as many places as sources");
        let whole = rows / 8 * 8;
        for r in (0..whole).step_by(8) {
            for c in 0..n {
                let line: &[T; 8] = x[step(source + r, c, stride)..][..8].try_into().expect("eight elements");
                for (i, value) in line.iter().enumerate() {
                    out[target + (r + i) * places[t] + c] = *value;
                }
            }
        }
        for r in whole..rows {
            for c in 0..n {
                out[target + r * places[t] + c] = x[step(source + r, c, stride)];
            }
        }
    });
    out
}

/// See [`crate::Device::place`]: one input.
pub fn place<T: bytemuck::Pod>(source: &[T], target: &View, out: &mut [T]) {
    if source.is_empty() {
        return;
    }
    let simple = simplify(target);
    let (n, stride) = simple.inner;
    let mut runs = source.chunks_exact(n);
    simple.runs(|start| {
        let run = runs.next().expect("the view has as many elements as the source");
        if stride == 1 {
            out[start..start + n].copy_from_slice(run);
        } else {
            run.iter().enumerate().for_each(|(i, value)| out[step(start, i, stride)] = *value);
        }
    });
}

/// See [`crate::Device::gather`].
pub fn gather<T: bytemuck::Pod>(x: &[T], [outer, axis, inner]: [usize; 3], indices: &[usize]) -> Vec<T> {
    let mut out = Vec::with_capacity(outer * indices.len() * inner);
    for o in 0..outer {
        let x = &x[o * axis * inner..][..axis * inner];
        if inner == 1 {
            out.extend(indices.iter().map(|&i| x[i]));
        } else {
            indices.iter().for_each(|i| out.extend_from_slice(&x[i * inner..][..inner]));
        }
    }
    out
}

at_every_level! {
    /// See [`crate::Device::sum`].
    pub fn sum<W: Word>(x: &[W], sizes: [usize; 3]) -> Vec<W> {
        let [outer, axis, inner] = sizes;
        let mut out = vec![W::ZERO; outer * inner];
        if axis == 0 || inner == 0 {
            return out;
        }
        for (out, x) in out.chunks_exact_mut(inner).zip(x.chunks_exact(axis * inner)) {
            if inner == 1 {
                out[0] = x.iter().fold(W::ZERO, |sum, x| sum.add(*x));
            } else {
                for x in x.chunks_exact(inner) {
                    out.iter_mut().zip(x).for_each(|(o, x)| *o = o.add(*x));
                }
            }
        }
        out
    }
}

/// Bits written one after another.
struct Writer {
    out: Vec<u64>,
    word: u64,
    filled: usize,
}

impl Writer {
    /// Appends the low `count` ≤ 64 bits of `value`, whose other bits are zero.
    #[inline(always)]
    fn push(&mut self, value: u64, count: usize) {
        self.word |= value << self.filled;
        if self.filled + count >= 64 {
            self.out.push(self.word);
            let used = 64 - self.filled;
            self.word = if used == 64 { 0 } else { value >> used };
            self.filled = self.filled + count - 64;
        } else {
            self.filled += count;
        }
    }
}

/// See [`crate::Device::view_bits`].
pub fn view_bits(x: &[u64], view: &View) -> Vec<u64> {
    let total = view.shape.elements();
    if total == 0 {
        return vec![];
    }
    let simple = simplify(view);
    let (n, stride) = simple.inner;
    if stride == 1 && n >= 64 {
        let (mut out, mut filled) = (Vec::with_capacity(bits::words(total)), 0);
        simple.runs(|start| {
            bits::append_run(&mut out, filled, x, start, n);
            filled += n;
        });
        return out;
    }
    let mut writer = Writer { out: Vec::with_capacity(bits::words(total)), word: 0, filled: 0 };
    let counts = || (0..n).step_by(64).map(|i| (i, (n - i).min(64)));
    simple.runs(|start| match stride {
        1 => counts().for_each(|(i, count)| writer.push(bits::run(x, start + i, count), count)),
        0 => {
            let all = bits::get(x, start).wrapping_neg();
            counts().for_each(|(_, count)| writer.push(all & (u64::MAX >> (64 - count)), count));
        }
        _ => (0..n).for_each(|i| writer.push(bits::get(x, step(start, i, stride)), 1)),
    });
    if writer.filled > 0 {
        writer.out.push(writer.word);
    }
    writer.out
}
