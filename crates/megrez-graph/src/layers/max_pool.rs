//! MaxPool: a tournament of max(x, y) = y + relu(x − y), first along columns, then along rows.
//!
//! All windows of a level are one tensor, so that a level is one ReLU. Going axis by axis, windows
//! that overlap share their comparisons: 3×3 takes 2 + 2 comparisons per output at stride 1 where
//! all nine taps at once take 8; 2×2 at stride 2 takes 3 either way. ⌈log₂ kh⌉ + ⌈log₂ kw⌉ levels.
//!
//! With [`PoolForm::AllPairs`], up to four values at a time are compared in all pairs instead: a
//! window of at most four elements is one step, 3×3 two, one along each axis.

use super::call::{Call, image};
use super::max_pool_grad::MAX_POOL_GRAD;
use super::window::{Axis, windows};
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::options::PoolForm;
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_plan::{MAX_OPERANDS, ValueId};
use megrez_ring::Shape;
use std::ops::Range;
use std::sync::Arc;

struct MaxPool {
    attributes: Attributes,
    shape: Shape,
    rows: Axis,
    columns: Axis,
}

pub(super) fn max_pool(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(
        1,
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"],
    )?;
    let [n, c, height, width] = image(call.shape(0)?)?;
    if call.int("storage_order", 0)? != 0 {
        return refuse("`storage_order` = 1 is not supported", "leave it out");
    }
    let [rows, columns] = windows(call, [height, width], None, false)?;
    let attributes = call.attributes.clone();
    Ok(Arc::new(MaxPool { attributes, shape: [n, c, rows.windows, columns.windows].into(), rows, columns }))
}

impl MaxPool {
    /// The maxima of the windows along one axis; `tap(o, k)` is where tap k of window o stands in
    /// x. `level` numbers the steps.
    fn along(
        cx: &mut Lowering,
        x: &Secret,
        dimension: usize,
        [windows, mut taps]: [usize; 2],
        tap: impl Fn(usize, usize) -> usize,
        level: &mut usize,
    ) -> Result<Secret, Refusal> {
        let tap = &tap;
        let positions = |taps: Range<usize>| -> Vec<usize> {
            taps.flat_map(|k| (0..windows).map(move |o| tap(o, k))).collect()
        };
        if taps == 1 {
            return cx.pick("max/taps", x, dimension, &positions(0..1));
        }
        // After the first level, tap k's values for all windows stand one after the other at k ·
        // windows.
        let mut x = x.clone();
        let mut first = true;
        while taps > 1 {
            let half = taps / 2;
            let place = |taps: Range<usize>| match first {
                true => positions(taps),
                false => (taps.start * windows..taps.end * windows).collect(),
            };
            let name = |part: &str| format!("max/{level}/{part}");
            let a = cx.pick(&name("left"), &x, dimension, &place(0..half))?;
            let b = cx.pick(&name("right"), &x, dimension, &place(half..2 * half))?;
            let difference = cx.combine(&name("difference"), &[(1, &a), (-1, &b)], 0)?;
            let excess = match cx.leaves() {
                false => cx.relu(&name("relu"), &difference)?,
                // The backward pass takes the same bits.
                true => {
                    let bit = cx.non_negative(&name("bit"), &difference)?;
                    cx.leave(bit.clone());
                    cx.select(&name("select"), &bit, &difference)?
                }
            };
            // A maximum lies where its operands lie: the bounds of y + relu(x − y) alone would be
            // looser.
            let mut larger = cx.combine(&name("max"), &[(1, &b), (1, &excess)], 0)?.within(x.range.clone());
            if taps % 2 == 1 {
                let odd = cx.pick(&name("odd"), &x, dimension, &place(taps - 1..taps))?;
                larger = cx.concat(&name("with-odd"), &[&larger, &odd], dimension)?;
            }
            (x, taps, first) = (larger, half + taps % 2, false);
            *level += 1;
        }
        Ok(x)
    }

    /// The maxima of the windows by comparing all pairs of up to four taps at a time.
    fn all_pairs(&self, cx: &mut Lowering, x: &Secret) -> Result<Secret, Refusal> {
        let taps = |axis: &Axis, k: usize| -> Vec<usize> {
            (0..axis.windows).map(|o| axis.nearest_tap(o, k)).collect()
        };
        let [rows, columns] = [&self.rows, &self.columns];
        let mut of_rows = vec![];
        for k in 0..rows.kernel {
            of_rows.push(cx.pick("max/row", x, 2, &taps(rows, k))?);
        }
        let across = |cx: &mut Lowering, x: &Secret| -> Result<Vec<Secret>, Refusal> {
            (0..columns.kernel).map(|k| cx.pick("max/column", x, 3, &taps(columns, k))).collect()
        };
        if rows.kernel * columns.kernel <= MAX_OPERANDS {
            let mut all = vec![];
            for row in &of_rows {
                all.extend(across(cx, row)?);
            }
            return Self::largest(cx, all);
        }
        let along_rows = Self::largest(cx, of_rows)?;
        let columns = across(cx, &along_rows)?;
        Self::largest(cx, columns)
    }

    /// The largest of any number of values, in groups as even as possible.
    fn largest(cx: &mut Lowering, mut values: Vec<Secret>) -> Result<Secret, Refusal> {
        while values.len() > 1 {
            let groups = values.len().div_ceil(MAX_OPERANDS);
            let (size, larger) = (values.len() / groups, values.len() % groups);
            let mut rest = &values[..];
            let mut winners = vec![];
            for group in 0..groups {
                let (these, others) = rest.split_at(size + usize::from(group < larger));
                winners.push(cx.maximum("max/pairs", &these.iter().collect::<Vec<_>>())?);
                rest = others;
            }
            values = winners;
        }
        Ok(values.remove(0))
    }
}

impl Layer for MaxPool {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let &[n, c, height, width] = inputs[0].shape.dims() else { unreachable!("understood as images") };
        let mut y = Vec::with_capacity(self.shape.elements());
        for plane in inputs[0].data.chunks_exact(height * width).take(n * c) {
            for r in 0..self.rows.windows {
                for q in 0..self.columns.windows {
                    let taps = self
                        .rows
                        .taps(r)
                        .flat_map(|i| self.columns.taps(q).map(move |j| plane[i * width + j]));
                    y.push(taps.fold(f32::NEG_INFINITY, f32::max));
                }
            }
        }
        Tensor::new(self.shape.clone(), y)
    }

    fn work(&self) -> u64 {
        (self.shape.elements() * self.rows.kernel * self.columns.kernel) as u64
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        // The bits of all pairs are nobody's to keep.
        if cx.pool() == PoolForm::AllPairs && !cx.leaves() {
            return self.all_pairs(cx, x);
        }
        let seen = self.rows.seen();
        let mut level = 0;
        let x = cx.pick("max/rows", x, 2, &seen)?;
        let [rows, columns] = [&self.rows, &self.columns];
        let tap = |o, k| columns.nearest_tap(o, k);
        let x = Self::along(cx, &x, 3, [columns.windows, columns.kernel], tap, &mut level)?;
        let tap = |o, k| seen.partition_point(|&i| i < rows.nearest_tap(o, k));
        Self::along(cx, &x, 2, [rows.windows, rows.kernel], tap, &mut level)
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        output: Id,
        of_output: Id,
        _wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let attributes = self.attributes.clone();
        let gradient = g.add("input", MAX_POOL_GRAD, &[inputs[0], output, of_output], attributes)?;
        Ok(vec![Some(gradient)])
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
                    Some(plane + rows.nearest_tap(r, i) * width + columns.nearest_tap(q, j))
                })
            })
        });
        let dims = [&[rows.kernel * columns.kernel], self.shape.dims()].concat();
        let taps = cx.gather("taps", &[x], dims.into(), places)?;
        cx.largest("max", taps)
    }
}
