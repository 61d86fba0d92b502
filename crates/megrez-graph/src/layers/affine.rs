//! a·x + b with two numbers of the architecture, which everybody may know: local. A factor that is
//! a whole number keeps the scale; any other is rounded to at least 16 significant bits and adds as
//! many fraction bits as it has.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

/// The most bits after the binary point of a factor that is used as it is.
const EXACT: u32 = 16;

struct Affine {
    shape: Shape,
    factor: f32,
    offset: f32,
}

pub(super) fn affine(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["factor", "offset"])?;
    let (factor, offset) = (call.float("factor", 1.0)?, call.float("offset", 0.0)?);
    Ok(Arc::new(Affine { shape: call.shape(0)?.clone(), factor, offset }))
}

impl Affine {
    /// The bits after the binary point that the factor has, or at most `EXACT` and as many as it
    /// has zeros there.
    fn bits(&self) -> u32 {
        let exact = |k: &u32| (f64::from(self.factor) * 2f64.powi(*k as i32)).fract() == 0.0;
        (0..=EXACT).find(exact).unwrap_or_else(|| {
            let zeros = (-f64::from(self.factor.abs()).log2()).clamp(0.0, 16.0) as u32;
            EXACT + zeros
        })
    }
}

impl Layer for Affine {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let (a, b) = (f64::from(self.factor), f64::from(self.offset));
        let f = |&x: &f32| (a * f64::from(x) + b) as f32;
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(f).collect())
    }

    fn backward(
        &self,
        g: &mut Gradients,
        _inputs: &[Id],
        _output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        Ok(vec![Some(g.affine("input", of_output, self.factor, 0.0)?)])
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let frac = cx.frac_of(x) + self.bits();
        let (factor, offset) = (cx.encode(self.factor, self.bits())?, cx.encode(self.offset, frac)?);
        let y = cx.combine("affine", &[(factor, x)], offset)?;
        cx.rescale("scale", &y, frac)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let mut y = cx.value(&inputs[0]);
        if self.factor != 1.0 {
            y = cx.with_number("product", Operation::Mul, y, self.factor)?;
        }
        if self.offset != 0.0 {
            y = cx.with_number("sum", Operation::Add, y, self.offset)?;
        }
        Ok(y)
    }

    fn scale(&self) -> Scale {
        if self.bits() == 0 { Scale::Passes } else { Scale::Product }
    }

    fn non_decreasing(&self) -> bool {
        self.factor >= 0.0
    }
}
