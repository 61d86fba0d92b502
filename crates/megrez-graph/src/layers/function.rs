//! Functions that fixed point makes of others, and that floating point has whole: within a unit in
//! the last place, where their parts would lose digits that cancel.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD, through_first};
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::{Function, Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// A function by its `name`, an operator of ONNX. In fixed point the first input as it is, which
/// its parts have made; in floating point the function of the others, which there are its only
/// inputs.
pub(crate) const FUNCTION: &str = "Function";

/// How floating point has a function.
#[derive(Clone, Copy)]
enum Form {
    /// Of one number.
    One(Function, fn(f64) -> f64),
    /// sign(x)·ln(1 + u), u = |x| + |x|/(1/|x| + √(1 + 1/x²)): neither a small nor a large x
    /// overflows on the way, but for x beyond 2^127.
    AreaSine,
    /// ln(1 + t + √t·√(t + 2)) with t = x − 1.
    AreaCosine,
    /// sign(x)·ln(1 + 2·|x|/(1 − |x|))/2.
    AreaTangent,
    /// x^y.
    Power,
}

impl Form {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Acos" => Self::One(Function::Acos, f64::acos),
            "Asin" => Self::One(Function::Asin, f64::asin),
            "Atan" => Self::One(Function::Atan, f64::atan),
            "Cosh" => Self::One(Function::Cosh, f64::cosh),
            "Sinh" => Self::One(Function::Sinh, f64::sinh),
            "Tan" => Self::One(Function::Tan, f64::tan),
            "Acosh" => Self::AreaCosine,
            "Asinh" => Self::AreaSine,
            "Atanh" => Self::AreaTangent,
            "Pow" => Self::Power,
            _ => return None,
        })
    }

    fn operands(self) -> usize {
        if matches!(self, Self::Power) { 2 } else { 1 }
    }
}

struct Exactly {
    form: Form,
    shape: Shape,
    /// The first input, where fixed point's is there.
    whole: Option<View>,
}

pub(super) fn function(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    let Some(form) = Form::named(&call.string("name", "")?) else {
        return refuse("is no function of floating point", "");
    };
    call.only(form.operands() + 1, &["name"])?;
    let shape = call.shape(0)?.clone();
    let whole = (call.inputs.len() > form.operands()).then(|| View::whole(shape.clone()));
    Ok(Arc::new(Exactly { form, shape, whole }))
}

impl Exactly {
    /// The operands, without what fixed point reads.
    fn of<'a, T>(&self, inputs: &'a [T]) -> &'a [T] {
        &inputs[inputs.len() - self.form.operands()..]
    }
}

impl Layer for Exactly {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let of = self.of(inputs);
        let data = match self.form {
            Form::Power => {
                let view = View::broadcast(&of[1].shape, &self.shape).expect("one exponent");
                let exponents = of[1].view(&view).data;
                let power = |(&x, &y): (&f32, &f32)| f64::from(x).powf(f64::from(y)) as f32;
                of[0].data.iter().zip(&exponents).map(power).collect()
            }
            form => {
                let f: fn(f64) -> f64 = match form {
                    Form::One(_, f) => f,
                    Form::AreaSine => f64::asinh,
                    Form::AreaCosine => f64::acosh,
                    _ => f64::atanh,
                };
                of[0].data.iter().map(|&x| f(f64::from(x)) as f32).collect()
            }
        };
        Tensor::new(self.shape.clone(), data)
    }

    fn lower(&self, _cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        match self.whole {
            Some(_) => Ok(inputs[0].secret()?.clone()),
            None => refuse("is a function of floating point", "run it with --numbers float32"),
        }
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        use Operation::{Add, Div, Mul, Sub};
        let of: Vec<ValueId> = self.of(inputs).iter().map(|x| cx.value(x)).collect();
        let (x, shape) = (of[0], &self.shape);
        match self.form {
            Form::One(f, _) => cx.map("function", f, x),
            Form::Power => cx.pair("power", Operation::Pow, x, of[1], shape),
            Form::AreaCosine => {
                let t = cx.with_number("step", Sub, x, 1.0)?;
                let more = cx.with_number("more", Add, t, 2.0)?;
                let [a, b] = [cx.map("left-root", Function::Sqrt, t)?, cx.map("root", Function::Sqrt, more)?];
                let root = cx.pair("product", Mul, a, b, shape)?;
                let sum = cx.pair("sum", Add, t, root, shape)?;
                cx.map("logarithm", Function::Log1p, sum)
            }
            Form::AreaSine => {
                let size = cx.map("size", Function::Abs, x)?;
                let one = cx.public("one", &Tensor::filled([], 1.0))?;
                let inverse = cx.pair("inverse", Div, one, size, shape)?;
                let square = cx.pair("square", Mul, inverse, inverse, shape)?;
                let more = cx.with_number("more", Add, square, 1.0)?;
                let root = cx.map("root", Function::Sqrt, more)?;
                let below = cx.pair("below", Add, inverse, root, shape)?;
                let part = cx.pair("part", Div, size, below, shape)?;
                let sum = cx.pair("sum", Add, size, part, shape)?;
                let logarithm = cx.map("logarithm", Function::Log1p, sum)?;
                let sign = cx.map("sign", Function::Sign, x)?;
                cx.pair("signed", Mul, logarithm, sign, shape)
            }
            Form::AreaTangent => {
                let size = cx.map("size", Function::Abs, x)?;
                let one = cx.public("one", &Tensor::filled([], 1.0))?;
                let rest = cx.pair("rest", Sub, one, size, shape)?;
                let twice = cx.with_number("twice", Mul, size, 2.0)?;
                let ratio = cx.pair("ratio", Div, twice, rest, shape)?;
                let logarithm = cx.map("logarithm", Function::Log1p, ratio)?;
                let half = cx.with_number("half", Mul, logarithm, 0.5)?;
                let sign = cx.map("sign", Function::Sign, x)?;
                cx.pair("signed", Mul, half, sign, shape)
            }
        }
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
