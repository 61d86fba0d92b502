//! Comparisons and logic on secret numbers: truth is 1, falsehood 0, and both stay secret. On
//! constants they are computed when compiling ([`crate::layers`]).

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{CHOSEN, FIXED_ONLY, NOT_NEGATIVE, POSITIVE, ZERO};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};

/// [x ≠ 0], as a cast to truth values; ONNX has no operator for it.
pub(crate) const NOT_ZERO: &str = "IsNotZero";

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("And", and),
    ("ArgMin", arg_min),
    ("Equal", equal),
    (NOT_ZERO, not_zero),
    ("Greater", greater),
    ("GreaterOrEqual", greater_or_equal),
    ("Less", less),
    ("LessOrEqual", less_or_equal),
    ("Max", max),
    ("Mean", mean),
    ("Min", min),
    ("Mod", modulo),
    ("Not", not),
    ("Or", or),
    ("Sum", sum),
    ("Where", choose),
    ("Xor", xor),
];

/// The two operands, unless both are constants.
fn secrets(p: &Parts) -> Result<Option<(Id, Id)>, Refusal> {
    let (a, b) = (p.input(0)?, p.input(1)?);
    Ok((!p.is_constant(a) || !p.is_constant(b)).then_some((a, b)))
}

/// A test of a − b, or of b − a.
fn compare(p: &mut Parts, test: &str, turned: bool) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let Some((a, b)) = secrets(p)? else { return p.itself() };
    let difference = if turned { p.minus(b, a)? } else { p.minus(a, b)? };
    Ok(vec![p.of(test, &[difference])?])
}

fn equal(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    compare(p, ZERO, false)
}

fn greater(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    compare(p, POSITIVE, false)
}

fn greater_or_equal(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    compare(p, NOT_NEGATIVE, false)
}

fn less(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    compare(p, POSITIVE, true)
}

fn less_or_equal(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    compare(p, NOT_NEGATIVE, true)
}

fn not(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    if p.is_constant(x) { p.itself() } else { Ok(vec![p.affine(x, -1.0, 1.0)?]) }
}

fn and(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let Some((a, b)) = secrets(p)? else { return p.itself() };
    Ok(vec![p.times(a, b)?])
}

/// a + b − times·a·b.
fn either(p: &mut Parts, times: f32) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let Some((a, b)) = secrets(p)? else { return p.itself() };
    let both = p.times(a, b)?;
    let sum = p.plus(a, b)?;
    let both = p.affine(both, times, 0.0)?;
    Ok(vec![p.minus(sum, both)?])
}

fn or(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    either(p, 1.0)
}

fn xor(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    either(p, 2.0)
}

/// With a secret condition: b + condition·(a − b), or what floating point does in its place.
fn choose(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &[])?;
    let [condition, a, b] = [p.input(0)?, p.input(1)?, p.input(2)?];
    if p.is_constant(condition) {
        return p.itself();
    }
    let difference = p.minus(a, b)?;
    let chosen = p.node("Mul", &[condition, difference], Attributes::none().with(FIXED_ONLY, 1))?;
    let sum = p.plus(chosen, b)?;
    let ints = |id: Id| matches!(p.graph.value(id).constant, Some(Constant::Ints(_)));
    Ok(vec![if ints(a) || ints(b) { sum } else { p.of(CHOSEN, &[sum, condition, a, b])? }])
}

/// One operator after the other on all inputs, in pairs so that few depend on each other.
fn folded(p: &mut Parts, op: &str) -> Result<Id, Refusal> {
    p.call().only(1024, &[])?;
    let mut values = p.given();
    if values.is_empty() {
        return refuse("has no inputs", "");
    }
    while values.len() > 1 {
        let pairs: Vec<Vec<Id>> = values.chunks(2).map(<[Id]>::to_vec).collect();
        values = pairs
            .into_iter()
            .map(|pair| if pair.len() == 2 { p.of(op, &pair) } else { Ok(pair[0]) })
            .collect::<Result<_, _>>()?;
    }
    Ok(values[0])
}

fn sum(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    Ok(vec![folded(p, "Add")?])
}

fn mean(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let count = p.given().len();
    let sum = folded(p, "Add")?;
    Ok(vec![p.affine(sum, 1.0 / count as f32, 0.0)?])
}

/// The operand that a constant of this number leaves as it is.
fn unbounded(p: &Parts, bound: f32) -> Option<Id> {
    let (&[Some(a), Some(b)], graph) = (p.inputs, &p.graph) else { return None };
    let absent = |id: Id| graph.floats(id).is_some_and(|t| t.data.iter().all(|&v| v == bound));
    let of = |id: Id, other: Id| {
        let shape = graph.shape(id).broadcast(graph.shape(other)).ok()?;
        (absent(other) && shape == *graph.shape(id)).then_some(id)
    };
    of(a, b).or_else(|| of(b, a))
}

fn max(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if let Some(x) = unbounded(p, f32::NEG_INFINITY) {
        return Ok(vec![p.of("Identity", &[x])?]);
    }
    if p.inputs.len() == 2 { p.itself() } else { Ok(vec![folded(p, "Max")?]) }
}

fn min(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if let Some(x) = unbounded(p, f32::INFINITY) {
        return Ok(vec![p.of("Identity", &[x])?]);
    }
    if p.inputs.len() == 2 { p.itself() } else { Ok(vec![folded(p, "Min")?]) }
}

/// The remainder for a constant divisor, with the divisor's sign, or with `fmod` the dividend's.
/// The quotient of fixed-point numbers may be off by one unit, and its floor by 1: two comparisons
/// put the remainder right.
fn modulo(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["fmod"])?;
    let Some((x, y)) = secrets(p)? else { return p.itself() };
    let like_dividend = p.call().int("fmod", 0)? != 0;
    let divisor = p.known_floats(1)?;
    if divisor.data.contains(&0.0) {
        return refuse("divides by zero", "");
    }
    let size = p.of("Abs", &[y])?;
    let dividend = if like_dividend { p.of("Abs", &[x])? } else { x };
    let quotient = p.of("Div", &[dividend, size])?;
    let whole = p.of("Floor", &[quotient])?;
    let multiple = p.times(whole, size)?;
    let rest = p.minus(dividend, multiple)?;
    let below = p.of("Neg", &[rest])?;
    // In floating point the rest is rounded: it would not be one.
    let below = p.node(POSITIVE, &[below], Attributes::none().with(FIXED_ONLY, 1))?;
    let more = p.times(below, size)?;
    let rest = p.plus(rest, more)?;
    let beyond = p.minus(rest, size)?;
    let beyond = p.node(NOT_NEGATIVE, &[beyond], Attributes::none().with(FIXED_ONLY, 1))?;
    let less = p.times(beyond, size)?;
    let rest = p.minus(rest, less)?;
    if like_dividend {
        let sign = p.of("Sign", &[x])?;
        return Ok(vec![p.times(rest, sign)?]);
    }
    if divisor.data.iter().all(|&v| v > 0.0) {
        return Ok(vec![rest]);
    }
    let negative = divisor.data.iter().map(|&v| v.min(0.0)).collect();
    let negative = p.constant(Tensor::new(divisor.shape.clone(), negative));
    let some = p.of(POSITIVE, &[rest])?;
    let moved = p.times(some, negative)?;
    Ok(vec![p.plus(rest, moved)?])
}

fn not_zero(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    let zero = p.of(ZERO, &[x])?;
    Ok(vec![p.affine(zero, -1.0, 1.0)?])
}

/// Where the negated numbers are largest.
fn arg_min(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let (x, attributes) = (p.input(0)?, p.attributes.clone());
    let negative = p.of("Neg", &[x])?;
    Ok(vec![p.node("ArgMax", &[negative], attributes)?])
}
