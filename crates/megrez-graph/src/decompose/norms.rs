//! Normalisations: centred, scaled by a root, weighted. The layers LayerNormalization and
//! RMSNormalization do the common cases in fewer steps; everything else is made of means and
//! powers.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::axis;
use crate::problem::{Refusal, refuse};

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("GroupNormalization", group),
    ("InstanceNormalization", instance),
    ("LRN", local_response),
    ("LayerNormalization", layer),
    ("LpNormalization", lp),
    ("MeanVarianceNormalization", mean_variance),
    ("RMSNormalization", root_mean_square),
];

/// What a centred value is scaled by, and its parts.
struct Normalised {
    mean: Id,
    /// 1/√(variance + ε).
    inverse: Id,
    result: Id,
}

fn mean(p: &mut Parts, x: Id, axes: &[usize]) -> Result<Id, Refusal> {
    let axes = p.ints(axes);
    p.of("ReduceMean", &[x, axes])
}

/// (x − mean)/√(variance + ε) along dimensions.
fn normalise(p: &mut Parts, x: Id, axes: &[usize], epsilon: f32) -> Result<Normalised, Refusal> {
    let mean_of_x = mean(p, x, axes)?;
    let centred = p.minus(x, mean_of_x)?;
    let inverse = inverse_root(p, centred, axes, epsilon)?;
    Ok(Normalised { mean: mean_of_x, inverse, result: p.times(centred, inverse)? })
}

/// 1/√(mean of x² + ε).
fn inverse_root(p: &mut Parts, x: Id, axes: &[usize], epsilon: f32) -> Result<Id, Refusal> {
    let squares = p.power(x, 2.0)?;
    let variance = mean(p, squares, axes)?;
    let more = p.affine(variance, 1.0, epsilon)?;
    p.power(more, -0.5)
}

/// x·scale + bias, each where it is there, spread to the dimensions of x from dimension `at` on.
fn weighted(p: &mut Parts, x: Id, scale: usize, at: usize) -> Result<Id, Refusal> {
    let rank = p.dims(x).len();
    let spread = |p: &mut Parts, i: usize| -> Result<Id, Refusal> {
        let weight = p.input(i)?;
        let mut dims = p.dims(weight);
        dims.extend(vec![1; rank.saturating_sub(at + dims.len())]);
        p.reshape(weight, &dims)
    };
    let mut y = x;
    if p.has(scale) {
        let factor = spread(p, scale)?;
        y = p.times(y, factor)?;
    }
    if p.has(scale + 1) {
        let bias = spread(p, scale + 1)?;
        y = p.plus(y, bias)?;
    }
    Ok(y)
}

/// The dimensions from the node's axis to the last.
fn last_axes(p: &Parts) -> Result<Vec<usize>, Refusal> {
    let rank = p.call().shape(0)?.rank();
    let first = axis(p.call().int("axis", -1)?, rank)?;
    Ok((first..rank).collect())
}

fn layer(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    if !p.reads(1) && !p.reads(2) {
        return p.itself();
    }
    p.call().only(3, &["axis", "epsilon", "stash_type"])?;
    let (x, axes, epsilon) = (p.input(0)?, last_axes(p)?, p.call().float("epsilon", 1e-5)?);
    let n = normalise(p, x, &axes, epsilon)?;
    let y = weighted(p, n.result, 1, axes[0])?;
    Ok(vec![y, n.mean, n.inverse])
}

fn root_mean_square(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["axis", "epsilon", "stash_type"])?;
    if !p.has(1) || p.call().is_constant(1) {
        return p.itself();
    }
    let (x, axes, epsilon) = (p.input(0)?, last_axes(p)?, p.call().float("epsilon", 1e-5)?);
    let inverse = inverse_root(p, x, &axes, epsilon)?;
    let y = p.times(x, inverse)?;
    Ok(vec![weighted(p, y, 1, axes[0])?])
}

fn instance(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["epsilon"])?;
    let (x, epsilon) = (p.input(0)?, p.call().float("epsilon", 1e-5)?);
    let rank = p.dims(x).len();
    if rank < 3 {
        return refuse("takes [N, C, …]", "");
    }
    let n = normalise(p, x, &(2..rank).collect::<Vec<_>>(), epsilon)?;
    Ok(vec![weighted(p, n.result, 1, 1)?])
}

fn group(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(3, &["epsilon", "num_groups", "stash_type"])?;
    let (x, epsilon) = (p.input(0)?, p.call().float("epsilon", 1e-5)?);
    let dims = p.dims(x);
    let groups = usize::try_from(p.call().int("num_groups", 0)?).unwrap_or(0);
    let &[n, channels, ..] = dims.as_slice() else { return refuse("takes [N, C, …]", "") };
    if groups == 0 || channels % groups != 0 {
        return refuse(format!("{channels} channels do not make {groups} groups"), "");
    }
    let area: usize = dims[2..].iter().product();
    let rows = p.reshape(x, &[n, groups, channels / groups, area])?;
    let mut y = normalise(p, rows, &[2, 3], epsilon)?.result;
    // Up to operator set 20 the weights are of groups, after that of channels.
    let of_groups = p.dims(p.input(1)?) == [groups] && groups != channels;
    if of_groups {
        y = weighted(p, y, 1, 1)?;
    }
    let y = p.reshape(y, &dims)?;
    Ok(vec![if of_groups { y } else { weighted(p, y, 1, 1)? }])
}

fn mean_variance(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["axes"])?;
    let x = p.input(0)?;
    let rank = p.dims(x).len();
    let axes = p.call().ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = axes.iter().map(|&a| axis(a, rank)).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![normalise(p, x, &axes, 0.0)?.result])
}

fn lp(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["axis", "p"])?;
    let x = p.input(0)?;
    let along = axis(p.call().int("axis", -1)?, p.dims(x).len())?;
    let inverse = match p.call().int("p", 2)? {
        1 => {
            let sizes = p.of("Abs", &[x])?;
            let sum = p.sum(sizes, &[along], true)?;
            let sum = nonzero(p, sum)?;
            p.of("Reciprocal", &[sum])?
        }
        2 => {
            let squares = p.power(x, 2.0)?;
            let sum = p.sum(squares, &[along], true)?;
            let sum = nonzero(p, sum)?;
            p.power(sum, -0.5)?
        }
        other => return refuse(format!("takes the norm {other}"), "use 1 or 2"),
    };
    Ok(vec![p.times(x, inverse)?])
}

/// A norm that zeros are divided by as well, and stay zeros: in floating point 0/0 is no number. It
/// is 2^−126 more, which fixed point does not see, and floats only where the norm is below 2^−102.
pub(super) fn nonzero(p: &mut Parts, norm: Id) -> Result<Id, Refusal> {
    p.affine(norm, 1.0, f32::MIN_POSITIVE)
}

/// x/(bias + α/size·Σ x²)^β, with the sum over neighbouring channels.
fn local_response(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["alpha", "beta", "bias", "size"])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let size = usize::try_from(p.call().int("size", 0)?).unwrap_or(0);
    if dims.len() < 2 || !(1..=64).contains(&size) {
        return refuse("takes [N, C, …] and a size from 1 to 64", "");
    }
    let (alpha, beta) = (p.call().float("alpha", 1e-4)?, p.call().float("beta", 0.75)?);
    let bias = p.call().float("bias", 1.0)?;
    let mut pads = vec![0i64; 2 * dims.len()];
    pads[1] = ((size - 1) / 2) as i64;
    pads[dims.len() + 1] = (size / 2) as i64;
    let squares = p.power(x, 2.0)?;
    let padded = p.node("Pad", &[squares], Attributes::none().with("pads", pads))?;
    let mut sum = p.slice(padded, 1, 0..dims[1])?;
    for k in 1..size {
        let next = p.slice(padded, 1, k..k + dims[1])?;
        sum = p.plus(sum, next)?;
    }
    let base = p.affine(sum, alpha / size as f32, bias)?;
    let inverse = p.power(base, -beta)?;
    Ok(vec![p.times(x, inverse)?])
}
