//! The two gradients of Conv. Each is a convolution of rearranged operands, so one product:
//!
//! ```text
//! y[n,o,r]   = Σ w[o,c,i] · x[n,c, r·stride + i·dilation − pad]
//! dX[n,c,h]  = Σ w[o,c,i] · δ[n,o,r]   over h = r·stride + i·dilation − pad: δ spread by the stride, w reversed and transposed
//! dW[o,c,i]  = Σ x[n,c, …] · δ[n,o,r]  over n and r: x as [C, N, H, W], δ as kernels [O, N, R, Q] that are dilated by the stride
//! ```

use super::call::{Call, image};
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

/// A convolution as its gradients see it.
struct Geometry {
    /// Images and channels of x, filters, groups.
    images: usize,
    channels: usize,
    filters: usize,
    groups: usize,
    axes: [Axis; 2],
}

impl Geometry {
    fn of(call: &Call, x: [usize; 4], y: [usize; 4]) -> Result<Self, Refusal> {
        let groups = usize::try_from(call.int("group", 1)?).unwrap_or(0);
        if groups == 0 || !x[1].is_multiple_of(groups) || !y[1].is_multiple_of(groups) || x[0] != y[0] {
            return refuse("the channels do not fit the groups", "");
        }
        let axes = Axis::given(call, [x[2], x[3]], [y[2], y[3]])?;
        Ok(Geometry { images: x[0], channels: x[1], filters: y[1], groups, axes })
    }

    fn per_group(&self) -> usize {
        self.channels / self.groups
    }

    fn image_shape(&self) -> Shape {
        [self.images, self.channels, self.axes[0].size(), self.axes[1].size()].into()
    }

    fn kernel_shape(&self) -> Shape {
        [self.filters, self.per_group(), self.axes[0].kernel, self.axes[1].kernel].into()
    }

    fn sides(&self, side: impl Fn(&Axis) -> usize) -> [usize; 2] {
        [side(&self.axes[0]), side(&self.axes[1])]
    }

    /// Calls `f` with the places in x, w and y of every product of the convolution.
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let [rows, columns] = &self.axes;
        let (per_group, each) = (self.per_group(), self.filters / self.groups);
        for (image, filter) in (0..self.images * self.filters).map(|i| (i / self.filters, i % self.filters)) {
            for c in 0..per_group {
                let plane = image * self.channels + filter / each * per_group + c;
                let kernel = filter * per_group + c;
                for (i, j) in
                    (0..rows.kernel * columns.kernel).map(|t| (t / columns.kernel, t % columns.kernel))
                {
                    for r in 0..rows.windows {
                        let Some(row) = rows.tap(r, i) else { continue };
                        for q in 0..columns.windows {
                            let Some(column) = columns.tap(q, j) else { continue };
                            f(
                                (plane * rows.size() + row) * columns.size() + column,
                                (kernel * rows.kernel + i) * columns.kernel + j,
                                ((image * self.filters + filter) * rows.windows + r) * columns.windows + q,
                            );
                        }
                    }
                }
            }
        }
    }

    fn work(&self) -> u64 {
        let [rows, columns] = self.sides(|axis| axis.windows * axis.kernel);
        (self.images * self.filters * self.per_group()) as u64 * (rows * columns) as u64
    }
}

struct ConvGradInput {
    geometry: Geometry,
    shape: Shape,
}

pub(super) fn conv_grad_input(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["dilations", "group", "image", "kernel_shape", "pads", "strides"])?;
    let (y, kernel) = (image(call.shape(0)?)?, call.shape(1)?.clone());
    let [height, width] = call.sizes("image", [0; 2])?;
    let groups = usize::try_from(call.int("group", 1)?).unwrap_or(0);
    let channels = kernel.dims().get(1).copied().unwrap_or(0).checked_mul(groups).unwrap_or(0);
    let geometry = Geometry::of(call, [y[0], channels, height, width], y)?;
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
        let (delta, w) = (&inputs[0].data, &inputs[1].data);
        let mut sums = vec![0f64; self.shape.elements()];
        self.geometry.each(|x, k, y| sums[x] += f64::from(w[k]) * f64::from(delta[y]));
        Tensor::new(self.shape.clone(), sums.into_iter().map(|v| v as f32).collect())
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
fn turn(g: &Geometry) -> (View, Shape) {
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

fn turned(cx: &mut Lowering, g: &Geometry, w: &Secret) -> Result<Secret, Refusal> {
    let (view, to) = turn(g);
    let w = cx.view("turned", w, view)?;
    cx.reshape("turned-kernel", &w, to)
}

struct ConvGradWeight {
    geometry: Geometry,
    shape: Shape,
}

pub(super) fn conv_grad_weight(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["dilations", "group", "kernel_shape", "pads", "strides"])?;
    let geometry = Geometry::of(call, image(call.shape(0)?)?, image(call.shape(1)?)?)?;
    Ok(Arc::new(ConvGradWeight { shape: geometry.kernel_shape(), geometry }))
}

impl Layer for ConvGradWeight {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let (image, delta) = (&inputs[0].data, &inputs[1].data);
        let mut sums = vec![0f64; self.shape.elements()];
        self.geometry.each(|x, k, y| sums[k] += f64::from(image[x]) * f64::from(delta[y]));
        Tensor::new(self.shape.clone(), sums.into_iter().map(|v| v as f32).collect())
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
