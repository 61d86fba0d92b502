//! The step that an optimiser takes: a multiple of the gradient, and of the last step for momentum, in one truncation
//! (training.md §3.6). The learning rate over the batch is c·2^−k: 2^−k is a change of scale, so neither costs anything.
//!
//! ```text
//! v' = momentum·v + c·2^−k·gradient        w' = w − v'
//! ```

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name of the step; no ONNX operator. Of the gradient, and of the last step where there is momentum.
pub(crate) const UPDATE: &str = "Update";

/// Momentum is a multiple of 2^−8.
pub(crate) const MOMENTUM_BITS: u32 = 8;

struct Update {
    shape: Shape,
    /// The gradient's factor is `factor` · 2^−`bits`.
    factor: i64,
    bits: u32,
    /// In units of 2^−8.
    momentum: i64,
}

pub(super) fn update(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["bits", "factor", "momentum"])?;
    let shape = call.shape(0)?.clone();
    let (factor, bits, momentum) = (call.int("factor", 1)?, call.int("bits", 0)?, call.int("momentum", 0)?);
    let sane = (1..1 << 16).contains(&factor) && (0..60).contains(&bits) && (0..256).contains(&momentum);
    let fits = call.has(1) == (momentum > 0) && (!call.has(1) || *call.shape(1)? == shape);
    match sane && fits {
        true => Ok(Arc::new(Update { shape, factor, bits: bits as u32, momentum })),
        false => refuse("the step is none", ""),
    }
}

impl Layer for Update {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let rate = self.factor as f64 * 2f64.powi(-(self.bits as i32));
        let momentum = self.momentum as f64 * 2f64.powi(-(MOMENTUM_BITS as i32));
        let last = |i: usize| inputs.get(1).map_or(0.0, |v| f64::from(v.data[i]));
        let step = |(i, &g): (usize, &f32)| (rate * f64::from(g) + momentum * last(i)) as f32;
        Tensor::new(self.shape.clone(), inputs[0].data.iter().enumerate().map(step).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let mut gradient = inputs[0].secret()?.clone();
        // The truncation drops at least as many bits as momentum has.
        let least = (cx.frac() + MOMENTUM_BITS).saturating_sub(self.bits);
        if self.momentum > 0 && cx.frac_of(&gradient) < least {
            gradient = cx.scaled_up(&gradient, least)?;
        }
        let frac = cx.frac_of(&gradient) + self.bits;
        if self.momentum == 0 {
            let gradient = match self.factor {
                1 => gradient,
                factor => cx.combine("scaled", &[(factor, &gradient)], 0)?,
            };
            let gradient = cx.rescale("rate", &gradient, frac)?;
            return cx.rounded("step", &gradient, cx.frac());
        }
        let last = cx.rounded("last-step", inputs[1].secret()?, cx.frac())?;
        let gradient = cx.rescale("rate", &gradient, frac)?;
        let more = frac - cx.frac() - MOMENTUM_BITS;
        if more + MOMENTUM_BITS >= cx.ring() - 2 {
            return refuse(
                "has no room for momentum on this ring",
                "use fewer fraction bits or a larger rate",
            );
        }
        let last = cx.rescale("momentum", &last, frac)?;
        let sum = cx.combine("sum", &[(self.factor, &gradient), (self.momentum << more, &last)], 0)?;
        cx.rounded("step", &sum, cx.frac())
    }
}
