//! Activations as piecewise polynomials, all branches in one comparison and one selection.
//!
//! With the borders −T, 0, T and the three selected values a = max(x + T, 0), b = max(x, 0), c =
//! max(x − T, 0),
//!
//! ```text
//! t = min(|x|, T) = T − a + 2b − c      v = clamp(x, −T, T) = a − c − T      u = (t − T/2) / 2^k ∈ [−1, 1]
//! ```
//!
//! are linear. A sigmoid is y(0) + v/2^k · (c1 + c2 u + c3 u² + c4 u³), 4 segments of degree 4,
//! constant outside of [−T, T]; a smooth ReLU is b + c0 + c1 u + … + c4 u⁴, equal to b + const
//! outside. Both are continuous whatever the coefficients.
//!
//! Why select first and multiply then: selection by a bit is exact modulo 2^ℓ, so it would also
//! discard a power of x that overflowed. But the range of such a power cannot be proven, and its
//! truncation is off by far more than rounding; it would have to cancel word by word. Powers of u
//! never leave [−1, 1], whatever x is, cost the same number of selections, and a comparison that
//! cuts low bits errs by those bits only, where a choice between polynomials would jump.
//!
//! Rounds online under `mizar`: comparison 2, selection 1, two products with truncations 2 · 2, the
//! last truncation 1. Per element: 3 selections; 4 products (sigmoids) or 3 (smooth ReLUs), each
//! with a truncation, and one truncation.
//!
//! The coefficients are minimax fits by `scripts/splines.py`, which also says how. Largest error
//! over all x, in exact arithmetic, beside the piecewise polynomials of MIZAR's Appendix B (3
//! segments of degree 1; 4 segments of degree up to 6):
//!
//! | function | T | error | MIZAR |
//! | --- | --- | --- | --- |
//! | Sigmoid | 5.25 | 0.0032 | 0.1332 |
//! | Tanh | 2.5 | 0.0067 | |
//! | Erf | 2 | 0.0033 | |
//! | Gelu | 3.25 | 0.0021 | 0.0199 |
//! | Swish (SiLU) | 6 | 0.0078 | |
//!
//! Rounding adds at most about 2^(4−f), and 1 unit of the input in the last place.
//!
//! The finer ones ([`Activations::Fine`]) stand in [`super::fine`].

use super::appendix_b::{self, Printed};
use super::call::Call;
use super::exact::Exact;
use super::fine::{self, Fine};
use super::pieces::{Form, Pieces};
use super::table::{ERROR, Smooth, readable};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD};
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::options::Activations;
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Function, ValueId};
use megrez_ring::Shape;
use std::f32::consts::FRAC_2_SQRT_PI;
use std::sync::Arc;

/// The name that the derivative of Gelu has; no ONNX operator.
pub(crate) const GELU_SLOPE_OP: &str = "GeluSlope";

/// How a derivative follows.
#[derive(Clone, Copy)]
pub(super) enum Slope {
    /// y − y², from the result y.
    Sigmoid,
    /// 1 − y².
    Tanh,
    /// 2/√π·e^(−x²).
    Erf,
    /// A spline of its own.
    Gelu,
    /// s + y·(1 − s), from the sigmoid s of x.
    Swish,
    /// It is one itself.
    None,
}

/// One activation's numbers.
#[derive(Clone, Copy)]
pub(super) struct Spline {
    form: Form,
    /// T.
    end: f32,
    /// k.
    shift: u32,
    /// c0 to c4.
    coefficients: [f32; 5],
    /// The largest error in exact arithmetic.
    error: f32,
    /// The finer ones, of degree 7 and 15.
    fine: &'static [Fine; 2],
    /// What MIZAR prints in its place.
    printed: Option<Printed>,
    /// What it stands for, in floating point.
    exact: Exact,
    /// Its derivative.
    slope: Slope,
    /// Beyond ±reach less than 2^−15 is left of the bend: for tables.
    reach: f32,
}

impl Spline {
    /// The same spline for the form of GELU with tanh.
    pub(super) const fn tanh_form(self) -> Self {
        Spline { exact: Exact::GeluTanh, ..self }
    }
}

pub(super) const SIGMOID: Spline = Spline {
    form: Form::Sigmoid { centre: 0.5, height: 1.0 },
    end: 5.25,
    shift: 2,
    coefficients: [0.0, 0.661_794, -0.595_553, 0.157_983, 0.142_725],
    error: 0.0032,
    fine: &fine::SIGMOID,
    printed: Some(appendix_b::SIGMOID),
    exact: Exact::Function(Function::Sigmoid),
    slope: Slope::Sigmoid,
    reach: 10.5,
};

pub(super) const TANH: Spline = Spline {
    form: Form::Sigmoid { centre: 0.0, height: 2.0 },
    end: 2.5,
    shift: 1,
    coefficients: [0.0, 1.364_158, -1.221_873, 0.220_877, 0.441_871],
    error: 0.0067,
    fine: &fine::TANH,
    printed: None,
    exact: Exact::Function(Function::Tanh),
    slope: Slope::Tanh,
    reach: 5.75,
};

pub(super) const ERF: Spline = Spline {
    form: Form::Sigmoid { centre: 0.0, height: 2.0 },
    end: 2.0,
    shift: 0,
    coefficients: [0.0, 0.842_939, -0.411_159, -0.006_999, 0.074_511],
    error: 0.0033,
    fine: &fine::ERF,
    printed: None,
    exact: Exact::Function(Function::Erf),
    slope: Slope::Erf,
    reach: 3.0,
};

pub(super) const GELU: Spline = Spline {
    form: Form::SmoothRelu { depth: 0.17 },
    end: 3.25,
    shift: 1,
    coefficients: [-0.086_516, 0.248_501, -0.084_857, -0.378_13, 0.324_964],
    error: 0.0021,
    fine: &fine::GELU,
    printed: Some(appendix_b::GELU),
    exact: Exact::Gelu,
    slope: Slope::Gelu,
    reach: 4.5,
};

/// The derivative of GELU.
pub(super) const GELU_SLOPE: Spline = Spline {
    form: Form::Sigmoid { centre: 0.5, height: 1.26 },
    end: 2.75,
    shift: 1,
    coefficients: [0.0, 0.913_399, -1.163_435, 0.395_781, 0.219_728],
    error: 0.0116,
    fine: &fine::GELU_SLOPE,
    printed: None,
    exact: Exact::None,
    slope: Slope::None,
    reach: 4.75,
};

pub(super) const SWISH: Spline = Spline {
    form: Form::SmoothRelu { depth: 0.2785 },
    end: 6.0,
    shift: 2,
    coefficients: [-0.142_622, 0.408_786, -0.253_942, -0.735_087, 0.891_068],
    error: 0.0078,
    fine: &fine::SWISH,
    printed: None,
    exact: Exact::TimesSigmoid,
    slope: Slope::Swish,
    reach: 13.0,
};

/// An activation: the function itself in the clear, its spline on secret values.
pub(super) struct Activation {
    shape: Shape,
    function: fn(f64) -> f64,
    spline: Spline,
}

/// The spline that stands for an operator; `None` for operators that are computed as they are.
fn spline_of(op: &str) -> Option<Spline> {
    match op {
        "Sigmoid" => Some(SIGMOID),
        "Tanh" => Some(TANH),
        "Erf" => Some(ERF),
        "Gelu" => Some(GELU),
        "Swish" => Some(SWISH),
        _ => None,
    }
}

/// The largest error of what stands for an operator with `frac` fraction bits, over all inputs and
/// without roundings, on the 64-bit ring (tables of the 32-bit ring have coefficients of fewer
/// bits); `None` for operators that are computed as they are.
pub fn spline_error(op: &str, activations: Activations, frac: u32) -> Option<f64> {
    let spline = spline_of(op)?;
    let error = match (activations, spline.printed) {
        (Activations::Lookup | Activations::Tables, _) => return Some(ERROR),
        (Activations::Fine, _) => fine::of(spline.fine, frac).error,
        (Activations::Mizar, Some(printed)) => printed.error,
        _ => spline.error,
    };
    Some(error.into())
}

impl Activation {
    /// Of the call's first input.
    pub(super) fn of(
        call: &Call,
        function: fn(f64) -> f64,
        spline: Spline,
    ) -> Result<Arc<dyn Layer>, Refusal> {
        Ok(Arc::new(Activation { shape: call.shape(0)?.clone(), function, spline }))
    }
}

impl Layer for Activation {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let f = |&x: &f32| (self.function)(f64::from(x)) as f32;
        Tensor::new(self.shape.clone(), inputs[0].data.iter().map(f).collect())
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let (x, y) = (inputs[0], output);
        let none = Attributes::none;
        let derivative = match self.spline.slope {
            Slope::Sigmoid => {
                let square = g.product("square", y, y)?;
                g.add("slope", "Sub", &[y, square], none())?
            }
            Slope::Tanh => {
                let square = g.product("square", y, y)?;
                g.affine("slope", square, -1.0, 1.0)?
            }
            Slope::Erf => {
                let square = g.product("square", x, x)?;
                let negative = g.add("negative", "Neg", &[square], none())?;
                let power = g.add("power", "Exp", &[negative], none())?;
                g.affine("slope", power, FRAC_2_SQRT_PI, 0.0)?
            }
            Slope::Gelu => {
                let form = if matches!(self.spline.exact, Exact::GeluTanh) { "tanh" } else { "none" };
                g.add("slope", GELU_SLOPE_OP, &[x], none().with("approximate", form))?
            }
            Slope::Swish => {
                let sigmoid = g.add("sigmoid", "Sigmoid", &[x], none())?;
                let rest = g.affine("rest", sigmoid, -1.0, 1.0)?;
                let part = g.product("part", y, rest)?;
                g.add("slope", "Add", &[sigmoid, part], none())?
            }
            Slope::None => return refuse(NO_BACKWARD, "train only layers that come after it"),
        };
        g.chain(derivative, of_output)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        if cx.activations().looks_up() {
            let rises = matches!(self.spline.form, Form::SmoothRelu { .. });
            let smooth = Smooth { function: &self.function, reach: self.spline.reach, rises };
            let x = readable(cx, inputs[0].secret()?, 2)?;
            return smooth.lower(cx, &x);
        }
        let x = cx.settle(inputs[0].secret()?)?;
        match (cx.activations(), self.spline.printed) {
            (Activations::Fine, _) => fine::of(self.spline.fine, cx.frac()).lower(cx, &x, self.spline.form),
            (Activations::Mizar, Some(printed)) => (printed.lower)(cx, &x),
            _ => self.spline.lower(cx, &x),
        }
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        self.spline.exact.lower(cx, x, &self.shape)
    }

    fn scale(&self) -> Scale {
        Scale::Function
    }

    fn non_decreasing(&self) -> bool {
        // The functions of this form are, but derivatives; their splines are too, up to their
        // error.
        matches!(self.spline.form, Form::Sigmoid { .. }) && !matches!(self.spline.slope, Slope::None)
    }
}

impl Spline {
    /// On a value with f fraction bits; the result has 2f.
    fn lower(&self, cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
        let (f, scaled) = (cx.frac(), cx.frac() + self.shift);
        let Pieces { centred, clamped, positive, wrong } = self.form.pieces(cx, x, self.end)?;
        // The factor of c1, s; then s·u, s·u², s·u³.
        let first = clamped.as_ref().unwrap_or(&centred);
        let u = cx.rescale("u", &centred, scaled)?;
        let s = cx.rescale("v", first, scaled)?;
        let shape = cx.shape(x).clone();
        let twice: Shape = [&[2], shape.dims()].concat().into();
        let (square, second) = match clamped {
            Some(_) => {
                let both = cx.stack("factors", &[&u, &s])?;
                let u = cx.broadcast("u-twice", &u, &twice)?;
                let products = cx.mul("products", &both, &u)?;
                let products = cx.settle(&products)?;
                let products = cx.unstack("power", &products, &shape)?;
                (products[0].clone(), products[1].clone())
            }
            None => {
                let square = cx.mul("square", &u, &u)?;
                let square = cx.settle(&square)?;
                (square.clone(), square)
            }
        };
        let raised = cx.scaled_up(&second, scaled)?;
        let both = cx.stack("higher-factors", &[&s, &raised])?;
        let squares = cx.broadcast("square-twice", &square, &twice)?;
        let products = cx.mul("higher-products", &both, &squares)?;
        let products = cx.settle(&products)?;
        let higher = cx.unstack("higher-power", &products, &shape)?;

        let [c0, c1, c2, c3, c4] = self.coefficients;
        let c1 = c1 * 2f32.powi(-(self.shift as i32));
        let mut terms = vec![];
        for (coefficient, power) in [(c1, first), (c2, &second), (c3, &higher[0]), (c4, &higher[1])] {
            terms.push((cx.encode(coefficient, f)?, power));
        }
        let constant = match self.form {
            Form::Sigmoid { centre, .. } => centre,
            Form::SmoothRelu { .. } => {
                terms.push((1 << f, &positive));
                c0
            }
        };
        let y = cx.combine("polynomial", &terms, cx.encode(constant, 2 * f)?)?;
        // Truncated powers are off by 1, 3 and 4 units, coefficients by half a unit, their factors
        // are below T, 2, 4, 8.
        let [_, _, c2, c3, c4] = self.coefficients.map(|c| f64::from(c.abs()));
        let units = c2 + 3.0 * c3 + 4.0 * c4 + f64::from(self.end) / 2.0 + 8.0;
        let slack = f64::from(self.error) + units * 2f64.powi(-(f as i32));
        let y = if wrong == 0 { y.within(self.form.range(2 * f, slack, f, &positive.range)) } else { y };
        cx.rescale("scale", &y, 2 * f)
    }
}
