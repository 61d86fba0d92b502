//! Powers with constant exponents, and functions that are made of exponentials, logarithms and
//! roots.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{FIXED_ONLY, FUNCTION, NOT_NEGATIVE};
use crate::problem::{Refusal, refuse};
use megrez_plan::View;
use std::collections::BTreeMap;
use std::f32::consts::FRAC_PI_2;

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("Acos", arc_cosine),
    ("Acosh", area_cosine),
    ("Asin", arc_sine),
    ("Asinh", area_sine),
    ("Atan", arc_tangent),
    ("Atanh", area_tangent),
    ("Cosh", hyperbolic_cosine),
    ("Pow", power),
    ("Sinh", hyperbolic_sine),
    ("Tan", tangent),
];

/// The most different exponents of one node.
const MOST: usize = 64;

/// x^y for constant y. The layer has small whole exponents and roots; others are e^(y·ln x).
/// Elements with one exponent are computed together.
fn power(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let (x, y) = (p.input(0)?, p.input(1)?);
    if p.is_constant(x) && p.is_constant(y) && p.call().shape(0).is_err() {
        return p.itself();
    }
    let exponents = p.known_floats(1)?;
    if let Some(&first) = exponents.data.first().filter(|e| exponents.data.iter().all(|v| v == *e)) {
        let to = match p.graph.shape(x).broadcast(&exponents.shape) {
            Ok(to) if to == *p.graph.shape(x) => None,
            Ok(to) => Some(to),
            Err(_) => return refuse("the exponents do not broadcast to the base", ""),
        };
        let x = match to {
            Some(to) => {
                let to = p.ints(to.dims());
                p.of("Expand", &[x, to])?
            }
            None => x,
        };
        return Ok(vec![one_power(p, x, first)?]);
    }
    let Ok(to) = p.graph.shape(x).broadcast(&exponents.shape) else {
        return refuse("the exponents do not broadcast to the base", "");
    };
    let to = super::shapes::few(to.dims())?;
    let view = |from: &megrez_ring::Shape| View::broadcast(from, &to).expect("they broadcast");
    let (bases, of) = (view(p.graph.shape(x)), view(&exponents.shape));
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (i, at) in of.indices().enumerate() {
        groups.entry(exponents.data[at].to_bits()).or_default().push(i);
    }
    if groups.len() > MOST {
        return refuse(format!("has more than {MOST} different exponents"), "use fewer");
    }
    let bases: Vec<usize> = bases.indices().collect();
    let mut places = vec![None; to.elements()];
    let mut powers = vec![];
    for (g, (&exponent, elements)) in groups.iter().enumerate() {
        let from: Vec<_> = elements.iter().map(|&i| Some((0, bases[i]))).collect();
        let base = p.places(&[x], &[elements.len()], &from)?;
        powers.push(one_power(p, base, f32::from_bits(exponent))?);
        elements.iter().enumerate().for_each(|(k, &i)| places[i] = Some((g, k)));
    }
    Ok(vec![p.places(&powers, to.dims(), &places)?])
}

fn one_power(p: &mut Parts, x: Id, exponent: f32) -> Result<Id, Refusal> {
    let whole = exponent.fract() == 0.0 && exponent.abs() <= 16.0;
    if exponent == 0.0 {
        return p.affine(x, 0.0, 1.0);
    }
    if exponent == 1.0 {
        return Ok(x);
    }
    if exponent.abs() == 0.5 || exponent == -1.0 || (whole && exponent > 0.0) {
        let exponent = p.number(exponent);
        return p.layer("Pow", &[Some(x), Some(exponent)], crate::graph::Attributes::none());
    }
    if whole {
        let positive = one_power(p, x, -exponent)?;
        return p.of("Reciprocal", &[positive]);
    }
    let logarithm = p.of("Log", &[x])?;
    let scaled = p.affine(logarithm, exponent, 0.0)?;
    let power = p.of("Exp", &[scaled])?;
    let exponent = p.number(exponent);
    p.node(FUNCTION, &[power, x, exponent], Attributes::none().with("name", "Pow"))
}

/// What fixed point made of x, which in floating point is the node's own operator of it.
fn exactly(p: &mut Parts, made: Id, x: Id) -> Result<Vec<Id>, Refusal> {
    let name = Attributes::none().with("name", p.op);
    Ok(vec![p.node(FUNCTION, &[made, x], name)?])
}

/// arccos u/√(1 − u) for u = (w + 1)/2 between 0 and 1: the polynomial through its values at the
/// nodes of Chebyshev, off by at most 3e-8.
const ARC: [f32; 8] = [
    1.480_961,
    -0.076_016_09,
    0.011_029_97,
    -0.002_149_32,
    0.000_478_83,
    -0.000_116_5,
    0.000_035_16,
    -0.000_009_47,
];

/// (e^x ± e^−x)/2.
fn hyperbolic(p: &mut Parts, sign: f32) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let negative = p.of("Neg", &[x])?;
    let [up, down] = [p.of("Exp", &[x])?, p.of("Exp", &[negative])?];
    let sum = if sign > 0.0 { p.plus(up, down)? } else { p.minus(up, down)? };
    let half = p.affine(sum, 0.5, 0.0)?;
    exactly(p, half, x)
}

fn hyperbolic_sine(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    hyperbolic(p, -1.0)
}

fn hyperbolic_cosine(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    hyperbolic(p, 1.0)
}

/// sign(x)·ln(|x| + √(x² + 1)): of a sum of positive numbers, so that none cancels.
fn area_sine(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let (size, sign) = size_and_sign(p, x)?;
    let square = p.power(x, 2.0)?;
    let more = p.affine(square, 1.0, 1.0)?;
    let root = p.of("Sqrt", &[more])?;
    let sum = p.plus(size, root)?;
    let logarithm = p.of("Log", &[sum])?;
    let signed = p.times(logarithm, sign)?;
    exactly(p, signed, x)
}

/// ln(x + √(x² − 1)).
fn area_cosine(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let [less, more] = [p.affine(x, 1.0, -1.0)?, p.affine(x, 1.0, 1.0)?];
    let square = p.times(less, more)?;
    let root = p.of("Sqrt", &[square])?;
    let sum = p.plus(x, root)?;
    let logarithm = p.of("Log", &[sum])?;
    exactly(p, logarithm, x)
}

/// (ln(1 + x) − ln(1 − x))/2.
fn area_tangent(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let [up, down] = [p.affine(x, 1.0, 1.0)?, p.affine(x, -1.0, 1.0)?];
    let [up, down] = [p.of("Log", &[up])?, p.of("Log", &[down])?];
    let difference = p.minus(up, down)?;
    let half = p.affine(difference, 0.5, 0.0)?;
    exactly(p, half, x)
}

/// |x|, and −1 or 1. What is made of them is near a number of order one that cancels: in floating
/// point it would lose digits of small numbers.
fn size_and_sign(p: &mut Parts, x: Id) -> Result<(Id, Id), Refusal> {
    let size = p.of("Abs", &[x])?;
    let bit = p.node(NOT_NEGATIVE, &[x], Attributes::none().with(FIXED_ONLY, 1))?;
    Ok((size, p.affine(bit, 2.0, -1.0)?))
}

/// asin x = sign(x)·(π/2 − √(1 − |x|)·q(|x|)): the root takes the steep ends, and what is left,
/// arccos x/√(1 − x), is smooth: [`ARC`].
fn sine_to_angle(p: &mut Parts, x: Id) -> Result<Id, Refusal> {
    let (size, sign) = size_and_sign(p, x)?;
    let rest = p.affine(size, -1.0, 1.0)?;
    let root = p.of("Sqrt", &[rest])?;
    let w = p.affine(size, 2.0, -1.0)?;
    let smooth = p.polynomial(w, ARC)?;
    let product = p.times(root, smooth)?;
    let angle = p.affine(product, -1.0, FRAC_PI_2)?;
    p.times(angle, sign)
}

fn arc_sine(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let angle = sine_to_angle(p, x)?;
    exactly(p, angle, x)
}

fn arc_cosine(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let angle = sine_to_angle(p, x)?;
    let rest = p.affine(angle, -1.0, FRAC_PI_2)?;
    exactly(p, rest, x)
}

/// atan x = asin(x/√(1 + x²)).
fn arc_tangent(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let square = p.power(x, 2.0)?;
    let more = p.affine(square, 1.0, 1.0)?;
    let inverse = p.power(more, -0.5)?;
    let sine = p.times(x, inverse)?;
    // Rounding must not lead beyond 1, where there is no angle.
    let unit = crate::graph::Attributes::none().with("min", -1.0).with("max", 1.0);
    let sine = p.node("Clip", &[sine], unit)?;
    let angle = sine_to_angle(p, sine)?;
    exactly(p, angle, x)
}

fn tangent(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let [sine, cosine] = [p.of("Sin", &[x])?, p.of("Cos", &[x])?];
    let ratio = p.of("Div", &[sine, cosine])?;
    exactly(p, ratio, x)
}
