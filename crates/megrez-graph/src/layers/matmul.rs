//! MatMul: matrix products with NumPy's rules for other ranks.

use super::call::Call;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

struct MatMul {
    shape: Shape,
    /// The operands' shapes once vectors have become matrices: [.., m, k] and [.., k, n].
    factors: [Shape; 2],
    /// The batch dimensions that both are broadcast to.
    batch: Vec<usize>,
}

pub(super) fn matmul(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let (a, b) = (call.shape(0)?, call.shape(1)?);
    if a.rank() == 0 || b.rank() == 0 {
        return refuse("multiplies scalars", "use Mul");
    }
    let left = if a.rank() == 1 { [1, a.dims()[0]].into() } else { a.clone() };
    let right = if b.rank() == 1 { [b.dims()[0], 1].into() } else { b.clone() };
    let (x, y) = (left.dims(), right.dims());
    let (m, k) = (x[x.len() - 2], x[x.len() - 1]);
    let (inner, n) = (y[y.len() - 2], y[y.len() - 1]);
    let batches = |s: &Shape| Shape::new(&s.dims()[..s.rank() - 2]);
    let Ok(batch) = batches(&left).broadcast(&batches(&right)) else {
        return refuse(format!("cannot multiply {a} by {b}"), "");
    };
    if inner != k {
        return refuse(format!("cannot multiply {a} by {b}"), "");
    }
    let batch = batch.dims().to_vec();
    let mut dims = batch.clone();
    dims.extend((a.rank() > 1).then_some(m));
    dims.extend((b.rank() > 1).then_some(n));
    Ok(Arc::new(MatMul { shape: dims.into(), factors: [left, right], batch }))
}

/// The largest sum of magnitudes in a row, or in a column, of matrices with so many columns.
pub(super) fn largest_sum(data: &[f32], columns: usize, of_rows: bool) -> f64 {
    let rows = data.chunks_exact(columns.max(1));
    if of_rows {
        return rows.map(|row| row.iter().map(|v| f64::from(v.abs())).sum()).fold(0.0, f64::max);
    }
    let mut sums = vec![0f64; columns];
    rows.for_each(|row| sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(v.abs())));
    sums.into_iter().fold(0.0, f64::max)
}

/// The product of two matrices, accumulated in f64.
pub(super) fn plain_product(a: &Tensor, b: &Tensor) -> Tensor {
    let (m, k, n) = (a.shape.dims()[0], a.shape.dims()[1], b.shape.dims()[1]);
    let mut y = Vec::with_capacity(m * n);
    let mut sums = vec![0f64; n];
    for row in a.data.chunks_exact(k) {
        sums.fill(0.0);
        for (&x, terms) in row.iter().zip(b.data.chunks_exact(n)) {
            sums.iter_mut().zip(terms).for_each(|(s, &w)| *s += f64::from(x) * f64::from(w));
        }
        y.extend(sums.iter().map(|&s| s as f32));
    }
    Tensor::new([m, n], y)
}

impl MatMul {
    /// The shape of a factor with all batch dimensions.
    fn full(&self, factor: usize) -> Shape {
        let dims = self.factors[factor].dims();
        [&self.batch, &dims[dims.len() - 2..]].concat().into()
    }
}

impl Layer for MatMul {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let spread = |i: usize| {
            let view = View::broadcast(&self.factors[i], &self.full(i)).expect("understood as broadcastable");
            inputs[i].reshape(self.factors[i].clone()).view(&view)
        };
        let (a, b) = (spread(0), spread(1));
        let sides =
            |t: &Tensor| <[usize; 2]>::try_from(&t.shape.dims()[self.batch.len()..]).expect("a matrix");
        let (sa, sb) = (sides(&a), sides(&b));
        let mut y = vec![];
        for (a, b) in a.data.chunks_exact(sa[0] * sa[1]).zip(b.data.chunks_exact(sb[0] * sb[1])) {
            y.extend(plain_product(&Tensor::new(sa, a.to_vec()), &Tensor::new(sb, b.to_vec())).data);
        }
        Tensor::new(self.shape.clone(), y)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let y = match (&inputs[0], &inputs[1]) {
            // One weight matrix for the whole batch: the batch dimensions are just more rows.
            (Operand::Secret(x), Operand::Constant(w)) if self.factors[1].rank() == 2 => {
                let k = self.factors[1].dims()[0];
                let rows = self.factors[0].elements() / k;
                let x = cx.reshape("rows", x, [rows, k].into())?;
                cx.matmul_weight("product", &x, &w.reshape(self.factors[1].clone()))?
            }
            (Operand::Constant(w), Operand::Secret(x)) if self.batch.is_empty() => {
                let x = cx.reshape("columns", x, self.factors[1].clone())?;
                cx.weight_matmul("product", &w.reshape(self.factors[0].clone()), &x)?
            }
            (Operand::Secret(x), Operand::Public(matrix)) => {
                let rows = self.factors[0].elements() / matrix.rows();
                let x = cx.reshape("rows", x, [rows, matrix.rows()].into())?;
                cx.times_public("product", &x, matrix)?
            }
            (a, b) => {
                let Ok(beside) = a.secret().or(b.secret()) else {
                    return refuse("multiplies constants only", "compute it before you export the model");
                };
                // A batch of weight matrices is one more secret.
                let factor = |cx: &mut Lowering, x: &Operand| match x {
                    Operand::Constant(w) => cx.hidden(beside, w),
                    x => x.secret().cloned(),
                };
                let (a, b) = (factor(cx, a)?, factor(cx, b)?);
                let a = cx.reshape("left-matrix", &a, self.factors[0].clone())?;
                let b = cx.reshape("right-matrix", &b, self.factors[1].clone())?;
                let a = cx.broadcast("left", &a, &self.full(0))?;
                let b = cx.broadcast("right", &b, &self.full(1))?;
                cx.matmul("product", &a, &b)?
            }
        };
        cx.reshape("shape", &y, self.shape.clone())
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let mut factor = |i: usize, name: &str| {
            let x = cx.value(&inputs[i]);
            let x = cx.reshape(&format!("{name}-matrix"), x, self.factors[i].clone())?;
            cx.broadcast(name, x, &self.full(i))
        };
        let (a, b) = (factor(0, "left")?, factor(1, "right")?);
        let y = cx.matmul("product", a, b)?;
        cx.reshape("shape", y, self.shape.clone())
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let sides = |factor: usize| {
            let dims = self.factors[factor].dims();
            [dims[dims.len() - 2], dims[dims.len() - 1]]
        };
        let ([m, k], n) = (sides(0), sides(1)[1]);
        let delta = g.reshaped("matrix", of_output, &[&self.batch[..], &[m, n]].concat().into())?;
        let turned = |g: &mut Gradients, part: &str, x: Id| {
            let rank = g.shape(x).rank();
            let order: Vec<i64> = (0..rank as i64 - 2).chain([rank as i64 - 1, rank as i64 - 2]).collect();
            g.add(part, "Transpose", &[x], Attributes::none().with("perm", order))
        };
        let mut of_inputs = vec![None; 2];
        if wanted[0] {
            let b = g.reshaped("right-factor", inputs[1], &self.factors[1])?;
            let b = turned(g, "right-turned", b)?;
            let a = g.add("left", "MatMul", &[delta, b], Attributes::none())?;
            let a = g.summed("left", a, &self.factors[0])?;
            of_inputs[0] = Some(g.reshaped("left", a, &g.shape(inputs[0]).clone())?);
        }
        if wanted[1] {
            let mut a = g.reshaped("left-factor", inputs[0], &self.factors[0])?;
            let mut delta = delta;
            if self.factors[1].rank() == 2 {
                // One matrix for the whole batch: the batch dimensions are just more rows, and
                // nothing is left to add up.
                let rows = self.factors[0].elements() / k;
                a = g.reshaped("rows", a, &[rows, k].into())?;
                delta = g.reshaped("row-gradients", delta, &[rows, n].into())?;
            }
            let a = turned(g, "left-turned", a)?;
            let b = g.add("right", "MatMul", &[a, delta], Attributes::none())?;
            let b = g.summed("right", b, &self.factors[1])?;
            of_inputs[1] = Some(g.reshaped("right", b, &g.shape(inputs[1]).clone())?);
        }
        Ok(of_inputs)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn gain(&self, constant: Option<(usize, &Tensor)>) -> Option<f64> {
        let inner = self.factors[0].dims()[self.factors[0].rank() - 1];
        let sum = |(i, t): (usize, &Tensor)| {
            let columns = self.factors[i].dims()[self.factors[i].rank() - 1];
            largest_sum(&t.data, columns, i == 0)
        };
        Some(constant.map_or(inner as f64, sum))
    }

    fn sums_rows(&self) -> bool {
        true
    }

    fn work(&self) -> u64 {
        let dims = self.factors[0].dims();
        let inner = dims[dims.len() - 1];
        (self.shape.elements() * inner) as u64
    }
}
