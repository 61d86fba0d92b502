//! Polynomials of degree 7, three products deep: p(w) = a(w) + w⁴·b(w) with a and b of degree 3;
//! and of degree 15, one deeper.
//!
//! w lies in [−1, 1] (a little more does no harm), where the coefficients of the functions here
//! fall off quickly, so powers need few bits: g = 20 on the 64-bit ring, 9 on the 32-bit ring.
//! Products: w², then w³ and w⁴, then w⁴·b; the first two levels are truncated, the last result
//! carries ℓ − 6 fraction bits, so that |p| < 8. Rounding: each power is off by at most a few units
//! of 2^−g, the result by about 2^(2−g) times the derivative's size.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::range::{Interval, Range};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

/// The operator's name in a graph; ONNX has none for it.
pub(crate) const POLYNOMIAL: &str = "Polynomial";

/// c0 to c7.
pub(super) type Coefficients = [f32; 8];

/// Fraction bits of w.
pub(super) fn argument_bits(ring: u32) -> u32 {
    match ring {
        64 => 20,
        40.. => 14,
        _ => 9,
    }
}

/// w, w², w³ and w⁴ with as many fraction bits as w.
fn powers(cx: &mut Lowering, w: &Secret) -> Result<[Secret; 4], Refusal> {
    let g = cx.frac_of(w);
    let non_negative = |range: &Range| range.map(|b| b.max(0));
    let square = cx.mul("w2-product", w, w)?;
    let range = non_negative(&square.range);
    let square = cx.rounded("w2", &square.within(range), g)?;
    let shape = cx.shape(w).clone();
    let twice: Shape = [&[2], shape.dims()].concat().into();
    let both = cx.stack("w-w2", &[w, &square])?;
    let squares = cx.broadcast("w2-w2", &square, &twice)?;
    let higher = cx.mul("w3-w4-product", &both, &squares)?;
    let higher = cx.rounded("w3-w4", &higher, g)?;
    let powers = cx.unstack("power", &higher, &shape)?;
    let [cube, fourth] = &powers[..] else { unreachable!("two powers were stacked") };
    let range = non_negative(&fourth.range);
    Ok([w.clone(), square, cube.clone(), fourth.clone().within(range)])
}

/// c0 + c1·w + c2·w² + c3·w³ with `bits` fraction bits more than w.
fn cubic(
    cx: &mut Lowering,
    name: &str,
    powers: &[Secret; 4],
    c: &[f32],
    bits: u32,
) -> Result<Secret, Refusal> {
    let mut terms = vec![];
    for (&c, power) in c[1..].iter().zip(powers) {
        terms.push((cx.encode(c, bits)?, power));
    }
    let scale = cx.frac_of(&powers[0]) + bits;
    let constant = cx.encode(c[0], scale)?;
    let sum = cx.combine(name, &terms, constant)?;
    cx.rescale(&format!("{name}-scale"), &sum, scale)
}

/// p(w), c0 to c7; the result has ℓ − 6 fraction bits.
pub(super) fn degree_7(cx: &mut Lowering, w: &Secret, c: &[f32]) -> Result<Secret, Refusal> {
    let g = cx.frac_of(w);
    let scale = cx.ring() - 6;
    let powers = powers(cx, w)?;
    let high = cubic(cx, "high", &powers, &c[4..8], scale - 2 * g)?;
    let low = cubic(cx, "low", &powers, &c[..4], scale - g)?;
    let high = cx.mul("w4-product", &powers[3], &high)?;
    cx.combine("polynomial", &[(1, &high), (1, &low)], 0)
}

/// p(w), c0 to c15, whose magnitudes may add up to 63: a(w) + w⁴·b(w) + w⁸·(c(w) + w⁴·d(w)), four
/// products deep. The result has ℓ − 8 fraction bits.
pub(super) fn degree_15(cx: &mut Lowering, w: &Secret, c: &[f32]) -> Result<Secret, Refusal> {
    let g = cx.frac_of(w);
    let scale = cx.ring() - 8;
    let powers = powers(cx, w)?;
    let fourth = &powers[3];
    let eighth = cx.mul("w8-product", fourth, fourth)?;
    let range = eighth.range.map(|b| b.max(0));
    let eighth = cx.rounded("w8", &eighth.within(range), g)?;
    let [a, b, c, d] = [0, 4, 8, 12].map(|i| &c[i..i + 4]);
    let d = cubic(cx, "d", &powers, d, scale - 2 * g)?;
    let c = cubic(cx, "c", &powers, c, scale - g)?;
    let d = cx.mul("d-product", fourth, &d)?;
    let high = cx.combine("high", &[(1, &c), (1, &d)], 0)?;
    let high = cx.rounded("high-rounded", &high, scale - g)?;
    let high = cx.mul("w8-high-product", &eighth, &high)?;
    let b = cubic(cx, "b", &powers, b, scale - 2 * g)?;
    let b = cx.mul("b-product", fourth, &b)?;
    let a = cubic(cx, "a", &powers, a, scale - g)?;
    cx.combine("polynomial", &[(1, &a), (1, &b), (1, &high)], 0)
}

/// p(x) of numbers between −1 and 1, as a layer of its own.
struct Polynomial {
    shape: Shape,
    coefficients: Coefficients,
}

pub(super) fn layer(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    let names: Vec<String> = (0..8).map(|i| format!("c{i}")).collect();
    call.only(1, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
    let mut coefficients = [0.0; 8];
    for (c, name) in coefficients.iter_mut().zip(&names) {
        *c = call.float(name, 0.0)?;
    }
    Ok(Arc::new(Polynomial { shape: call.shape(0)?.clone(), coefficients }))
}

impl Layer for Polynomial {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let f = |&x: &f32| {
            let p = self.coefficients.iter().rev().fold(0.0, |y, &c| y * f64::from(x) + f64::from(c));
            p as f32
        };
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(f).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        // Roundings may lead a little beyond.
        cx.holds_within(x, Interval::abs(1.0 + 1.0 / 64.0), "the polynomial holds between −1 and 1")?;
        let g = argument_bits(cx.ring());
        let unit = (1i128 << g) + (1 << (g - 6));
        let w = cx.rounded("w", x, g)?.within(Range::uniform(-unit, unit));
        let p = degree_7(cx, &w, &self.coefficients)?;
        cx.rounded("result", &p, cx.frac())
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let mut y = cx.with_number("product", Operation::Mul, x, self.coefficients[7])?;
        for i in (0..7).rev() {
            y = cx.with_number("sum", Operation::Add, y, self.coefficients[i])?;
            if i > 0 {
                y = cx.pair("product", Operation::Mul, y, x, &self.shape)?;
            }
        }
        Ok(y)
    }

    fn scale(&self) -> Scale {
        Scale::ShrinksThenProduct
    }
}
