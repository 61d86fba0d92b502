//! What floating point does in other ways than fixed point. There a comparison is the test of a
//! difference, and a choice a product with one; here a difference is rounded: numbers far apart
//! would lose the digits of the smaller one, close ones vanish, and infinities give NaN. Operands
//! are compared and chosen as they are. Functions that fixed point makes of others are whole.

use super::pattern::Pattern;
use super::rewrite::Rewrite;
use crate::graph::{Attributes, Graph, Id, Node};
use crate::layers::{
    CHOOSE, CHOSEN, EQUAL, FIXED_ONLY, FUNCTION, LESS, LESS_OR_EQUAL, NOT_NEGATIVE, POSITIVE, ZERO,
};
use crate::problem::Problem;

/// The graph as floating point computes it; what only fixed point reads is left dead.
pub fn for_floats(graph: &Graph) -> Result<Graph, Problem> {
    let pattern = Pattern::new(graph);
    let mut rewrite = Rewrite::new(graph)?;
    for node in &graph.nodes {
        let Some((op, inputs)) = instead(&pattern, node) else {
            rewrite.copy(node)?;
            continue;
        };
        let inputs: Vec<Option<Id>> = inputs.into_iter().map(|id| Some(rewrite.place(id))).collect();
        let attributes = if op == FUNCTION { node.attributes.clone() } else { Attributes::none() };
        let place = rewrite.add(&Node { op: op.into(), ..node.clone() }, &inputs, attributes)?;
        rewrite.put(node.output, place);
    }
    Ok(rewrite.finish())
}

/// The operator that stands in a node's place, and on what.
fn instead(pattern: &Pattern, node: &Node) -> Option<(&'static str, Vec<Id>)> {
    let input = |i: usize| pattern.input(node, i);
    let op = match node.op.as_str() {
        CHOSEN => return Some((CHOOSE, vec![input(1)?, input(2)?, input(3)?])),
        // What comes before its operands is fixed point's.
        FUNCTION if node.layer.view().is_some() => {
            return Some((FUNCTION, node.inputs[1..].iter().copied().flatten().collect()));
        }
        _ if pattern.int(node, FIXED_ONLY, 0)? != 0 => return None,
        POSITIVE => LESS,
        NOT_NEGATIVE => LESS_OR_EQUAL,
        ZERO => EQUAL,
        _ => return None,
    };
    let difference = pattern.made_by(input(0)?, "Sub")?;
    // x − y > 0 says y < x.
    let (x, y) = (pattern.input(difference, 0)?, pattern.input(difference, 1)?);
    Some((op, vec![y, x]))
}
