//! NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss for labels that are known: the numbers of
//! the labels are taken by place.

use super::parts::Place;
use super::shapes::{coordinates, element, few, index};
use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;

pub(super) const TABLE: &[(&str, Decompose)] =
    &[("NegativeLogLikelihoodLoss", likelihood), ("SoftmaxCrossEntropyLoss", cross_entropy)];

const ATTRIBUTES: &[&str] = &["ignore_index", "reduction"];

/// The loss of logarithms of probabilities [N, C, …] for the labels of the node.
fn loss(p: &mut Parts, x: Id) -> Result<Id, Refusal> {
    p.call().only(3, ATTRIBUTES)?;
    let (dims, labels) = (p.dims(x), p.known_ints(1)?);
    let &[n, classes, ref rest @ ..] = dims.as_slice() else {
        return refuse("takes probabilities [N, C, …]", "");
    };
    let shape = [&[n], rest].concat();
    if labels.shape.dims() != shape {
        return refuse(format!("the labels {} do not fit the probabilities {dims:?}", labels.shape), "");
    }
    few(&shape)?;
    let ignored = match p.attributes.0.contains_key("ignore_index") {
        true => Some(p.call().int("ignore_index", 0)?),
        false => None,
    };
    let of_class = if p.has(2) { Some(p.known_floats(2)?) } else { None };
    if of_class.as_ref().is_some_and(|w| w.data.len() != classes) {
        return refuse(format!("does not have one weight for each of {classes} classes"), "");
    }
    let (mut places, mut weights): (Vec<Place>, Vec<f32>) = (vec![], vec![]);
    for (i, &label) in labels.data.iter().enumerate() {
        if ignored == Some(label) {
            places.push(None);
            weights.push(0.0);
            continue;
        }
        let class = index(label, classes)?;
        let mut at = coordinates(&shape, i);
        at.insert(1, class);
        places.push(Some((0, element(&dims, &at))));
        weights.push(of_class.as_ref().map_or(1.0, |w| w.data[class]));
    }
    let total: f64 = weights.iter().map(|&w| f64::from(w)).sum();
    let picked = p.places(&[x], &shape, &places)?;
    let mut losses = p.of("Neg", &[picked])?;
    if of_class.is_some() {
        let weights = p.constant(Tensor::new(shape, weights));
        losses = p.times(losses, weights)?;
    }
    let sum = |p: &mut Parts| p.node("ReduceSum", &[losses], Attributes::none().with("keepdims", 0));
    match p.call().string("reduction", "mean")?.as_str() {
        "none" => Ok(losses),
        "sum" => sum(p),
        "mean" if total == 0.0 => refuse("all labels are ignored, so that there is no mean", ""),
        "mean" => {
            let sum = sum(p)?;
            let inverse = (1.0 / total) as f32;
            // The weights of the classes belong to the model, and so does their sum.
            if of_class.is_none() {
                return p.affine(sum, inverse, 0.0);
            }
            let inverse = p.number(inverse);
            p.times(sum, inverse)
        }
        other => refuse(format!("the reduction `{other}` is not known"), ""),
    }
}

fn likelihood(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    Ok(vec![loss(p, x)?])
}

fn cross_entropy(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let x = p.input(0)?;
    let logarithms = p.node("LogSoftmax", &[x], Attributes::none().with("axis", 1))?;
    Ok(vec![loss(p, logarithms)?, logarithms])
}
