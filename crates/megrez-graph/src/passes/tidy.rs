//! Removing what computes nothing: Identity, Dropout, Cast and other nodes that give their input
//! unchanged; and nodes that no output depends on.

use super::rewrite::Rewrite;
use crate::graph::Graph;
use crate::problem::Problem;
use megrez_plan::View;
use std::collections::HashSet;

/// Without the nodes that give their input unchanged.
pub fn remove_identities(graph: &Graph) -> Result<Graph, Problem> {
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        let same = |id| node.layer.view() == Some(&View::whole(graph.shape(id).clone()));
        match node.inputs.first() {
            Some(&Some(input)) if same(input) => {
                let place = rewrite.place(input);
                rewrite.put(node.output, place);
            }
            _ => rewrite.copy(node)?,
        }
    }
    Ok(rewrite.finish())
}

/// Without the nodes that no output depends on. All inputs stay.
pub fn remove_dead(graph: &Graph) -> Result<Graph, Problem> {
    let mut needed: HashSet<_> = graph.outputs.iter().map(|output| output.id).collect();
    for node in graph.nodes.iter().rev() {
        if needed.contains(&node.output) {
            needed.extend(node.inputs.iter().flatten());
        }
    }
    let mut rewrite = Rewrite::new(graph)?;
    for node in graph.nodes.iter().filter(|node| needed.contains(&node.output)) {
        rewrite.copy(node)?;
    }
    Ok(rewrite.finish())
}
