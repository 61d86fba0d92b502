//! An activation before a MaxPool trades places with it: max(f(x), f(y)) = f(max(x, y)) for
//! non-decreasing f, and the pool leaves fewer elements to activate. This is exact. Activations
//! that decrease anywhere stay where they are.

use super::rewrite::Rewrite;
use crate::graph::{Graph, Id};
use crate::problem::Problem;
use std::collections::HashMap;

/// Every non-decreasing activation behind the MaxPools that follow it, in one pass.
pub fn pool_before_activation(graph: &Graph) -> Result<Graph, Problem> {
    let readers = graph.readers();
    let mut switch = Switch { graph, rewrite: Rewrite::new(graph)?, waiting: HashMap::new() };
    for (n, node) in graph.nodes.iter().enumerate() {
        let input = node.inputs.first().copied().flatten();
        let waiting = input.and_then(|id| switch.waiting.remove(&id));
        let shrinks = input.is_some_and(|id| node.layer.shape().elements() < graph.shape(id).elements());
        let (pooled, activations) = match (waiting, input) {
            // The pool overtakes what waits before it.
            (Some((base, activations)), _) if node.op == "MaxPool" && shrinks => {
                (switch.rewrite.add(node, &[Some(base)], node.attributes.clone())?, activations)
            }
            (Some((base, mut activations)), _) if node.layer.non_decreasing() => {
                activations.push(n);
                (base, activations)
            }
            (None, Some(input)) if node.layer.non_decreasing() => (switch.rewrite.place(input), vec![n]),
            (waiting, _) => {
                if let (Some((base, activations)), Some(input)) = (waiting, input) {
                    let activated = switch.activate(base, &activations)?;
                    switch.rewrite.put(input, activated);
                }
                // An activation that waits as another input has met its reader as well.
                for id in node.inputs.iter().skip(1).flatten() {
                    if let Some((base, activations)) = switch.waiting.remove(id) {
                        let activated = switch.activate(base, &activations)?;
                        switch.rewrite.put(*id, activated);
                    }
                }
                switch.rewrite.copy(node)?;
                continue;
            }
        };
        if readers[node.output.0].len() == 1 && !graph.is_output(node.output) {
            switch.waiting.insert(node.output, (pooled, activations));
        } else {
            let activated = switch.activate(pooled, &activations)?;
            switch.rewrite.put(node.output, activated);
        }
    }
    Ok(switch.rewrite.finish())
}

struct Switch<'a> {
    graph: &'a Graph,
    rewrite: Rewrite<'a>,
    /// For an old value with one reader: the new value and the activations, by node, that are still
    /// to be applied.
    waiting: HashMap<Id, (Id, Vec<usize>)>,
}

impl Switch<'_> {
    /// Applies activations that have waited.
    fn activate(&mut self, base: Id, activations: &[usize]) -> Result<Id, Problem> {
        let mut at = base;
        for &n in activations {
            let node = &self.graph.nodes[n];
            let mut inputs: Vec<_> =
                node.inputs.iter().map(|id| id.map(|id| self.constant(id, at))).collect();
            inputs[0] = Some(at);
            at = self.rewrite.add(node, &inputs, node.attributes.clone())?;
        }
        Ok(at)
    }

    /// An activation's further inputs are constants; its first is replaced.
    fn constant(&mut self, id: Id, first: Id) -> Id {
        if self.graph.value(id).constant.is_some() { self.rewrite.place(id) } else { first }
    }
}
