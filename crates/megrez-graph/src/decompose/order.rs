//! Hardmax and TopK: the ranks of all numbers of a row by one comparison of all pairs, then those
//! of which the rank is asked for; of long rows the largest, by a tournament.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{FLATTENED, MOST_RANKED, RANK, WINNER, axis};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

pub(super) const TABLE: &[(&str, Decompose)] = &[("Hardmax", hard_max), ("TopK", top)];

fn hard_max(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(1, &["axis", FLATTENED])?;
    let x = p.input(0)?;
    let dims = p.dims(x);
    let mut at = axis(p.call().int("axis", -1)?, dims.len())?;
    let flat = p.call().int(FLATTENED, 0)? != 0;
    let rows = if flat {
        let rows = p.reshape(x, &[dims[..at].iter().product(), dims[at..].iter().product()])?;
        at = 1;
        rows
    } else {
        x
    };
    let along = Attributes::none().with("axis", at as i64);
    let y = if p.dims(rows)[at] > MOST_RANKED {
        p.node(WINNER, &[rows], along)?
    } else {
        let ranks = p.node(RANK, &[rows], along)?;
        let zero = p.number(0.0);
        p.of("Equal", &[ranks, zero])?
    };
    Ok(vec![if flat { p.reshape(y, &dims)? } else { y }])
}

fn top(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(2, &["axis", "k", "largest", "sorted"])?;
    let x = p.input(0)?;
    let mut dims = p.dims(x);
    let along = axis(p.call().int("axis", -1)?, dims.len())?;
    // An attribute before opset 10.
    let k = match p.call().has(1) {
        true => p.call().integers(1, "k")?.and_then(|list| list.first().copied()),
        false => Some(p.call().int("k", 0)?),
    };
    let n = dims[along];
    let Some(k) = k.and_then(|k| usize::try_from(k).ok()).filter(|k| (1..=n).contains(k)) else {
        return refuse(format!("its number of elements is not between 1 and {n}"), "");
    };
    let largest = p.call().int("largest", 1)? != 0;
    let mut order: Vec<usize> = (0..dims.len()).filter(|&d| d != along).collect();
    order.push(along);
    let moved = p.transpose(x, &order)?;
    let count: usize = dims.iter().product::<usize>() / n;
    let rows = p.reshape(moved, &[count, n])?;
    let ordered = if largest { rows } else { p.of("Neg", &[rows])? };
    let ranks = p.of(RANK, &[ordered])?;
    // [count, n, k]: whether an element has a rank; each column has a single 1.
    let ranks = p.reshape(ranks, &[count, n, 1])?;
    let wanted = p.constant(Tensor::new([k], (0..k).map(|i| i as f32).collect()));
    let chosen = p.of("Equal", &[ranks, wanted])?;
    let line = p.reshape(rows, &[count, 1, n])?;
    let values = p.of("MatMul", &[line, chosen])?;
    let numbers = p.constant(Tensor::new([n, 1], (0..n).map(|i| i as f32).collect()));
    let turned = p.transpose(chosen, &[0, 2, 1])?;
    let places = p.of("MatMul", &[turned, numbers])?;
    // Back to where the dimension was.
    dims[along] = k;
    let shape: Vec<usize> = order.iter().map(|&d| dims[d]).collect();
    let mut back = vec![0; dims.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    let mut outputs = vec![];
    for value in [values, places] {
        let value = p.reshape(value, &shape)?;
        outputs.push(p.transpose(value, &back)?);
    }
    Ok(outputs)
}
