//! The gradient of AveragePool and GlobalAveragePool: every element gets δ / count of each window
//! that it lies in. Local, but for the truncation that a count other than a power of two asks for.

use super::call::{Call, image};
use super::window::Axis;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::Refusal;
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::sync::Arc;

/// The name that the gradient of an average pool has; no ONNX operator. Of the output's gradient,
/// with the pool's windows and the size of its input.
pub(crate) const AVERAGE_POOL_GRAD: &str = "AveragePoolGrad";

struct AveragePoolGrad {
    /// Of the pool's input.
    shape: Shape,
    axes: [Axis; 2],
    padding_counts: bool,
}

pub(super) fn average_pool_grad(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["count_include_pad", "dilations", "image", "kernel_shape", "pads", "strides"])?;
    let [n, c, rows, columns] = image(call.shape(0)?)?;
    let size = call.sizes("image", [0; 2])?;
    let axes = Axis::given(call, size, [rows, columns])?;
    let padding_counts = call.int("count_include_pad", 0)? != 0;
    let shape = [n, c, size[0], size[1]].into();
    Ok(Arc::new(AveragePoolGrad { shape, axes, padding_counts }))
}

impl AveragePoolGrad {
    /// The number that each window's sum was divided by, row by row.
    fn counts(&self) -> Vec<usize> {
        let [rows, columns] = &self.axes;
        let across = |r: usize| {
            let down = rows.count(r, self.padding_counts);
            (0..columns.windows).map(move |q| down * columns.count(q, self.padding_counts))
        };
        (0..rows.windows).flat_map(across).collect()
    }

    /// The one number that all windows are divided by, if it is one.
    fn count(&self) -> Option<usize> {
        let counts = self.counts();
        counts.iter().all(|c| *c == counts[0]).then_some(counts[0])
    }
}

impl Layer for AveragePoolGrad {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let &[n, c, height, width] = self.shape.dims() else { unreachable!("understood as images") };
        let ([rows, columns], counts) = (&self.axes, self.counts());
        let mut sums = vec![0f64; self.shape.elements()];
        for (plane, of_windows) in inputs[0].data.chunks_exact(counts.len()).enumerate().take(n * c) {
            let x = &mut sums[plane * height * width..][..height * width];
            for (window, (&delta, &count)) in of_windows.iter().zip(&counts).enumerate() {
                for i in rows.taps(window / columns.windows) {
                    for j in columns.taps(window % columns.windows) {
                        x[i * width + j] += f64::from(delta) / count as f64;
                    }
                }
            }
        }
        Tensor::new(self.shape.clone(), sums.into_iter().map(|v| v as f32).collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let mut delta = inputs[0].secret()?.clone();
        match self.scale() {
            Scale::Divides { bits } => {
                let frac = cx.frac_of(&delta) + bits;
                delta = cx.rescale("shares", &delta, frac)?;
            }
            _ => {
                // As many significant bits of 1/count as a weight has.
                let counts = self.counts();
                let largest = counts.iter().max().map_or(0, |c| c.next_power_of_two().ilog2());
                let inverses = counts.iter().map(|&c| 1.0 / c as f32).collect();
                let inverses = Tensor::new([self.axes[0].windows, self.axes[1].windows], inverses);
                let frac = cx.frac() + largest;
                delta = cx.mul_public("shares", &delta, &inverses, frac)?;
            }
        }
        for (dimension, axis, name) in [(2, &self.axes[0], "rows"), (3, &self.axes[1], "columns")] {
            let mut sources = vec![vec![]; axis.size()];
            (0..axis.windows).for_each(|o| axis.taps(o).for_each(|i| sources[i].push(o)));
            delta = cx.spread(name, &delta, dimension, &sources)?;
        }
        Ok(delta)
    }

    fn scale(&self) -> Scale {
        match self.count() {
            Some(count) if count.is_power_of_two() => Scale::Divides { bits: count.ilog2() },
            _ => Scale::Product,
        }
    }
}
