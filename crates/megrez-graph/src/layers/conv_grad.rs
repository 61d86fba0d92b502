//! The two gradients of Conv. Each is a convolution of rearranged operands, so one product:
//!
//! ```text
//! y[n,o,r]   = Σ w[o,c,i] · x[n,c, r·stride + i·dilation − pad]
//! dX[n,c,h]  = Σ w[o,c,i] · δ[n,o,r]   over h = r·stride + i·dilation − pad: δ spread by the stride, w reversed and transposed
//! dW[o,c,i]  = Σ x[n,c, …] · δ[n,o,r]  over n and r: x as [C, N, H, W], δ as kernels [O, N, R, Q] that are dilated by the stride
//! ```

use super::call::{Call, image};
use super::sliding::Sliding;
use super::window::Axis;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{ConvGeometry, View};
use megrez_ring::Shape;
use std::sync::Arc;

/// The name that the gradient of Conv's input has; no ONNX operator. Of the output's gradient and
/// the weights, with the windows and the size of the input.
pub(crate) const CONV_GRAD_INPUT: &str = "ConvGradInput";

/// The name that the gradient of Conv's weights has; no ONNX operator. Of Conv's input and the
/// output's gradient, with the windows.
pub(crate) const CONV_GRAD_WEIGHT: &str = "ConvGradWeight";

/// The name that the gradients of Conv's weights for each image have, [N, n]; no ONNX operator. As
/// [`CONV_GRAD_WEIGHT`].
pub(crate) const CONV_GRAD_ROWS: &str = "ConvGradRows";

struct ConvGradInput {
    geometry: Sliding,
    shape: Shape,
}

pub(super) fn conv_grad_input(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["dilations", "group", "image", "kernel_shape", "pads", "strides"])?;
    let (y, kernel) = (image(call.shape(0)?)?, call.shape(1)?.clone());
    let [height, width] = call.sizes("image", [0; 2])?;
    let groups = usize::try_from(call.int("group", 1)?).unwrap_or(0);
    let channels = kernel.dims().get(1).copied().unwrap_or(0).checked_mul(groups).unwrap_or(0);
    let geometry = Sliding::of(call, [y[0], channels, height, width], y)?;
    match geometry.kernel_shape() == kernel {
        true => Ok(Arc::new(ConvGradInput { shape: geometry.image_shape(), geometry })),
        false => refuse("the kernel does not fit", ""),
    }
}

impl Layer for ConvGradInput {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.shape.clone(), self.geometry.of_image(&inputs[0].data, &inputs[1].data))
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let g = &self.geometry;
        let mut delta = inputs[0].secret()?.clone();
        let dilation = g.sides(|axis| axis.dilation);
        // Before the first tap of the reversed kernel lie so many places, of which δ may fill some.
        let before = |axis: &Axis| ((axis.kernel - 1) * axis.dilation).checked_sub(axis.pad[0]);
        let simple = |axis: &Axis| {
            let after = (axis.size() + (axis.kernel - 1) * axis.dilation).checked_sub(axis.windows);
            let before = before(axis).filter(|_| axis.stride == 1)?;
            Some([before, after?.checked_sub(before)?])
        };
        let pad = match [simple(&g.axes[0]), simple(&g.axes[1])] {
            [Some(rows), Some(columns)] => [rows[0], columns[0], rows[1], columns[1]],
            _ => {
                for (dimension, axis, name) in [(2, &g.axes[0], "rows"), (3, &g.axes[1], "columns")] {
                    let reach = (axis.kernel - 1) * axis.dilation;
                    let source = |at: usize| {
                        let place = (at + axis.pad[0]).checked_sub(reach)?;
                        let r = place / axis.stride;
                        (place % axis.stride == 0 && r < axis.windows).then_some(r)
                    };
                    let sources: Vec<Vec<usize>> =
                        (0..axis.size() + reach).map(|at| source(at).into_iter().collect()).collect();
                    delta = cx.spread(name, &delta, dimension, &sources)?;
                }
                [0; 4]
            }
        };
        let geometry = ConvGeometry { stride: [1; 2], pad, dilation, groups: g.groups };
        let turned = |cx: &mut Lowering, w: &Secret| turned(cx, g, w);
        match &inputs[1] {
            Operand::Constant(w) => {
                let (view, to) = turn(g);
                let w = w.view(&view).reshape(to);
                cx.conv(&delta, &w, geometry)
            }
            w => {
                let w = turned(cx, w.secret()?)?;
                cx.conv_secret("product", &delta, &w, geometry)
            }
        }
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn work(&self) -> u64 {
        self.geometry.work()
    }
}

/// The kernel reversed, channels and filters of each group exchanged: a view, and the shape that
/// its groups are joined to.
fn turn(g: &Sliding) -> (View, Shape) {
    let [kh, kw] = g.sides(|axis| axis.kernel);
    let (per_group, each) = (g.per_group(), g.filters / g.groups);
    let area = (kh * kw) as isize;
    let view = View {
        shape: [g.groups, per_group, each, kh, kw].into(),
        strides: vec![
            (each * per_group) as isize * area,
            area,
            per_group as isize * area,
            -(kw as isize),
            -1,
        ],
        offset: kh * kw - 1,
    };
    (view, [g.channels, each, kh, kw].into())
}

fn turned(cx: &mut Lowering, g: &Sliding, w: &Secret) -> Result<Secret, Refusal> {
    let (view, to) = turn(g);
    let w = cx.view("turned", w, view)?;
    cx.reshape("turned-kernel", &w, to)
}

struct ConvGradWeight {
    geometry: Sliding,
    shape: Shape,
}

pub(super) fn conv_grad_weight(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["dilations", "group", "kernel_shape", "pads", "strides"])?;
    let geometry = Sliding::of(call, image(call.shape(0)?)?, image(call.shape(1)?)?)?;
    Ok(Arc::new(ConvGradWeight { shape: geometry.kernel_shape(), geometry }))
}

impl Layer for ConvGradWeight {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        Tensor::new(self.shape.clone(), self.geometry.of_kernel(&inputs[0].data, &inputs[1].data))
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let g = &self.geometry;
        let (mut x, delta) = (inputs[0].secret()?.clone(), inputs[1].secret()?);
        let mut after = [0; 2];
        for (d, axis) in g.axes.iter().enumerate() {
            // The kernel's taps, and nothing else, are the places where the dilated δ fits.
            let reach = (axis.kernel - 1) * axis.dilation + (axis.windows - 1) * axis.stride + 1;
            let has = axis.size() + axis.pad[0];
            after[d] = reach.saturating_sub(has);
            // What no window sees.
            let seen = axis.size().checked_sub(has.saturating_sub(reach)).filter(|&seen| seen > 0);
            let Some(seen) = seen else {
                return refuse("sees nothing but padding", "pad less than the kernel");
            };
            x = cx.pick("seen", &x, 2 + d, &(0..seen).collect::<Vec<_>>())?;
        }
        let (n, groups, per_group) = (g.images, g.groups, g.per_group());
        let [height, width] = [cx.shape(&x).dims()[2], cx.shape(&x).dims()[3]];
        let split = cx.reshape("groups", &x, [n, groups, per_group, height, width].into())?;
        let view = View::transpose(cx.shape(&split), &[2, 1, 0, 3, 4]);
        let channels = cx.view("channels-first", &split, view)?;
        let channels = cx.reshape("images", &channels, [per_group, groups * n, height, width].into())?;
        let view = View::transpose(cx.shape(delta), &[1, 0, 2, 3]);
        let kernels = cx.view("kernels", delta, view)?;
        let geometry = ConvGeometry {
            stride: g.sides(|axis| axis.dilation),
            pad: [g.axes[0].pad[0], g.axes[1].pad[0], after[0], after[1]],
            dilation: g.sides(|axis| axis.stride),
            groups,
        };
        let y = cx.conv_secret("product", &channels, &kernels, geometry)?;
        let view = View::transpose(cx.shape(&y), &[1, 0, 2, 3]);
        cx.view("filters-first", &y, view)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn work(&self) -> u64 {
        self.geometry.work()
    }
}

/// dW of each image: a product of matrices for each, δ [filters, windows] by x's windows, [windows,
/// channels and taps].
struct ConvGradRows {
    /// Of one image.
    geometry: Sliding,
    shape: Shape,
}

pub(super) fn conv_grad_rows(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["dilations", "group", "kernel_shape", "pads", "strides"])?;
    let ([images, x @ ..], [others, y @ ..]) = (image(call.shape(0)?)?, image(call.shape(1)?)?);
    if images != others {
        return refuse("takes gradients of as many images", "");
    }
    let geometry = Sliding::of(call, [1, x[0], x[1], x[2]], [1, y[0], y[1], y[2]])?;
    let shape = [images, geometry.kernel_shape().elements()].into();
    Ok(Arc::new(ConvGradRows { geometry, shape }))
}

impl Layer for ConvGradRows {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let images = self.shape.dims()[0];
        let [x, delta] = [0, 1].map(|i| inputs[i].data.chunks_exact(inputs[i].data.len() / images));
        let all = x.zip(delta).flat_map(|(x, delta)| self.geometry.of_kernel(x, delta));
        Tensor::new(self.shape.clone(), all.collect())
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let (g, images) = (&self.geometry, self.shape.dims()[0]);
        let (x, delta) = (inputs[0].secret()?, inputs[1].secret()?);
        let [rows, columns] = &g.axes;
        // As far as the last window reaches; what none reaches is not seen.
        let after = |axis: &Axis| {
            let reach = (axis.windows - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
            reach.saturating_sub(axis.size() + axis.pad[0])
        };
        let x =
            cx.pad("padded", x, &[0, 0, rows.pad[0], columns.pad[0]], &[0, 0, after(rows), after(columns)])?;
        let &[_, channels, height, width] = cx.shape(&x).dims() else { unreachable!("understood as images") };
        let [windows, taps] = [rows.windows * columns.windows, rows.kernel * columns.kernel];
        let (groups, per_group) = (g.groups, g.per_group());
        let strides = [
            channels * height * width,
            per_group * height * width,
            rows.stride * width,
            columns.stride,
            height * width,
            rows.dilation * width,
            columns.dilation,
        ];
        let view = View {
            shape: [images, groups, rows.windows, columns.windows, per_group, rows.kernel, columns.kernel]
                .into(),
            strides: strides.map(|s| s as isize).to_vec(),
            offset: 0,
        };
        let seen = cx.view("windows", &x, view)?;
        let seen = cx.reshape("seen", &seen, [images, groups, windows, per_group * taps].into())?;
        let delta = cx.reshape("gradients", delta, [images, groups, g.filters / groups, windows].into())?;
        let y = cx.matmul("product", &delta, &seen)?;
        cx.reshape("rows", &y, self.shape.clone())
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn work(&self) -> u64 {
        self.shape.dims()[0] as u64 * self.geometry.work()
    }
}
