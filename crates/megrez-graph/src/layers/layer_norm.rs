//! LayerNormalization: (x − mean)/√(variance + ε)·γ + β over the last dimensions. RMSNormalization:
//! x/√(mean of x² + ε)·γ, the same without a mean and an offset: c = x and κ = 1 below.
//!
//! With c = x − mean and S = Σ c² + n·ε, the result is c·γ · √n/√S + β, whatever both c and √S are
//! multiplied by. So no mean is divided out: κ·c is n·x − Σx, exact, with ⌈log₂ n⌉ bits dropped, by
//! the truncation that x waits for if it is a product. S keeps its 2f fraction bits, 1/√S is one
//! number per row ([`super::octaves`]) with as many fraction bits as the ring has room for, and c·γ
//! does not wait for it. Σ c² must stay below 2^(ℓ − 3 − 2f): on 64 bits with f = 16 for n = 768, a
//! standard deviation below 836.
//!
//! Largest error: 2^−17 relative to the result (2^−6 on the 32-bit ring, 2^−15 with tables), and
//! 2·|γ|/σ + 1 units of 2^−f.

use super::call::{Call, axis};
use super::octaves::INVERSE_ROOT;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD, list};
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

/// So many fraction bits more may 1/√S have.
const SPARE: u32 = 6;

struct LayerNorm {
    shape: Shape,
    /// Whether the mean is taken off first.
    centres: bool,
    /// The dimensions that are normalised together: the first of them.
    axis: usize,
    epsilon: f32,
}

pub(super) fn layer_norm(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["axis", "epsilon", "stash_type"])?;
    norm(call, true)
}

pub(super) fn rms_norm(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axis", "epsilon", "stash_type"])?;
    norm(call, false)
}

fn norm(call: &Call, centres: bool) -> Result<Arc<dyn Layer>, Refusal> {
    let shape = call.shape(0)?.clone();
    let axis = axis(call.int("axis", -1)?, shape.rank())?;
    let epsilon = call.float("epsilon", 1e-5)?;
    if epsilon < 0.0 {
        return refuse("`epsilon` is negative", "");
    }
    let normal = Shape::new(&shape.dims()[axis..]);
    for i in 1..call.inputs.len() {
        if !call.floats(i)?.shape.broadcast(&normal).is_ok_and(|s| s == normal) {
            return refuse(format!("input {i} does not broadcast to {normal}"), "");
        }
    }
    Ok(Arc::new(LayerNorm { shape, centres, axis, epsilon }))
}

impl LayerNorm {
    fn size(&self) -> usize {
        self.shape.dims()[self.axis..].iter().product()
    }

    /// What is taken off the numbers of a row, and what they are multiplied by then.
    fn statistics(&self, row: &[f32]) -> (f64, f64) {
        let n = row.len() as f64;
        let mean = if self.centres { row.iter().copied().map(f64::from).sum::<f64>() / n } else { 0.0 };
        let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        (mean, 1.0 / (variance + f64::from(self.epsilon)).sqrt())
    }

    /// κ·c of rows [r, n] with f fraction bits, and n and b of κ = n/2^b.
    fn centred(&self, cx: &mut Lowering, x: &Secret) -> Result<(Secret, i64, u32), Refusal> {
        let (f, n) = (cx.frac(), self.size());
        let rows: Shape = [self.shape.elements() / n, n].into();
        if !self.centres {
            let x = cx.rounded("settled", x, f)?;
            let x = cx.reshape("rows", &x, rows)?;
            return Ok((Secret { range: x.range.merged(), ..x }, 1, 0));
        }
        // n·x − Σx is n·c, exactly; dropping ⌈log₂ n⌉ bits with those that x has too many leaves
        // κ·c, ½ < κ ≤ 1.
        let bits = n.next_power_of_two().ilog2();
        let room = 1i128 << (cx.ring() - 4);
        let x = if x.range.magnitude().saturating_mul(n as i128) < room { x.clone() } else { cx.settle(x)? };
        let x = cx.reshape("rows", &x, rows.clone())?;
        let x = Secret { range: x.range.merged(), ..x };
        let sum = cx.sum("sum", &x, 1)?;
        let sum = cx.broadcast("sums", &sum, &rows)?;
        let centred = cx.combine("centred-words", &[(n as i64, &x), (-1, &sum)], 0)?;
        let centred = cx.rescale("centred-scale", &centred, cx.frac_of(&x) + bits)?;
        Ok((cx.rounded("centred", &centred, f)?, n as i64, bits))
    }

    /// A scale or an offset as one row.
    fn row(&self, t: &Tensor) -> Tensor {
        let to = Shape::new(&self.shape.dims()[self.axis..]);
        let view = megrez_plan::View::broadcast(&t.shape, &to).expect("understood as broadcastable");
        t.view(&view).reshape([1, self.size()])
    }
}

impl Layer for LayerNorm {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let n = self.size();
        let part = |i: usize, default: f32| {
            inputs.get(i).map_or_else(|| Tensor::filled([1, n], default), |t| self.row(t)).data
        };
        let (scale, offset) = (part(1, 1.0), part(2, 0.0));
        let mut y = Vec::with_capacity(self.shape.elements());
        for row in inputs[0].data.chunks_exact(n) {
            let (mean, inverse) = self.statistics(row);
            let normal = |(i, &v): (usize, &f32)| {
                ((f64::from(v) - mean) * inverse * f64::from(scale[i]) + f64::from(offset[i])) as f32
            };
            y.extend(row.iter().enumerate().map(normal));
        }
        Tensor::new(self.shape.clone(), y)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        if inputs.len() > 1 {
            return refuse(NO_BACKWARD, "training splits scale and offset off first");
        }
        // (δ − mean(δ) − y·mean(δ ⊙ y))/σ, rows by rows; without mean(δ) where no mean is taken
        // off.
        let attributes = Attributes::none()
            .with("axis", self.axis as i64)
            .with("epsilon", self.epsilon)
            .with("centres", i64::from(self.centres));
        let inverse = g.add("deviation", INVERSE_DEVIATION, &[inputs[0], output], attributes)?;
        let axes: Vec<i64> = (self.axis..self.shape.rank()).map(|d| d as i64).collect();
        let mean = |g: &mut Gradients, part: &str, x: Id| -> Result<Id, Refusal> {
            let mean = g.add(part, "ReduceMean", &[x], list("axes", axes.clone()))?;
            g.repeated(part, mean, &self.shape)
        };
        let products = g.product("products", of_output, output)?;
        let along = mean(g, "along", products)?;
        let along = g.product("part", output, along)?;
        let mut rest = of_output;
        if self.centres {
            let middle = mean(g, "middle", of_output)?;
            rest = g.add("centred", "Sub", &[of_output, middle], Attributes::none())?;
        }
        let rest = g.add("rest", "Sub", &[rest, along], Attributes::none())?;
        let inverse = g.repeated("deviations", inverse, &self.shape)?;
        g.chain(inverse, rest)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let (f, n) = (cx.frac(), self.size());
        let rows: Shape = [self.shape.elements() / n, n].into();
        let (centred, factor, bits) = self.centred(cx, inputs[0].secret()?)?;
        let kappa = factor as f64 / 2f64.powi(bits as i32);

        let squares = cx.mul("squares", &centred, &centred)?;
        let range = squares.range.map(|b| b.max(0));
        let sum = cx.sum("sum-of-squares", &squares.within(range), 1)?;
        // An epsilon below the grid counts as one unit of it: the sum is known no better, and no
        // row may have none.
        let epsilon = f64::from(self.epsilon) * n as f64 * kappa.powi(2);
        let epsilon = (epsilon * 2f64.powi(2 * f as i32)).round().max(1.0) as i64;
        let sum = cx.combine("with-epsilon", &[(1, &sum)], epsilon)?;
        // As many fraction bits as leave room for the products: |c/√S| ≤ 1.
        let root = (n as f64).sqrt();
        let fine = (cx.ring() * 3 / 8).max(f);
        let held = cx.proves();
        let inverse = INVERSE_ROOT.lower_held(cx, &sum, root, fine..=fine + SPARE, held)?;
        let fine = cx.frac_of(&inverse);
        if cx.leaves() {
            // 1/σ = κ·√n/√S.
            let deviation = cx.combine("inverse-deviation-words", &[(factor, &inverse)], 0)?;
            let deviation = cx.rescale("inverse-deviation-scale", &deviation, fine + bits)?;
            let deviation = cx.rounded("inverse-deviation", &deviation, f)?;
            cx.leave(deviation);
        }
        let inverse = cx.broadcast("inverses", &inverse, &rows)?;

        let mut bound = root * 1.02;
        let scaled = match inputs.get(1) {
            Some(scale) => {
                let scale = self.row(scale.constant()?);
                bound *= f64::from(scale.data.iter().fold(0f32, |m, v| m.max(v.abs())));
                let product = cx.mul_weight("scale", &centred, &scale)?;
                cx.rounded("scaled", &product, f)?
            }
            None => centred,
        };
        let word =
            ((bound * 2f64.powi(f as i32) + f64::from(1 << 4)) * 2f64.powi(fine as i32)).ceil() as i128;
        let y = cx.mul_within("product", &scaled, &inverse, Range::uniform(-word, word))?;
        let y = match inputs.get(2) {
            Some(offset) => cx.bias(&y, &self.row(offset.constant()?))?,
            None => y,
        };
        let y = cx.rounded("normal", &y, f)?;
        cx.reshape("shape", &y, self.shape.clone())
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let n = self.size();
        let rows: Shape = [self.shape.elements() / n, n].into();
        let column: Shape = [self.shape.elements() / n, 1].into();
        let x = cx.value(&inputs[0]);
        let x = cx.reshape("rows", x, rows.clone())?;
        let mut centred = x;
        if self.centres {
            let mean = cx.mean_of_rows("mean", x)?;
            let mean = cx.reshape("mean-column", mean, column.clone())?;
            centred = cx.pair("centred", Operation::Sub, x, mean, &rows)?;
        }
        let squares = cx.pair("squares", Operation::Mul, centred, centred, &rows)?;
        let variance = cx.mean_of_rows("variance", squares)?;
        let variance = cx.with_number("with-epsilon", Operation::Add, variance, self.epsilon)?;
        let deviation = cx.map("deviation", Function::Sqrt, variance)?;
        let deviation = cx.reshape("deviation-column", deviation, column)?;
        let mut y = cx.pair("normal", Operation::Div, centred, deviation, &rows)?;
        for (name, operation, input) in [("scaled", Operation::Mul, 1), ("offset", Operation::Add, 2)] {
            let Some(parameter) = inputs.get(input) else { continue };
            let Some(parameter) = parameter.constant() else {
                return refuse("needs constant weights", "make them constants of the model");
            };
            let parameter = cx.weights(self.row(parameter));
            y = cx.pair(name, operation, y, parameter, &rows)?;
        }
        cx.reshape("shape", y, self.shape.clone())
    }

    fn scale(&self) -> Scale {
        Scale::ShrinksThenProduct
    }

    fn work(&self) -> u64 {
        4 * self.shape.elements() as u64
    }
}

/// The name of 1/σ of each row; no ONNX operator. Of what a LayerNormalization has normalised, and
/// of its result.
pub(crate) const INVERSE_DEVIATION: &str = "InverseDeviation";

/// 1/√(variance + ε) of each row, which the normalisation has left.
struct InverseDeviation {
    norm: LayerNorm,
    shape: Shape,
}

pub(super) fn inverse_deviation(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axis", "epsilon", "centres"])?;
    let from = call.shape(0)?.clone();
    if *call.shape(1)? != from {
        return refuse("a value and its normalisation have one shape", "");
    }
    let axis = axis(call.int("axis", -1)?, from.rank())?;
    let dims = from.dims().iter().enumerate().map(|(d, &n)| if d < axis { n } else { 1 });
    let shape = dims.collect::<Vec<_>>().into();
    let centres = call.int("centres", 1)? != 0;
    let norm = LayerNorm { shape: from, centres, axis, epsilon: call.float("epsilon", 1e-5)? };
    Ok(Arc::new(InverseDeviation { norm, shape }))
}

impl Layer for InverseDeviation {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let n = self.norm.size();
        let of_row = |row: &[f32]| self.norm.statistics(row).1 as f32;
        Tensor::new(self.shape.clone(), inputs[0].data.chunks_exact(n).map(of_row).collect())
    }

    fn lower(&self, cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        let [inverse] = cx.given() else { return refuse("the normalisation has left no deviation", "") };
        let inverse = inverse.clone();
        cx.reshape("rows", &inverse, self.shape.clone())
    }

    fn beside(&self) -> Option<usize> {
        Some(1)
    }

    fn unread(&self, _input: usize) -> bool {
        true
    }

    fn scale(&self) -> Scale {
        Scale::Settles
    }
}
