//! Concat: joins values along an axis, at the scale of the one with most fraction bits.

use super::call::{Call, axis};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::ValueId;
use megrez_ring::Shape;
use std::sync::Arc;

struct Concat {
    shape: Shape,
    axis: usize,
}

pub(super) fn concat(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1024, &["axis"])?;
    let first = call.any_shape(0)?;
    let axis = axis(call.int("axis", i64::MAX)?, first.rank())?;
    let mut dims = first.dims().to_vec();
    dims[axis] = 0;
    for i in 0..call.inputs.len() {
        let shape = call.any_shape(i)?;
        let off_axis = |s: &Shape| -> Vec<usize> {
            s.dims().iter().enumerate().filter(|(d, _)| *d != axis).map(|(_, &n)| n).collect()
        };
        if shape.rank() != first.rank() || off_axis(shape) != off_axis(first) {
            return refuse(format!("the shapes {first} and {shape} differ off axis {axis}"), "");
        }
        dims[axis] = match dims[axis].checked_add(shape.dims()[axis]) {
            Some(sum) => sum,
            None => return refuse("the axis is too long", ""),
        };
    }
    Ok(Arc::new(Concat { shape: dims.into(), axis }))
}

impl Concat {
    fn join<T: Copy>(&self, inputs: &[&Tensor<T>]) -> Tensor<T> {
        let outer: usize = self.shape.dims()[..self.axis].iter().product();
        let mut data = Vec::with_capacity(self.shape.elements());
        for i in 0..outer {
            for input in inputs {
                let chunk = input.data.len() / outer;
                data.extend_from_slice(&input.data[i * chunk..(i + 1) * chunk]);
            }
        }
        Tensor::new(self.shape.clone(), data)
    }
}

impl Layer for Concat {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        self.join(inputs)
    }

    fn fold_ints(&self, inputs: &[&Tensor<i64>]) -> Option<Tensor<i64>> {
        Some(self.join(inputs))
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let mut starts = vec![0; self.shape.rank()];
        let mut of_inputs = vec![];
        for (i, &input) in inputs.iter().enumerate() {
            let sizes = g.shape(input).clone();
            let part = |g: &mut Gradients| g.block(&format!("input{i}"), of_output, &starts, sizes.dims());
            of_inputs.push(wanted[i].then(|| part(g)).transpose()?);
            starts[self.axis] += sizes.dims()[self.axis];
        }
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let Some(beside) = inputs.iter().find_map(|x| x.secret().ok()) else {
            return refuse("joins constants only", "compute it before you export the model");
        };
        let part = |x: &Operand| match x {
            Operand::Constant(t) => cx.hidden(beside, t),
            x => x.secret().cloned(),
        };
        let parts = inputs.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let parts = cx.aligned(&parts.iter().collect::<Vec<_>>())?;
        cx.concat("concat", &parts.iter().collect::<Vec<_>>(), self.axis)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let parts: Vec<ValueId> = inputs.iter().map(|x| cx.value(x)).collect();
        let mut from = 0;
        let mut numbered = vec![];
        for &part in &parts {
            let shape = cx.shape(part).clone();
            let n = shape.elements();
            numbered.push(Tensor::new(shape, (from..from + n).collect::<Vec<usize>>()));
            from += n;
        }
        let places = self.join(&numbered.iter().collect::<Vec<_>>());
        cx.gather("concat", &parts, self.shape.clone(), places.data.into_iter().map(Some))
    }
}
