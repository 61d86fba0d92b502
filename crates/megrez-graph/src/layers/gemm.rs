//! Gemm: α·A·B + β·C with optional transpositions. What is constant is transposed and scaled in the
//! clear.

use super::call::Call;
use super::matmul::{largest_sum, plain_product};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

struct Gemm {
    shape: Shape,
    inner: usize,
    transposed: [bool; 2],
    alpha: f32,
    beta: f32,
}

pub(super) fn gemm(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["alpha", "beta", "transA", "transB"])?;
    let transposed = [call.int("transA", 0)? != 0, call.int("transB", 0)? != 0];
    let sides = |input: usize| match *call.shape(input)?.dims() {
        [a, b] => Ok(if transposed[input] { [b, a] } else { [a, b] }),
        _ => refuse(format!("input {input} is not a matrix"), "flatten it first"),
    };
    let ([m, inner], [k, n]) = (sides(0)?, sides(1)?);
    if inner != k {
        return refuse(format!("cannot multiply {m}×{inner} by {k}×{n}"), "");
    }
    let shape = Shape::from([m, n]);
    if call.has(2) && call.shape(2)?.broadcast(&shape).ok().as_ref() != Some(&shape) {
        return refuse(format!("the addend does not broadcast to {shape}"), "");
    }
    let (alpha, beta) = (call.float("alpha", 1.0)?, call.float("beta", 1.0)?);
    if alpha != 1.0 && !call.is_constant(0) && !call.is_constant(1) {
        return refuse(
            "`alpha` with two secret factors is not supported",
            "multiply by a constant in its own node",
        );
    }
    if beta != 1.0 && call.has(2) && !call.is_constant(2) {
        return refuse(
            "`beta` with a secret addend is not supported",
            "multiply by a constant in its own node",
        );
    }
    Ok(Arc::new(Gemm { shape, inner, transposed, alpha, beta }))
}

fn scaled(tensor: &Tensor, factor: f32) -> Tensor {
    Tensor { shape: tensor.shape.clone(), data: tensor.data.iter().map(|v| v * factor).collect() }
}

impl Gemm {
    /// A constant factor, transposed and scaled.
    fn factor(&self, input: usize, tensor: &Tensor) -> Tensor {
        if self.transposed[input] {
            tensor.view(&View::transpose(&tensor.shape, &[1, 0]))
        } else {
            tensor.clone()
        }
    }
}

impl Layer for Gemm {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let (a, b) = (self.factor(0, inputs[0]), self.factor(1, inputs[1]));
        let mut y = scaled(&plain_product(&a, &b), self.alpha);
        if let Some(c) = inputs.get(2) {
            let view = View::broadcast(&c.shape, &self.shape).expect("understood as broadcastable");
            y.data.iter_mut().zip(view.indices()).for_each(|(y, i)| *y += self.beta * c.data[i]);
        }
        y
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let turned = |cx: &mut Lowering, input: usize, x: &Secret| {
            if !self.transposed[input] {
                return Ok(x.clone());
            }
            let view = View::transpose(cx.shape(x), &[1, 0]);
            cx.view("transposed", x, view)
        };
        let y = match (&inputs[0], &inputs[1]) {
            (Operand::Secret(x), Operand::Constant(w))
                if self.transposed == [false, true] && self.alpha == 1.0 && cx.is_shared(w) =>
            {
                cx.matmul_transposed("product", x, w)?
            }
            (Operand::Secret(x), Operand::Constant(w)) => {
                let x = turned(cx, 0, x)?;
                cx.matmul_weight("product", &x, &scaled(&self.factor(1, w), self.alpha))?
            }
            (Operand::Secret(x), Operand::Public(matrix)) if self.alpha == 1.0 && !self.transposed[1] => {
                let x = turned(cx, 0, x)?;
                cx.times_public("product", &x, matrix)?
            }
            (Operand::Constant(w), Operand::Secret(x)) => {
                let x = turned(cx, 1, x)?;
                cx.weight_matmul("product", &scaled(&self.factor(0, w), self.alpha), &x)?
            }
            (a, b) => {
                let (a, b) = (turned(cx, 0, a.secret()?)?, turned(cx, 1, b.secret()?)?);
                cx.matmul("product", &a, &b)?
            }
        };
        match inputs.get(2) {
            None => Ok(y),
            Some(Operand::Constant(c)) => cx.bias(&y, &scaled(c, self.beta)),
            Some(c) => {
                let c = cx.broadcast("addend", c.secret()?, &self.shape)?;
                let both = cx.aligned(&[&y, &c])?;
                cx.combine("sum", &[(1, &both[0]), (1, &both[1])], 0)
            }
        }
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let scaling = usize::from(inputs[0].constant().is_none());
        let mut side = |i: usize| match inputs[i].constant() {
            // One of two factors is a constant if there is an α: it is multiplied in the clear.
            Some(w) => {
                let w = self.factor(i, w);
                Ok(cx.weights(if i == scaling { scaled(&w, self.alpha) } else { w }))
            }
            None => {
                let x = cx.value(&inputs[i]);
                let view = View::transpose(cx.shape(x), &[1, 0]);
                if self.transposed[i] { cx.view("transposed", x, view) } else { Ok(x) }
            }
        };
        let (a, b) = (side(0)?, side(1)?);
        let y = cx.matmul("product", a, b)?;
        let Some(addend) = inputs.get(2) else { return Ok(y) };
        let addend = match addend.constant() {
            Some(c) if self.beta != 1.0 => cx.weights(scaled(c, self.beta)),
            _ => cx.value(addend),
        };
        cx.pair("sum", Operation::Add, y, addend, &self.shape)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let [ta, tb] = self.transposed;
        let mut product = |part: &str, x: Id, y: Id, [tx, ty]: [bool; 2]| {
            let attributes = Attributes::none().with("transA", i64::from(tx)).with("transB", i64::from(ty));
            g.add(part, "Gemm", &[x, y], attributes.with("alpha", self.alpha))
        };
        let (a, b, delta) = (inputs[0], inputs[1], of_output);
        let mut of_inputs = vec![None; inputs.len()];
        if wanted[0] {
            of_inputs[0] = Some(match ta {
                false => product("left", delta, b, [false, !tb])?,
                true => product("left", b, delta, [tb, true])?,
            });
        }
        if wanted[1] {
            of_inputs[1] = Some(match tb {
                false => product("right", a, delta, [!ta, false])?,
                true => product("right", delta, a, [true, ta])?,
            });
        }
        if wanted.get(2) == Some(&true) {
            // β is 1 where the addend is no constant.
            let to = g.shape(inputs[2]).clone();
            of_inputs[2] = Some(g.summed("addend", delta, &to)?);
        }
        Ok(of_inputs)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn gain(&self, constant: Option<(usize, &Tensor)>) -> Option<f64> {
        let sum = |(i, t): (usize, &Tensor)| {
            let of_rows = (i == 0) != self.transposed[i];
            f64::from(self.alpha.abs()) * largest_sum(&t.data, t.shape.dims()[1], of_rows)
        };
        Some(constant.map_or(self.inner as f64, sum))
    }

    fn work(&self) -> u64 {
        (self.shape.elements() * self.inner) as u64
    }
}
