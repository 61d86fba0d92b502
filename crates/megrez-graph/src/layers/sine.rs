//! Sin and Cos: one comparison with the borders between the half waves in the range of x gives the
//! number k of its half wave, and x − kπ, which lies within ±π/2, and (−1)^k are linear in the
//! bits. A polynomial in (x − kπ)/2 does the rest, off by at most 6e-7; cos x is sin(x + π/2).
//!
//! Rounding adds about 2^−16, and the words of kπ half a unit. The cost grows with the range of x;
//! more than 64 half waves are refused.

use super::call::Call;
use super::polynomial::{Coefficients, argument_bits, degree_7};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, out_of_range};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Function, MAX_THRESHOLDS, ValueId};
use megrez_ring::Shape;
use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::Arc;

/// sin 2w for |w| ≤ π/4: its Chebyshev series up to degree 7.
const DOUBLE: Coefficients = [0.0, 1.999_993, 0.0, -1.333_142_4, 0.0, 0.265_806_4, 0.0, -0.023_502_3];

struct Sine {
    shape: Shape,
    /// Whether it is the cosine.
    ahead: bool,
}

pub(super) fn sine(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Ok(Arc::new(Sine { shape: call.shape(0)?.clone(), ahead: false }))
}

pub(super) fn cosine(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    Ok(Arc::new(Sine { shape: call.shape(0)?.clone(), ahead: true }))
}

impl Layer for Sine {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let f = |&x: &f32| if self.ahead { f64::from(x).cos() } else { f64::from(x).sin() };
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(|x| f(x) as f32).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let f = cx.frac();
        let x = cx.settle(inputs[0].secret()?)?;
        let word = |v: f64| (v * 2f64.powi(f as i32)).round() as i64;
        let x = if self.ahead { cx.combine("ahead", &[(1, &x)], word(FRAC_PI_2))? } else { x };
        let (low, high) = x.range.hull();
        let wave = |v: i128| (v as f64 * 2f64.powi(-(f as i32)) / PI).round();
        let (first, last) = (wave(low), wave(high));
        // One border at least, so that there is something to compare with.
        let last = last.max(first + 1.0);
        if last - first > MAX_THRESHOLDS as f64 {
            return out_of_range(
                format!(
                    "its numbers may lie in {} half waves, and {MAX_THRESHOLDS} are the most",
                    last - first
                ),
                "declare a smaller input range",
            );
        }
        let (first, last) = (first as i64, last as i64);
        let borders: Vec<i64> = (first + 1..=last).map(|k| word((k as f64 - 0.5) * PI)).collect();
        let bits = cx.thermometer("half-wave", &x, &borders)?;
        let ones = cx.bit_to_ring("half-wave-number", &bits)?;
        let shape = cx.shape(&x).clone();
        let ones = cx.unstack("half-wave-part", &ones, &shape)?;
        let middle = |k: i64| word(k as f64 * PI);
        let sign = |k: i64| if k % 2 == 0 { 1 } else { -1 };
        let whole = cx.rescale("x-words", &x, 0)?;
        let mut terms = vec![(1i64, &whole)];
        let steps = || (first + 1..=last).zip(&ones);
        terms.extend(steps().map(|(k, one)| (middle(k - 1) - middle(k), one)));
        let half = i128::from(word(FRAC_PI_2)) + 2;
        let rest = cx.combine_within("rest", &terms, -middle(first), Range::uniform(-half, half))?;
        let terms: Vec<(i64, &Secret)> = steps().map(|(k, one)| (2 * sign(k), one)).collect();
        let sign = cx.combine_within("sign", &terms, sign(first), Range::uniform(-1, 1))?;
        let w = cx.rescale("w-scale", &rest, f + 1)?;
        let w = cx.rounded("w", &w, argument_bits(cx.ring()))?;
        let p = degree_7(cx, &w, &DOUBLE)?;
        let unit = 1 << f;
        let p = cx.rounded("p", &p, f)?.within(Range::uniform(-unit - 16, unit + 16));
        cx.mul("signed", &p, &sign)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        cx.map("function", if self.ahead { Function::Cos } else { Function::Sin }, x)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }
}
