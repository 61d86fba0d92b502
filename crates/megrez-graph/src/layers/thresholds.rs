//! The two comparisons of trees. Both are exact, and compare only as many bits as everybody knows
//! to be enough: what they look at follows from the declared range of the data and from the shape
//! of the trees, so that the plan says nothing about thresholds.

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::View;
use megrez_ring::Shape;
use std::sync::Arc;

/// [x ≥ t], or [x > t] if `strict`, for thresholds t that are weights.
pub(crate) const THRESHOLDS: &str = "Thresholds";
/// [x = 0] of counts from 0 to `most`.
pub(crate) const NONE: &str = "IsNone";

struct Thresholds {
    shape: Shape,
    strict: bool,
}

pub(super) fn thresholds(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["strict"])?;
    let (shape, thresholds) = (call.shape(0)?, call.floats(1)?);
    if thresholds.data.iter().any(|t| t.is_nan()) {
        return refuse("compares with what is no number", "export the model again");
    }
    if View::broadcast(&thresholds.shape, shape).is_none() {
        return refuse(format!("has thresholds {} for numbers {shape}", thresholds.shape), "");
    }
    Ok(Arc::new(Thresholds { shape: shape.clone(), strict: call.int("strict", 0)? != 0 }))
}

impl Layer for Thresholds {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let view = View::broadcast(&inputs[1].shape, &self.shape).expect("understood as broadcastable");
        let thresholds = inputs[1].view(&view);
        let passes = |(&x, &t): (&f32, &f32)| f32::from(if self.strict { x > t } else { x >= t });
        Tensor::new(self.shape.clone(), inputs[0].data.iter().zip(&thresholds.data).map(passes).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let (x, thresholds) = (inputs[0].secret()?, inputs[1].constant()?);
        let unit = 2f64.powi(cx.frac_of(x) as i32);
        let (low, high) = x.range.hull();
        // Beyond the range one threshold is like any other.
        let (first, last) = (low as f64 / unit - 1.0, high as f64 / unit + 1.0);
        let held = thresholds.data.iter().map(|&t| f64::from(t).clamp(first, last) as f32).collect();
        let held = Tensor::new(thresholds.shape.clone(), held);
        let below = Tensor::new(held.shape.clone(), held.data.iter().map(|t| -t).collect());
        let room = cx.bias(x, &below)?;
        // Numbers have 24 significant bits: rounded, the borders of the range may move outwards by
        // so much.
        let slack = 2.0 * unit + (first.abs().max(last.abs()) * unit / 4e6).ceil();
        let most = high.saturating_sub(low).saturating_add(slack as i128);
        cx.exactly("compare", &room, i64::from(self.strict), cx.is_data(x).then_some(most))
    }

    fn scale(&self) -> Scale {
        Scale::Passes
    }
}

struct IsNone {
    shape: Shape,
    most: i128,
}

pub(super) fn none(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["most"])?;
    let most = i128::from(call.int("most", 0)?.max(1));
    Ok(Arc::new(IsNone { shape: call.shape(0)?.clone(), most }))
}

impl Layer for IsNone {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(|&x| f32::from(x == 0.0)).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let rest = cx.combine("none-left", &[(-1, x)], 0)?;
        let most = self.most << cx.frac_of(x);
        cx.exactly("compare", &rest, 0, Some(most))
    }
}
