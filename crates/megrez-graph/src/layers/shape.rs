//! Shape and Gather: the arithmetic on shapes that exporters leave in models, folded away when the
//! shapes are known; and slices by constant index.

use super::call::{Call, axis};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// The dimensions of the input, as integers.
struct ShapeOf {
    shape: Shape,
    dims: Tensor<i64>,
}

pub(super) fn shape(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["start", "end"])?;
    let dims: Vec<i64> = call.any_shape(0)?.dims().iter().map(|&d| d as i64).collect();
    let rank = dims.len() as i64;
    let place = |v: i64| (if v < 0 { v.saturating_add(rank) } else { v }).clamp(0, rank) as usize;
    let (start, end) = (place(call.int("start", 0)?), place(call.int("end", rank)?));
    let dims = dims.get(start..end).unwrap_or_default().to_vec();
    let dims = Tensor::new([dims.len()], dims);
    Ok(Arc::new(ShapeOf { shape: dims.shape.clone(), dims }))
}

impl Layer for ShapeOf {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, _inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.shape.clone(), self.dims.data.iter().map(|&d| d as f32).collect())
    }

    fn fold_ints(&self, _inputs: &[&Tensor<i64>]) -> Option<Tensor<i64>> {
        Some(self.dims.clone())
    }

    fn lower(&self, _cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        refuse("computes with shapes as numbers", "use shapes to reshape only")
    }
}

/// Slices of the input along an axis.
struct Gather {
    shape: Shape,
    axis: usize,
    indices: Vec<usize>,
}

pub(super) fn gather(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axis"])?;
    let from = call.any_shape(0)?;
    let axis = axis(call.int("axis", 0)?, from.rank())?;
    let Some(Constant::Ints(given)) = &call.graph.value(call.id(1)?).constant else {
        return super::embedding::embedding(call, axis);
    };
    let size = from.dims()[axis] as i64;
    let place = |&i: &i64| match i {
        _ if (-size..0).contains(&i) => Ok((i + size) as usize),
        _ if (0..size).contains(&i) => Ok(i as usize),
        _ => refuse(format!("index {i} is outside of an axis of {size}"), ""),
    };
    let indices = given.data.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let dims = [&from.dims()[..axis], given.shape.dims(), &from.dims()[axis + 1..]].concat();
    if indices.is_empty() {
        return refuse("gathers nothing", "");
    }
    match evenly_spaced(from, axis, &indices, given.shape.rank()) {
        Some(view) => super::rearrange::layer(view),
        None => Ok(Arc::new(Gather { shape: dims.into(), axis, indices })),
    }
}

/// Places at even distances along an axis are a view; of one place there may be no axis left.
fn evenly_spaced(from: &Shape, axis: usize, indices: &[usize], rank: usize) -> Option<View> {
    let step = indices.get(1).map_or(1, |&next| next as isize - indices[0] as isize);
    let even = indices.windows(2).all(|pair| pair[1] as isize - pair[0] as isize == step);
    let mut view = View::slice(from, axis, indices[0], step, indices.len());
    match rank {
        1 if even => Some(view),
        0 => {
            let mut dims = view.shape.dims().to_vec();
            dims.remove(axis);
            view.strides.remove(axis);
            view.shape = dims.into();
            Some(view)
        }
        _ => None,
    }
}

impl Gather {
    fn gather<T: Copy>(&self, x: &Tensor<T>) -> Tensor<T> {
        let inner = x.shape.strides()[self.axis];
        let slab = inner * x.shape.dims()[self.axis];
        let mut data = Vec::with_capacity(self.shape.elements());
        for slab in x.data.chunks_exact(slab) {
            self.indices.iter().for_each(|&i| data.extend_from_slice(&slab[i * inner..(i + 1) * inner]));
        }
        Tensor::new(self.shape.clone(), data)
    }
}

impl Layer for Gather {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        self.gather(inputs[0])
    }

    fn fold_ints(&self, inputs: &[&Tensor<i64>]) -> Option<Tensor<i64>> {
        Some(self.gather(inputs.first()?))
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        // The second input holds the indices.
        let (from, mut of_inputs) = (g.shape(inputs[0]).clone(), vec![None; wanted.len()]);
        let (before, after) = (&from.dims()[..self.axis], &from.dims()[self.axis + 1..]);
        let read: Shape = [before, &[self.indices.len()], after].concat().into();
        let x = g.reshaped("places", of_output, &read)?;
        of_inputs[0] = Some(g.unread("input", x, self.axis, &self.indices, from.dims()[self.axis])?);
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = cx.pick("gather", inputs[0].secret()?, self.axis, &self.indices)?;
        cx.reshape("shape", &x, self.shape.clone())
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        if cx.vocabulary(x).is_some() {
            return refuse("gathers tokens", "tokens can be rearranged, and name rows of a table");
        }
        let numbers = cx.shape(x).clone();
        let numbers = Tensor::new(numbers.clone(), (0..numbers.elements()).collect());
        let places = self.gather(&numbers).data;
        cx.gather("gather", &[x], self.shape.clone(), places.into_iter().map(Some))
    }
}
