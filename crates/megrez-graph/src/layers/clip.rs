//! Clip: low + relu(x − low) − relu(x − high), both comparisons in one step. A missing bound saves
//! its half.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

struct Clip {
    shape: Shape,
    low: Option<f32>,
    high: Option<f32>,
}

pub(super) fn clip(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["min", "max"])?;
    // The extremes of f32 are how exporters write "no bound".
    let bound = |v: Option<f32>| v.filter(|v| v.abs() < f32::MAX);
    let (low, high) = (bound(call.number(1, "min")?), bound(call.number(2, "max")?));
    if low.is_some_and(f32::is_nan) || high.is_some_and(f32::is_nan) {
        return refuse("a bound is not a number", "");
    }
    if low.zip(high).is_some_and(|(l, h)| l > h) {
        return refuse(format!("the bounds {low:?} and {high:?} are in the wrong order"), "");
    }
    Ok(Arc::new(Clip { shape: call.shape(0)?.clone(), low, high }))
}

impl Layer for Clip {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let (low, high) = (self.low.unwrap_or(f32::NEG_INFINITY), self.high.unwrap_or(f32::INFINITY));
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(|x| x.max(low).min(high)).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let frac = cx.frac_of(x);
        let encode = |cx: &Lowering, v: Option<f32>| v.map(|v| cx.encode(v, frac)).transpose();
        let (low, high) = (encode(cx, self.low)?, encode(cx, self.high)?);
        let range = x.range.map(|b| {
            let b = low.map_or(b, |l| b.max(l.into()));
            high.map_or(b, |h| b.min(h.into()))
        });
        let clipped = match (low, high) {
            (None, None) => return Ok(x.clone()),
            (Some(low), None) => {
                let above = cx.combine("above", &[(1, x)], -low)?;
                let above = cx.relu("relu", &above)?;
                cx.combine("clip", &[(1, &above)], low)?
            }
            (None, Some(high)) => {
                let excess = cx.combine("excess", &[(1, x)], -high)?;
                let excess = cx.relu("relu", &excess)?;
                cx.combine("clip", &[(1, x), (-1, &excess)], 0)?
            }
            (Some(low), Some(high)) => {
                let above = cx.combine("above", &[(1, x)], -low)?;
                let excess = cx.combine("excess", &[(1, x)], -high)?;
                let both = cx.concat("both", &[&above, &excess], 0)?;
                let both = cx.relu("relu", &both)?;
                let [above, excess] = cx.halves("above-part", "excess-part", &both, 0)?;
                cx.combine("clip", &[(1, &above), (-1, &excess)], low)?
            }
        };
        Ok(clipped.within(range))
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let mut y = cx.value(&inputs[0]);
        for (bound, name, f) in [(self.low, "low", Operation::Max), (self.high, "high", Operation::Min)] {
            if let Some(bound) = bound {
                y = cx.with_number(name, f, y, bound)?;
            }
        }
        Ok(y)
    }

    fn non_decreasing(&self) -> bool {
        true
    }
}
