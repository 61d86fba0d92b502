//! Signs and the nearest whole numbers: no figure of SECFLOAT's, but its blocks.
//!
//! The nearest whole number is what an addition of 2^23 rounds to, to the even one of two as IEEE
//! 754 has it; the whole numbers below and above are that one, or the next.

use crate::add::{add, sub};
use crate::blocks::Blocks;
use crate::compare::lt;
use crate::float::{Float, choose};
use crate::format::Format;

/// The encodings of 1 and of 2^23, from which on every number is whole.
const ONE: u64 = 0x3f80_0000;
const WHOLE: u64 = 0x4b00_0000;

/// −1, 0 or 1; zeros and NaN stay.
///
/// # Errors
/// If the blocks fail.
pub fn sign<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    assert_eq!(x.format, Format::FLOAT32, "signs are those of single precision");
    let one = Float::constant(b, x.format, ONE, x.lanes(b));
    let one = Float { sign: x.sign.clone(), ..one };
    choose(b, &x.vanishing(b), x, &one)
}

/// The nearest whole number, of two the even one, with the sign of x.
///
/// # Errors
/// If the blocks fail.
pub fn round<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    assert_eq!(x.format, Format::FLOAT32, "2^23 is whole in single precision");
    let (size, large) = (x.abs(b), Float::constant(b, x.format, WHOLE, x.lanes(b)));
    let sum = add(b, &size, &large)?;
    let whole = sub(b, &sum, &large)?;
    // Larger ones, infinities and NaN stay what they are.
    let small = lt(b, &size, &large)?;
    let whole = Float { sign: x.sign.clone(), ..whole };
    choose(b, &small, &whole, x)
}

/// The largest whole number that is not above x.
///
/// # Errors
/// If the blocks fail.
pub fn floor<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let near = round(b, x)?;
    let above = lt(b, x, &near)?;
    let [one, zero] = [ONE, 0].map(|bits| Float::constant(b, x.format, bits, x.lanes(b)));
    let step = choose(b, &above, &one, &zero)?;
    sub(b, &near, &step)
}

/// The smallest whole number that is not below x.
///
/// # Errors
/// If the blocks fail.
pub fn ceil<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let below = floor(b, &x.neg(b))?;
    Ok(below.neg(b))
}

/// The nearest whole number towards zero, with the sign of x.
///
/// # Errors
/// If the blocks fail.
pub fn trunc<B: Blocks>(b: &mut B, x: &Float<B>) -> Result<Float<B>, B::Error> {
    let below = floor(b, &x.abs(b))?;
    Ok(Float { sign: x.sign.clone(), ..below })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clear::Clear;
    use crate::format::Plain;

    type Secret = fn(&mut Clear, &Float<Clear>) -> Result<Float<Clear>, std::convert::Infallible>;

    /// Numbers around every border of a whole number, and the ends of the format.
    fn numbers() -> Vec<f32> {
        let halves = (-40..=40).map(|n| n as f32 / 4.0);
        let powers = (-30..=30).flat_map(|k| [1.0f32, 1.25, 1.5, 1.75].map(|m| m * 2f32.powi(k)));
        let around = halves.chain(powers).flat_map(|x| [x.next_down(), x, x.next_up()]);
        let ends = [0.0, 1.0e38, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY, f32::NAN];
        let all = around.chain(ends).flat_map(|x| [x, -x]);
        // Numbers below the normal ones are zeros here.
        all.filter(|x| !x.is_subnormal()).collect()
    }

    #[test]
    fn they_are_what_the_processor_has() {
        let sign = |x: f32| if x == 0.0 || x.is_nan() { x } else { x.signum() };
        let all: [(&str, Secret, fn(f32) -> f32); 5] = [
            ("sign", super::sign, sign),
            ("round", round, f32::round_ties_even),
            ("floor", floor, f32::floor),
            ("ceil", ceil, f32::ceil),
            ("trunc", trunc, f32::trunc),
        ];
        let x = numbers();
        let secret = Float::public(&Clear, &Plain::from_f32(&x));
        for (name, f, of) in all {
            let Ok(y) = f(&mut Clear, &secret);
            for (x, y) in x.iter().zip(y.plain().to_f32()) {
                let want = of(*x);
                assert!(y == want || (y.is_nan() && want.is_nan()), "{name} {x:e}: {y:e}, not {want:e}");
            }
        }
    }
}
