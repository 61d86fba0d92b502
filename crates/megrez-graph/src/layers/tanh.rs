//! Tanh by a spline, off by at most 0.0067 (see [`super::spline`]).

use super::call::Call;
use super::spline::{Activation, TANH};
use crate::layer::Layer;
use crate::problem::Refusal;
use std::sync::Arc;

pub(super) fn tanh(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Activation::of(call, f64::tanh, TANH)
}
