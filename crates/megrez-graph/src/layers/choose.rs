//! Where with a public condition, and Expand: local. A condition that is secret is not supported.

use super::call::Call;
use super::known::known;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::{Constant, Tensor};
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// The elements of one of two operands, by a public condition.
struct Choose {
    /// Which elements are the first operand's, for the whole shape.
    first: Vec<bool>,
    shape: Shape,
}

pub(super) fn choose(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &[])?;
    let Some(Constant::Ints(condition)) = &call.graph.value(call.id(0)?).constant else {
        return refuse("its condition is secret", "use Relu, Clip or Max, or a condition that is a constant");
    };
    let (a, b) = (call.any_shape(1)?, call.any_shape(2)?);
    let Some(shape) = a.broadcast(b).ok().and_then(|s| s.broadcast(&condition.shape).ok()) else {
        return refuse(format!("the shapes {}, {a} and {b} do not broadcast", condition.shape), "");
    };
    let shape = crate::tensor::sane(shape)?;
    let view = |from: &Shape| View::broadcast(from, &shape).expect("they broadcast");
    let first: Vec<bool> = condition.view(&view(&condition.shape)).data.iter().map(|&v| v != 0).collect();
    let side = |input: usize| call.id(input).map(|id| call.graph.value(id).constant.as_ref());
    if let (Some(Constant::Ints(x)), Some(Constant::Ints(y))) = (side(1)?, side(2)?) {
        let (x, y) = (x.view(&view(a)).data, y.view(&view(b)).data);
        let data: Vec<i64> = (0..first.len()).map(|i| if first[i] { x[i] } else { y[i] }).collect();
        return known(Tensor::new(shape.clone(), data));
    }
    // Integers and secrets do not mix.
    call.shape(1)?;
    call.shape(2)?;
    if let (Some(Constant::Floats(x)), Some(Constant::Floats(y))) = (side(1)?, side(2)?) {
        let (x, y) = (x.view(&view(a)).data, y.view(&view(b)).data);
        let data: Vec<f32> = (0..first.len()).map(|i| if first[i] { x[i] } else { y[i] }).collect();
        return known(Tensor::new(shape.clone(), data));
    }
    Ok(Arc::new(Choose { first, shape }))
}

impl Choose {
    /// x where `which` says so, 0 elsewhere.
    fn part(&self, cx: &mut Lowering, name: &str, x: &Secret, which: bool) -> Result<Secret, Refusal> {
        let x = cx.broadcast(&format!("{name}-broadcast"), x, &self.shape)?;
        let keep = self.first.iter().map(|&f| f32::from(f == which)).collect();
        let bounds = x.range.merged().with_zero();
        Ok(cx.mul_public(name, &x, &Tensor::new(self.shape.clone(), keep), 0)?.within(bounds))
    }
}

impl Layer for Choose {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let view = |t: &Tensor| t.view(&View::broadcast(&t.shape, &self.shape).expect("they broadcast")).data;
        let (a, b) = (view(inputs[0]), view(inputs[1]));
        let data = (0..self.first.len()).map(|i| if self.first[i] { a[i] } else { b[i] }).collect();
        Tensor::new(self.shape.clone(), data)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let hidden = |t: &Tensor, which: bool| {
            let view = View::broadcast(&t.shape, &self.shape).expect("they broadcast");
            let keep = |(i, at): (usize, usize)| if self.first[i] == which { t.data[at] } else { 0.0 };
            Tensor::new(self.shape.clone(), view.indices().enumerate().map(keep).collect())
        };
        match (&inputs[0], &inputs[1]) {
            (Operand::Secret(a), Operand::Secret(b)) => {
                let (a, b) = (self.part(cx, "first", a, true)?, self.part(cx, "second", b, false)?);
                let both = cx.aligned(&[&a, &b])?;
                cx.combine("chosen", &[(1, &both[0]), (1, &both[1])], 0)
            }
            (Operand::Secret(x), Operand::Constant(c)) => {
                let x = self.part(cx, "first", x, true)?;
                cx.bias(&x, &hidden(c, false))
            }
            (Operand::Constant(c), x) => {
                let x = self.part(cx, "second", x.secret()?, false)?;
                cx.bias(&x, &hidden(c, true))
            }
        }
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let [a, b] = [cx.value(&inputs[0]), cx.value(&inputs[1])];
        let places = |cx: &FloatLowering, x| {
            let view = View::broadcast(cx.shape(x), &self.shape).expect("they broadcast");
            view.indices().collect::<Vec<_>>()
        };
        let (first, second) = (places(cx, a), places(cx, b));
        let behind = cx.shape(a).elements();
        let place = |(i, &keep): (usize, &bool)| Some(if keep { first[i] } else { behind + second[i] });
        cx.gather("chosen", &[a, b], self.shape.clone(), self.first.iter().enumerate().map(place))
    }

    fn scale(&self) -> Scale {
        Scale::Passes
    }
}
