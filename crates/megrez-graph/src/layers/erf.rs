//! Erf by a spline, off by at most 0.0033 (see [`super::spline`]). As a part of GELU it becomes one
//! with it (`passes::fuse_gelu`).

use super::call::Call;
use super::spline::{Activation, ERF};
use crate::layer::Layer;
use crate::problem::Refusal;
use std::sync::Arc;

pub(super) fn erf(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Activation::of(call, libm::erf, ERF)
}
