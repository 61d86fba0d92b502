//! An activation before a MaxPool trades places with it: max(f(x), f(y)) = f(max(x, y)) for non-decreasing f, and the
//! pool leaves fewer elements to activate. This is exact. Activations that decrease anywhere stay where they are.

use super::rewrite::Rewrite;
use crate::graph::Graph;
use crate::problem::Problem;
use std::collections::HashMap;

/// Every non-decreasing activation behind the MaxPool that follows it.
pub fn pool_before_activation(graph: &Graph) -> Result<Graph, Problem> {
    let mut graph = graph.clone();
    // Each round moves activations by one pool; nodes only ever move back, so this ends.
    while let Some(switched) = switch(&graph)? {
        graph = switched;
    }
    Ok(graph)
}

/// One round; `None` when there is nothing left to switch.
fn switch(graph: &Graph) -> Result<Option<Graph>, Problem> {
    let readers = graph.readers();
    // From pool to the activation before it.
    let mut pairs: HashMap<usize, usize> = HashMap::new();
    for (a, node) in graph.nodes.iter().enumerate().filter(|(_, n)| n.layer.non_decreasing()) {
        let &[pool] = &readers[node.output.0][..] else { continue };
        let shrinks = graph.nodes[pool].layer.shape().elements() < node.layer.shape().elements();
        if graph.nodes[pool].op == "MaxPool" && shrinks && !graph.is_output(node.output) {
            pairs.insert(pool, a);
        }
    }
    if pairs.is_empty() {
        return Ok(None);
    }
    let mut rewrite = Rewrite::new(graph)?;
    for (n, node) in graph.nodes.iter().enumerate() {
        if pairs.values().any(|&a| a == n) {
            continue;
        }
        let Some(&activation) = pairs.get(&n) else {
            rewrite.copy(node)?;
            continue;
        };
        let activation = &graph.nodes[activation];
        let mut inputs: Vec<_> = activation.inputs.iter().map(|id| id.map(|id| rewrite.place(id))).collect();
        let pooled = rewrite.add(node, &inputs[..1], node.attributes.clone())?;
        inputs[0] = Some(pooled);
        let activated = rewrite.add(activation, &inputs, activation.attributes.clone())?;
        rewrite.put(node.output, activated);
    }
    Ok(Some(rewrite.finish()))
}
