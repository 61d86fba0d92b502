//! (x − mean)/√(variance + ε)·γ + β in its parts, as operator sets before 17 write it, becomes one
//! LayerNormalization, and x/√(mean of x² + ε)·γ, as exporters write LLaMA's, one RMSNormalization:
//! one inverse square root per row instead of a division per element.

use super::pattern::Pattern;
use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Id, Node};
use crate::problem::Problem;
use std::collections::HashMap;

/// What a fused normalisation consists of.
struct Norm {
    x: Id,
    axis: i64,
    epsilon: f32,
    scale: Id,
    /// None of one that is not centred.
    offset: Option<Id>,
}

/// Fuses every normalisation with scale and offset, or with a scale where it is not centred.
pub fn fuse_layer_norm(graph: &Graph) -> Result<Graph, Problem> {
    let pattern = Pattern::new(graph);
    let readers = graph.readers();
    let found: HashMap<Id, Norm> = graph
        .nodes
        .iter()
        .filter_map(|node| {
            let norm = norm(&pattern, graph, node).or_else(|| root_mean_square(&pattern, graph, node))?;
            // The normalised value itself must not be read by others.
            let scaled = node.inputs.iter().flatten().find(|&&id| graph.value(id).constant.is_none())?;
            (readers[scaled.0].len() == 1).then_some((node.output, norm))
        })
        .collect();
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        match found.get(&node.output) {
            Some(norm) => {
                let parameters = [Some(norm.x), Some(norm.scale), norm.offset];
                let inputs: Vec<_> = parameters.iter().flatten().map(|&id| Some(rewrite.place(id))).collect();
                let op = if norm.offset.is_some() { "LayerNormalization" } else { "RMSNormalization" };
                let fused = Node { op: op.into(), ..node.clone() };
                let attributes = Attributes::none().with("axis", norm.axis).with("epsilon", norm.epsilon);
                let y = rewrite.add(&fused, &inputs, attributes)?;
                rewrite.put(node.output, y);
            }
            None => rewrite.copy(node)?,
        }
    }
    Ok(rewrite.finish())
}

/// What the names of products with the scale of a normalisation end with.
pub(crate) const LAYER_NORM_SCALE: &str = ".normal-scale";

/// Takes scale and offset off every normalisation, as a product and a sum of their own: the
/// gradient of the rest follows from its result.
pub fn split_layer_norm(graph: &Graph) -> Result<Graph, Problem> {
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        let splits = ["LayerNormalization", "RMSNormalization"].contains(&node.op.as_str());
        if !splits || node.inputs.len() == 1 {
            rewrite.copy(node)?;
            continue;
        }
        let x = node.inputs[0].map(|x| rewrite.place(x));
        let mut y = rewrite.new.add_node(&node.name, &node.op, &[x], node.attributes.clone())?;
        for (part, op, input) in [(LAYER_NORM_SCALE, "Mul", 1), (".normal-offset", "Add", 2)] {
            if let Some(&Some(parameter)) = node.inputs.get(input) {
                let parameter = rewrite.place(parameter);
                y = rewrite.new.add(
                    &format!("{}{part}", node.name),
                    op,
                    &[y, parameter],
                    Attributes::none(),
                )?;
            }
        }
        rewrite.new.values[y.0].name.clone_from(&graph.value(node.output).name);
        rewrite.put(node.output, y);
    }
    Ok(rewrite.finish())
}

/// The normalisation whose last addition a node is.
fn norm(p: &Pattern, graph: &Graph, node: &Node) -> Option<Norm> {
    if node.op != "Add" {
        return None;
    }
    let (product, offset) = p.pairs(node).into_iter().find(|&(_, c)| p.floats(c).is_some())?;
    let product = p.made_by(product, "Mul")?;
    let (normal, scale) = p.pairs(product).into_iter().find(|&(_, c)| p.floats(c).is_some())?;
    let quotient = p.made_by(normal, "Div")?;
    let (centred, root) = (p.input(quotient, 0)?, p.input(quotient, 1)?);
    let variance = match p.made_by(root, "Sqrt") {
        Some(sqrt) => p.input(sqrt, 0)?,
        None => {
            p.input(p.made_by(root, "Pow").filter(|pow| p.input(pow, 1).is_some_and(|e| p.is(e, 0.5)))?, 0)?
        }
    };
    let sum = p.made_by(variance, "Add")?;
    let (mean, epsilon) = p.pairs(sum).into_iter().find_map(|(m, e)| Some((m, p.number(e)?)))?;
    let mean = p.made_by(mean, "ReduceMean")?;
    let difference = p.made_by(centred, "Sub")?;
    let squared = p.power(p.input(mean, 0)?, 2.0)?;
    // Some exporters write the difference twice.
    let other = p.made_by(squared, "Sub")?;
    if squared != centred && other.inputs != difference.inputs {
        return None;
    }
    let x = p.input(difference, 0)?;
    let first = p.made_by(p.input(difference, 1)?, "ReduceMean")?;
    let rank = graph.shape(x).rank() as i64;
    let axes = |node: &Node| -> Option<Vec<i64>> {
        let mut axes: Vec<i64> =
            p.integers(node, 1, "axes")?.iter().map(|&a| if a < 0 { a + rank } else { a }).collect();
        axes.sort_unstable();
        (p.int(node, "keepdims", 1)? == 1).then_some(axes)
    };
    let along = axes(first)?;
    let last = along.len() as i64;
    let tail: Vec<i64> = (rank - last..rank).collect();
    let same = p.input(first, 0)? == x && axes(mean)? == along && along == tail && epsilon >= 0.0;
    same.then_some(Norm { x, axis: rank - last, epsilon, scale, offset: Some(offset) })
}

/// The normalisation without a mean whose last product a node is: γ·(x·1/√(mean of x² + ε)), or
/// with a quotient.
fn root_mean_square(p: &Pattern, graph: &Graph, node: &Node) -> Option<Norm> {
    if node.op != "Mul" {
        return None;
    }
    let (normal, scale) = p.pairs(node).into_iter().find(|&(_, c)| p.floats(c).is_some())?;
    let root = |id: Id| p.made_by(id, "Sqrt").and_then(|root| p.input(root, 0));
    let inverse = |id: Id| {
        let quotient = p.made_by(id, "Div").filter(|q| p.input(q, 0).is_some_and(|one| p.is(one, 1.0)));
        let below = quotient.and_then(|q| p.input(q, 1));
        let below = below.or_else(|| p.made_by(id, "Reciprocal").and_then(|r| p.input(r, 0)));
        let power = || p.made_by(id, "Pow").filter(|pow| p.input(pow, 1).is_some_and(|e| p.is(e, -0.5)));
        below.and_then(root).or_else(|| power().and_then(|pow| p.input(pow, 0)))
    };
    let (x, variance) = match (p.made_by(normal, "Mul"), p.made_by(normal, "Div")) {
        (Some(product), _) => p.pairs(product).into_iter().find_map(|(x, i)| Some((x, inverse(i)?)))?,
        (_, Some(quotient)) => (p.input(quotient, 0)?, root(p.input(quotient, 1)?)?),
        _ => return None,
    };
    let sum = p.made_by(variance, "Add")?;
    let (mean, epsilon) = p.pairs(sum).into_iter().find_map(|(m, e)| Some((m, p.number(e)?)))?;
    let mean = p.made_by(mean, "ReduceMean")?;
    let last = graph.shape(x).rank() as i64 - 1;
    let axes = p.integers(mean, 1, "axes")?;
    let along = axes == [-1] || axes == [last];
    let row = graph.shape(scale).elements() == graph.shape(x).dims()[last as usize];
    let same = p.power(p.input(mean, 0)?, 2.0)? == x && p.int(mean, "keepdims", 1)? == 1;
    (same && along && row && epsilon >= 0.0).then_some(Norm { x, axis: last, epsilon, scale, offset: None })
}
