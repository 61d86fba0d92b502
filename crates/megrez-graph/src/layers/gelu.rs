//! Gelu: x·(1 + erf(x/√2))/2 by a spline, off by at most 0.0021 (see [`super::spline`]). The form
//! with tanh differs from it by less than 0.0005 and has the same spline. The derivative, Φ(x) +
//! x·φ(x), has one of its own, off by at most 0.0116.

use super::call::Call;
use super::spline::{Activation, GELU, GELU_SLOPE};
use crate::layer::Layer;
use crate::problem::{Refusal, refuse};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, PI};
use std::sync::Arc;

/// Whether a call is of the form with tanh.
fn tanh_form(call: &Call) -> Result<bool, Refusal> {
    call.only(1, &["approximate"])?;
    match call.string("approximate", "none")?.as_str() {
        "none" => Ok(false),
        "tanh" => Ok(true),
        other => refuse(format!("the form `{other}` is not known"), ""),
    }
}

/// The argument of the tanh.
fn inner(x: f64) -> f64 {
    FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))
}

pub(super) fn gelu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    match tanh_form(call)? {
        false => Activation::of(call, |x| x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)) / 2.0, GELU),
        true => Activation::of(call, |x| x * (1.0 + inner(x).tanh()) / 2.0, GELU.tanh_form()),
    }
}

pub(super) fn gelu_slope(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    let exact = |x: f64| {
        let normal = (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
        (1.0 + libm::erf(x * FRAC_1_SQRT_2)) / 2.0 + x * normal
    };
    let tanh = |x: f64| {
        let t = inner(x).tanh();
        let slope = FRAC_2_PI.sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
        // Where the tanh is 1 its slope is 0, however large x is.
        let bend = if t.abs() == 1.0 { 0.0 } else { x * (1.0 - t * t) * slope };
        (1.0 + t + bend) / 2.0
    };
    match tanh_form(call)? {
        false => Activation::of(call, exact, GELU_SLOPE),
        true => Activation::of(call, tanh, GELU_SLOPE),
    }
}
