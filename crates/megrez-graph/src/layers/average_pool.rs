//! AveragePool and GlobalAveragePool: the sum of the taps, divided by their number.
//!
//! A division by 2^k is free: the same words with k fraction bits more, which the next truncation
//! drops. Any other number is a product with 1/count, a public constant.

use super::average_pool_grad::AVERAGE_POOL_GRAD;
use super::call::{Call, image};
use super::window::{Axis, windows};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

struct AveragePool {
    shape: Shape,
    rows: Axis,
    columns: Axis,
    /// How many elements each window counts along rows, and along columns.
    counts: [Vec<usize>; 2],
    padding_counts: bool,
}

pub(super) fn average_pool(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(
        1,
        &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"],
    )?;
    let [n, c, height, width] = image(call.shape(0)?)?;
    let [rows, columns] = windows(call, [height, width], None, false)?;
    let padding_counts = call.int("count_include_pad", 0)? != 0;
    Ok(Arc::new(AveragePool::new([n, c], rows, columns, padding_counts)))
}

pub(super) fn global_average_pool(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    let [n, c, height, width] = image(call.shape(0)?)?;
    Ok(Arc::new(AveragePool::new([n, c], Axis::whole(height), Axis::whole(width), false)))
}

impl AveragePool {
    fn new([n, c]: [usize; 2], rows: Axis, columns: Axis, padding_counts: bool) -> Self {
        let count = |axis: &Axis| -> Vec<usize> {
            (0..axis.windows).map(|o| axis.count(o, padding_counts)).collect()
        };
        let counts = [count(&rows), count(&columns)];
        AveragePool {
            shape: [n, c, rows.windows, columns.windows].into(),
            rows,
            columns,
            counts,
            padding_counts,
        }
    }

    /// The one number that all windows are divided by, if it is one.
    fn count(&self) -> Option<usize> {
        let same = |counts: &[usize]| counts.iter().all(|c| *c == counts[0]).then_some(counts[0]);
        Some(same(&self.counts[0])? * same(&self.counts[1])?)
    }

    /// The number that each window's sum is divided by, row by row.
    fn divisors(&self) -> impl Iterator<Item = usize> + '_ {
        self.counts[0].iter().flat_map(|r| self.counts[1].iter().map(move |c| r * c))
    }

    /// Sums of the taps along one dimension, of x padded by zeros.
    fn sums(
        cx: &mut Lowering,
        x: &Secret,
        dimension: usize,
        axis: &Axis,
        name: &str,
    ) -> Result<Secret, Refusal> {
        let shape = cx.shape(x).clone();
        if axis.kernel == 1 && axis.stride == 1 {
            return Ok(x.clone());
        }
        // Windows × taps as two dimensions in place of one.
        let mut view = View::whole(shape.clone());
        let stride = shape.strides()[dimension] as isize;
        let mut dims = shape.dims().to_vec();
        dims[dimension] = axis.windows;
        dims.insert(dimension + 1, axis.kernel);
        view.strides[dimension] = stride * axis.stride as isize;
        view.strides.insert(dimension + 1, stride * axis.dilation as isize);
        view.shape = dims.clone().into();
        let bounds = x.range.clone();
        let taps = cx.view(&format!("{name}-taps"), x, view)?.within(bounds);
        let sum = cx.sum(&format!("{name}-sum"), &taps, dimension + 1)?;
        dims.remove(dimension + 1);
        cx.reshape(&format!("{name}-shape"), &sum, dims.into())
    }
}

impl Layer for AveragePool {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let &[n, c, height, width] = inputs[0].shape.dims() else { unreachable!("understood as images") };
        let mut y = Vec::with_capacity(self.shape.elements());
        for plane in inputs[0].data.chunks_exact(height * width).take(n * c) {
            for (window, count) in self.divisors().enumerate() {
                let (r, q) = (window / self.columns.windows, window % self.columns.windows);
                let taps =
                    self.rows.taps(r).flat_map(|i| self.columns.taps(q).map(move |j| plane[i * width + j]));
                y.push((taps.map(f64::from).sum::<f64>() / count as f64) as f32);
            }
        }
        Tensor::new(self.shape.clone(), y)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let [top, bottom] = self.rows.reach();
        let [left, right] = self.columns.reach();
        let x = cx.pad("pad", x, &[0, 0, top, left], &[0, 0, bottom, right])?;
        let x = Self::sums(cx, &x, 3, &self.columns, "columns")?;
        let sum = Self::sums(cx, &x, 2, &self.rows, "rows")?;
        if let Scale::Divides { bits } = self.scale() {
            let frac = cx.frac_of(&sum) + bits;
            return cx.rescale("average", &sum, frac);
        }
        let sum = cx.settle(&sum)?;
        // Fraction bits of 1/count: as many significant ones as a weight has.
        let largest = self.divisors().max().map_or(0, |c| c.next_power_of_two().ilog2());
        let frac = cx.frac() + largest;
        let to = cx.frac_of(&sum) + frac;
        match self.count() {
            Some(count) => {
                let inverse = cx.encode(1.0 / count as f32, frac)?;
                let product = cx.combine("product", &[(inverse, &sum)], 0)?;
                cx.rescale("average", &product, to)
            }
            None => {
                let inverses: Vec<f32> = self.divisors().map(|c| 1.0 / c as f32).collect();
                let inverses = Tensor::new([self.rows.windows, self.columns.windows], inverses);
                cx.mul_public("product", &sum, &inverses, frac)
            }
        }
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let axes = [&self.rows, &self.columns];
        let ints = |number: &dyn Fn(&Axis) -> usize| axes.map(|axis| number(axis) as i64);
        let pads = [0, 1].map(|end| ints(&|axis| axis.pad[end]));
        let attributes = Attributes::none()
            .with("image", ints(&Axis::size))
            .with("kernel_shape", ints(&|axis| axis.kernel))
            .with("strides", ints(&|axis| axis.stride))
            .with("dilations", ints(&|axis| axis.dilation))
            .with("pads", pads.concat())
            .with("count_include_pad", i64::from(self.padding_counts));
        let gradient = g.add("input", AVERAGE_POOL_GRAD, &[of_output], attributes)?;
        let mut of_inputs = vec![None; inputs.len()];
        of_inputs[0] = Some(gradient);
        Ok(of_inputs)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let x = cx.value(&inputs[0]);
        let &[n, c, height, width] = cx.shape(x).dims() else { unreachable!("understood as images") };
        let [rows, columns] = [&self.rows, &self.columns];
        let taps = (0..rows.kernel).flat_map(|i| (0..columns.kernel).map(move |j| (i, j)));
        let places = taps.flat_map(|(i, j)| {
            let planes = (0..n * c).map(move |plane| plane * height * width);
            planes.flat_map(move |plane| {
                let windows = (0..rows.windows).flat_map(|r| (0..columns.windows).map(move |q| (r, q)));
                windows.map(move |(r, q)| {
                    let tap = rows.tap(r, i).zip(columns.tap(q, j));
                    tap.map(|(row, column)| plane + row * width + column)
                })
            })
        });
        let dims = [&[rows.kernel * columns.kernel], self.shape.dims()].concat();
        let taps = cx.gather("taps", &[x], dims.into(), places)?;
        let sum = cx.sum("sum", taps)?;
        match self.count() {
            Some(count) => cx.divided("average", sum, count),
            None => {
                let counts: Vec<f32> = self.divisors().map(|c| c as f32).collect();
                let counts = Tensor::new([rows.windows, columns.windows], counts);
                let counts = cx.public("counts", &counts)?;
                cx.pair("average", Operation::Div, sum, counts, &self.shape)
            }
        }
    }

    fn work(&self) -> u64 {
        (self.shape.elements() * self.rows.kernel * self.columns.kernel) as u64
    }

    fn scale(&self) -> Scale {
        match self.count() {
            Some(count) if count.is_power_of_two() => Scale::Divides { bits: count.ilog2() },
            _ => Scale::ShrinksThenProduct,
        }
    }
}
