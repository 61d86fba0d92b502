//! Constant folding: a node on constants is computed when it is added to the graph, because other layers read weights
//! and shapes when they are understood.

use crate::graph::{Constant, Graph, Id, Tensor};
use crate::layers::Layer;
use crate::problem::{Refusal, refuse};

/// What folding may cost in a whole graph, in elements made and in multiplications: models come from untrusted files.
const BUDGET: u64 = 1 << 30;
/// What an element costs: its memory, not just its multiplication.
const PER_ELEMENT: u64 = 8;

/// What folding a layer costs.
pub(crate) fn fold_cost(layer: &dyn Layer) -> u64 {
    layer.work() + PER_ELEMENT * layer.shape().elements() as u64
}

/// The result of a node, if all that it computes on is constant.
pub(crate) fn fold(
    graph: &Graph,
    op: &str,
    inputs: &[Option<Id>],
    layer: &dyn Layer,
) -> Result<Option<Constant>, Refusal> {
    if let Some(known) = layer.known() {
        return Ok(Some(known));
    }
    let mut floats: Vec<&Tensor> = vec![];
    let mut ints: Vec<&Tensor<i64>> = vec![];
    let mut secret = false;
    for &id in inputs.iter().flatten() {
        match &graph.value(id).constant {
            Some(Constant::Floats(t)) => floats.push(t),
            Some(Constant::Ints(t)) => ints.push(t),
            None => secret = true,
        }
    }
    let first = inputs.first().copied().flatten().and_then(|id| graph.value(id).constant.as_ref());
    let on_ints = op == "Shape" || matches!(first, Some(Constant::Ints(_)));
    if secret && op != "Shape" {
        return Ok(None);
    }
    if graph.folding() + fold_cost(layer) > BUDGET {
        return refuse(
            "is too large to be computed when compiling",
            "compute it before you export the model",
        );
    }
    if on_ints {
        return match layer.fold_ints(&ints) {
            Some(folded) => Ok(Some(folded.into())),
            None => refuse("computes on integers", "export the model with static shapes"),
        };
    }
    let folded = layer.plain(&floats);
    // An infinite constant may yet become a mask; sharing it is refused.
    if folded.data.iter().any(|v| v.is_nan()) {
        return refuse("computes constants that are not numbers", "check the model's weights");
    }
    Ok(Some(folded.into()))
}
