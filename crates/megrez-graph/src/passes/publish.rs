//! Weights of products become public matrices.

use super::rewrite::Rewrite;
use crate::graph::{Attribute, Attributes, Graph, Id, Node};
use crate::problem::Problem;
use crate::publisher::{LEAST, Publisher};
use megrez_weights::Width;

impl Publisher {
    /// The graph with public matrices. What it computes differs by their rounding.
    ///
    /// # Errors
    /// If weights are no numbers, or cannot be written.
    pub fn publish(&self, graph: &Graph) -> Result<Graph, Problem> {
        let mut rewrite = Rewrite::new(graph)?;
        for node in &graph.nodes {
            let Some((at, transposed, width)) = self.candidate(graph, node) else {
                rewrite.copy(node)?;
                continue;
            };
            let id = node.inputs[at].expect("a candidate has its input");
            let weights = graph.floats(id).expect("a candidate's weights are constant");
            let matrix = self.matrix(weights, transposed, width).map_err(|r| r.at(&node.name, &node.op))?;
            let name = format!("{}.public", graph.value(id).name);
            let matrix = rewrite.new.constant(&name, matrix);
            let mut inputs: Vec<Option<Id>> =
                node.inputs.iter().map(|id| id.map(|id| rewrite.place(id))).collect();
            inputs[at] = Some(matrix);
            let attributes = untransposed(node.attributes.clone());
            let made = rewrite.add(node, &inputs, attributes)?;
            rewrite.put(node.output, made);
        }
        Ok(rewrite.finish())
    }

    /// Which input of a node may become public, whether it is transposed, and how many bits it
    /// gets.
    fn candidate(&self, graph: &Graph, node: &Node) -> Option<(usize, bool, Width)> {
        let of = |name: &str| node.attributes.0.get(name);
        let is = |name: &str, value: i64| of(name).is_none_or(|a| *a == Attribute::Int(value));
        let (at, transposed, width) = match node.op.as_str() {
            "MatMul" => (1, false, self.width),
            "Gemm" if of("alpha").is_none_or(|a| *a == Attribute::Float(1.0)) => {
                (1, !is("transB", 0), self.width)
            }
            // Of tokens, the rows of a table.
            "Gather" if is("axis", 0) => (0, false, Width::Sixteen),
            _ => return None,
        };
        let input = |i: usize| node.inputs.get(i).copied().flatten();
        let weights = graph.floats(input(at)?)?;
        let secret = graph.value(input(1 - at)?).constant.is_none();
        let matrix = weights.shape.rank() == 2 && weights.data.len() >= LEAST;
        (secret && matrix).then_some((at, transposed, width))
    }
}

/// Attributes of a product whose right matrix is not transposed any more.
fn untransposed(attributes: Attributes) -> Attributes {
    match attributes.0.contains_key("transB") {
        true => attributes.with("transB", 0),
        false => attributes,
    }
}
