//! Swish with factor 1, or SiLU: x / (1 + e^−x) by a spline, off by at most 0.0078 (see
//! [`super::spline`]).

use super::call::Call;
use super::spline::{Activation, SWISH};
use crate::layer::Layer;
use crate::problem::{Refusal, refuse};
use std::sync::Arc;

pub(super) fn swish(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["alpha"])?;
    if call.float("alpha", 1.0)? != 1.0 {
        return refuse("the factor `alpha` is not 1", "use SiLU, or x · Sigmoid(alpha · x)");
    }
    Activation::of(call, |x| x / (1.0 + (-x).exp()), SWISH)
}
