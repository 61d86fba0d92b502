//! Rearrangements: the bounds of the channels are kept where they can be.

use super::operand::Secret;
use super::plan::Lowering;
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use megrez_plan::{Op, ValueId, View};
use megrez_ring::Shape;

impl Lowering<'_> {
    /// Any view; the bounds of the channels merge. The methods below keep them where they can.
    pub fn view(&mut self, name: &str, x: &Secret, view: View) -> Result<Secret, Refusal> {
        if view == View::whole(self.shape(x).clone()) {
            return Ok(x.clone());
        }
        self.emit(name, Op::View(view), &[x.id], x.range.merged())
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, name: &str, x: &Secret, to: Shape) -> Result<Secret, Refusal> {
        let from = self.shape(x).clone();
        let y = self.view(name, x, View::whole(to.clone()))?;
        let (a, b) = (from.dims(), to.dims());
        // Rows stay rows.
        if a.last() == b.last()
            && let Some(&total) = self.row_sums.get(&x.id)
        {
            self.row_sums.insert(y.id, total);
        }
        if a.len() < 2 || b.len() < 2 || a[0] != b[0] {
            return Ok(y);
        }
        let per_channel: usize = a[2..].iter().product();
        Ok(match b[1] {
            channels if channels == a[1] => y.within(x.range.clone()),
            features if features == a[1] * per_channel => y.within(x.range.repeat_each(per_channel)),
            _ => y,
        })
    }

    /// Repeats elements up to a larger shape, as NumPy does.
    pub fn broadcast(&mut self, name: &str, x: &Secret, to: &Shape) -> Result<Secret, Refusal> {
        // Two views of one value would be two values: a square would not be known for one.
        if self.shape(x) == to {
            return Ok(x.clone());
        }
        match View::broadcast(self.shape(x), to) {
            Some(view) => {
                let same = self.shape(x).dims().last() == to.dims().last();
                let total = self.row_sums.get(&x.id).copied().filter(|_| same);
                let y = self.view(name, x, view)?;
                self.row_sums.extend(total.map(|total| (y.id, total)));
                Ok(y)
            }
            None => refuse(format!("cannot broadcast {} to {to}", self.shape(x)), ""),
        }
    }

    /// Slices along an axis by index; an index may occur more than once.
    pub fn pick(
        &mut self,
        name: &str,
        x: &Secret,
        axis: usize,
        indices: &[usize],
    ) -> Result<Secret, Refusal> {
        let shape = self.shape(x).clone();
        if indices.iter().copied().eq(0..shape.dims()[axis]) {
            return Ok(x.clone());
        }
        let range = if axis == 1 { x.range.pick(indices) } else { x.range.clone() };
        let step = match indices {
            [a, b, ..] => *b as isize - *a as isize,
            _ => 1,
        };
        let op = if indices.windows(2).all(|w| w[1] as isize - w[0] as isize == step) {
            Op::View(View::slice(&shape, axis, indices[0], step, indices.len()))
        } else {
            Op::Gather { axis, indices: indices.to_vec() }
        };
        self.emit(name, op, &[x.id], range)
    }

    /// The first and the second half along an axis of even size.
    pub fn halves(
        &mut self,
        first: &str,
        second: &str,
        x: &Secret,
        axis: usize,
    ) -> Result<[Secret; 2], Refusal> {
        let half = self.shape(x).dims()[axis] / 2;
        let a = self.pick(first, x, axis, &(0..half).collect::<Vec<_>>())?;
        Ok([a, self.pick(second, x, axis, &(half..2 * half).collect::<Vec<_>>())?])
    }

    /// A sum of slices for every place along an axis: place p gets the sum of slice i over i in
    /// `sources[p]`, 0 where there is none. The transpose of picking slices. Local.
    pub fn spread(
        &mut self,
        name: &str,
        x: &Secret,
        axis: usize,
        sources: &[Vec<usize>],
    ) -> Result<Secret, Refusal> {
        let size = self.shape(x).dims()[axis];
        let most = sources.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut padded = x.clone();
        if sources.iter().any(|s| s.len() < most) {
            let mut after = vec![0; self.shape(x).rank()];
            after[axis] = 1;
            padded = self.pad(&format!("{name}-zero"), x, &vec![0; after.len()], &after)?;
        }
        let mut terms = vec![];
        for term in 0..most {
            let places: Vec<usize> = sources.iter().map(|s| s.get(term).copied().unwrap_or(size)).collect();
            terms.push(self.pick(&format!("{name}-spread"), &padded, axis, &places)?);
        }
        match &terms[..] {
            [only] => Ok(only.clone()),
            _ => self.combine(&format!("{name}-sum"), &terms.iter().map(|t| (1, t)).collect::<Vec<_>>(), 0),
        }
    }

    /// Values of one scale joined along an axis.
    pub fn concat(&mut self, name: &str, parts: &[&Secret], axis: usize) -> Result<Secret, Refusal> {
        let range = if axis == 1 {
            let sized: Vec<(&Range, usize)> =
                parts.iter().map(|p| (&p.range, self.shape(p).dims().get(1).copied().unwrap_or(1))).collect();
            Range::join(&sized)
        } else {
            Range::hull_of(&parts.iter().map(|p| &p.range).collect::<Vec<_>>())
        };
        let ids: Vec<ValueId> = parts.iter().map(|p| p.id).collect();
        self.emit(name, Op::Concat { axis }, &ids, range)
    }

    /// [`Self::pick`] of bits, which protocols rearrange along the first dimension and by views.
    pub fn pick_bits(
        &mut self,
        name: &str,
        bits: &Secret,
        axis: usize,
        indices: &[usize],
    ) -> Result<Secret, Refusal> {
        let step = |w: &[usize]| w[1] as isize - w[0] as isize;
        if indices.windows(3).all(|w| step(&w[..2]) == step(&w[1..])) {
            return self.pick(name, bits, axis, indices);
        }
        let moved = self.first(name, bits, axis)?;
        let picked = self.pick(name, &moved, 0, indices)?;
        self.first_to(name, &picked, axis)
    }

    /// [`Self::concat`] of bits.
    pub fn concat_bits(&mut self, name: &str, parts: &[&Secret], axis: usize) -> Result<Secret, Refusal> {
        let moved = parts.iter().map(|part| self.first(name, part, axis)).collect::<Result<Vec<_>, _>>()?;
        let all = self.concat(name, &moved.iter().collect::<Vec<_>>(), 0)?;
        self.first_to(name, &all, axis)
    }

    /// A dimension before all others.
    fn first(&mut self, name: &str, x: &Secret, axis: usize) -> Result<Secret, Refusal> {
        let shape = self.shape(x).clone();
        let others = (0..shape.rank()).filter(|&d| d != axis);
        let order: Vec<usize> = std::iter::once(axis).chain(others).collect();
        self.view(name, x, View::transpose(&shape, &order))
    }

    /// The first dimension in another place: undoes [`Self::first`].
    fn first_to(&mut self, name: &str, x: &Secret, axis: usize) -> Result<Secret, Refusal> {
        let shape = self.shape(x).clone();
        let mut order: Vec<usize> = (1..shape.rank()).collect();
        order.insert(axis, 0);
        self.view(name, x, View::transpose(&shape, &order))
    }

    /// Zeros around a value.
    pub fn pad(
        &mut self,
        name: &str,
        x: &Secret,
        before: &[usize],
        after: &[usize],
    ) -> Result<Secret, Refusal> {
        if before.iter().chain(after).all(|&p| p == 0) {
            return Ok(x.clone());
        }
        let keeps_channels = before.get(1).is_none_or(|&p| p == 0) && after.get(1).is_none_or(|&p| p == 0);
        let range = if keeps_channels { x.range.with_zero() } else { x.range.merged().with_zero() };
        self.emit(name, Op::Pad { before: before.to_vec(), after: after.to_vec() }, &[x.id], range)
    }

    /// Values of one shape and scale along a new first dimension.
    pub fn stack(&mut self, name: &str, parts: &[&Secret]) -> Result<Secret, Refusal> {
        let shape = self.shape(parts[0]).clone();
        let mut rows: Vec<Secret> = parts.iter().map(|&p| p.clone()).collect();
        if shape.rank() == 0 {
            rows = rows
                .iter()
                .map(|r| self.view("row", r, View::whole([1].into())))
                .collect::<Result<_, _>>()?;
        }
        let joined = self.concat(name, &rows.iter().collect::<Vec<_>>(), 0)?;
        let to: Shape = [&[parts.len()], shape.dims()].concat().into();
        self.view("stacked", &joined, View::whole(to))
    }

    /// The slices of the first dimension, each of shape `shape`.
    pub fn unstack(&mut self, name: &str, x: &Secret, shape: &Shape) -> Result<Vec<Secret>, Refusal> {
        let rows = self.shape(x).dims()[0];
        let view = View::whole(shape.clone());
        (0..rows).map(|i| self.view(name, x, View { offset: i * shape.elements(), ..view.clone() })).collect()
    }
}
