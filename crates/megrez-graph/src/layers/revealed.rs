//! Softmax, LogSoftmax and ArgMax at an output: computed by the recipient on what is revealed. The recipient learns the input
//! of the first of them, not just its result. ArgMax runs nowhere else; for the others within a model see [`super::softmax`].

use super::{Call, Layer, axis};
use crate::graph::Tensor;
use crate::lower::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Work of the recipient on an opened output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum After {
    /// exp(x) / Σ exp(x) along an axis.
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// The logarithm of Softmax.
    LogSoftmax {
        /// The axis.
        axis: usize,
    },
    /// The index of the largest element along an axis, as a number.
    ArgMax {
        /// The axis.
        axis: usize,
        /// Whether the axis stays, with size 1.
        keep: bool,
        /// Whether the last of equal elements wins, not the first.
        last: bool,
    },
}

impl After {
    /// The axis.
    pub fn axis(&self) -> usize {
        match *self {
            After::Softmax { axis } | After::LogSoftmax { axis } | After::ArgMax { axis, .. } => axis,
        }
    }

    /// The shape of the result.
    ///
    /// # Panics
    /// If the axis is outside of the shape.
    pub fn shape(&self, from: &Shape) -> Shape {
        let mut dims = from.dims().to_vec();
        match *self {
            After::ArgMax { axis, keep: true, .. } => dims[axis] = 1,
            After::ArgMax { axis, .. } => drop(dims.remove(axis)),
            _ => {}
        }
        dims.into()
    }

    /// The result on an opened value.
    ///
    /// # Panics
    /// If the axis is outside of the shape.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let stride = x.shape.strides()[self.axis()];
        let size = x.shape.dims()[self.axis()];
        let shape = self.shape(&x.shape);
        let mut y = Tensor::filled(shape.clone(), 0.0);
        for line in 0..x.data.len() / size {
            let start = line / stride * stride * size + line % stride;
            let places = || (0..size).map(|i| start + i * stride);
            let largest = places().map(|p| x.data[p]).fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = places().map(|p| f64::from(x.data[p] - largest).exp()).sum();
            match *self {
                After::Softmax { .. } => {
                    places().for_each(|p| y.data[p] = (f64::from(x.data[p] - largest).exp() / sum) as f32);
                }
                After::LogSoftmax { .. } => {
                    places().for_each(|p| y.data[p] = (f64::from(x.data[p] - largest) - sum.ln()) as f32);
                }
                After::ArgMax { last, .. } => {
                    let mut equal = (0..size).filter(|i| x.data[start + i * stride] == largest);
                    let index = if last { equal.next_back() } else { equal.next() };
                    y.data[line] = index.unwrap_or(0) as f32;
                }
            }
        }
        y
    }
}

struct OnRevealed {
    shape: Shape,
    after: After,
}

pub(super) fn arg_max(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["axis", "keepdims", "select_last_index"])?;
    let axis = axis(call.int("axis", 0)?, call.shape(0)?.rank())?;
    let (keep, last) = (call.int("keepdims", 1)? != 0, call.int("select_last_index", 0)? != 0);
    layer(call, After::ArgMax { axis, keep, last })
}

fn layer(call: &Call, after: After) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(OnRevealed { shape: after.shape(call.shape(0)?), after }))
}

impl Layer for OnRevealed {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        self.after.apply(inputs[0])
    }

    fn lower(&self, _cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        refuse(
            "runs only on what is revealed, so it must be the last operator before an output",
            "end the model here, or move it to the end",
        )
    }

    fn after(&self) -> Option<After> {
        Some(self.after.clone())
    }
}
