//! Where with a public condition, and Expand: local. With a secret condition it is made of others,
//! and in floating point one selection.

use super::call::Call;
use super::known::known;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD, through_first};
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::{Constant, Tensor};
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// What the choice by a secret condition is in fixed point, beside the condition and the two
/// values: in fixed point the first input as it is, in floating point [`CHOOSE`] of the others.
pub(crate) const CHOSEN: &str = "Chosen";
/// The second input where the first is not zero, the third where it is.
pub(crate) const CHOOSE: &str = "Choose";

/// A choice by a secret condition.
struct ByCondition {
    /// The input before the condition, for [`CHOSEN`].
    whole: Option<View>,
    shape: Shape,
}

fn by_condition(call: &Call, first: usize) -> Result<Shape, Refusal> {
    call.only(first + 3, &[])?;
    let [condition, a, b] = [call.shape(first)?, call.shape(first + 1)?, call.shape(first + 2)?];
    let shape = a.broadcast(b).ok().and_then(|shape| shape.broadcast(condition).ok());
    shape.ok_or_else(|| Refusal::new(format!("the shapes {condition}, {a} and {b} do not broadcast"), ""))
}

pub(super) fn chosen(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    let shape = by_condition(call, 1)?;
    Ok(Arc::new(ByCondition { whole: Some(View::whole(shape.clone())), shape }))
}

pub(super) fn choose_secretly(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(ByCondition { whole: None, shape: by_condition(call, 0)? }))
}

impl Layer for ByCondition {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let [.., condition, a, b] = inputs else { unreachable!("three inputs were asked for") };
        let view = |t: &Tensor| t.view(&View::broadcast(&t.shape, &self.shape).expect("they broadcast")).data;
        let (condition, a, b) = (view(condition), view(a), view(b));
        let data = (0..condition.len()).map(|i| if condition[i] == 0.0 { b[i] } else { a[i] });
        Tensor::new(self.shape.clone(), data.collect())
    }

    fn lower(&self, _cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        match self.whole {
            Some(_) => Ok(inputs[0].secret()?.clone()),
            None => refuse("is a choice of floating point", "run it with --numbers float32"),
        }
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let [.., condition, a, b] = inputs else { return refuse("lacks inputs", "") };
        let of = [cx.value(condition), cx.value(a), cx.value(b)];
        cx.choose("chosen", of, &self.shape)
    }

    fn view(&self) -> Option<&View> {
        self.whole.as_ref()
    }

    fn backward(
        &self,
        _g: &mut Gradients,
        _inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        if self.whole.is_none() {
            return refuse(NO_BACKWARD, "train only layers that come after it");
        }
        // Through the fixed-point form, which the others are in.
        Ok(through_first(of_output, wanted))
    }
}

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
            (c, x) => {
                let x = self.part(cx, "second", x.secret()?, false)?;
                cx.bias(&x, &hidden(c.constant()?, true))
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
