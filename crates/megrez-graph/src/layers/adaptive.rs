//! A mean gradient over the root of a mean square, as Adam divides them: m/√(u + ε), ε = 2^−12, by
//! one inverse root ([`super::octaves`]) and one product. Both are of gradients that are taken 2^6
//! times as large, so √ε is 2^−12 of a gradient.
//!
//! u is a mean of squares: never negative, whatever was rounded. Dear beside SGD: the root compares
//! with every power of two up to the largest u, for each weight. Tables would be dearer yet, so
//! there are none, whatever stands for activations.

use super::call::Call;
use super::octaves::INVERSE_ROOT;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name of the division; no ONNX operator. Of a mean gradient and a mean square.
pub(crate) const ADAPTIVE: &str = "AdaptiveStep";

const EPSILON: f32 = 1.0 / 4096.0;

struct Adaptive(Shape);

pub(super) fn adaptive(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let shape = call.shape(0)?;
    match call.shape(1)? == shape {
        true => Ok(Arc::new(Adaptive(shape.clone()))),
        false => refuse("a gradient and its square have one shape", ""),
    }
}

impl Layer for Adaptive {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let divided = |(&m, &u): (&f32, &f32)| m / (u.max(0.0) + EPSILON).sqrt();
        Tensor::new(self.0.clone(), inputs[0].data.iter().zip(&inputs[1].data).map(divided).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let f = cx.frac();
        let mean = cx.rounded("mean", inputs[0].secret()?, f)?;
        let squares = cx.rounded("squares", inputs[1].secret()?, f)?;
        let epsilon = cx.encode(EPSILON, f)?;
        if epsilon == 0 {
            return refuse("has no room for ε", "use at least 12 fraction bits");
        }
        let sum = cx.combine("with-epsilon", &[(1, &squares)], epsilon)?;
        let sum = sum.within(Range::uniform(epsilon.into(), i128::MAX));
        let inverse = INVERSE_ROOT.by_bits(cx, &sum, 1.0, f)?;
        cx.mul("product", &mean, &inverse)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn work(&self) -> u64 {
        16 * self.0.elements() as u64
    }
}
