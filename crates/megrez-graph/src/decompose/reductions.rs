//! Reductions that are made of sums, maxima and functions of one number; running sums.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{Lines, axis};
use crate::problem::{Refusal, refuse};

/// The attribute of a Softmax whose dimensions from the axis on are one, as up to operator set 12.
pub(crate) const FLATTENED: &str = "flattened";

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("CumProd", cumulative_product),
    ("CumSum", cumulative_sum),
    ("LogSoftmax", soft),
    ("ReduceL1", l1),
    ("ReduceL2", l2),
    ("ReduceLogSum", log_sum),
    ("ReduceLogSumExp", log_sum_exp),
    ("ReduceMax", plain),
    ("ReduceMean", plain),
    ("ReduceMin", plain),
    ("ReduceProd", product),
    ("ReduceSum", plain),
    ("ReduceSumSquare", sum_square),
    ("Softmax", soft),
];

/// Whether the node reduces along no dimension, because it says so and names none.
fn reduces_nothing(p: &Parts) -> Result<bool, Refusal> {
    let call = p.call();
    let none = call.integers(1, "axes")?.unwrap_or_default().is_empty();
    Ok(none && call.int("noop_with_empty_axes", 0)? != 0)
}

/// x reduced by another operator along the node's dimensions.
fn reduced(p: &mut Parts, op: &str, x: Id) -> Result<Id, Refusal> {
    let attributes = p.attributes.clone();
    let mut inputs = vec![x];
    inputs.extend(p.inputs.get(1).copied().flatten());
    p.node(op, &inputs, attributes)
}

fn plain(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if reduces_nothing(p)? { Ok(vec![p.input(0)?]) } else { p.itself() }
}

fn l1(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    let sizes = p.of("Abs", &[x])?;
    Ok(vec![reduced(p, "ReduceSum", sizes)?])
}

fn squares(p: &mut Parts) -> Result<Id, Refusal> {
    let x = p.input(0)?;
    let squares = p.power(x, 2.0)?;
    reduced(p, "ReduceSum", squares)
}

fn sum_square(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    Ok(vec![squares(p)?])
}

fn l2(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let squares = squares(p)?;
    Ok(vec![p.of("Sqrt", &[squares])?])
}

fn log_sum(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    let sum = reduced(p, "ReduceSum", x)?;
    Ok(vec![p.of("Log", &[sum])?])
}

/// The node's input as rows that are reduced, and the shape of the result.
fn rows(p: &mut Parts) -> Result<(Id, usize, Vec<usize>), Refusal> {
    p.call().only(2, &["axes", "keepdims", "noop_with_empty_axes"])?;
    let (lines, axes) = Lines::of_call(&p.call())?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let keep = p.call().int("keepdims", 1)? != 0;
    let kept = dims.iter().enumerate().filter(|(d, _)| keep || !axes.contains(d));
    let shape = kept.map(|(d, &n)| if axes.contains(&d) { 1 } else { n }).collect();
    let moved = p.transpose(x, lines.order())?;
    Ok((p.reshape(moved, &[lines.rows, lines.size])?, lines.size, shape))
}

/// x₀ − ln softmax(x)₀, which stays in range whatever the numbers are.
fn log_sum_exp(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if reduces_nothing(p)? {
        return Ok(vec![p.input(0)?]);
    }
    let (x, _, shape) = rows(p)?;
    let soft = p.node("LogSoftmax", &[x], Attributes::none().with("axis", 1))?;
    let [x, soft] = [p.slice(x, 1, 0..1)?, p.slice(soft, 1, 0..1)?];
    let y = p.minus(x, soft)?;
    Ok(vec![p.reshape(y, &shape)?])
}

/// Pairs are multiplied until one number is left.
fn product(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    if p.is_constant(x) {
        return p.itself();
    }
    if reduces_nothing(p)? {
        return Ok(vec![x]);
    }
    let (mut x, mut n, shape) = rows(p)?;
    while n > 1 {
        let half = n / 2;
        let [low, high] = [p.slice(x, 1, 0..half)?, p.slice(x, 1, half..2 * half)?];
        let mut products = p.times(low, high)?;
        if n % 2 == 1 {
            let odd = p.slice(x, 1, n - 1..n)?;
            products = p.concat(&[products, odd], 1)?;
        }
        (x, n) = (products, n - half);
    }
    Ok(vec![p.reshape(x, &shape)?])
}

/// One operator on 1, 2, 4, … numbers before each, so that log n of it do. `neutral` stands where
/// there is no number before.
fn cumulative(p: &mut Parts, op: &str, neutral: f32) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["exclusive", "reverse"])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let [at] = p.known_ints(1)?.data[..] else { return refuse("its axis is not one number", "") };
    let axis = axis(at, dims.len())?;
    let (exclusive, reverse) = (p.call().int("exclusive", 0)? != 0, p.call().int("reverse", 0)? != 0);
    let n = dims[axis];
    // What stands `by` places before.
    let moved = |p: &mut Parts, x: Id, by: usize| {
        if by >= n {
            return p.affine(x, 0.0, neutral);
        }
        let kept = p.slice(x, axis, if reverse { by..n } else { 0..n - by })?;
        let mut pads = vec![0i64; 2 * dims.len()];
        pads[if reverse { dims.len() + axis } else { axis }] = by as i64;
        p.node("Pad", &[kept], Attributes::none().with("pads", pads).with("value", neutral))
    };
    let mut results = if exclusive { moved(p, x, 1)? } else { x };
    let mut by = 1;
    while by < n {
        let before = moved(p, results, by)?;
        results = p.of(op, &[results, before])?;
        by *= 2;
    }
    Ok(vec![results])
}

/// All local.
fn cumulative_sum(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    if p.is_constant(x) && p.call().shape(0).is_err() {
        return p.itself();
    }
    cumulative(p, "Add", 0.0)
}

fn cumulative_product(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    cumulative(p, "Mul", 1.0)
}

/// Softmax or LogSoftmax as up to operator set 12.
fn soft(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if p.call().int(FLATTENED, 0)? == 0 {
        return p.itself();
    }
    let x = p.input(0)?;
    let dims = p.dims(x);
    let at = axis(p.call().int("axis", 1)?, dims.len())?;
    let op = p.op.to_owned();
    let y = if at + 1 == dims.len() {
        return Ok(vec![p.layer(&op, &[Some(x)], Attributes::none().with("axis", at as i64))?]);
    } else {
        let flat = p.reshape(x, &[dims[..at].iter().product(), dims[at..].iter().product()])?;
        p.node(&op, &[flat], Attributes::none().with("axis", 1))?
    };
    Ok(vec![p.reshape(y, &dims)?])
}
