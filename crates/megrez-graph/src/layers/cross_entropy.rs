//! Softmax cross-entropy of logits [B, K] and one-hot rows: its gradient p − y, never divided by B,
//! and the mean loss beside it, from the same maxima and sums. The steps are those of Softmax
//! ([`super::softmax`]); no logit and no sum of them is opened.
//!
//! The gradient leaves with f + 8 fraction bits on the 64-bit ring: a product takes as many without
//! a truncation. Where tables stand for functions it leaves as the product of powers and inverses
//! that it is: a probability is at most 1, so the next product has room for their fraction bits
//! unless its weights are large, and a truncation is needed beside it only. On the longest way the
//! gradient then takes five rounds: two for the largest logit, and one each for powers, inverses
//! and their product.

use super::call::Call;
use super::exp::{Powers, decay};
use super::octaves::{LOGARITHM, RECIPROCAL};
use super::softmax::{at_least_one, shift};
use super::table::readable;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, SPARE_BITS, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The name that the gradient of the loss has; no ONNX operator. Of logits and one-hot rows.
pub(crate) const SOFTMAX_CROSS_ENTROPY: &str = "SoftmaxCrossEntropy";

/// The name that the loss itself has, the sum over the rows; no ONNX operator. Of logits, one-hot
/// rows, and the gradient.
pub(crate) const CROSS_ENTROPY: &str = "CrossEntropy";

fn logits(call: &Call, inputs: usize) -> Result<Shape, Refusal> {
    call.only(inputs, &[])?;
    let shape = call.shape(0)?;
    if shape.rank() != 2 || (1..inputs).any(|i| !call.shape(i).is_ok_and(|other| other == shape)) {
        return refuse(
            format!("takes logits [batch, classes] and one-hot rows of the same shape, got {shape}"),
            "flatten the model's output",
        );
    }
    Ok(shape.clone())
}

/// Fraction bits of an inverse where neither it nor the product with it is truncated, …
const SHORT: RangeInclusive<u32> = 20..=21;

/// … and how near to it that is, 2^−14: a power is at most e.
const BITS: u32 = 14;

struct Gradient(Shape);

pub(super) fn gradient(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(Gradient(logits(call, 2)?)))
}

/// Softmax of a row, and −log of what its probabilities for the labels are.
fn softmax(logits: &[f32], labels: &[f32]) -> (Vec<f64>, f64) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let shifted: Vec<f64> = logits.iter().map(|&z| f64::from(z) - f64::from(largest)).collect();
    let sum: f64 = shifted.iter().map(|z| z.exp()).sum();
    let loss = shifted.iter().zip(labels).map(|(z, &y)| f64::from(y) * (sum.ln() - z)).sum();
    (shifted.iter().map(|z| z.exp() / sum).collect(), loss)
}

impl Layer for Gradient {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let classes = self.0.dims()[1];
        let rows = inputs[0].data.chunks_exact(classes).zip(inputs[1].data.chunks_exact(classes));
        let delta = rows.flat_map(|(z, y)| {
            let p = softmax(z, y).0;
            p.into_iter().zip(y).map(|(p, &y)| (p - f64::from(y)) as f32).collect::<Vec<_>>()
        });
        Tensor::new(self.0.clone(), delta.collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let f = cx.frac();
        let z = inputs[0].secret()?;
        let z = if cx.activations().looks_up() { readable(cx, z, 4)? } else { cx.settle(z)? };
        let labels = inputs[1].secret()?;
        let (largest, wrong) = shift(cx, &z)?;
        let largest = cx.broadcast("maxima", &largest, &self.0)?;
        let shifted = cx.combine("shifted", &[(1, &z), (-1, &largest)], 0)?;
        let below = shifted.range.map(|b| b.min(wrong));
        let shifted = shifted.within(below);
        let Powers { settled: powers, summand } = decay(cx, &shifted, wrong, self.0.dims()[1])?;
        let sum = cx.sum("sum", &summand, 1)?;
        let sum = at_least_one(cx, sum);
        let sees = cx.ring() >= 48 && cx.activations().looks_up();
        let short = if sees { RECIPROCAL.in_one_round(cx, &sum, SHORT, BITS)? } else { None };
        // On a shorter ring no product has the room for all of its bits.
        let waits = short.is_some() && cx.ring() == 64;
        let inverse = match short {
            Some(inverse) => inverse,
            None => {
                let fine = (cx.ring() / 2 - 8).max(f);
                let fines = fine..=fine.max(cx.ring() - 3 - f);
                RECIPROCAL.lower_held(cx, &sum, 1.0, fines, true)?
            }
        };
        let fine = cx.frac_of(&inverse);
        let inverse = cx.broadcast("inverses", &inverse, &self.0)?;
        let bound = 1i128 << (f + fine);
        let p = cx.mul_within("product", &powers, &inverse, Range::uniform(0, bound + bound / 64))?;
        let frac = match cx.ring() {
            _ if waits => f + fine,
            64 => f + SPARE_BITS,
            _ => f,
        };
        let p = cx.rounded("probabilities", &p, frac)?;
        if cx.leaves() {
            let log = LOGARITHM.lower_held(cx, &sum, 1.0, f..=f, true)?;
            let log = cx.sum("logarithms", &log, 0)?;
            let shifted = cx.settle(&shifted)?;
            let of_labels = cx.mul("of-labels", labels, &shifted)?;
            // A row has one label, so it makes no more than its largest product.
            let of_one = of_labels.range.merged();
            let of_labels = cx.sum("of-labels-row", &of_labels, 1)?.within(of_one);
            let of_labels = cx.sum("of-labels-sum", &of_labels, 0)?;
            let both = cx.aligned(&[&log, &of_labels])?;
            let loss = cx.combine("loss", &[(1, &both[0]), (-1, &both[1])], 0)?;
            cx.leave(loss);
        }
        let labels = cx.rounded("labels", labels, frac)?;
        let gradient = cx.combine("gradient", &[(1, &p), (-1, &labels)], 0)?;
        if waits {
            cx.waits(&gradient);
        }
        Ok(gradient)
    }

    fn scale(&self) -> Scale {
        Scale::Settles
    }

    fn work(&self) -> u64 {
        8 * self.0.elements() as u64
    }
}

struct Loss(Shape);

pub(super) fn loss(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    logits(call, 3)?;
    Ok(Arc::new(Loss([1, 1].into())))
}

impl Layer for Loss {
    fn shape(&self) -> &Shape {
        &self.0
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let classes = inputs[0].shape.dims()[1];
        let rows = inputs[0].data.chunks_exact(classes).zip(inputs[1].data.chunks_exact(classes));
        Tensor::filled(self.0.clone(), rows.map(|(z, y)| softmax(z, y).1).sum::<f64>() as f32)
    }

    fn lower(&self, cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        match cx.given() {
            [loss] => Ok(loss.clone()),
            _ => refuse("the gradient of the loss has left no loss", ""),
        }
    }

    fn beside(&self) -> Option<usize> {
        Some(2)
    }

    fn unread(&self, _input: usize) -> bool {
        true
    }
}
