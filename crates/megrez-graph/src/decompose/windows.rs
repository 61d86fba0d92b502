//! Convolutions and pools of any number of dimensions, made of those of images; ConvTranspose.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::problem::{Refusal, refuse};

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("AveragePool", average_pool),
    ("Conv", conv),
    ("ConvTranspose", conv_transpose),
    ("GlobalAveragePool", global_average_pool),
    ("GlobalLpPool", global_lp_pool),
    ("GlobalMaxPool", global_max_pool),
    ("LpPool", lp_pool),
    ("MaxPool", max_pool),
];

/// The windows of a node along one dimension.
#[derive(Clone, Copy)]
struct Axis {
    kernel: usize,
    stride: usize,
    dilation: usize,
    pad: [usize; 2],
}

/// Windows may be so long, and reach so far.
const MOST: usize = 1 << 20;

impl Axis {
    /// From the first to the last tap.
    fn reach(&self) -> usize {
        (self.kernel - 1) * self.dilation + 1
    }
}

/// The node's sizes under a name; ones where it is left out.
fn sizes(p: &Parts, name: &str, count: usize, default: usize) -> Result<Vec<usize>, Refusal> {
    let Some(list) = p.call().ints(name)? else { return Ok(vec![default; count]) };
    let sizes: Vec<usize> =
        list.iter().filter_map(|&v| usize::try_from(v).ok()).filter(|&v| v < MOST).collect();
    if sizes.len() != count || list.len() != count {
        return refuse(format!("`{name}` = {list:?} is not {count} sizes"), "");
    }
    Ok(sizes)
}

/// The windows along the dimensions of this image, with `auto_pad` worked out.
fn axes(p: &Parts, image: &[usize], kernel: Option<&[usize]>) -> Result<Vec<Axis>, Refusal> {
    let n = image.len();
    let kernels = match kernel {
        Some(kernel) => kernel.to_vec(),
        None => sizes(p, "kernel_shape", n, 0)?,
    };
    let (strides, dilations) = (sizes(p, "strides", n, 1)?, sizes(p, "dilations", n, 1)?);
    if [&kernels, &strides, &dilations].iter().any(|list| list.contains(&0)) {
        return refuse("kernel, strides and dilations are at least 1", "");
    }
    let pads = sizes(p, "pads", 2 * n, 0)?;
    let auto = p.call().string("auto_pad", "NOTSET")?;
    (0..n)
        .map(|d| {
            let mut axis = Axis {
                kernel: kernels[d],
                stride: strides[d],
                dilation: dilations[d],
                pad: [pads[d], pads[n + d]],
            };
            let windows = image[d].div_ceil(axis.stride);
            let total = ((windows - 1) * axis.stride + axis.reach()).saturating_sub(image[d]);
            match auto.as_str() {
                "NOTSET" => {}
                "VALID" => axis.pad = [0; 2],
                "SAME_UPPER" => axis.pad = [total / 2, total - total / 2],
                "SAME_LOWER" => axis.pad = [total - total / 2, total / 2],
                other => return refuse(format!("`auto_pad` = `{other}` is not known"), "give `pads`"),
            }
            Ok(axis)
        })
        .collect()
}

/// Windows along some dimensions as attributes of a node.
fn attributes(axes: &[Axis]) -> Attributes {
    let list = |f: fn(&Axis) -> usize| axes.iter().map(|a| f(a) as i64).collect::<Vec<i64>>();
    Attributes::none()
        .with("kernel_shape", list(|a| a.kernel))
        .with("strides", list(|a| a.stride))
        .with("dilations", list(|a| a.dilation))
        .with("pads", [list(|a| a.pad[0]), list(|a| a.pad[1])].concat())
}

/// One window of one place: a dimension that a pool leaves alone.
const ALONE: Axis = Axis { kernel: 1, stride: 1, dilation: 1, pad: [0; 2] };

fn images(p: &Parts) -> Result<Vec<usize>, Refusal> {
    let dims = p.call().shape(0)?.dims().to_vec();
    match dims.len() {
        3..=5 => Ok(dims),
        _ => refuse(format!("takes [N, C, …] with 1 to 3 more dimensions, got {dims:?}"), ""),
    }
}

fn conv(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let dims = images(p)?;
    if dims.len() == 4 {
        return p.itself();
    }
    p.call().only(3, &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])?;
    let (x, weights) = (p.input(0)?, p.input(1)?);
    let kernel = p.dims(weights);
    if kernel.len() != dims.len() {
        return refuse("the kernel has another number of dimensions than the data", "");
    }
    let axes = axes(p, &dims[2..], Some(&kernel[2..]))?;
    let group = p.call().int("group", 1)?;
    let bias = p.inputs.get(2).copied().flatten();
    Ok(vec![convolve(p, x, weights, bias, &axes, group)?])
}

/// A convolution along one to three dimensions.
fn convolve(
    p: &mut Parts,
    x: Id,
    weights: Id,
    bias: Option<Id>,
    axes: &[Axis],
    group: i64,
) -> Result<Id, Refusal> {
    let (dims, kernel) = (p.dims(x), p.dims(weights));
    let with = |p: &mut Parts, x: Id, weights: Id, bias: Option<Id>, axes: &[Axis]| {
        let inputs: Vec<Id> = [x, weights].into_iter().chain(bias).collect();
        p.node("Conv", &inputs, attributes(axes).with("group", group))
    };
    let (n, channels) = (dims[0], dims[1]);
    match axes {
        [axis] => {
            let image = p.reshape(x, &[n, channels, 1, dims[2]])?;
            let weights = p.reshape(weights, &[kernel[0], kernel[1], 1, kernel[2]])?;
            let y = with(p, image, weights, bias, &[ALONE, *axis])?;
            let to = p.dims(y);
            p.reshape(y, &[to[0], to[1], to[3]])
        }
        [_, _] => with(p, x, weights, bias, axes),
        // One convolution of images per place of the kernel in depth, all depths at once.
        [depth, image @ ..] => {
            let mut pads = [0i64; 10];
            [pads[2], pads[7]] = depth.pad.map(|p| p as i64);
            let padded = p.node("Pad", &[x], Attributes::none().with("pads", pads))?;
            let size = dims[2] + depth.pad[0] + depth.pad[1];
            let Some(space) = size.checked_sub(depth.reach()) else {
                return refuse("the kernel is deeper than the data", "");
            };
            let windows = space / depth.stride + 1;
            let mut sum = None;
            for k in 0..depth.kernel {
                let places: Vec<usize> =
                    (0..windows).map(|o| o * depth.stride + k * depth.dilation).collect();
                let slices = p.gather(padded, 2, &places)?;
                let slices = p.transpose(slices, &[0, 2, 1, 3, 4])?;
                let slices = p.reshape(slices, &[n * windows, channels, dims[3], dims[4]])?;
                let taps = p.gather(weights, 2, &[k])?;
                let taps = p.reshape(taps, &[kernel[0], kernel[1], kernel[3], kernel[4]])?;
                let y = with(p, slices, taps, bias.filter(|_| k == 0), image)?;
                sum = Some(match sum {
                    None => y,
                    Some(sum) => p.plus(sum, y)?,
                });
            }
            let Some(sum) = sum else { return refuse("the kernel is empty", "") };
            let to = p.dims(sum);
            let y = p.reshape(sum, &[n, windows, to[1], to[2], to[3]])?;
            p.transpose(y, &[0, 2, 1, 3, 4])
        }
        [] => refuse("takes [N, C, …]", ""),
    }
}

/// A convolution of the data with zeros between its elements, and of the kernel turned around.
fn conv_transpose(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(
        3,
        &[
            "auto_pad",
            "dilations",
            "group",
            "kernel_shape",
            "output_padding",
            "output_shape",
            "pads",
            "strides",
        ],
    )?;
    let dims = images(p)?;
    let n = dims.len() - 2;
    let (x, weights) = (p.input(0)?, p.input(1)?);
    let kernel = p.dims(weights);
    let group = usize::try_from(p.call().int("group", 1)?).unwrap_or(0);
    if kernel.len() != dims.len() || kernel[0] != dims[1] || group == 0 || dims[1] % group != 0 {
        return refuse("the kernel does not fit the data", "");
    }
    let mut extra = sizes(p, "output_padding", n, 0)?;
    let wanted = match p.attributes.0.contains_key("output_shape") {
        true => Some(sizes(p, "output_shape", n, 0)?),
        false => None,
    };
    let auto = p.call().string("auto_pad", "NOTSET")?;
    let image = &dims[2..];
    let mut axes = axes(p, image, Some(&kernel[2..]))?;
    for (d, axis) in axes.iter_mut().enumerate() {
        let same = auto.starts_with("SAME").then_some(image[d] * axis.stride);
        if let Some(size) = wanted.as_ref().map(|w| w[d]).or(same) {
            let full = (image[d] - 1) * axis.stride + extra[d] + axis.reach();
            // More than there is: zeros at the end.
            extra[d] += size.saturating_sub(full);
            let total = full.saturating_sub(size);
            let (small, large) = (total / 2, total - total / 2);
            axis.pad = if auto == "SAME_UPPER" { [small, large] } else { [large, small] };
        }
    }
    // Zeros between elements: each becomes a row of `stride` elements, the first of them itself.
    let spread: Vec<usize> = image.iter().flat_map(|&d| [d, 1]).collect();
    let mut y = p.reshape(x, &[&dims[..2], &spread].concat())?;
    let mut pads = vec![0i64; 2 * (2 + 2 * n)];
    for (d, axis) in axes.iter().enumerate() {
        pads[2 + 2 * n + 3 + 2 * d] = axis.stride as i64 - 1;
    }
    y = p.node("Pad", &[y], Attributes::none().with("pads", pads))?;
    let long: Vec<usize> = image.iter().zip(&axes).map(|(d, axis)| d * axis.stride).collect();
    y = p.reshape(y, &[&dims[..2], &long].concat())?;
    for (d, axis) in axes.iter_mut().enumerate() {
        // What is left of the reach once the pads are taken away; less than nothing cuts the data.
        let reach = axis.reach() as i64 - 1;
        let around = [reach - axis.pad[0] as i64, reach - axis.pad[1] as i64 + extra[d] as i64];
        let size = long[d] - (axis.stride - 1);
        let cut = around.map(|side| usize::try_from(-side).unwrap_or(0));
        if cut[0] + cut[1] >= size {
            return refuse("its pads leave nothing", "");
        }
        y = p.slice(y, 2 + d, cut[0]..size - cut[1])?;
        *axis = Axis { stride: 1, pad: around.map(|side| usize::try_from(side).unwrap_or(0)), ..*axis };
    }
    let per_group = kernel[1];
    let turned: Vec<usize> = [0, 2, 1].into_iter().chain(3..3 + n).collect();
    let mut w = p.reshape(weights, &[&[group, dims[1] / group, per_group], &kernel[2..]].concat())?;
    w = p.transpose(w, &turned)?;
    w = p.reshape(w, &[&[group * per_group, dims[1] / group], &kernel[2..]].concat())?;
    for (d, &size) in kernel[2..].iter().enumerate() {
        w = p.gather(w, 2 + d, &(0..size).rev().collect::<Vec<_>>())?;
    }
    let bias = p.inputs.get(2).copied().flatten();
    Ok(vec![convolve(p, y, w, bias, &axes, group as i64)?])
}

/// A pool along one or three dimensions; a window of three is one of two in a window of one.
fn pool(p: &mut Parts, op: &str, x: Id, axes: &[Axis], more: &Attributes) -> Result<Id, Refusal> {
    let dims = p.dims(x);
    let (n, c) = (dims[0], dims[1]);
    let with = |p: &mut Parts, x: Id, axes: [Axis; 2]| {
        let mut attributes = attributes(&axes);
        attributes.0.extend(more.0.clone());
        p.node(op, &[x], attributes)
    };
    match *axes {
        [axis] => {
            let y = p.reshape(x, &[n, c, 1, dims[2]])?;
            let y = with(p, y, [ALONE, axis])?;
            let to = p.dims(y);
            p.reshape(y, &[n, c, to[3]])
        }
        [rows, columns] => with(p, x, [rows, columns]),
        [depth, rows, columns] => {
            let y = p.reshape(x, &[n, c * dims[2], dims[3], dims[4]])?;
            let y = with(p, y, [rows, columns])?;
            let to = p.dims(y);
            let y = p.reshape(y, &[n, c, dims[2], to[2] * to[3]])?;
            let y = with(p, y, [depth, ALONE])?;
            let depth = p.dims(y)[2];
            p.reshape(y, &[n, c, depth, to[2], to[3]])
        }
        _ => refuse("takes [N, C, …]", ""),
    }
}

/// The attributes of these names.
fn some(p: &Parts, names: &[&str]) -> Attributes {
    let mut attributes = p.attributes.clone();
    attributes.0.retain(|name, _| names.contains(&name.as_str()));
    attributes
}

fn max_pool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let dims = images(p)?;
    if dims.len() == 4 {
        return p.itself();
    }
    p.call().only(
        1,
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"],
    )?;
    let axes = axes(p, &dims[2..], None)?;
    let more = some(p, &["ceil_mode"]);
    let x = p.input(0)?;
    Ok(vec![pool(p, "MaxPool", x, &axes, &more)?])
}

fn average_pool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let dims = images(p)?;
    if dims.len() == 4 {
        return p.itself();
    }
    p.call().only(
        1,
        &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"],
    )?;
    let axes = axes(p, &dims[2..], None)?;
    if p.call().int("ceil_mode", 0)? != 0 && p.call().int("count_include_pad", 0)? != 0 {
        return refuse(
            "counts padding in windows that reach beyond it, where implementations differ",
            "leave out `ceil_mode` or `count_include_pad`",
        );
    }
    let more = some(p, &["ceil_mode", "count_include_pad"]);
    let x = p.input(0)?;
    Ok(vec![pool(p, "AveragePool", x, &axes, &more)?])
}

/// (Σ |x|^p)^(1/p) of each window, as an average times the number of its elements.
fn lp_pool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "p", "pads", "strides"])?;
    if p.call().int("ceil_mode", 0)? != 0 {
        return refuse("`ceil_mode` is not supported here", "pad the data");
    }
    let dims = images(p)?;
    let axes = axes(p, &dims[2..], None)?;
    let norm = p.call().int("p", 2)?;
    let x = p.input(0)?;
    let powers = to_the(p, x, norm)?;
    let count: usize = axes.iter().map(|axis| axis.kernel).product();
    let mean = pool(p, "AveragePool", powers, &axes, &Attributes::none().with("count_include_pad", 1))?;
    let sum = p.affine(mean, count as f32, 0.0)?;
    Ok(vec![root(p, sum, norm)?])
}

/// |x|^p.
fn to_the(p: &mut Parts, x: Id, norm: i64) -> Result<Id, Refusal> {
    match norm {
        1 => p.of("Abs", &[x]),
        2 => p.power(x, 2.0),
        3..=8 => {
            let size = p.of("Abs", &[x])?;
            p.power(size, norm as f32)
        }
        other => refuse(format!("takes the norm {other}"), "use 1 to 8"),
    }
}

fn root(p: &mut Parts, x: Id, norm: i64) -> Result<Id, Refusal> {
    match norm {
        1 => Ok(x),
        2 => p.of("Sqrt", &[x]),
        _ => p.power(x, 1.0 / norm as f32),
    }
}

/// All dimensions after the channels reduced.
fn global(p: &mut Parts, op: &str, x: Id) -> Result<Id, Refusal> {
    let axes: Vec<usize> = (2..p.dims(x).len()).collect();
    if axes.is_empty() {
        return refuse("takes [N, C, …]", "");
    }
    let axes = p.ints(&axes);
    p.of(op, &[x, axes])
}

fn global_average_pool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if p.call().shape(0)?.rank() == 4 {
        return p.itself();
    }
    let x = p.input(0)?;
    Ok(vec![global(p, "ReduceMean", x)?])
}

fn global_max_pool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    Ok(vec![global(p, "ReduceMax", x)?])
}

fn global_lp_pool(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["p"])?;
    let norm = p.call().int("p", 2)?;
    let x = p.input(0)?;
    let powers = to_the(p, x, norm)?;
    let sum = global(p, "ReduceSum", powers)?;
    Ok(vec![root(p, sum, norm)?])
}
