//! Conv: 2-D convolution with groups, stride, padding and dilation. Product, bias at the product's
//! scale; the placement pass decides where the truncation goes.

use super::call::{Call, image};
use super::conv_grad::{CONV_GRAD_INPUT, CONV_GRAD_WEIGHT};
use super::sliding::Sliding;
use super::window::windows;
use crate::float::lowering::{FloatLowering, FloatOperand};
use crate::gradients::Gradients;
use crate::graph::{Attribute, Attributes, Id};
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::Tensor;
use megrez_plan::{ConvGeometry, Operation, ValueId, View};
use megrez_ring::Shape;
use std::sync::Arc;

struct Conv {
    shape: Shape,
    kernel: [usize; 4],
    geometry: ConvGeometry,
    sliding: Sliding,
}

pub(super) fn conv(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])?;
    let [n, channels, height, width] = image(call.shape(0)?)?;
    let kernel @ [out, per_group, kh, kw] = image(call.shape(1)?)?;
    let groups = usize::try_from(call.int("group", 1)?).unwrap_or(0);
    if groups == 0 || channels % groups != 0 || out % groups != 0 || channels / groups != per_group {
        return refuse(
            format!("{channels} channels in {groups} groups do not fit a kernel {out}×{per_group}×{kh}×{kw}"),
            "",
        );
    }
    if call.has(2) && *call.shape(2)? != Shape::from([out]) {
        return refuse(format!("the bias does not have {out} elements"), "");
    }
    let [rows, columns] = windows(call, [height, width], Some([kh, kw]), true)?;
    let geometry = ConvGeometry {
        stride: [rows.stride, columns.stride],
        pad: [rows.pad[0], columns.pad[0], rows.pad[1], columns.pad[1]],
        dilation: [rows.dilation, columns.dilation],
        groups,
    };
    let shape = [n, out, rows.windows, columns.windows].into();
    let sliding = Sliding { images: n, channels, filters: out, groups, axes: [rows, columns] };
    Ok(Arc::new(Conv { shape, kernel, geometry, sliding }))
}

impl Layer for Conv {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let first = |filter: usize| inputs.get(2).map_or(0.0, |bias| f64::from(bias.data[filter]));
        let y = self.sliding.outputs(&inputs[0].data, &inputs[1].data, first);
        Tensor::new(self.shape.clone(), y)
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let x = inputs[0].secret()?;
        let y = match &inputs[1] {
            Operand::Constant(kernel) => cx.conv(x, kernel, self.geometry)?,
            kernel => cx.conv_secret("product", x, kernel.secret()?, self.geometry)?,
        };
        let per_channel = [self.kernel[0], 1, 1];
        match inputs.get(2) {
            Some(Operand::Constant(bias)) => cx.bias(&y, &bias.reshape(per_channel)),
            Some(bias) => {
                let bias = cx.reshape("bias", bias.secret()?, per_channel.into())?;
                let bias = cx.broadcast("bias-broadcast", &bias, &self.shape)?;
                let both = cx.aligned(&[&y, &bias])?;
                cx.combine("biased", &[(1, &both[0]), (1, &both[1])], 0)
            }
            None => Ok(y),
        }
    }

    fn backward(
        &self,
        g: &mut Gradients,
        inputs: &[Id],
        _output: Id,
        of_output: Id,
        wanted: &[bool],
    ) -> Result<Vec<Option<Id>>, Refusal> {
        let ConvGeometry { stride, pad, dilation, groups } = self.geometry;
        let ints = |sizes: &[usize]| Attribute::Ints(sizes.iter().map(|&n| n as i64).collect());
        let mut attributes = Attributes::none().with("group", groups as i64);
        for (name, sizes) in [
            ("strides", &stride[..]),
            ("pads", &pad),
            ("dilations", &dilation),
            ("kernel_shape", &self.kernel[2..]),
        ] {
            attributes.0.insert(name.into(), ints(sizes));
        }
        let mut of_inputs = vec![None; inputs.len()];
        if wanted[0] {
            let mut attributes = attributes.clone();
            attributes.0.insert("image".into(), ints(&g.shape(inputs[0]).dims()[2..]));
            of_inputs[0] = Some(g.add("input", CONV_GRAD_INPUT, &[of_output, inputs[1]], attributes)?);
        }
        if wanted[1] {
            of_inputs[1] = Some(g.add("weight", CONV_GRAD_WEIGHT, &[inputs[0], of_output], attributes)?);
        }
        if wanted.get(2) == Some(&true) {
            let per_channel = Shape::from([self.kernel[0], 1, 1]);
            let bias = g.summed("bias", of_output, &per_channel)?;
            of_inputs[2] = Some(g.reshaped("bias", bias, &[self.kernel[0]].into())?);
        }
        Ok(of_inputs)
    }

    fn float(&self, cx: &mut FloatLowering, inputs: &[FloatOperand]) -> Result<ValueId, Refusal> {
        let Some(weights) = inputs[1].constant() else {
            return refuse("needs constant weights", "make them constants of the model");
        };
        let x = cx.value(&inputs[0]);
        let &[n, channels, height, width] = cx.shape(x).dims() else { unreachable!("understood as images") };
        let &[_, out, rows, columns] = self.shape.dims() else { unreachable!("understood as images") };
        let [_, per_group, kh, kw] = self.kernel;
        let ConvGeometry { stride, pad, dilation, groups } = self.geometry;
        let (inner, each) = (per_group * kh * kw, out / groups);
        // Every window as a row: image, group, window, then channel and tap; zeros where it reaches
        // over the image.
        let place = |i: usize| {
            let (tap, i) = (i % (kh * kw), i / (kh * kw));
            let (channel, i) = (i % per_group, i / per_group);
            let (window, i) = (i % (rows * columns), i / (rows * columns));
            let (group, image) = (i % groups, i / groups);
            let row = (window / columns * stride[0] + tap / kw * dilation[0]).checked_sub(pad[0])?;
            let column = (window % columns * stride[1] + tap % kw * dilation[1]).checked_sub(pad[1])?;
            let plane = image * channels + group * per_group + channel;
            (row < height && column < width).then(|| (plane * height + row) * width + column)
        };
        let windows: Shape = [n, groups, rows * columns, inner].into();
        let places = (0..windows.elements()).map(place);
        let windows = cx.gather("windows", &[x], windows, places)?;
        // Weights as one matrix per group, taps by filters.
        let matrices = weights.reshape([groups, each, inner]);
        let matrices = matrices.view(&View::transpose(&matrices.shape, &[0, 2, 1]));
        let matrices = cx.weights(matrices);
        let matrices = cx.broadcast("weights-of-images", matrices, &[n, groups, inner, each].into())?;
        let y = cx.matmul("product", windows, matrices)?;
        let y = cx.view(
            "filters-first",
            y,
            View::transpose(&[n, groups, rows * columns, each].into(), &[0, 1, 3, 2]),
        )?;
        let y = cx.reshape("images", y, self.shape.clone())?;
        let Some(bias) = inputs.get(2).and_then(FloatOperand::constant) else { return Ok(y) };
        let bias = cx.weights(bias.reshape([out, 1, 1]));
        cx.pair("sum", Operation::Add, y, bias, &self.shape)
    }

    fn scale(&self) -> Scale {
        Scale::Product
    }

    fn gain(&self, constant: Option<(usize, &Tensor)>) -> Option<f64> {
        let [_, per_group, kh, kw] = self.kernel;
        let taps = per_group * kh * kw;
        let sum = |taps: &[f32]| taps.iter().map(|v| f64::from(v.abs())).sum();
        let largest =
            |(_, t): (usize, &Tensor)| t.data.chunks_exact(taps.max(1)).map(sum).fold(0.0, f64::max);
        Some(constant.map_or(taps as f64, largest))
    }

    fn work(&self) -> u64 {
        let [_, per_group, kh, kw] = self.kernel;
        (self.shape.elements() * per_group * kh * kw) as u64
    }
}
