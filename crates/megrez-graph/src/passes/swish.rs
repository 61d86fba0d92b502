//! x · Sigmoid(x), as exporters write SiLU, becomes one Swish: one spline instead of a spline and a
//! product, and no error of the sigmoid multiplied by a large x.

use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Node};
use crate::problem::Problem;

/// Fuses every product of a value with its sigmoid; the sigmoid must have no other reader.
pub fn fuse_swish(graph: &Graph) -> Result<Graph, Problem> {
    let readers = graph.readers();
    // The product that reads a sigmoid, if that makes a swish.
    let product = |node: &Node| match readers[node.output.0][..] {
        [reader] if node.op == "Sigmoid" && !graph.is_output(node.output) => {
            let product = &graph.nodes[reader];
            let (x, y) = (node.inputs[0], Some(node.output));
            let pair = &product.inputs[..];
            (product.op == "Mul" && (pair == [x, y] || pair == [y, x])).then_some(reader)
        }
        _ => None,
    };
    let fused: Vec<(usize, usize)> =
        graph.nodes.iter().enumerate().filter_map(|(n, node)| Some((n, product(node)?))).collect();
    let mut rewrite = Rewrite::new(graph)?;
    for (n, node) in graph.nodes.iter().enumerate() {
        if fused.iter().any(|&(sigmoid, _)| sigmoid == n) {
            continue;
        }
        match fused.iter().find(|&&(_, product)| product == n) {
            Some(&(sigmoid, _)) => {
                let x = graph.nodes[sigmoid].inputs[0].map(|x| rewrite.place(x));
                let swish = Node { op: "Swish".into(), ..node.clone() };
                let y = rewrite.add(&swish, &[x], Attributes::none())?;
                rewrite.put(node.output, y);
            }
            None => rewrite.copy(node)?,
        }
    }
    Ok(rewrite.finish())
}
