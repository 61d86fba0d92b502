//! A graph grows by a node: the table of layers understands it, and a node on constants is folded
//! at once, because other layers read weights and shapes when they are understood.

use crate::graph::{Attributes, Graph, Id, Node};
use crate::layer::Layer;
use crate::layers::call::Call;
use crate::layers::understand;
use crate::problem::{Problem, Refusal, refuse};
use crate::tensor::{Constant, Tensor, sane};

/// What folding may cost in a whole graph, in elements made and in multiplications: models come
/// from untrusted files.
const BUDGET: u64 = 1 << 30;
/// What an element costs: its memory, not just its multiplication.
const PER_ELEMENT: u64 = 8;

impl Graph {
    /// Appends a node and gives the value that it defines, which is named like the node. An empty
    /// name becomes the operator's with a number. A node on constants is computed at once and
    /// leaves only its result, a constant.
    pub fn add(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[Id],
        attributes: Attributes,
    ) -> Result<Id, Problem> {
        let inputs: Vec<Option<Id>> = inputs.iter().copied().map(Some).collect();
        self.add_node(name, op, &inputs, attributes)
    }

    /// Like [`Graph::add`], with optional inputs left out.
    pub fn add_node(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[Option<Id>],
        attributes: Attributes,
    ) -> Result<Id, Problem> {
        let name = self.node_name(name, op);
        let call = Call { graph: self, attributes: &attributes, inputs };
        let layer = understand(op, &call)
            .and_then(|layer| sane(layer.shape().clone()).map(|_| layer))
            .map_err(|r| r.at(&name, op))?;
        if let Some(constant) = fold(self, op, inputs, &*layer).map_err(|r| r.at(&name, op))? {
            self.pay_for_folding(fold_cost(&*layer));
            return Ok(self.constant(&name, constant));
        }
        let output = self.define(&name, layer.shape().clone(), None);
        self.nodes.push(Node { name, op: op.into(), attributes, inputs: inputs.to_vec(), output, layer });
        Ok(output)
    }
}

/// What folding a layer costs.
fn fold_cost(layer: &dyn Layer) -> u64 {
    layer.work() + PER_ELEMENT * layer.shape().elements() as u64
}

/// The result of a node, if all that it computes on is constant.
fn fold(
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
