//! Pad: zeros around a value.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

struct Pad {
    shape: Shape,
    before: Vec<usize>,
    after: Vec<usize>,
}

pub(super) fn pad(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["mode", "pads", "value"])?;
    let shape = call.shape(0)?;
    if call.string("mode", "constant")? != "constant" || call.number(2, "value")?.is_some_and(|v| v != 0.0) {
        return refuse("pads with something else than zeros", "pad with the constant 0");
    }
    let pads = call.integers(1, "pads")?.unwrap_or_default();
    let sizes: Vec<usize> =
        pads.iter().filter_map(|&p| usize::try_from(p).ok()).filter(|&p| p < 1 << 24).collect();
    if sizes.len() != 2 * shape.rank() || pads.len() != sizes.len() {
        return refuse(
            format!("`pads` = {pads:?} are not two sizes for each of {} dimensions", shape.rank()),
            "",
        );
    }
    let (before, after) = sizes.split_at(shape.rank());
    let dims: Vec<usize> = shape.dims().iter().zip(before).zip(after).map(|((d, b), a)| d + b + a).collect();
    Ok(Arc::new(Pad { shape: dims.into(), before: before.to_vec(), after: after.to_vec() }))
}

impl Pad {
    /// Where the elements of the input stand in the output.
    fn inside(&self, input: &Shape) -> View {
        let strides = self.shape.strides();
        let corner: usize = self.before.iter().zip(&strides).map(|(b, s)| b * s).sum();
        View { shape: input.clone(), strides: strides.iter().map(|&s| s as isize).collect(), offset: corner }
    }
}

impl Layer for Pad {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let x = inputs[0];
        let mut y = Tensor::filled(self.shape.clone(), 0.0);
        self.inside(&x.shape).indices().zip(&x.data).for_each(|(at, &v)| y.data[at] = v);
        y
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let mut of_inputs = vec![None; wanted.len()];
        let sizes = g.shape(inputs[0]).clone();
        of_inputs[0] = Some(g.block("input", of_output, &self.before, sizes.dims())?);
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        cx.pad("pad", inputs[0].secret()?, &self.before, &self.after)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let mut places = vec![None; self.shape.elements()];
        self.inside(cx.shape(x)).indices().enumerate().for_each(|(i, at)| places[at] = Some(i));
        cx.gather("pad", &[x], self.shape.clone(), places.into_iter())
    }
}
