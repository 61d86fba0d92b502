//! Gelu: x·(1 + erf(x/√2))/2 by a spline, off by at most 0.0021 (see [`super::spline`]). The form with tanh differs from it by
//! less than 0.0005 and has the same spline.

use super::call::Call;
use super::spline::{Activation, GELU};
use crate::layer::Layer;
use crate::problem::{Refusal, refuse};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::sync::Arc;

pub(super) fn gelu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["approximate"])?;
    match call.string("approximate", "none")?.as_str() {
        "none" => Activation::of(call, |x| x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)) / 2.0, GELU),
        "tanh" => Activation::of(
            call,
            |x| x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0,
            GELU.tanh_form(),
        ),
        other => refuse(format!("the form `{other}` is not known"), ""),
    }
}
