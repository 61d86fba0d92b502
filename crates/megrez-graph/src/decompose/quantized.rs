//! Quantised operators: integers with a scale and a zero point. Integers are computed exactly; what
//! is scaled is rounded as the integers of the original are, but where a number lies within the
//! fixed point's error of a half.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{FIXED_ONLY, axis};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

/// The attribute with the ONNX data type of the result, which the importer knows.
pub(crate) const TO_TYPE: &str = "to_type";

/// An exact product of integers times a small constant, in either order.
pub(crate) const SCALED_BACK: &str = "ScaledBack";

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("ConvInteger", integer_convolution),
    ("DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic),
    ("MatMulInteger", integer_product),
    ("QLinearConv", convolution),
    ("QLinearMatMul", product),
    ("QuantizeLinear", quantize),
    (SCALED_BACK, scaled_back),
];

/// The least and the largest integer of an ONNX data type.
fn limits(element: i64) -> Result<[f32; 2], Refusal> {
    match element {
        2 => Ok([0.0, 255.0]),
        3 => Ok([-128.0, 127.0]),
        _ => refuse("its integers are not of 8 bits", "quantise to uint8 or int8"),
    }
}

/// A scale or a zero point as numbers that broadcast to the data: one, one for each place of an
/// axis, or one for each block of an axis.
fn spread(p: &mut Parts, i: usize, dims: &[usize], at: usize) -> Result<Tensor, Refusal> {
    let t = p.known_floats(i)?;
    let mut shape = vec![1; dims.len()];
    if t.data.len() == 1 {
        return Ok(t.reshape(shape));
    }
    if t.shape.rank() == 1 && t.data.len() == dims[at] {
        shape[at] = dims[at];
        return Ok(t.reshape(shape));
    }
    let block = usize::try_from(p.call().int("block_size", 0)?).unwrap_or(0);
    let blocks = t.shape.dims();
    let same = blocks.len() == dims.len() && (0..dims.len()).all(|d| d == at || blocks[d] == dims[d]);
    if block == 0 || !same || dims[at].div_ceil(block) != blocks[at] {
        return refuse(format!("input {i} does not fit the data"), "");
    }
    let count = super::shapes::few(dims)?.elements();
    let of = |e: usize| {
        let mut place = super::shapes::coordinates(dims, e);
        place[at] /= block;
        t.data[super::shapes::element(blocks, &place)]
    };
    Ok(Tensor::new(dims.to_vec(), (0..count).map(of).collect()))
}

/// x · numbers with 32 fraction bits, as a product with the upper and one with the lower 16.
fn precisely(p: &mut Parts, x: Id, factor: &Tensor) -> Result<Id, Refusal> {
    let high = |v: f64| (v * 65536.0).round() / 65536.0;
    let part = |f: &dyn Fn(f64) -> f64| {
        Tensor::new(factor.shape.clone(), factor.data.iter().map(|&v| f(v.into()) as f32).collect())
    };
    let upper = part(&high);
    let lower = part(&|v| (v - high(v)) * 65536.0);
    let [upper, lower] = [p.constant(upper), p.constant(lower)];
    let [above, below] = [p.times(x, upper)?, p.times(x, lower)?];
    let below = p.affine(below, 1.0 / 65536.0, 0.0)?;
    p.plus(above, below)
}

/// Rounded, moved by a zero point and held within 8 bits.
fn rounded(p: &mut Parts, x: Id, zero: Option<&Tensor>, element: i64) -> Result<Id, Refusal> {
    let [low, high] = limits(element)?;
    let clip = |p: &mut Parts, x: Id, low: f32, high: f32| {
        p.node("Clip", &[x], Attributes::none().with("min", low).with("max", high))
    };
    // Held before, too: there are as many steps to compare with as the range has whole numbers.
    let x = clip(p, x, -512.0, 512.0)?;
    let y = p.node("Round", &[x], Attributes::none().with(FIXED_ONLY, 1))?;
    let y = match zero {
        Some(zero) if zero.data.iter().any(|&v| v != 0.0) => {
            let zero = p.constant(zero.clone());
            p.plus(y, zero)?
        }
        _ => y,
    };
    clip(p, y, low, high)
}

/// The type of the result, which the importer knows.
fn result(p: &Parts) -> Result<i64, Refusal> {
    match p.call().int(TO_TYPE, 0)? {
        0 => p.call().int("output_dtype", 2),
        element => Ok(element),
    }
}

fn quantize(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["axis", "block_size", "output_dtype", "precision", "saturate", TO_TYPE])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let at = if dims.len() > 1 { axis(p.call().int("axis", 1)?, dims.len())? } else { 0 };
    let scale = spread(p, 1, &dims, at)?;
    if scale.data.iter().any(|&v| !(v > 0.0 && v.is_finite())) {
        return refuse("its scale is not positive", "");
    }
    let zero = if p.has(2) { Some(spread(p, 2, &dims, at)?) } else { None };
    let element = result(p)?;
    limits(element)?;
    let inverse = Tensor::new(scale.shape.clone(), scale.data.iter().map(|v| 1.0 / v).collect());
    let y = precisely(p, x, &inverse)?;
    Ok(vec![rounded(p, y, zero.as_ref(), element)?])
}

/// The numbers themselves, scaled by 1 with a zero point of 0: the importer has seen that only
/// products read them, which are scaled back.
fn dynamic(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let [one, zero] = [1.0, 0.0].map(|v| p.constant(Tensor::new([], vec![v])));
    Ok(vec![x, one, zero])
}

fn scaled_back(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let i = usize::from(!p.is_constant(p.input(0)?));
    let (x, factor) = (p.input(1 - i)?, p.known_floats(i)?);
    Ok(vec![precisely(p, x, &factor)?])
}

fn dequantize(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["axis", "block_size", "output_dtype", TO_TYPE])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let at = if dims.len() > 1 { axis(p.call().int("axis", 1)?, dims.len())? } else { 0 };
    let scale = spread(p, 1, &dims, at)?;
    let mut y = x;
    if p.has(2) {
        let zero = spread(p, 2, &dims, at)?;
        let zero = p.constant(zero);
        y = p.minus(y, zero)?;
    }
    Ok(vec![precisely(p, y, &scale)?])
}

/// A factor less its zero point, which may be one for each row or column.
fn centred(p: &mut Parts, i: usize, zero: usize, side: usize) -> Result<Id, Refusal> {
    let x = p.input(i)?;
    let x = match &p.graph.value(x).constant {
        Some(_) => {
            let numbers = p.known_floats(i)?;
            p.constant((*numbers).clone())
        }
        None => x,
    };
    if !p.has(zero) {
        return Ok(x);
    }
    let dims = p.dims(x);
    let at = dims.len().checked_sub(side);
    let Some(at) = at else { return refuse("multiplies scalars", "") };
    let zero = spread(p, zero, &dims, at)?;
    let zero = p.constant(zero);
    p.minus(x, zero)
}

fn integer_product(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(4, &[TO_TYPE])?;
    let [a, b] = [centred(p, 0, 2, 2)?, centred(p, 1, 3, 1)?];
    Ok(vec![p.of("MatMul", &[a, b])?])
}

/// The attributes of a convolution.
const WINDOWS: [&str; 6] = ["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];

/// A convolution of whole numbers, of data and weights less their zero points. Zeros around the
/// data are zero points, so they count for nothing. The bias is added as it is.
fn convolved(p: &mut Parts, at: [usize; 4], bias: Option<usize>) -> Result<Id, Refusal> {
    let [x, zero, weights, zero_of_weights] = at;
    let (x, weights) = (less(p, x, zero, 1)?, less(p, weights, zero_of_weights, 0)?);
    let mut inputs = vec![x, weights];
    if let Some(bias) = bias.filter(|&i| p.has(i)) {
        let numbers = (*p.known_floats(bias)?).clone();
        inputs.push(p.constant(numbers));
    }
    let mut attributes = p.attributes.clone();
    attributes.0.remove(TO_TYPE);
    p.node("Conv", &inputs, attributes)
}

/// A value less its zero point, which may be one for each place of a dimension.
fn less(p: &mut Parts, i: usize, zero: usize, at: usize) -> Result<Id, Refusal> {
    let x = p.input(i)?;
    let x = if p.is_constant(x) {
        let numbers = (*p.known_floats(i)?).clone();
        p.constant(numbers)
    } else {
        x
    };
    if !p.has(zero) {
        return Ok(x);
    }
    let dims = p.dims(x);
    if at >= dims.len() {
        return refuse("convolves values without channels", "");
    }
    let zero = spread(p, zero, &dims, at)?;
    let zero = p.constant(zero);
    p.minus(x, zero)
}

fn integer_convolution(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(4, &[&WINDOWS[..], &[TO_TYPE]].concat())?;
    Ok(vec![convolved(p, [0, 2, 1, 3], None)?])
}

/// Scales of the weights may be one for each channel of the result.
fn convolution(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(9, &[&WINDOWS[..], &[TO_TYPE]].concat())?;
    let y = convolved(p, [0, 2, 3, 5], Some(8))?;
    let dims = p.dims(y);
    let [of_x, of_weights, of_y] = [p.known_floats(1)?, spread(p, 4, &dims, 1)?.into(), p.known_floats(6)?];
    let positive = |t: &Tensor| t.data.iter().all(|&v| v > 0.0 && v.is_finite());
    let zero = (*p.known_floats(7)?).clone();
    if [of_x.data.len(), of_y.data.len(), zero.data.len()] != [1; 3]
        || ![&of_x, &of_weights, &of_y].into_iter().all(|t| positive(t))
    {
        return refuse("has a scale that is not positive, or several for its data", "quantise whole tensors");
    }
    let factor = of_weights.data.iter().map(|w| of_x.data[0] * w / of_y.data[0]).collect();
    let factor = Tensor::new(of_weights.shape.clone(), factor);
    let element = result(p)?;
    let y = precisely(p, y, &factor)?;
    Ok(vec![rounded(p, y, Some(&zero.reshape([])), element)?])
}

fn product(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(8, &[TO_TYPE])?;
    let [a, b] = [centred(p, 0, 2, 2)?, centred(p, 3, 5, 1)?];
    let y = p.of("MatMul", &[a, b])?;
    let mut factors = vec![];
    for i in [1, 4, 6] {
        match p.known_floats(i)?.data[..] {
            [v] if v > 0.0 && v.is_finite() => factors.push(v),
            _ => return refuse("has a scale that is not one positive number", "quantise whole tensors"),
        }
    }
    let factor = Tensor::new([], vec![factors[0] * factors[1] / factors[2]]);
    let zero = (*p.known_floats(7)?).clone();
    if zero.data.len() != 1 {
        return refuse("has a zero point that is not one number", "quantise whole tensors");
    }
    let element = result(p)?;
    let y = precisely(p, y, &factor)?;
    Ok(vec![rounded(p, y, Some(&zero.reshape([])), element)?])
}
