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
use megrez_ring::sums::add_singles;
use std::borrow::Cow;
use std::ops::Range;
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

/// The product of two matrices, accumulated in f64, on all processors where that is worth it.
pub(super) fn plain_product(a: &Tensor, b: &Tensor) -> Tensor {
    let [m, k, n] = [a.shape.dims()[0], a.shape.dims()[1], b.shape.dims()[1]];
    Tensor::new([m, n], products(&a.data, &b.data, [m, k, n]))
}

/// m×k by k×n.
fn products(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> Vec<f32> {
    /// Products that take longer than a thread takes to start.
    const WORTH_THREADS: usize = 1 << 22;
    // Indicators and what rectifiers leave are zeros in good part; times what is infinite, zero
    // counts.
    let skips = b.iter().all(|v| v.is_finite());
    let part = |rows: Range<usize>, columns: Range<usize>| -> Vec<f32> {
        let mut y = Vec::with_capacity(rows.len() * columns.len());
        let mut sums = vec![0f64; columns.len()];
        for row in a[rows.start * k..rows.end * k].chunks_exact(k.max(1)) {
            sums.fill(0.0);
            for (&x, terms) in row.iter().zip(b.chunks_exact(n.max(1))) {
                if x != 0.0 || !skips {
                    add_singles(&mut sums, f64::from(x), &terms[columns.clone()]);
                }
            }
            y.extend(sums.iter().map(|&s| s as f32));
        }
        y
    };
    if k == 0 {
        return vec![0.0; m * n];
    }
    if m.saturating_mul(k).saturating_mul(n) < WORTH_THREADS {
        return part(0..m, 0..n);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let ranges = |size: usize| {
        let each = size.div_ceil(threads);
        (0..size).step_by(each).map(move |start| start..size.min(start + each))
    };
    // Rows of the result, or where these are few, columns.
    let by_rows = m >= n.min(4 * threads);
    let parts: Vec<_> = match by_rows {
        true => ranges(m).map(|rows| (rows, 0..n)).collect(),
        false => ranges(n).map(|columns| (0..m, columns)).collect(),
    };
    let mut y = vec![0f32; m * n];
    std::thread::scope(|scope| {
        let part = &part;
        let spawn = |(rows, columns): (Range<usize>, Range<usize>)| {
            (rows.clone(), columns.clone(), scope.spawn(move || part(rows, columns)))
        };
        let running: Vec<_> = parts.into_iter().map(spawn).collect();
        for (rows, columns, thread) in running {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            for (row, part) in rows.zip(part.chunks_exact(columns.len())) {
                y[row * n..][columns.clone()].copy_from_slice(part);
            }
        }
    });
    y
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
        let spread = |i: usize| -> Cow<'_, Tensor> {
            let (own, full) = (&self.factors[i], self.full(i));
            if own.elements() == full.elements() {
                return Cow::Borrowed(inputs[i]);
            }
            let view = View::broadcast(own, &full).expect("understood as broadcastable");
            Cow::Owned(inputs[i].reshape(own.clone()).view(&view))
        };
        let (a, b) = (spread(0), spread(1));
        let &[.., m, k] = self.full(0).dims() else { unreachable!("a matrix") };
        let &[.., n] = self.full(1).dims() else { unreachable!("a matrix") };
        if m * k * n == 0 {
            return Tensor::filled(self.shape.clone(), 0.0);
        }
        let pairs = a.data.chunks_exact(m * k).zip(b.data.chunks_exact(k * n));
        let y = pairs.flat_map(|(a, b)| products(a, b, [m, k, n])).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_same_in_any_parts() {
        let fill = |shape: [usize; 2], step: usize| {
            // Every third is zero.
            let at = |i: usize| if i.is_multiple_of(3) { 0.0 } else { (i * step % 17) as f32 - 8.0 };
            Tensor::new(shape, (0..shape[0] * shape[1]).map(at).collect())
        };
        for [m, k, n] in [[3, 5, 4], [3, 1800, 800], [800, 1800, 3], [90, 700, 70]] {
            let (a, mut b) = (fill([m, k], 5), fill([k, n], 7));
            for infinite in [false, true] {
                if infinite {
                    // Row 0 of `a` begins with a zero.
                    b.data[n - 1] = f32::INFINITY;
                }
                let y = plain_product(&a, &b);
                assert_eq!(y.shape.dims(), [m, n]);
                for (i, j) in [(0, 0), (m - 1, n - 1), (m / 2, n / 3), (0, n - 1)] {
                    let term = |q: usize| f64::from(a.data[i * k + q]) * f64::from(b.data[q * n + j]);
                    let want = (0..k).map(term).sum::<f64>() as f32;
                    let got = y.data[i * n + j];
                    assert!(got == want || got.is_nan() && want.is_nan(), "{m}×{k}×{n}: {got}, not {want}");
                }
            }
        }
        let (a, b) = (Tensor::filled([2, 0], 1.0), Tensor::filled([0, 3], 1.0));
        assert_eq!(plain_product(&a, &b).data, [0.0; 6]);
    }
}
