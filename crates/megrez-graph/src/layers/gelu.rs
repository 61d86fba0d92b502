//! Gelu: x·(1 + erf(x/√2))/2 by a spline, off by at most 0.0021 (see [`super::spline`]). The form with tanh differs from it by
//! less than 0.0005 and has the same spline.

use super::spline::{Activation, GELU};
use super::{Call, Layer};
use crate::problem::{Refusal, refuse};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, PI};
use std::sync::Arc;

pub(super) fn gelu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["approximate"])?;
    match call.string("approximate", "none")?.as_str() {
        "none" => Activation::of(call, |x| x * (1.0 + erf(x * FRAC_1_SQRT_2)) / 2.0, GELU),
        "tanh" => Activation::of(
            call,
            |x| x * (1.0 + (FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0,
            GELU,
        ),
        other => refuse(format!("the form `{other}` is not known"), ""),
    }
}

/// The error function, by the series 2/√π · e^(−x²) · Σ 2^n x^(2n+1) / (1·3·…·(2n+1)), whose terms have one sign.
pub(crate) fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn the_error_function_has_its_tabled_values() {
        for (x, y) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (2.0, 0.995_322_265),
            (3.5, 0.999_999_256_9),
        ] {
            assert!((erf(x) - y).abs() < 1e-9 && (erf(-x) + y).abs() < 1e-9, "{x}");
        }
        assert_eq!(erf(7.0), 1.0);
        assert!((erf(6.0) - 1.0).abs() < 1e-12);
    }
}
