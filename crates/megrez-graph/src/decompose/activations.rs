//! Activations and other functions of one number, made of a comparison, an exponential, a root or a
//! division. What is public about them (slopes, thresholds) belongs to the architecture.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{CHOSEN, CURVE, POSITIVE};
use crate::problem::Refusal;

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("Celu", celu),
    ("Elu", elu),
    ("HardSigmoid", hard_sigmoid),
    ("HardSwish", hard_swish),
    ("Mish", mish),
    ("PRelu", p_relu),
    ("Selu", selu),
    ("Shrink", shrink),
    ("Softplus", softplus),
    ("Softsign", softsign),
    ("ThresholdedRelu", thresholded_relu),
];

/// min(x, 0) and max(x, 0), by one comparison.
fn halves(p: &mut Parts, x: Id) -> Result<[Id; 2], Refusal> {
    let negative = p.node("Clip", &[x], Attributes::none().with("max", 0.0))?;
    Ok([negative, p.minus(x, negative)?])
}

/// What the parts of an activation have made of x, which one table may make whole.
fn curve(p: &mut Parts, made: Id, x: Id, alpha: f32) -> Result<Vec<Id>, Refusal> {
    let attributes = Attributes::none().with("name", p.op).with("alpha", alpha);
    Ok(vec![p.node(CURVE, &[made, x], attributes)?])
}

/// max(x, 0)·positive + factor·(e^(min(x, 0)/width) − 1).
fn exponential(p: &mut Parts, positive: f32, factor: f32, width: f32) -> Result<Id, Refusal> {
    p.call().only(1, &["alpha", "gamma"])?;
    let x = p.input(0)?;
    let [negative, rest] = halves(p, x)?;
    let narrow = p.affine(negative, 1.0 / width, 0.0)?;
    let power = p.of("Exp", &[narrow])?;
    let below = p.affine(power, factor, -factor)?;
    let above = p.affine(rest, positive, 0.0)?;
    p.plus(above, below)
}

fn elu(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let alpha = p.call().float("alpha", 1.0)?;
    let (made, x) = (exponential(p, 1.0, alpha, 1.0)?, p.input(0)?);
    // With another it has a corner at 0, on which no polynomial fits.
    if alpha == 1.0 { curve(p, made, x, alpha) } else { Ok(vec![made]) }
}

fn selu(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let alpha = p.call().float("alpha", 1.673_263_2)?;
    let gamma = p.call().float("gamma", 1.050_701)?;
    Ok(vec![exponential(p, gamma, gamma * alpha, 1.0)?])
}

fn celu(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let alpha = p.call().float("alpha", 1.0)?;
    let (made, x) = (exponential(p, 1.0, alpha, alpha)?, p.input(0)?);
    // A table reaches to −15, and its segments are not much narrower than those of others.
    if (0.25..=1.25).contains(&alpha) { curve(p, made, x, alpha) } else { Ok(vec![made]) }
}

fn hard(p: &mut Parts, x: Id, slope: f32, offset: f32) -> Result<Id, Refusal> {
    let line = p.affine(x, slope, offset)?;
    p.node("Clip", &[line], Attributes::none().with("min", 0.0).with("max", 1.0))
}

fn hard_sigmoid(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["alpha", "beta"])?;
    let (alpha, beta) = (p.call().float("alpha", 0.2)?, p.call().float("beta", 0.5)?);
    let x = p.input(0)?;
    Ok(vec![hard(p, x, alpha, beta)?])
}

fn hard_swish(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let gate = hard(p, x, 1.0 / 6.0, 0.5)?;
    Ok(vec![p.times(x, gate)?])
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^−|x|), and max(x, 0) = (|x| + x)/2: one comparison.
fn soft(p: &mut Parts, x: Id) -> Result<Id, Refusal> {
    let size = p.of("Abs", &[x])?;
    let negative = p.of("Neg", &[size])?;
    let power = p.of("Exp", &[negative])?;
    let more = p.affine(power, 1.0, 1.0)?;
    let logarithm = p.of("Log", &[more])?;
    let twice = p.plus(size, x)?;
    let positive = p.affine(twice, 0.5, 0.0)?;
    p.plus(positive, logarithm)
}

fn softplus(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let made = soft(p, x)?;
    curve(p, made, x, 1.0)
}

fn mish(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let soft = soft(p, x)?;
    let gate = p.of("Tanh", &[soft])?;
    let made = p.times(x, gate)?;
    curve(p, made, x, 1.0)
}

fn softsign(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &[])?;
    let x = p.input(0)?;
    let size = p.of("Abs", &[x])?;
    let more = p.affine(size, 1.0, 1.0)?;
    let inverse = p.of("Reciprocal", &[more])?;
    Ok(vec![p.times(x, inverse)?])
}

/// max(x, 0) + slope·min(x, 0).
fn p_relu(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &[])?;
    let (x, slope) = (p.input(0)?, p.input(1)?);
    let positive = p.of("Relu", &[x])?;
    let negative = p.minus(x, positive)?;
    let below = p.times(negative, slope)?;
    Ok(vec![p.plus(positive, below)?])
}

/// x where it is above a border, plus an offset; 0 elsewhere.
fn above(p: &mut Parts, x: Id, border: f32, offset: f32) -> Result<Id, Refusal> {
    let over = p.affine(x, 1.0, -border)?;
    let bit = p.of(POSITIVE, &[over])?;
    let moved = p.affine(x, 1.0, offset)?;
    let kept = p.times(bit, moved)?;
    // In floating point zero times an infinity is no number.
    let zero = p.number(0.0);
    p.of(CHOSEN, &[kept, bit, moved, zero])
}

fn thresholded_relu(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["alpha"])?;
    let alpha = p.call().float("alpha", 1.0)?;
    let x = p.input(0)?;
    Ok(vec![above(p, x, alpha, 0.0)?])
}

fn shrink(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["lambd", "bias"])?;
    let (border, bias) = (p.call().float("lambd", 0.5)?, p.call().float("bias", 0.0)?);
    let x = p.input(0)?;
    let mirrored = p.of("Neg", &[x])?;
    let high = above(p, x, border, -bias)?;
    let low = above(p, mirrored, border, -bias)?;
    Ok(vec![p.minus(high, low)?])
}
