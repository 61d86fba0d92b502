//! The gradient of MaxPool: each window's gradient goes to the element that has won its tournament,
//! by the bits that the pool has left: nothing is compared. Level by level, last one first: the
//! winner's side gets bit · δ, the other side δ − bit · δ, so exactly one element of a window gets
//! the gradient, also among equals. Windows that overlap add up.
//!
//! One selection a level, of as many elements as the pool has compared: ⌈log₂ kh⌉ + ⌈log₂ kw⌉
//! rounds under protocols that select in one.

use super::call::{Call, image};
use super::window::{Axis, windows};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name that the gradient of MaxPool has; no ONNX operator. Of the pool's input, its output,
/// and the output's gradient, with the pool's attributes.
pub(crate) const MAX_POOL_GRAD: &str = "MaxPoolGrad";

struct MaxPoolGrad {
    /// Of the pool's input.
    shape: Shape,
    rows: Axis,
    columns: Axis,
}

pub(super) fn max_pool_grad(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(
        3,
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"],
    )?;
    let shape = call.shape(0)?.clone();
    let [n, c, height, width] = image(&shape)?;
    let [rows, columns] = windows(call, [height, width], None, false)?;
    let pooled = Shape::from([n, c, rows.windows, columns.windows]);
    match *call.shape(1)? == pooled && *call.shape(2)? == pooled {
        true => Ok(Arc::new(MaxPoolGrad { shape, rows, columns })),
        false => refuse("a value and its gradient have one shape", ""),
    }
}

/// The winner of a tournament as the pool holds it: of two equals the first.
fn winner(mut taps: Vec<(f32, usize)>) -> (f32, usize) {
    while taps.len() > 1 {
        let half = taps.len() / 2;
        let duel = |k: usize| if taps[k].0 >= taps[half + k].0 { taps[k] } else { taps[half + k] };
        let next: Vec<_> = (0..half).map(duel).chain(taps[2 * half..].iter().copied()).collect();
        taps = next;
    }
    taps[0]
}

impl MaxPoolGrad {
    /// From the gradient of the maxima along one axis to that of what was compared; `bits` are
    /// those of its levels.
    fn along(
        cx: &mut Lowering,
        delta: &Secret,
        dimension: usize,
        axis: &Axis,
        bits: &[Secret],
        level: &mut usize,
    ) -> Result<Secret, Refusal> {
        let mut delta = delta.clone();
        // The taps before each level.
        let mut taps = vec![axis.kernel];
        while taps[taps.len() - 1] > 1 {
            taps.push(taps[taps.len() - 1].div_ceil(2));
        }
        for (bit, &taps) in bits.iter().zip(&taps).rev() {
            *level -= 1;
            let name = |part: &str| format!("max/{level}/{part}");
            let (won, all) = (taps / 2 * axis.windows, taps.div_ceil(2) * axis.windows);
            let place = |cx: &mut Lowering, part: &str, from: usize, to: usize| {
                cx.pick(&name(part), &delta, dimension, &(from..to).collect::<Vec<_>>())
            };
            let larger = place(cx, "larger", 0, won)?;
            let left = cx.select(&name("left"), bit, &larger)?;
            let right = cx.combine(&name("right"), &[(1, &larger), (-1, &left)], 0)?;
            let right = right.within(larger.range.merged().with_zero());
            let mut parts = vec![left, right];
            if all > won {
                parts.push(place(cx, "odd", won, all)?);
            }
            delta = cx.concat(&name("taps"), &parts.iter().collect::<Vec<_>>(), dimension)?;
        }
        let mut sources = vec![vec![]; axis.size()];
        for k in 0..axis.kernel {
            (0..axis.windows).for_each(|o| sources[axis.nearest_tap(o, k)].push(k * axis.windows + o));
        }
        cx.spread(&format!("max/{level}"), &delta, dimension, &sources)
    }
}

impl Layer for MaxPoolGrad {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let &[n, c, height, width] = self.shape.dims() else { unreachable!("understood as images") };
        let (rows, columns) = (&self.rows, &self.columns);
        let mut y = Tensor::filled(self.shape.clone(), 0.0);
        let mut of_windows = inputs[2].data.iter();
        for plane in 0..n * c {
            let x = &inputs[0].data[plane * height * width..][..height * width];
            for r in 0..rows.windows {
                for q in 0..columns.windows {
                    let across = |i: usize| {
                        let row = rows.nearest_tap(r, i) * width;
                        let places = (0..columns.kernel).map(|j| row + columns.nearest_tap(q, j));
                        winner(places.map(|at| (x[at], at)).collect())
                    };
                    let (_, at) = winner((0..rows.kernel).map(across).collect());
                    y.data[plane * height * width + at] += of_windows.next().copied().unwrap_or(0.0);
                }
            }
        }
        y
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let levels = |axis: &Axis| axis.kernel.next_power_of_two().ilog2() as usize;
        let (across, down) = (levels(&self.columns), levels(&self.rows));
        let bits = cx.given().to_vec();
        if bits.len() != across + down {
            return refuse("the pool has left no bits", "");
        }
        let mut level = bits.len();
        let delta = inputs[2].secret()?;
        let delta = Self::along(cx, delta, 2, &self.rows, &bits[across..], &mut level)?;
        Self::along(cx, &delta, 3, &self.columns, &bits[..across], &mut level)
    }

    fn beside(&self) -> Option<usize> {
        Some(1)
    }

    fn unread(&self, input: usize) -> bool {
        input < 2
    }
}
