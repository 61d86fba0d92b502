//! The functions by name, and what they ought to be, in double precision.

use crate::any::{AnyBlocks, Failure};
use crate::float::Float;
use crate::{math, whole};
use std::f64::consts::PI;

/// A function of one number.
pub struct Function {
    /// Its name on the command line.
    pub name: &'static str,
    /// The functionality.
    pub run: fn(&mut AnyBlocks, &Float) -> Result<Float, Failure>,
    /// The truth, to double precision.
    pub reference: fn(f64) -> f64,
}

/// All functions of one number that have a bound over all inputs.
pub const FUNCTIONS: &[Function] = &[
    Function { name: "sqrt", run: crate::sqrt, reference: f64::sqrt },
    Function { name: "round", run: whole::round, reference: f64::round_ties_even },
    Function { name: "floor", run: whole::floor, reference: f64::floor },
    Function { name: "ceil", run: whole::ceil, reference: f64::ceil },
    Function { name: "trunc", run: whole::trunc, reference: f64::trunc },
    Function { name: "sinpi", run: math::sinpi, reference: sinpi },
    Function { name: "cospi", run: math::cospi, reference: cospi },
    Function { name: "tanpi", run: math::tanpi, reference: tanpi },
    Function { name: "exp2", run: math::exp2, reference: f64::exp2 },
    Function { name: "exp", run: math::exp, reference: f64::exp },
    Function { name: "log2", run: math::log2, reference: f64::log2 },
    Function { name: "ln", run: math::ln, reference: f64::ln },
    Function { name: "log10", run: math::log10, reference: f64::log10 },
    Function { name: "log1p", run: math::log1p, reference: f64::ln_1p },
    Function { name: "expm1", run: math::expm1, reference: f64::exp_m1 },
    Function { name: "sin", run: math::sin, reference: f64::sin },
    Function { name: "cos", run: math::cos, reference: f64::cos },
    Function { name: "tan", run: math::tan, reference: f64::tan },
    Function { name: "sigmoid", run: math::sigmoid, reference: |x| 1.0 / (1.0 + (-x).exp()) },
    Function { name: "tanh", run: math::tanh, reference: f64::tanh },
    Function { name: "sinh", run: math::sinh, reference: f64::sinh },
    Function { name: "cosh", run: math::cosh, reference: f64::cosh },
    Function { name: "asin", run: math::asin, reference: f64::asin },
    Function { name: "acos", run: math::acos, reference: f64::acos },
    Function { name: "atan", run: math::atan, reference: f64::atan },
    Function { name: "erf", run: math::erf, reference: libm::erf },
];

impl Function {
    /// The function of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|f| f.name == name)
    }
}

/// Whether ⌊x⌋ is odd, and the distance of x ≥ 0 to the nearest integer with its direction; exact.
fn fold(x: f64) -> (bool, bool, f64) {
    let (whole, part) = (x.floor(), x - x.floor());
    ((whole * 0.5).fract() != 0.0, part >= 0.5, if part >= 0.5 { 1.0 - part } else { part })
}

fn sinpi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (odd, _, distance) = fold(x.abs());
    let y = (PI * distance).sin();
    if odd != x.is_sign_negative() { -y } else { y }
}

fn cospi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (odd, high, distance) = fold(x.abs());
    let y = (PI * (0.5 - distance)).sin();
    if odd != high { -y } else { y }
}

fn tanpi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let (odd, high, distance) = fold(x.abs());
    let y = match distance {
        0.5 => f64::INFINITY,
        d if d > 0.25 => 1.0 / (PI * (0.5 - d)).tan(),
        d => (PI * d).tan(),
    };
    let negative = if distance == 0.5 { odd } else { high };
    if negative != x.is_sign_negative() { -y } else { y }
}
