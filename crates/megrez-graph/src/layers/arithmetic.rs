//! Add, Sub, Mul and Div, element by element, with NumPy's broadcast. Sums of values with different scales are aligned
//! upwards, which is local; constants are shared at the scale that they meet.

use super::{Call, Layer, Scale};
use crate::graph::Tensor;
use crate::lower::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use megrez_plan::View;
use megrez_ring::Shape;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Add,
    Sub,
    Mul,
    Div,
}

struct Arithmetic {
    kind: Kind,
    shape: Shape,
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
    let divisor = call.floats(1).map_err(|r| Refusal::new(r.what, "division by secrets is not supported"))?;
    if divisor.data.contains(&0.0) {
        return refuse("divides by zero", "");
    }
    arithmetic(call, Kind::Div)
}

fn arithmetic(call: &Call, kind: Kind) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let (a, b) = (call.shape(0)?, call.shape(1)?);
    match a.broadcast(b) {
        Ok(shape) => Ok(Arc::new(Arithmetic { kind, shape })),
        Err(_) => refuse(format!("the shapes {a} and {b} do not broadcast"), ""),
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
        };
        let view = |t: &Tensor| View::broadcast(&t.shape, &self.shape).expect("understood as broadcastable");
        let (va, vb) = (view(inputs[0]), view(inputs[1]));
        let pairs = va.indices().zip(vb.indices());
        Tensor::new(self.shape.clone(), pairs.map(|(i, j)| f(inputs[0].data[i], inputs[1].data[j])).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let negative =
            |t: &Tensor| Tensor { shape: t.shape.clone(), data: t.data.iter().map(|v| -v).collect() };
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
            (Kind::Div, x, c) => {
                let x = cx.broadcast("operand", x.secret()?, &self.shape)?;
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

    fn scale(&self) -> Scale {
        match self.kind {
            Kind::Add | Kind::Sub => Scale::Passes,
            Kind::Mul | Kind::Div => Scale::Product,
        }
    }
}
