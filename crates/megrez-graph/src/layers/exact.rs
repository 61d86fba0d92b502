//! Activations in floating point: not splines, but the functions themselves.

use crate::float::lowering::FloatLowering;
use crate::problem::{Refusal, refuse};
use megrez_plan::{Function, Operation, ValueId};
use megrez_ring::Shape;
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// An activation in floating point.
#[derive(Clone, Copy)]
pub(super) enum Exact {
    /// A function of its own.
    Function(Function),
    /// x/(1 + e^−x).
    TimesSigmoid,
    /// x/2·(1 + erf(x/√2)).
    Gelu,
    /// There is no such form yet.
    None,
    /// x/2·(1 + tanh y) = x/(1 + e^−2y), y = √(2/π)·(x + 0.044715·x³).
    GeluTanh,
}

impl Exact {
    /// On a value of this shape.
    pub(super) fn lower(self, cx: &mut FloatLowering, x: ValueId, shape: &Shape) -> Result<ValueId, Refusal> {
        match self {
            Exact::Function(f) => cx.map("function", f, x),
            Exact::None => refuse("has no floating-point form yet", "train in fixed point"),
            Exact::TimesSigmoid => {
                let sigmoid = cx.map("sigmoid", Function::Sigmoid, x)?;
                cx.pair("product", Operation::Mul, x, sigmoid, shape)
            }
            Exact::Gelu => {
                let y = cx.with_number("scaled", Operation::Mul, x, FRAC_1_SQRT_2)?;
                let y = cx.map("erf", Function::Erf, y)?;
                let y = cx.with_number("step", Operation::Add, y, 1.0)?;
                let half = cx.with_number("half", Operation::Mul, x, 0.5)?;
                cx.pair("product", Operation::Mul, half, y, shape)
            }
            Exact::GeluTanh => {
                let square = cx.pair("square", Operation::Mul, x, x, shape)?;
                let cubic = cx.with_number("cubic", Operation::Mul, square, 0.044_715)?;
                let slope = cx.with_number("slope", Operation::Add, cubic, 1.0)?;
                let y = cx.pair("argument", Operation::Mul, x, slope, shape)?;
                let twice = 2.0 * FRAC_2_PI.sqrt();
                let y = cx.with_number("scaled", Operation::Mul, y, twice)?;
                let y = cx.map("sigmoid", Function::Sigmoid, y)?;
                cx.pair("product", Operation::Mul, x, y, shape)
            }
        }
    }
}
