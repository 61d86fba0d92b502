//! Relu, max(x, 0), and Abs, 2·max(x, 0) − x. One step; the comparison does not care about the
//! scale.

use super::call::Call;
use super::known;
use super::relu_grad::RELU_GRAD;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::{Function, Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

struct Relu(Shape);

pub(super) fn relu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Ok(Arc::new(Relu(call.shape(0)?.clone())))
}

/// x, settled, and max(x, 0) of it. The backward pass takes the same bit; the truncation goes
/// beside the comparison.
pub(super) fn leaving_its_bit(cx: &mut Lowering, x: &Secret) -> Result<[Secret; 2], Refusal> {
    let bit = cx.non_negative("bit", x)?;
    let wrong = cx.last_cut() >> cx.frac_of(x).saturating_sub(cx.frac());
    let x = cx.settle(x)?;
    let y = cx.select("relu", &bit, &x)?;
    cx.leave(bit);
    let least = y.range.map(|b| b.max(-wrong - 1));
    Ok([x, y.within(least)])
}

impl Layer for Relu {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.0.clone(), inputs[0].data.iter().map(|x| x.max(0.0)).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        if !cx.leaves() {
            return cx.relu("relu", x);
        }
        Ok(leaving_its_bit(cx, x)?[1].clone())
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let gradient = g.add("input", RELU_GRAD, &[inputs[0], output, of_output], Attributes::none())?;
        Ok(vec![Some(gradient)])
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        cx.map("relu", Function::Relu, x)
    }

    fn non_decreasing(&self) -> bool {
        true
    }
}

struct Abs(Shape);

pub(super) fn abs(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    if known::is_ints(call, 0) {
        return known::magnitude(call);
    }
    Ok(Arc::new(Abs(call.shape(0)?.clone())))
}

impl Layer for Abs {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.0.clone(), inputs[0].data.iter().map(|x| x.abs()).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let positive = cx.relu("relu", x)?;
        let wrong = cx.last_cut();
        let y = cx.combine("size", &[(2, &positive), (-1, x)], 0)?;
        Ok(y.within(Range::uniform(-wrong, x.range.magnitude())))
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let negative = cx.map("negative", Function::Neg, x)?;
        cx.pair("larger", Operation::Max, x, negative, &self.0)
    }
}
