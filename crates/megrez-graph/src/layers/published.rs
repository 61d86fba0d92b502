//! Integers that are known when compiling and are an output: the shape of a value, the mask of a
//! Dropout. They stand in the plan, where everybody sees them, and reach the recipient like any
//! output.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_plan::ValueId;
use megrez_ring::Shape;
use std::sync::Arc;

/// The operator's name in a graph; ONNX has none for it.
pub(crate) const PUBLISHED: &str = "Published";

struct Published(Tensor);

/// Of a secret value, which tells where the plan's shares are, and the integers.
pub(super) fn published(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    call.shape(0)?;
    match &call.graph.value(call.id(1)?).constant {
        Some(Constant::Ints(t)) => {
            let numbers = t.data.iter().map(|&v| v as f32).collect();
            Ok(Arc::new(Published(Tensor::new(t.shape.clone(), numbers))))
        }
        _ => refuse("publishes what is not known when compiling", ""),
    }
}

impl Layer for Published {
    fn shape(&self) -> &Shape {
        &self.0.shape
    }

    fn plain(&self, _inputs: &[&Tensor]) -> Tensor {
        self.0.clone()
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        cx.published(inputs[0].secret()?, &self.0)
    }

    fn float(&self, cx: &mut FloatLowering, _inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        cx.public("published", &self.0)
    }
}
