//! A constant mask before a Softmax becomes public knowledge of where elements count: `x + c` with
//! c = 0 or very negative, and `Where(condition, x, c)`. What stands for −∞ is then never added,
//! and no range grows by it.
//!
//! Every addend of −1000 or less masks: e^−1000 is nothing at any precision, unless the scores
//! themselves differ by hundreds. A mask is part of the architecture (causal, or of padding): it
//! stands in the plan.

use super::pattern::Pattern;
use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Id, Node};
use crate::layers::MASKED;
use crate::problem::Problem;
use crate::tensor::{Constant, Tensor};
use megrez_plan::View;
use std::sync::Arc;

/// Addends up to this take an element out.
const MASKS: f32 = -1000.0;

/// What is softmaxed, what else is added to it, and where it counts.
struct Masked {
    x: Id,
    rest: Option<Tensor>,
    mask: Tensor<i64>,
}

/// Fuses every Softmax with the mask before it.
pub fn fuse_masks(graph: &Graph) -> Result<Graph, Problem> {
    let pattern = Pattern::new(graph);
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        let masked = (node.op == "Softmax").then(|| masked(&pattern, graph, node)).flatten();
        let Some(Masked { x, rest, mask }) = masked else {
            rewrite.copy(node)?;
            continue;
        };
        let mut x = rewrite.place(x);
        if let Some(rest) = rest {
            let rest = rewrite.new.constant(&format!("{}.bias", node.name), rest);
            x = rewrite.new.add(&format!("{}.biased", node.name), "Add", &[x, rest], Attributes::none())?;
        }
        let mask = rewrite.new.constant(&format!("{}.mask", node.name), mask);
        let fused = Node { op: MASKED.into(), ..node.clone() };
        let y = rewrite.add(&fused, &[Some(x), Some(mask)], node.attributes.clone())?;
        rewrite.put(node.output, y);
    }
    Ok(rewrite.finish())
}

fn masked(p: &Pattern, graph: &Graph, node: &Node) -> Option<Masked> {
    let scores = p.input(node, 0)?;
    if let Some(sum) = p.made_by(scores, "Add") {
        let (x, c) = p.pairs(sum).into_iter().find(|&(_, c)| p.floats(c).is_some())?;
        let c = p.floats(c)?;
        if !c.data.iter().any(|&v| v <= MASKS) || graph.shape(x) != graph.shape(scores) {
            return None;
        }
        let mask = Tensor::new(c.shape.clone(), c.data.iter().map(|&v| i64::from(v > MASKS)).collect());
        let rest: Vec<f32> = c.data.iter().map(|&v| if v > MASKS { v } else { 0.0 }).collect();
        let rest = rest.iter().any(|&v| v != 0.0).then(|| Tensor::new(c.shape.clone(), rest));
        return Some(Masked { x, rest, mask });
    }
    let choice = p.made_by(scores, "Where")?;
    let Some(Constant::Ints(condition)) = &graph.value(p.input(choice, 0)?).constant else { return None };
    let condition: &Arc<Tensor<i64>> = condition;
    let (a, b) = (p.input(choice, 1)?, p.input(choice, 2)?);
    let (x, c, keeps) = if p.floats(b).is_some() { (a, b, true) } else { (b, a, false) };
    let c = p.floats(c)?;
    let shape = graph.shape(scores);
    if graph.shape(x) != shape {
        return None;
    }
    let spread = condition.view(&View::broadcast(&condition.shape, shape)?);
    let addend = c.view(&View::broadcast(&c.shape, shape)?);
    let mask: Vec<i64> = spread.data.iter().map(|&v| i64::from((v != 0) == keeps)).collect();
    let hides = mask.iter().zip(&addend.data).all(|(&kept, &v)| kept == 1 || v <= MASKS);
    hides.then(|| Masked { x, rest: None, mask: Tensor::new(shape.clone(), mask) })
}
