//! Softmax and ArgMax at an output are left to the recipient, who computes them on what is
//! revealed.

use crate::after::After;
use crate::graph::Graph;
use crate::problem::Problem;

/// The graph up to what is revealed, and for each output what the recipient does with it, in order.
pub fn leave_to_recipient(graph: &Graph) -> Result<(Graph, Vec<Vec<After>>), Problem> {
    let mut after = vec![];
    let mut shorter = graph.clone();
    for output in &mut shorter.outputs {
        let mut work = vec![];
        let producer = |id| graph.nodes.iter().find(|node| node.output == id);
        while let Some(node) = producer(output.id) {
            let (Some(step), Some(&Some(input))) = (node.layer.after(), node.inputs.first()) else { break };
            work.insert(0, step);
            output.id = input;
        }
        after.push(work);
    }
    Ok((shorter, after))
}
