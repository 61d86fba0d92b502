//! Relu: max(x, 0). One step; the comparison does not care about the scale.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::tensor::Tensor;
use megrez_plan::{Function, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

struct Relu(Shape);

pub(super) fn relu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Ok(Arc::new(Relu(call.shape(0)?.clone())))
}

impl Layer for Relu {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.0.clone(), inputs[0].data.iter().map(|x| x.max(0.0)).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        cx.relu("relu", inputs[0].secret()?)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        cx.map("relu", Function::Relu, x)
    }

    fn non_decreasing(&self) -> bool {
        true
    }
}
