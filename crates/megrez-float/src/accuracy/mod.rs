//! How far the math functions are from the truth, in units of the last place.
//!
//! The unit of a real r is the distance of the two single-precision numbers around it. Errors are measured against double
//! precision, whose own error is below 2^−27 of such a unit, and whatever comes within [`DOUBT`] of the largest one
//! can be measured again against MPFR. Results beyond the normal numbers must be the zero or the infinity that rounding leads to.

pub mod mpfr;
mod reference;

pub use reference::{FUNCTIONS, Function};

use crate::clear::Clear;
use crate::float::Float;
use crate::format::Plain;
use std::convert::Infallible;

/// How much double precision may be wrong by, generously.
pub const DOUBT: f64 = 1e-6;

/// The largest error of a range of inputs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Worst {
    /// In units of the last place.
    pub ulp: f64,
    /// The input, as bits.
    pub input: u32,
    /// What came out of it, as bits.
    pub output: u32,
}

impl Worst {
    /// No error yet.
    pub const NONE: Self = Self { ulp: 0.0, input: 0, output: 0 };

    /// The worse of the two, the smaller input if they are equal.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if (other.ulp, self.input) > (self.ulp, other.input) { other } else { self }
    }
}

/// The error of `got` where `want` is the truth up to double precision.
#[must_use]
pub fn error(got: f32, want: f64) -> f64 {
    let smallest = f64::from(f32::MIN_POSITIVE);
    let unit = |x: f64| {
        let exponent = (x.abs().to_bits() >> 52) as i64 - 1023;
        2f64.powi(exponent.clamp(-1000, 1000) as i32 - 23)
    };
    let wide = f64::from(got);
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 || wide == want {
        return if wide == want { 0.0 } else { f64::INFINITY };
    }
    if want.abs() < smallest && got == 0.0 {
        // Not what rounds up to a normal number.
        return if want.abs() < smallest * (1.0 - f64::from(f32::EPSILON) / 4.0) { 0.0 } else { 1.0 };
    }
    if got.is_infinite() {
        let right =
            wide.signum() == want.signum() && want.abs() >= f64::from(f32::MAX) * (1.0 + 2f64.powi(-25));
        return if right { 0.0 } else { f64::INFINITY };
    }
    if want.abs() >= 2f64.powi(128) {
        return f64::INFINITY;
    }
    (wide - want).abs() / unit(want)
}

/// Runs a function on single-precision numbers in the clear.
#[must_use]
pub fn run(function: &Function, inputs: &[u32]) -> Vec<u32> {
    let bits: Vec<u64> = inputs.iter().map(|&b| u64::from(b)).collect();
    let x = Float::public(&Clear, &Plain::from_bits(crate::Format::FLOAT32, &bits));
    let Ok::<_, Infallible>(y) = (function.run)(&mut Clear, &x);
    y.plain().to_bits().iter().map(|&b| b as u32).collect()
}

/// The input that a function sees: denormal numbers are zeros.
fn flushed(bits: u32) -> f64 {
    let x = f64::from(f32::from_bits(bits));
    if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 * x } else { x }
}

/// The errors of a function on some inputs; `each` sees those of at least `least`.
pub fn measure(function: &Function, inputs: &[u32], least: f64, mut each: impl FnMut(Worst)) {
    for (&input, output) in inputs.iter().zip(run(function, inputs)) {
        let ulp = error(f32::from_bits(output), (function.reference)(flushed(input)));
        if ulp >= least {
            each(Worst { ulp, input, output });
        }
    }
}
