//! ReduceSum, ReduceMean, ReduceMax and ReduceMin along any axes. Sums are local; means divide as
//! average pools do; maxima are a tournament of ⌈log₂ n⌉ ReLUs.

use super::call::Call;
use super::lines::Lines;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::{Gradients, NO_BACKWARD};
use crate::graph::Id;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Function, MAX_OPERANDS, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Sum,
    Mean,
    Max,
    Min,
}

struct Reduce {
    kind: Kind,
    lines: Lines,
    /// The dimensions that are reduced.
    axes: Vec<usize>,
    shape: Shape,
}

pub(super) fn sum(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    reduce(call, Kind::Sum)
}

pub(super) fn mean(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    reduce(call, Kind::Mean)
}

pub(super) fn max(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    reduce(call, Kind::Max)
}

pub(super) fn min(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    reduce(call, Kind::Min)
}

fn reduce(call: &Call, kind: Kind) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axes", "keepdims", "noop_with_empty_axes"])?;
    let (lines, axes) = Lines::of_call(call)?;
    let dims = call.shape(0)?.dims();
    let keep = call.int("keepdims", 1)? != 0;
    let shape: Vec<usize> = match keep {
        true => dims.iter().enumerate().map(|(d, &n)| if axes.contains(&d) { 1 } else { n }).collect(),
        false => dims.iter().enumerate().filter(|(d, _)| !axes.contains(d)).map(|(_, &n)| n).collect(),
    };
    Ok(Arc::new(Reduce { kind, lines, axes, shape: shape.into() }))
}

/// The mean of every row of x [rows, n]: the result [rows, 1] has as many fraction bits as the
/// division adds.
fn row_means(cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
    let n = cx.shape(x).dims()[1];
    let sum = cx.sum("sum", x, 1)?;
    let bits = n.next_power_of_two().ilog2();
    if n.is_power_of_two() {
        let frac = cx.frac_of(&sum) + bits;
        return cx.rescale("mean", &sum, frac);
    }
    // As many significant bits of 1/n as a weight has.
    let frac = cx.frac() + bits;
    let inverse = cx.encode(1.0 / n as f32, frac)?;
    let to = cx.frac_of(&sum) + frac;
    let product = cx.combine("divided", &[(inverse, &sum)], 0)?;
    let bounds = x.range.merged();
    let mean = cx.rescale("mean", &product, to)?;
    let scale = 1i128 << frac.min(100);
    Ok(mean.within(bounds.map(|b| b.saturating_mul(scale) + b)))
}

/// The largest element of every row of x [rows, n], as [rows, 1], and by how many words it may be
/// too small.
pub(super) fn row_maxima(cx: &mut Lowering, x: &Secret) -> Result<(Secret, i128), Refusal> {
    let (mut x, mut wrong, mut level) = (x.clone(), 0, 0);
    loop {
        let n = cx.shape(&x).dims()[1];
        if n == 1 {
            return Ok((x, wrong));
        }
        let half = n / 2;
        let name = |part: &str| format!("max/{level}/{part}");
        let pick = |cx: &mut Lowering, part: &str, from: usize, to: usize| {
            cx.pick(&name(part), &x, 1, &(from..to).collect::<Vec<_>>())
        };
        // Where rounds count, as many at a time as are compared at once, unless two by two take
        // one.
        let at_once = n.min(MAX_OPERANDS);
        if at_once > 2 && cx.activations().looks_up() && !cx.relu_takes_a_round() {
            let size = n / at_once;
            let parts = (0..at_once)
                .map(|i| pick(cx, "part", i * size, (i + 1) * size))
                .collect::<Result<Vec<_>, _>>()?;
            let mut larger = cx.maximum(&name("pairs"), &parts.iter().collect::<Vec<_>>())?;
            wrong += cx.last_cut();
            if at_once * size < n {
                let rest = pick(cx, "rest", at_once * size, n)?;
                larger = cx.concat(&name("with-rest"), &[&larger, &rest], 1)?;
            }
            x = Secret { range: larger.range.merged(), ..larger };
            level += 1;
            continue;
        }
        let (a, b) = (pick(cx, "left", 0, half)?, pick(cx, "right", half, 2 * half)?);
        let difference = cx.combine(&name("difference"), &[(1, &a), (-1, &b)], 0)?;
        let excess = cx.relu(&name("relu"), &difference)?;
        wrong += cx.last_cut();
        let bounds = x.range.merged();
        // A maximum lies where its operands lie: the bounds of y + relu(x − y) alone would be
        // looser.
        let slack = bounds.zip(&bounds, |b, _| (b.0.saturating_sub(wrong), b.1));
        let mut larger = cx.combine(&name("max"), &[(1, &b), (1, &excess)], 0)?.within(slack);
        if n % 2 == 1 {
            let odd = pick(cx, "odd", n - 1, n)?;
            larger = cx.concat(&name("with-odd"), &[&larger, &odd], 1)?;
        }
        x = Secret { range: larger.range.merged(), ..larger };
        level += 1;
    }
}

impl Layer for Reduce {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let rows = self.lines.plain(inputs[0]);
        let reduced = rows.data.chunks_exact(self.lines.size).map(|row| match self.kind {
            Kind::Max => row.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            Kind::Min => row.iter().copied().fold(f32::INFINITY, f32::min),
            Kind::Sum => row.iter().copied().map(f64::from).sum::<f64>() as f32,
            Kind::Mean => (row.iter().copied().map(f64::from).sum::<f64>() / row.len() as f64) as f32,
        });
        Tensor::new(self.shape.clone(), reduced.collect())
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let factor = match self.kind {
            Kind::Sum => 1.0,
            Kind::Mean => 1.0 / self.lines.size as f32,
            Kind::Max | Kind::Min => return refuse(NO_BACKWARD, "train only layers that come after it"),
        };
        let (from, mut of_inputs) = (g.shape(inputs[0]).clone(), vec![None; wanted.len()]);
        let kept = |(d, &n): (usize, &usize)| if self.axes.contains(&d) { 1 } else { n };
        let kept: Vec<usize> = from.dims().iter().enumerate().map(kept).collect();
        let mut x = g.reshaped("kept", of_output, &kept.into())?;
        if factor != 1.0 {
            x = g.affine("share", x, factor, 0.0)?;
        }
        of_inputs[0] = Some(g.repeated("input", x, &from)?);
        Ok(of_inputs)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = self.lines.split(cx, inputs[0].secret()?)?;
        let y = match self.kind {
            Kind::Sum => cx.sum("sum", &x, 1)?,
            Kind::Mean => row_means(cx, &x)?,
            Kind::Max => row_maxima(cx, &x)?.0,
            Kind::Min => {
                let x = cx.combine("negative", &[(-1, &x)], 0)?;
                let (y, _) = row_maxima(cx, &x)?;
                cx.combine("positive", &[(-1, &y)], 0)?
            }
        };
        cx.view("shape", &y, View::whole(self.shape.clone()))
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let x = self.lines.float_split(cx, x)?;
        let y = match self.kind {
            Kind::Sum => cx.sum_rows("sum", x)?,
            Kind::Mean => cx.mean_of_rows("mean", x)?,
            Kind::Max => cx.largest_of_rows("max", x)?,
            Kind::Min => {
                let x = cx.map("negative", Function::Neg, x)?;
                let y = cx.largest_of_rows("max", x)?;
                cx.map("positive", Function::Neg, y)?
            }
        };
        cx.reshape("shape", y, self.shape.clone())
    }

    fn work(&self) -> u64 {
        (self.lines.rows * self.lines.size) as u64
    }

    fn scale(&self) -> Scale {
        match self.kind {
            Kind::Mean if self.lines.size.is_power_of_two() => {
                Scale::Divides { bits: self.lines.size.ilog2() }
            }
            Kind::Mean => Scale::Product,
            _ => Scale::Passes,
        }
    }
}
