//! x·(1 + erf(x/√2))/2 and x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2, as exporters write GELU,
//! become one Gelu: one spline instead of five products and the error of erf or tanh multiplied by
//! x.

use super::pattern::Pattern;
use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Id, Node};
use crate::problem::Problem;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// Fuses every GELU; what it leaves without a reader disappears with [`super::remove_dead`].
pub fn fuse_gelu(graph: &Graph) -> Result<Graph, Problem> {
    let pattern = Pattern::new(graph);
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        match gelu(&pattern, node) {
            Some((x, form)) => {
                let x = rewrite.place(x);
                let gelu = Node { op: "Gelu".into(), ..node.clone() };
                let y = rewrite.add(&gelu, &[Some(x)], Attributes::none().with("approximate", form))?;
                rewrite.put(node.output, y);
            }
            None => rewrite.copy(node)?,
        }
    }
    Ok(rewrite.finish())
}

/// The input and the form of the GELU that a node ends: x, 1 + g(x) and ½ multiplied in any order.
fn gelu(p: &Pattern, node: &Node) -> Option<(Id, &'static str)> {
    if node.op != "Mul" {
        return None;
    }
    p.pairs(node).into_iter().find_map(|(a, b)| {
        // (x·½)·(1 + g(x))
        let half = |a: Id, b: Id| step(p, b).filter(|&(x, _)| p.times(a, 0.5) == Some(x));
        // x·((1 + g(x))·½)
        let inner = || step(p, p.times(b, 0.5)?).filter(|&(x, _)| x == a);
        // (x·(1 + g(x)))·½
        let outer = || {
            let product = p.made_by(p.times(node.output, 0.5)?, "Mul")?;
            p.pairs(product).into_iter().find_map(|(x, s)| step(p, s).filter(|&(of, _)| of == x))
        };
        half(a, b).or_else(inner).or_else(outer)
    })
}

/// x, for a value 1 + erf(x/√2) or its tanh form.
fn step(p: &Pattern, id: Id) -> Option<(Id, &'static str)> {
    let inner = p.plus(id, 1.0)?;
    if let Some(erf) = p.made_by(inner, "Erf") {
        return Some((p.times(p.input(erf, 0)?, FRAC_1_SQRT_2)?, "none"));
    }
    let tanh = p.made_by(inner, "Tanh")?;
    let sum = p.made_by(p.times(p.input(tanh, 0)?, FRAC_2_PI.sqrt())?, "Add")?;
    p.pairs(sum).into_iter().find_map(|(x, cubic)| {
        let cube = p.times(cubic, 0.044715)?;
        (p.power(cube, 3.0) == Some(x)).then_some((x, "tanh"))
    })
}
