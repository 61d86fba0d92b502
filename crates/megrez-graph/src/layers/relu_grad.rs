//! The gradient of Relu: δ ⊙ [x ≥ 0]. One selection by the bit that the ReLU has left: nothing is
//! compared.

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name that the gradient of Relu has; no ONNX operator. Of Relu's input, its output, and the
/// output's gradient.
pub(crate) const RELU_GRAD: &str = "ReluGrad";

struct ReluGrad(Shape);

pub(super) fn relu_grad(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &[])?;
    let shape = call.shape(2)?;
    match call.shape(0)? == shape && call.shape(1)? == shape {
        true => Ok(Arc::new(ReluGrad(shape.clone()))),
        false => refuse("a value and its gradient have one shape", ""),
    }
}

impl Layer for ReluGrad {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let pairs = inputs[0].data.iter().zip(&inputs[2].data);
        Tensor::new(self.0.clone(), pairs.map(|(&x, &d)| if x >= 0.0 { d } else { 0.0 }).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        match cx.given() {
            [bit] => {
                let bit = bit.clone();
                cx.select("select", &bit, inputs[2].secret()?)
            }
            _ => refuse("the ReLU has left no bit", ""),
        }
    }

    fn beside(&self) -> Option<usize> {
        Some(1)
    }

    fn unread(&self, input: usize) -> bool {
        input < 2
    }
}
