//! The step that an optimiser takes: a multiple of the gradient, of the last step for momentum, and
//! of the weight itself for decay, in one truncation (training.md §3.6). The learning rate over the
//! batch is c·2^−k: 2^−k is a change of scale, so none of it costs anything.
//!
//! ```text
//! v' = momentum·v + c·2^−k·gradient + d·2^−j·w        w' = w − v'
//! ```

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name of the step; no ONNX operator. Of the gradient, of the last step where there is
/// momentum, and of the weight where it decays.
pub(crate) const UPDATE: &str = "Update";

/// Momentum is a multiple of 2^−8, unless another unit is given.
pub(crate) const MOMENTUM_BITS: u32 = 8;

struct Update {
    shape: Shape,
    /// The gradient's factor is `factor` · 2^−`bits`.
    factor: i64,
    bits: u32,
    /// In units of 2^−`unit`.
    momentum: i64,
    unit: u32,
    /// The weight's factor is `decay` · 2^−`decay_bits`.
    decay: i64,
    decay_bits: u32,
}

pub(super) fn update(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["bits", "decay", "decay-bits", "factor", "momentum", "unit"])?;
    let shape = call.shape(0)?.clone();
    let (factor, bits, momentum) = (call.int("factor", 1)?, call.int("bits", 0)?, call.int("momentum", 0)?);
    let (decay, decay_bits) = (call.int("decay", 0)?, call.int("decay-bits", 0)?);
    let unit = call.int("unit", MOMENTUM_BITS.into())?.clamp(0, 16);
    let sane =
        (1..1 << 16).contains(&factor) && (0..60).contains(&bits) && (0..1 << unit).contains(&momentum);
    let sane = sane && (0..256).contains(&decay) && (0..=60).contains(&decay_bits);
    let more = usize::from(momentum > 0) + usize::from(decay > 0);
    let mut fits = call.inputs.len() == 1 + more;
    for i in 1..call.inputs.len() {
        fits &= *call.shape(i)? == shape;
    }
    let (bits, decay_bits) = (bits as u32, decay_bits as u32);
    match sane && fits {
        true => Ok(Arc::new(Update { shape, factor, bits, momentum, unit: unit as u32, decay, decay_bits })),
        false => refuse("the step is none", ""),
    }
}

impl Update {
    /// The last step and the weight, of those that there are.
    fn more<'a, T>(&self, inputs: &'a [T]) -> (Option<&'a T>, Option<&'a T>) {
        let last = usize::from(self.momentum > 0);
        (inputs.get(1).filter(|_| last > 0), inputs.get(1 + last).filter(|_| self.decay > 0))
    }
}

impl Layer for Update {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let number = |factor: i64, bits: u32| factor as f64 * 2f64.powi(-(bits as i32));
        let (rate, decay) = (number(self.factor, self.bits), number(self.decay, self.decay_bits));
        let momentum = number(self.momentum, self.unit);
        let (last, weight) = self.more(inputs);
        let part =
            |of: Option<&&Tensor>, factor: f64, i: usize| of.map_or(0.0, |t| factor * f64::from(t.data[i]));
        let step = |(i, &g): (usize, &f32)| {
            (rate * f64::from(g) + part(last, momentum, i) + part(weight, decay, i)) as f32
        };
        Tensor::new(self.shape.clone(), inputs[0].data.iter().enumerate().map(step).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let (mut gradient, f) = (inputs[0].secret()?.clone(), cx.frac());
        let (last, weight) = self.more(inputs);
        // The truncation drops at least as many bits as momentum and decay have.
        let momentum = last.map(|last| (last, "last-step", "momentum", self.momentum, self.unit));
        let decay = weight.map(|weight| (weight, "weights", "decay", self.decay, self.decay_bits));
        let others: Vec<_> = momentum.into_iter().chain(decay).collect();
        let most = others.iter().map(|&(.., bits)| bits).max();
        let least = most.map_or(0, |most| (f + most).saturating_sub(self.bits));
        if cx.frac_of(&gradient) < least {
            gradient = cx.scaled_up(&gradient, least)?;
        }
        let frac = cx.frac_of(&gradient) + self.bits;
        if others.is_empty() {
            let gradient = match self.factor {
                1 => gradient,
                factor => cx.combine("scaled", &[(factor, &gradient)], 0)?,
            };
            let gradient = cx.rescale("rate", &gradient, frac)?;
            return cx.rounded("step", &gradient, f);
        }
        let mut scaled = vec![];
        for (operand, whole, name, factor, bits) in others {
            let operand = cx.rounded(whole, operand.secret()?, f)?;
            let more = frac - f - bits;
            if more + factor.ilog2() + 1 >= cx.ring() - 2 {
                return refuse(
                    format!("has no room for {name} on this ring"),
                    "use fewer fraction bits or a larger rate",
                );
            }
            scaled.push((factor << more, cx.rescale(name, &operand, frac)?));
        }
        let gradient = cx.rescale("rate", &gradient, frac)?;
        let mut terms = vec![(self.factor, &gradient)];
        terms.extend(scaled.iter().map(|(factor, operand)| (*factor, operand)));
        let sum = cx.combine("sum", &terms, 0)?;
        cx.rounded("step", &sum, f)
    }
}
