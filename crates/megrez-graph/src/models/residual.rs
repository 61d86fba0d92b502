//! ResNet-18 and ResNet-50 as torchvision defines them, for 224×224 images and 1000 classes.

use super::builder::Builder;
use crate::graph::{Attributes, Id};
use crate::problem::Problem;
use crate::tensor::Tensor;

/// A residual network: how many blocks each of its four stages has, and whether blocks are
/// bottlenecks of three convolutions.
pub(super) fn residual(net: &mut Builder, blocks: [usize; 4], bottleneck: bool) -> Result<(), Problem> {
    let mut x = net.at;
    x = conv(net, "conv1", x, [64, 7, 2, 3], 1.0)?;
    x = net.graph.add("relu1", "Relu", &[x], Attributes::none())?;
    let window =
        Attributes::none().with("kernel_shape", [3, 3]).with("strides", [2, 2]).with("pads", [1, 1, 1, 1]);
    x = net.graph.add("pool1", "MaxPool", &[x], window)?;
    for (stage, count) in blocks.into_iter().enumerate() {
        for block in 0..count {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            x = residual_block(
                net,
                &format!("layer{}.{block}", stage + 1),
                x,
                64 << stage,
                stride,
                bottleneck,
            )?;
        }
    }
    x = net.graph.add("average", "GlobalAveragePool", &[x], Attributes::none())?;
    net.at = net.graph.add("flatten", "Flatten", &[x], Attributes::none())?;
    net.dense(&[1000])
}

fn residual_block(
    net: &mut Builder,
    name: &str,
    x: Id,
    filters: usize,
    stride: usize,
    bottleneck: bool,
) -> Result<Id, Problem> {
    // [filters, kernel, stride, padding]
    let convs: Vec<[usize; 4]> = match bottleneck {
        true => vec![[filters, 1, 1, 0], [filters, 3, stride, 1], [4 * filters, 1, 1, 0]],
        false => vec![[filters, 3, stride, 1], [filters, 3, 1, 1]],
    };
    let mut y = x;
    for (i, &shape) in convs.iter().enumerate() {
        let last = i + 1 == convs.len();
        // A small last scale, as training leaves it, so that sums do not grow from block to block.
        y = conv(net, &format!("{name}.conv{}", i + 1), y, shape, if last { 0.25 } else { 1.0 })?;
        if !last {
            y = net.graph.add(&format!("{name}.relu{}", i + 1), "Relu", &[y], Attributes::none())?;
        }
    }
    let mut shortcut = x;
    if net.graph.shape(x) != net.graph.shape(y) {
        let filters = net.graph.shape(y).dims()[1];
        shortcut = conv(net, &format!("{name}.downsample"), x, [filters, 1, stride, 0], 1.0)?;
    }
    let sum = net.graph.add(&format!("{name}.add"), "Add", &[y, shortcut], Attributes::none())?;
    net.graph.add(&format!("{name}.relu"), "Relu", &[sum], Attributes::none())
}

/// A convolution without bias, and its batch normalisation with this scale.
fn conv(
    net: &mut Builder,
    name: &str,
    x: Id,
    [filters, kernel, stride, pad]: [usize; 4],
    scale: f32,
) -> Result<Id, Problem> {
    let channels = net.graph.shape(x).dims()[1];
    let weight = net.weights.he([filters, channels, kernel, kernel].into(), channels * kernel * kernel);
    let weight = net.graph.constant(&format!("{name}.weight"), weight);
    let attributes = Attributes::none().with("strides", [stride as i64; 2]).with("pads", [pad as i64; 4]);
    let y = net.graph.add(name, "Conv", &[x, weight], attributes)?;
    let offset = net.weights.he([filters].into(), 200);
    let mut inputs = vec![y];
    for (role, values) in [
        ("scale", Tensor::filled([filters], scale)),
        ("offset", offset),
        ("mean", Tensor::filled([filters], 0.0)),
        ("variance", Tensor::filled([filters], 1.0)),
    ] {
        inputs.push(net.graph.constant(&format!("{name}.norm.{role}"), values));
    }
    net.graph.add(&format!("{name}.norm"), "BatchNormalization", &inputs, Attributes::none())
}
