//! LeakyRelu: x for x ≥ 0, a·x below: a·x + (1 − a)·relu(x). The slope is part of the architecture,
//! hence public.

use super::call::Call;
use super::relu::leaving_its_bit;
use super::relu_grad::RELU_GRAD;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

struct LeakyRelu {
    shape: Shape,
    slope: f32,
}

pub(super) fn leaky_relu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["alpha"])?;
    Ok(Arc::new(LeakyRelu { shape: call.shape(0)?.clone(), slope: call.float("alpha", 0.01)? }))
}

impl Layer for LeakyRelu {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let f = |&x: &f32| if x < 0.0 { self.slope * x } else { x };
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(f).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let [x, positive] = match inputs[0].secret()? {
            x if cx.leaves() => leaving_its_bit(cx, x)?,
            x => [x.clone(), cx.relu("relu", x)?],
        };
        // The two coefficients sum to 1 exactly, so that positive numbers come out unchanged.
        let slope = cx.encode(self.slope, cx.frac())?;
        let rest = (1i64 << cx.frac()) - slope;
        let product = cx.combine("product", &[(slope, &x), (rest, &positive)], 0)?;
        let range = x.range.map(|bound| match bound {
            b if b >= 0 => b << cx.frac(),
            b => b * i128::from(slope),
        });
        let product = if self.slope >= 0.0 { product.within(range) } else { product };
        cx.rescale("scale", &product, cx.frac_of(&x) + cx.frac())
    }

    /// a·δ + (1 − a)·[x ≥ 0]·δ, by the bit of forward.
    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let kept = g.add("positive", RELU_GRAD, &[inputs[0], output, of_output], Attributes::none())?;
        let kept = g.affine("rest", kept, 1.0 - self.slope, 0.0)?;
        let all = g.affine("slope", of_output, self.slope, 0.0)?;
        Ok(vec![Some(g.add("input", "Add", &[kept, all], Attributes::none())?)])
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let below = cx.with_number("product", Operation::Mul, x, self.slope)?;
        // Up to a slope of 1, the line through the origin that counts is the higher one.
        let f = if self.slope <= 1.0 { Operation::Max } else { Operation::Min };
        cx.pair("choice", f, x, below, &self.shape)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn non_decreasing(&self) -> bool {
        self.slope >= 0.0
    }
}
