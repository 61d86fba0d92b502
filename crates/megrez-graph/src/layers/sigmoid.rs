//! Sigmoid: 1 / (1 + e^−x) by a spline, off by at most 0.0032 (see [`super::spline`]).

use super::call::Call;
use super::spline::{Activation, SIGMOID};
use crate::layer::Layer;
use crate::problem::Refusal;
use std::sync::Arc;

pub(super) fn sigmoid(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Activation::of(call, |x| 1.0 / (1.0 + (-x).exp()), SIGMOID)
}
