//! Reciprocal, Sqrt, Log and Pow with a constant exponent: [`super::octaves`], and products for
//! small whole exponents.
//!
//! Errors are those of the octaves plus one unit of 2^−f; 1/x and 1/√x near the smallest unit of x
//! are as coarse as x is. A whole exponent n takes ⌈log₂ n⌉ products one after the other, each off
//! by one unit and what its factors are off.

use super::call::Call;
use super::octaves::{INVERSE_ROOT, LOGARITHM, Octaves, RECIPROCAL, ROOT};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Function, Operation, ValueId};
use megrez_ring::Shape;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Reciprocal,
    Root,
    InverseRoot,
    Logarithm,
    /// A whole exponent.
    Power(u32),
}

struct Root {
    kind: Kind,
    shape: Shape,
}

pub(super) fn reciprocal(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    function(call, Kind::Reciprocal)
}

pub(super) fn sqrt(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    function(call, Kind::Root)
}

pub(super) fn log(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    function(call, Kind::Logarithm)
}

pub(super) fn pow(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let exponent = match call.floats(1)?.data[..] {
        [v] => v,
        _ => return refuse("has more than one exponent", "split it into one Pow per exponent"),
    };
    let kind = match exponent {
        0.5 => Kind::Root,
        -0.5 => Kind::InverseRoot,
        -1.0 => Kind::Reciprocal,
        n if (1.0..=16.0).contains(&n) && n.fract() == 0.0 => Kind::Power(n as u32),
        n => return refuse(format!("the exponent {n} is not supported"), "use 1 to 16, ±0.5 or −1"),
    };
    function(call, kind)
}

fn function(call: &Call, kind: Kind) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(Root { kind, shape: call.shape(0)?.clone() }))
}

/// 1/x with f fraction bits, for x of either sign.
pub(super) fn inverse(cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
    let f = cx.frac();
    if x.range.hull().0 >= 0 {
        return RECIPROCAL.lower(cx, x, 1.0, f);
    }
    let bits = cx.thermometer("sign", x, &[0])?;
    let shape = cx.shape(x).clone();
    let bits = cx.unstack("sign-bit", &bits, &shape)?;
    // |y| from y: both ways the same two steps.
    let fold = |cx: &mut Lowering, name: &str, y: &Secret, range: Range| {
        let positive = cx.select(name, &bits[0], y)?;
        cx.combine_within(&format!("{name}-folded"), &[(2, &positive), (-1, y)], 0, range)
    };
    let size = x.range.magnitude();
    let magnitude = fold(cx, "magnitude", x, Range::uniform(0, size))?;
    let y = RECIPROCAL.lower(cx, &magnitude, 1.0, f)?;
    let size = y.range.magnitude();
    fold(cx, "signed", &y, Range::uniform(-size, size))
}

/// x^n with f fraction bits, for x with f.
fn power(cx: &mut Lowering, x: &Secret, n: u32) -> Result<Secret, Refusal> {
    let mut result: Option<Secret> = None;
    let (mut square, mut left) = (x.clone(), n);
    loop {
        if left % 2 == 1 {
            result = Some(match result {
                None => square.clone(),
                Some(r) => {
                    let y = cx.mul("product", &r, &square)?;
                    if left == 1 { y } else { cx.settle(&y)? }
                }
            });
        }
        left /= 2;
        match (left, result) {
            (0, Some(result)) => return Ok(result),
            (_, r) => result = r,
        }
        let y = cx.mul("square", &square, &square)?;
        let y = Secret { range: y.range.map(|b| b.max(0)), ..y };
        // The last product keeps its fraction bits for a truncation further on.
        square = if left == 1 && result.is_none() { y } else { cx.settle(&y)? };
    }
}

impl Layer for Root {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let f = |v: f64| match self.kind {
            Kind::Reciprocal => 1.0 / v,
            Kind::Root => v.sqrt(),
            Kind::InverseRoot => 1.0 / v.sqrt(),
            Kind::Logarithm => v.ln(),
            Kind::Power(n) => v.powi(n as i32),
        };
        let data = inputs[0].data.iter().map(|&v| f(f64::from(v)) as f32).collect();
        Tensor::new(self.shape.clone(), data)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let (x, y) = (inputs[0], output);
        let derivative = match self.kind {
            Kind::Power(1) => return Ok([vec![Some(of_output)], vec![None; wanted.len() - 1]].concat()),
            // n·x^(n − 1)
            Kind::Power(2) => g.affine("twice", x, 2.0, 0.0)?,
            Kind::Power(n) => {
                let exponent = g.constant("exponent", Tensor::filled([1], (n - 1) as f32));
                let power = g.add("power", "Pow", &[x, exponent], Attributes::none())?;
                g.affine("times", power, n as f32, 0.0)?
            }
            // −1/x² and −1/2·x^(−3/2)
            Kind::Reciprocal | Kind::InverseRoot => {
                let mut power = g.product("square", y, y)?;
                let mut factor = -1.0;
                if self.kind == Kind::InverseRoot {
                    (power, factor) = (g.product("cube", power, y)?, -0.5);
                }
                g.affine("times", power, factor, 0.0)?
            }
            // 1/(2·√x) and 1/x
            Kind::Root | Kind::Logarithm => {
                let (of, factor) = if self.kind == Kind::Root { (y, 0.5) } else { (x, 1.0) };
                let inverse = g.add("inverse", "Reciprocal", &[of], Attributes::none())?;
                g.affine("times", inverse, factor, 0.0)?
            }
        };
        let mut of_inputs = g.chain(derivative, of_output)?;
        // The exponent is a constant.
        of_inputs.resize(wanted.len(), None);
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let f = cx.frac();
        let octaves: &Octaves = match self.kind {
            Kind::Reciprocal => return inverse(cx, x),
            Kind::Power(n) => {
                let x = cx.settle(x)?;
                return power(cx, &x, n);
            }
            Kind::Root => &ROOT,
            Kind::InverseRoot => &INVERSE_ROOT,
            Kind::Logarithm => &LOGARITHM,
        };
        octaves.lower(cx, x, 1.0, f)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let inverse = |cx: &mut FloatLowering, x: ValueId| {
            let one = cx.public("one", &Tensor::filled([], 1.0))?;
            cx.pair("inverse", Operation::Div, one, x, &self.shape)
        };
        match self.kind {
            Kind::Root => cx.map("root", Function::Sqrt, x),
            Kind::Logarithm => cx.map("log", Function::Ln, x),
            Kind::Reciprocal => inverse(cx, x),
            Kind::InverseRoot => {
                let root = cx.map("root", Function::Sqrt, x)?;
                inverse(cx, root)
            }
            Kind::Power(n) => {
                // From the highest bit of n: square, and multiply by x where the bit is set.
                let mut y = x;
                for bit in (0..n.ilog2()).rev() {
                    y = cx.pair("square", Operation::Mul, y, y, &self.shape)?;
                    if n >> bit & 1 == 1 {
                        y = cx.pair("product", Operation::Mul, y, x, &self.shape)?;
                    }
                }
                Ok(y)
            }
        }
    }

    fn scale(&self) -> Scale {
        match self.kind {
            Kind::Power(_) => Scale::Product,
            // More fraction bits of the operand are used, not dropped.
            _ => Scale::ShrinksThenProduct,
        }
    }
}
