//! Columns of a matrix, each named by a column of zeros with a one at its place: x [n, c] by ones
//! [c, k] is [n, k].
//!
//! It is a product, truncated without a remainder: what comes out is exact, and lies where x lies,
//! or is 0 where a column has no one. A MatMul would prove the sum of c numbers only. Cost: a
//! product and a truncation of n·k values.

use super::call::Call;
use super::matmul::plain_product;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The operator's name in a graph; ONNX has none for it.
pub(crate) const PICKED: &str = "Picked";

struct Picked {
    shape: Shape,
}

pub(super) fn picked(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    match (call.shape(0)?.dims(), call.shape(1)?.dims()) {
        (&[n, c], &[rows, k]) if c == rows => Ok(Arc::new(Picked { shape: [n, k].into() })),
        _ => refuse("takes two matrices, of as many columns as rows", ""),
    }
}

impl Layer for Picked {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        plain_product(inputs[0], inputs[1])
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let (x, ones) = (inputs[0].secret()?, inputs[1].secret()?);
        let y = cx.matmul("product", x, ones)?;
        let y = cx.settle(&y)?;
        Ok(y.within(x.range.merged().with_zero()))
    }
}
