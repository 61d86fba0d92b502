//! Add, Sub, Mul, Div, Max, Min and Neg, element by element, with NumPy's broadcast. Sums of values
//! with different scales are aligned upwards, which is local; constants are shared at the scale
//! that they meet.
//!
//! A factor or divisor that is one power of two, as in the scaling of attention, is no weight: it
//! stands in the plan as a change of scale, which is free. Division by a secret multiplies by its
//! reciprocal ([`super::octaves`]).

use super::call::{Call, FIXED_ONLY, refuse_floats};
use super::{known, roots};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD};
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Function, Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Neg,
    /// Multiplication by ±2^shift.
    Shift {
        negative: bool,
        shift: i32,
    },
}

struct Arithmetic {
    kind: Kind,
    shape: Shape,
    /// Whether input 1 is secret.
    secret: bool,
    /// Which input is shifted.
    input: usize,
    /// Whether floating point would lose digits here.
    fixed_only: bool,
}

pub(super) fn add(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    arithmetic(call, Kind::Add)
}

pub(super) fn sub(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    arithmetic(call, Kind::Sub)
}

pub(super) fn mul(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    arithmetic(call, Kind::Mul)
}

pub(super) fn div(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    if call.floats(1).is_ok_and(|divisor| divisor.data.contains(&0.0)) {
        return refuse("divides by zero", "");
    }
    arithmetic(call, Kind::Div)
}

pub(super) fn max(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    arithmetic(call, Kind::Max)
}

pub(super) fn min(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    arithmetic(call, Kind::Min)
}

pub(super) fn neg(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    if known::is_ints(call, 0) {
        return known::negative(call);
    }
    Ok(Arc::new(Arithmetic {
        kind: Kind::Neg,
        shape: call.shape(0)?.clone(),
        secret: false,
        input: 0,
        fixed_only: false,
    }))
}

/// The sign and the exponent of a power of two between 2^−32 and 2^32.
fn power_of_two(v: f32) -> Option<(bool, i32)> {
    let exponent = v.abs().log2();
    let exact = exponent.fract() == 0.0 && exponent.abs() <= 32.0 && exponent.exp2() == v.abs();
    exact.then_some((v < 0.0, exponent as i32))
}

/// A product with one power of two, or a quotient by one.
fn shift(call: &Call, kind: Kind) -> Option<(Kind, usize)> {
    let inputs: &[usize] = match kind {
        Kind::Mul => &[0, 1],
        Kind::Div => &[1],
        _ => return None,
    };
    let constants = inputs.iter().filter_map(|&i| Some((i, call.floats(i).ok()?)));
    let (i, (negative, shift)) = constants
        .filter(|(i, t)| t.data.len() == 1 && !call.is_constant(1 - i))
        .find_map(|(i, t)| Some((i, power_of_two(t.data[0])?)))?;
    let shift = if kind == Kind::Div { -shift } else { shift };
    Some((Kind::Shift { negative, shift }, 1 - i))
}

fn arithmetic(call: &Call, kind: Kind) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, if kind == Kind::Mul { &[FIXED_ONLY] } else { &[] })?;
    if known::is_ints(call, 0) && known::is_ints(call, 1) {
        return known::arithmetic(call, kind.name());
    }
    let (a, b) = (call.shape(0)?, call.shape(1)?);
    let (kind, input) = shift(call, kind).unwrap_or((kind, 0));
    match a.broadcast(b) {
        Ok(shape) => {
            let (secret, fixed_only) = (!call.is_constant(1), call.int(FIXED_ONLY, 0)? != 0);
            Ok(Arc::new(Arithmetic { kind, shape, secret, input, fixed_only }))
        }
        Err(_) => refuse(format!("the shapes {a} and {b} do not broadcast"), ""),
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Add => "Add",
            Kind::Sub => "Sub",
            Kind::Mul => "Mul",
            Kind::Div => "Div",
            Kind::Max => "Max",
            Kind::Min => "Min",
            Kind::Neg => "Neg",
            Kind::Shift { .. } => "Shift",
        }
    }
}

impl Layer for Arithmetic {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let f = match self.kind {
            Kind::Add => |a, b| a + b,
            Kind::Sub => |a, b| a - b,
            Kind::Mul => |a, b| a * b,
            Kind::Div => |a: f32, b: f32| a / b,
            Kind::Max => f32::max,
            Kind::Min => f32::min,
            Kind::Neg | Kind::Shift { .. } => {
                let factor = match self.kind {
                    Kind::Shift { negative, shift } => 2f32.powi(shift) * if negative { -1.0 } else { 1.0 },
                    _ => -1.0,
                };
                let x = inputs[self.input];
                let x = x.view(&View::broadcast(&x.shape, &self.shape).expect("understood as broadcastable"));
                return Tensor::new(self.shape.clone(), x.data.iter().map(|v| v * factor).collect());
            }
        };
        let view = |t: &Tensor| View::broadcast(&t.shape, &self.shape).expect("understood as broadcastable");
        let (va, vb) = (view(inputs[0]), view(inputs[1]));
        let pairs = va.indices().zip(vb.indices());
        Tensor::new(self.shape.clone(), pairs.map(|(i, j)| f(inputs[0].data[i], inputs[1].data[j])).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let negative =
            |t: &Tensor| Tensor { shape: t.shape.clone(), data: t.data.iter().map(|v| -v).collect() };
        match self.kind {
            Kind::Neg => return cx.combine("negative", &[(-1, inputs[0].secret()?)], 0),
            Kind::Shift { negative, shift } => {
                let x = cx.broadcast("operand", inputs[self.input].secret()?, &self.shape)?;
                let sign = if negative { -1 } else { 1 };
                let factor = if shift > 0 { sign << shift } else { sign };
                let x = if factor == 1 { x } else { cx.combine("shifted", &[(factor, &x)], 0)? };
                let frac = cx.frac_of(&x) + shift.min(0).unsigned_abs();
                return cx.rescale("scale", &x, frac);
            }
            _ => {}
        }
        match (self.kind, &inputs[0], &inputs[1]) {
            (Kind::Add, Operand::Secret(x), Operand::Constant(c))
            | (Kind::Add, Operand::Constant(c), Operand::Secret(x)) => {
                let x = cx.broadcast("operand", x, &self.shape)?;
                cx.bias(&x, c)
            }
            (Kind::Sub, Operand::Secret(x), Operand::Constant(c)) => {
                let x = cx.broadcast("operand", x, &self.shape)?;
                cx.bias(&x, &negative(c))
            }
            (Kind::Sub, Operand::Constant(c), Operand::Secret(x)) => {
                let x = cx.broadcast("operand", x, &self.shape)?;
                let x = cx.combine("negative", &[(-1, &x)], 0)?;
                cx.bias(&x, c)
            }
            (Kind::Mul, Operand::Secret(x), Operand::Constant(c))
            | (Kind::Mul, Operand::Constant(c), Operand::Secret(x)) => {
                let x = cx.broadcast("operand", x, &self.shape)?;
                cx.mul_weight("product", &x, c)
            }
            (Kind::Div, x, Operand::Secret(y)) => {
                let inverse = roots::inverse(cx, y)?;
                let inverse = cx.broadcast("inverse-broadcast", &inverse, &self.shape)?;
                match x {
                    Operand::Constant(c) => cx.mul_weight("product", &inverse, c),
                    x => {
                        let x = cx.settle(x.secret()?)?;
                        let x = cx.broadcast("operand", &x, &self.shape)?;
                        cx.mul("product", &x, &inverse)
                    }
                }
            }
            (Kind::Max | Kind::Min, x, y) => {
                // max(x, y) = y + max(x − y, 0) and min(x, y) = y − max(y − x, 0).
                let sign = if self.kind == Kind::Max { 1 } else { -1 };
                let (difference, y) = match (x, y) {
                    (Operand::Secret(x), Operand::Secret(y)) => {
                        let (x, y) =
                            (cx.broadcast("left", x, &self.shape)?, cx.broadcast("right", y, &self.shape)?);
                        let both = cx.aligned(&[&x, &y])?;
                        let terms = [(sign, &both[0]), (-sign, &both[1])];
                        (cx.combine("difference", &terms, 0)?, both[1].clone())
                    }
                    (Operand::Secret(x), Operand::Constant(c))
                    | (Operand::Constant(c), Operand::Secret(x)) => {
                        // Symmetric, so that the secret may stand for y.
                        let x = cx.broadcast("operand", x, &self.shape)?;
                        let below = cx.combine("negative", &[(-sign, &x)], 0)?;
                        let scaled =
                            Tensor::new(c.shape.clone(), c.data.iter().map(|v| v * sign as f32).collect());
                        (cx.bias(&below, &scaled)?, x)
                    }
                    _ => {
                        return refuse("computes on constants only", "");
                    }
                };
                let excess = cx.relu("relu", &difference)?;
                cx.combine("extremum", &[(1, &y), (sign, &excess)], 0)
            }
            (Kind::Div, x, c) => {
                let x = cx.settle(x.secret()?)?;
                let x = cx.broadcast("operand", &x, &self.shape)?;
                let c = c.constant()?;
                let inverse = c.data.iter().map(|v| 1.0 / v).collect();
                cx.mul_weight("product", &x, &Tensor::new(c.shape.clone(), inverse))
            }
            (kind, a, b) => {
                let a = cx.broadcast("left", a.secret()?, &self.shape)?;
                let b = cx.broadcast("right", b.secret()?, &self.shape)?;
                if kind == Kind::Mul {
                    return cx.mul("product", &a, &b);
                }
                let both = cx.aligned(&[&a, &b])?;
                let sign = if kind == Kind::Sub { -1 } else { 1 };
                cx.combine("sum", &[(1, &both[0]), (sign, &both[1])], 0)
            }
        }
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let mut of_inputs = vec![None; inputs.len()];
        for (i, of_input) in of_inputs.iter_mut().enumerate().filter(|(i, _)| wanted[*i]) {
            let part = ["left", "right"][i];
            let none = Attributes::none;
            let delta = match self.kind {
                Kind::Add => of_output,
                Kind::Sub if i == 0 => of_output,
                Kind::Sub | Kind::Neg => g.add(part, "Neg", &[of_output], none())?,
                Kind::Mul => g.add(part, "Mul", &[of_output, inputs[1 - i]], none())?,
                Kind::Shift { negative, shift } if i == self.input => {
                    let factor = 2f32.powi(shift) * if negative { -1.0 } else { 1.0 };
                    let factor = g.constant("factor", Tensor::filled([1], factor));
                    g.add(part, "Mul", &[of_output, factor], none())?
                }
                Kind::Div if i == 0 && !self.secret => g.add(part, "Div", &[of_output, inputs[1]], none())?,
                _ => return refuse(NO_BACKWARD, "train only layers that come after it"),
            };
            let to = g.shape(inputs[i]).clone();
            *of_input = Some(g.summed(part, delta, &to)?);
        }
        Ok(of_inputs)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        if self.fixed_only {
            return refuse_floats();
        }
        let operation = match self.kind {
            Kind::Add => Operation::Add,
            Kind::Sub => Operation::Sub,
            Kind::Mul => Operation::Mul,
            Kind::Div => Operation::Div,
            Kind::Max => Operation::Max,
            Kind::Min => Operation::Min,
            Kind::Neg => {
                let x = cx.value(&inputs[0]);
                return cx.map("negative", Function::Neg, x);
            }
            Kind::Shift { negative, shift } => {
                let x = cx.value(&inputs[self.input]);
                let x = cx.broadcast("operand", x, &self.shape)?;
                let factor = 2f32.powi(shift) * if negative { -1.0 } else { 1.0 };
                return cx.with_number("scaled", Operation::Mul, x, factor);
            }
        };
        let (x, y) = (cx.value(&inputs[0]), cx.value(&inputs[1]));
        cx.pair(&self.kind.name().to_lowercase(), operation, x, y, &self.shape)
    }

    fn scale(&self) -> Scale {
        match self.kind {
            Kind::Add | Kind::Sub | Kind::Max | Kind::Min | Kind::Neg => Scale::Passes,
            // The divisor's reciprocal makes use of all its fraction bits.
            Kind::Div if self.secret => Scale::ShrinksThenProduct,
            Kind::Mul | Kind::Div => Scale::Product,
            Kind::Shift { shift, .. } if shift < 0 => Scale::Divides { bits: shift.unsigned_abs() },
            Kind::Shift { .. } => Scale::Passes,
        }
    }

    fn gain(&self, constant: Option<(usize, &Tensor)>) -> Option<f64> {
        let largest = |(_, t): (usize, &Tensor)| t.data.iter().fold(0f32, |m, v| m.max(v.abs())).into();
        matches!(self.kind, Kind::Mul).then(|| constant.map_or(1.0, largest))
    }
}
