//! Activations that are made of several functions ([`crate::decompose`]), whole where tables are to
//! stand for smooth functions: one look-up of x in place of powers, logarithms and products, and
//! one error.

use super::call::Call;
use super::table::{Smooth, readable};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, through_first};
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::ValueId;
use megrez_ring::Shape;
use std::sync::Arc;

/// Of the activation's `name` and `alpha`. Its inputs are what its parts have made, and x; or x
/// alone ([`crate::passes::whole_curves`]).
pub(crate) const CURVE: &str = "Curve";

/// What a curve is.
#[derive(Clone, Copy)]
enum Form {
    /// ln(1 + e^x).
    Softplus,
    /// x·tanh(ln(1 + e^x)).
    Mish,
    /// x, and α·(e^(x/α) − 1) below 0: Celu, and the Elu that has no corner at 0.
    Elu { alpha: f64 },
}

impl Form {
    fn named(name: &str, alpha: f64) -> Option<Self> {
        Some(match name {
            "Softplus" => Self::Softplus,
            "Mish" => Self::Mish,
            "Elu" | "Celu" => Self::Elu { alpha },
            _ => return None,
        })
    }

    fn of(self, x: f64) -> f64 {
        let softplus = x.max(0.0) + (-x.abs()).exp().ln_1p();
        match self {
            Self::Softplus => softplus,
            Self::Mish => x * softplus.tanh(),
            Self::Elu { .. } if x > 0.0 => x,
            Self::Elu { alpha } => alpha * (x / alpha).exp_m1(),
        }
    }

    /// Beyond ±reach less than 2^−15 is left of the bend.
    fn reach(self) -> f32 {
        match self {
            Self::Softplus => 10.5,
            Self::Mish => 13.5,
            Self::Elu { alpha } => (alpha * (alpha * 32768.0).ln().max(1.0)) as f32,
        }
    }
}

struct Curve {
    form: Form,
    shape: Shape,
    /// Whether what the parts have made is an input.
    parts: bool,
}

pub(super) fn curve(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["name", "alpha"])?;
    let Some(form) = Form::named(&call.string("name", "")?, call.float("alpha", 1.0)?.into()) else {
        return refuse("is no curve", "");
    };
    let shape = call.shape(0)?.clone();
    Ok(Arc::new(Curve { form, shape, parts: call.has(1) }))
}

impl Layer for Curve {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let of = |&x: &f32| self.form.of(x.into()) as f32;
        Tensor::new(self.shape.clone(), inputs[inputs.len() - 1].data.iter().map(of).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        if self.parts {
            return Ok(x.clone());
        }
        let (function, reach) = (&|x| self.form.of(x), self.form.reach());
        let x = readable(cx, x, 2)?;
        Smooth { function, reach, rises: true }.lower(cx, &x)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        Ok(cx.value(&inputs[0]))
    }

    fn unread(&self, input: usize) -> bool {
        input == 1
    }

    /// Through the parts.
    fn backward(
        &self,
        _g: &mut Gradients,
        _inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        Ok(through_first(of_output, wanted))
    }

    fn scale(&self) -> Scale {
        Scale::Function
    }

    fn non_decreasing(&self) -> bool {
        !self.parts && !matches!(self.form, Form::Mish)
    }
}
