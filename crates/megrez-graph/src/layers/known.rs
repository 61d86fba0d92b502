//! Operators on shapes, indices and masks: Range, ConstantOfShape, Equal, Where on constants, …
//! Exporters leave them in models to compute shapes and attention masks. Their results are known
//! when compiling, so none of them reaches a plan.

use super::call::{Call, axis};
use crate::graph::Attribute;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_plan::View;
use megrez_ring::Shape;
use std::sync::Arc;

/// The most elements of such a result: weights of the light models of ONNX, which are made so.
const MOST: usize = 1 << 27;

/// A node whose result is known.
pub(super) struct Known(Constant);

impl Layer for Known {
    fn shape(&self) -> &Shape {
        self.0.shape()
    }

    fn plain(&self, _inputs: &[&Tensor]) -> Tensor {
        match &self.0 {
            Constant::Floats(t) => (**t).clone(),
            Constant::Ints(t) => Tensor::new(t.shape.clone(), t.data.iter().map(|&v| v as f32).collect()),
            Constant::Public(p) => p.tensor(),
        }
    }

    fn known(&self) -> Option<Constant> {
        Some(self.0.clone())
    }

    fn lower(&self, _cx: &mut Lowering, _inputs: &[Operand]) -> Result<Secret, Refusal> {
        refuse("is a constant that no pass folded", "use Graph::constant")
    }
}

/// A layer that is nothing but its result.
pub(super) fn known(result: impl Into<Constant>) -> Result<Arc<dyn Layer>, Refusal> {
    Ok(Arc::new(Known(result.into())))
}

fn bounded(shape: Shape) -> Result<Shape, Refusal> {
    match shape.clone().checked() {
        Ok(s) if s.elements() <= MOST => Ok(s),
        _ => refuse(format!("makes a constant of shape {shape}"), "compute it before you export the model"),
    }
}

/// An input that must be integers known when compiling.
fn ints<'a>(call: &'a Call, input: usize) -> Result<&'a Arc<Tensor<i64>>, Refusal> {
    let value = call.graph.value(call.id(input)?);
    match &value.constant {
        Some(Constant::Ints(t)) => Ok(t),
        _ => refuse(
            format!("input {input} (`{}`) must be integers known when compiling", value.name),
            "export the model with static shapes, or make the input that they come from a constant: --constant NAME=1, in Python constants={…}",
        ),
    }
}

/// Whether an input holds integers known when compiling.
pub(super) fn is_ints(call: &Call, input: usize) -> bool {
    ints(call, input).is_ok()
}

/// Element by element with NumPy's broadcast.
fn zip<T: Copy, R: Copy>(
    a: &Tensor<T>,
    b: &Tensor<T>,
    f: impl Fn(T, T) -> Result<R, Refusal>,
) -> Result<Tensor<R>, Refusal> {
    let Ok(shape) = a.shape.broadcast(&b.shape) else {
        return refuse(format!("the shapes {} and {} do not broadcast", a.shape, b.shape), "");
    };
    let shape = bounded(shape)?;
    let view = |t: &Tensor<T>| View::broadcast(&t.shape, &shape).expect("they broadcast");
    let (va, vb) = (view(a), view(b));
    let data = va.indices().zip(vb.indices()).map(|(i, j)| f(a.data[i], b.data[j]));
    Ok(Tensor::new(shape.clone(), data.collect::<Result<_, _>>()?))
}

/// Add, Sub, Mul, Div, Mod, Min, Max and Pow of integers.
pub(super) fn arithmetic(call: &Call, op: &str) -> Result<Arc<dyn Layer>, Refusal> {
    let overflow = || Refusal::new("computes integers that do not fit 64 bits", "");
    let f = |a: i64, b: i64| match op {
        "Add" => a.checked_add(b),
        "Sub" => a.checked_sub(b),
        "Mul" => a.checked_mul(b),
        "Div" => a.checked_div(b),
        "Mod" => a.checked_rem_euclid(b),
        "Min" => Some(a.min(b)),
        "Max" => Some(a.max(b)),
        _ => a.checked_pow(u32::try_from(b).ok()?),
    };
    known(zip(ints(call, 0)?, ints(call, 1)?, |a, b| f(a, b).ok_or_else(overflow))?)
}

pub(super) fn negative(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    let x = ints(call, 0)?;
    known(Tensor::new(x.shape.clone(), x.data.iter().map(|v| v.wrapping_neg()).collect::<Vec<i64>>()))
}

pub(super) fn magnitude(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    let x = ints(call, 0)?;
    known(Tensor::new(x.shape.clone(), x.data.iter().map(|v| v.saturating_abs()).collect::<Vec<i64>>()))
}

/// Mod, Min and Max, which are there for integers only.
pub(super) fn modulo(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["fmod"])?;
    arithmetic(call, "Mod")
}

pub(super) fn compare(call: &Call, f: fn(f64, f64) -> bool) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &[])?;
    let side = |input: usize| -> Result<Tensor<f64>, Refusal> {
        let value = call.graph.value(call.id(input)?);
        match &value.constant {
            Some(Constant::Ints(t)) => {
                Ok(Tensor::new(t.shape.clone(), t.data.iter().map(|&v| v as f64).collect()))
            }
            Some(Constant::Floats(t)) => {
                Ok(Tensor::new(t.shape.clone(), t.data.iter().map(|&v| v.into()).collect()))
            }
            Some(Constant::Public(_)) | None => refuse(
                format!("compares `{}`, which is secret", value.name),
                "express it with Relu, Clip, Max or a mask that is a constant",
            ),
        }
    };
    known(zip(&side(0)?, &side(1)?, |a, b| Ok(i64::from(f(a, b))))?)
}

pub(super) fn equal(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a == b)
}

pub(super) fn greater(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a > b)
}

pub(super) fn greater_or_equal(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a >= b)
}

pub(super) fn less(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a < b)
}

pub(super) fn less_or_equal(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a <= b)
}

pub(super) fn and(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a != 0.0 && b != 0.0)
}

pub(super) fn or(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| a != 0.0 || b != 0.0)
}

pub(super) fn xor(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    compare(call, |a, b| (a != 0.0) != (b != 0.0))
}

pub(super) fn not(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    let x = ints(call, 0)?;
    known(Tensor::new(x.shape.clone(), x.data.iter().map(|&v| i64::from(v == 0)).collect::<Vec<i64>>()))
}

/// Nothing on shares is "not a number".
pub(super) fn is_nan(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    known(Tensor::filled(bounded(call.any_shape(0)?.clone())?, 0i64))
}

/// Nothing on shares is infinite.
pub(super) fn is_infinite(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["detect_negative", "detect_positive"])?;
    known(Tensor::filled(bounded(call.any_shape(0)?.clone())?, 0i64))
}

/// The numbers from `start` to before `limit` by `delta`.
pub(super) fn range(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(3, &[])?;
    if let Some(numbers) = range_of_reals(call)? {
        return known(numbers);
    }
    let one = |input: usize| match ints(call, input)?.data[..] {
        [v] => Ok(v),
        _ => refuse(format!("input {input} is not one number"), ""),
    };
    let (start, limit, delta) = (one(0)?, one(1)?, one(2)?);
    let span = i128::from(limit) - i128::from(start);
    if delta == 0 || span * i128::from(delta.signum()) <= 0 {
        return refuse("makes no numbers", "");
    }
    let count = span.unsigned_abs().div_ceil(u128::from(delta.unsigned_abs()));
    let shape = bounded([usize::try_from(count).unwrap_or(usize::MAX)].into())?;
    let numbers: Vec<i64> = (0..shape.elements() as i64).map(|i| start + i * delta).collect();
    known(Tensor::new(shape, numbers))
}

/// The numbers from `start` to before `limit` by `delta`, if those are constants and no integers.
fn range_of_reals(call: &Call) -> Result<Option<Tensor>, Refusal> {
    let mut given = vec![];
    for input in 0..3 {
        match call.graph.floats(call.id(input)?).map(|t| &t.data[..]) {
            Some(&[v]) => given.push(f64::from(v)),
            _ => return Ok(None),
        }
    }
    let (start, delta) = (given[0], given[2]);
    let count = ((given[1] - start) / delta).ceil();
    if count.is_nan() || count < 1.0 {
        return refuse("makes no numbers", "");
    }
    let shape = bounded([count as usize].into())?;
    let numbers = (0..shape.elements()).map(|i| (start + i as f64 * delta) as f32).collect();
    Ok(Some(Tensor::new(shape, numbers)))
}

pub(super) fn constant_of_shape(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &["value"])?;
    let dims = ints(call, 0)?.data.iter().map(|&d| usize::try_from(d));
    let Ok(dims) = dims.collect::<Result<Vec<usize>, _>>() else { return refuse("has a negative size", "") };
    let shape = bounded(dims.into())?;
    match call.attributes.0.get("value") {
        None => known(Tensor::filled(shape, 0f32)),
        Some(Attribute::Tensor(Constant::Floats(v))) if v.data.len() == 1 => {
            known(Tensor::filled(shape, v.data[0]))
        }
        Some(Attribute::Tensor(Constant::Ints(v))) if v.data.len() == 1 => {
            known(Tensor::filled(shape, v.data[0]))
        }
        _ => refuse("`value` is not one number", ""),
    }
}

/// The lower or upper triangle of the last two dimensions.
pub(super) fn trilu(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["upper"])?;
    let upper = call.int("upper", 1)? != 0;
    let k = if call.has(1) { ints(call, 1)?.data.first().copied().unwrap_or(0) } else { 0 };
    let shape = call.any_shape(0)?.clone();
    let &[.., rows, columns] = shape.dims() else { return refuse("takes matrices", "") };
    let keeps = |i: usize| {
        let (r, c) = ((i / columns % rows) as i64, (i % columns) as i64);
        if upper { c - r >= k } else { c - r <= k }
    };
    match &call.graph.value(call.id(0)?).constant {
        Some(Constant::Ints(t)) => {
            let data: Vec<i64> =
                t.data.iter().enumerate().map(|(i, &v)| if keeps(i) { v } else { 0 }).collect();
            known(Tensor::new(shape.clone(), data))
        }
        Some(Constant::Floats(t)) => {
            let data: Vec<f32> =
                t.data.iter().enumerate().map(|(i, &v)| if keeps(i) { v } else { 0.0 }).collect();
            known(Tensor::new(shape.clone(), data))
        }
        Some(Constant::Public(_)) | None => {
            refuse("takes the triangle of a secret", "multiply by a constant of zeros and ones")
        }
    }
}

/// Cast between kinds of constants: the ONNX data types 1, 10, 11 and 16 are real numbers, 9 truth
/// values, 2 to 7, 12 and 13 integers.
pub(super) fn cast(constant: &Constant, to: i64) -> Result<Arc<dyn Layer>, Refusal> {
    let shape = constant.shape().clone();
    match (constant, to) {
        (Constant::Ints(t), 2..=7 | 12 | 13) => known(Constant::Ints(t.clone())),
        (Constant::Ints(t), 9) => {
            known(Tensor::new(shape, t.data.iter().map(|&v| i64::from(v != 0)).collect::<Vec<i64>>()))
        }
        (Constant::Ints(t), 1 | 10 | 11 | 16) => {
            known(Tensor::new(shape, t.data.iter().map(|&v| v as f32).collect::<Vec<f32>>()))
        }
        (Constant::Floats(t), 1 | 10 | 11 | 16) => known(Constant::Floats(t.clone())),
        (Constant::Floats(t), 2..=7 | 12 | 13) => {
            known(Tensor::new(shape, t.data.iter().map(|&v| v as i64).collect::<Vec<i64>>()))
        }
        (Constant::Floats(t), 9) => {
            known(Tensor::new(shape, t.data.iter().map(|&v| i64::from(v != 0.0)).collect::<Vec<i64>>()))
        }
        _ => {
            refuse(format!("casts to the ONNX data type {to}"), "keep values in float32 and shapes in int64")
        }
    }
}

/// The number of elements.
pub(super) fn size(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(1, &[])?;
    known(Tensor::new([], vec![call.any_shape(0)?.elements() as i64]))
}

/// The product of integers, as exporters compute sizes.
pub(super) fn product(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axes", "keepdims", "noop_with_empty_axes"])?;
    let x = ints(call, 0)?;
    let Some(product) = x.data.iter().try_fold(1i64, |p, &v| p.checked_mul(v)) else {
        return refuse("computes integers that do not fit 64 bits", "");
    };
    let whole = call.integers(1, "axes")?.is_none_or(|axes| axes.len() == x.shape.rank());
    if !whole {
        return refuse("reduces some dimensions of integers", "export the model with static shapes");
    }
    let keep = call.int("keepdims", 1)? != 0;
    known(Tensor::new(vec![1; if keep { x.shape.rank() } else { 0 }], vec![product]))
}

/// Sums along an axis, each with all before it.
pub(super) fn cumulative_sum(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["exclusive", "reverse"])?;
    if call.int("exclusive", 0)? != 0 || call.int("reverse", 0)? != 0 {
        return refuse("sums exclusively or in reverse", "");
    }
    let x = ints(call, 0)?;
    let at = axis(ints(call, 1)?.data.first().copied().unwrap_or(0), x.shape.rank())?;
    let (stride, count) = (x.shape.strides()[at], x.shape.dims()[at]);
    let mut data = x.data.clone();
    for i in (0..data.len()).filter(|i| i / stride % count > 0) {
        data[i] = data[i].saturating_add(data[i - stride]);
    }
    known(Tensor::new(x.shape.clone(), data))
}

/// Elements by constant index along an axis.
pub(super) fn gather_elements(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(2, &["axis"])?;
    let (x, indices) = (ints(call, 0)?, ints(call, 1)?);
    let rank = x.shape.rank();
    let along = axis(call.int("axis", 0)?, rank)?;
    let fits = |d: usize| d == along || indices.shape.dims()[d] <= x.shape.dims()[d];
    if indices.shape.rank() != rank || !(0..rank).all(fits) {
        return refuse(format!("the indices {} do not fit {}", indices.shape, x.shape), "");
    }
    let size = x.shape.dims()[along] as i64;
    // Every element stands where its index stands, but for the axis.
    let strides = x.shape.strides();
    let mut view = View::whole(indices.shape.clone());
    view.strides =
        strides.iter().enumerate().map(|(d, &s)| if d == along { 0 } else { s as isize }).collect();
    let pick = |(at, &i): (usize, &i64)| {
        let place = if i < 0 { i.saturating_add(size) } else { i };
        let inside = usize::try_from(place).ok().filter(|_| place < size);
        inside
            .map(|p| x.data[at + p * strides[along]])
            .ok_or_else(|| Refusal::new(format!("index {i} is outside of an axis of {size}"), ""))
    };
    let data = view.indices().zip(&indices.data).map(pick).collect::<Result<Vec<i64>, _>>()?;
    known(Tensor::new(bounded(indices.shape.clone())?, data))
}
