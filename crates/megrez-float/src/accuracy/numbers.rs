//! What goes into a function and what comes out of it, as the measurements read it.

use crate::float::Float;
use crate::format::{Format, Plain};

/// The encodings of results. Flags, exponent and mantissa are what parties open, so that whatever
/// these held beyond the number would be told.
///
/// # Panics
/// If a result is not in canonical form.
pub(super) fn canonical(op: &str, y: &Float) -> Vec<u32> {
    let y = y.plain();
    let bits = y.to_bits();
    assert!(y == Plain::from_bits(Format::FLOAT32, &bits), "{op}: a result is not in canonical form");
    bits.iter().map(|&b| b as u32).collect()
}

/// The input that a function sees: denormal numbers are zeros.
pub(super) fn flushed(bits: u32) -> f64 {
    let x = f64::from(f32::from_bits(bits));
    if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 * x } else { x }
}
