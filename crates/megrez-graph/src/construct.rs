//! A graph grows by a node. An operator that is made of others becomes those
//! ([`crate::decompose`]); any other is understood by the table of layers. A node on constants is
//! folded at once, because other layers read weights and shapes when they are understood.

use crate::decompose::{Parts, decomposition};
use crate::graph::{Attributes, Graph, Id, Node};
use crate::layer::Layer;
use crate::layers::call::Call;
use crate::layers::understand;
use crate::problem::{Problem, Refusal, refuse};
use crate::tensor::{Constant, Tensor, sane};

/// What folding may cost in a whole graph, in elements made and in multiplications: models come
/// from untrusted files.
const BUDGET: u64 = 1 << 31;
/// What an element costs: its memory, not just its multiplication.
const PER_ELEMENT: u64 = 8;
/// The most nodes of a graph: a few operators become many.
const MAX_NODES: usize = 1 << 17;

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
        Ok(self.add_nodes(name, op, inputs, attributes, &[true])?[0])
    }

    /// Like [`Graph::add_node`], for operators with several outputs: `read` says for each whether
    /// anything reads it. Gives at least the first output, and those further ones that megrez
    /// computes; what is not read may be the value of another output.
    pub fn add_nodes(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[Option<Id>],
        attributes: Attributes,
        read: &[bool],
    ) -> Result<Vec<Id>, Problem> {
        let inputs = self.numbers(op, inputs);
        let Some(decompose) = decomposition(op) else {
            return Ok(vec![self.add_layer(name, op, &inputs, attributes)?]);
        };
        let name = self.node_name(name, op);
        let mut parts = Parts {
            graph: self,
            name: &name,
            op,
            attributes: &attributes,
            inputs: &inputs,
            read,
            named: false,
        };
        let outputs = decompose(&mut parts).map_err(|r| r.at(&name, op))?;
        assert!(!outputs.is_empty(), "a decomposition gives the first output");
        Ok(outputs)
    }

    /// Has an input take `size` elements along an axis, of which what reads it gets the first ones,
    /// as many as it has taken until now.
    ///
    /// # Errors
    /// If there is no such input, or it cannot be cut from so many.
    pub fn crop_input(&mut self, name: &str, axis: usize, size: usize) -> Result<(), Problem> {
        let place = self.inputs.iter().position(|&id| self.value(id).name == name);
        let place = place.ok_or_else(|| Refusal::new("there is no such input", "").at(name, ""))?;
        let cropped = self.inputs[place];
        let mut dims = self.shape(cropped).dims().to_vec();
        let last = dims.get(axis).copied().unwrap_or(0);
        if last == 0 || size < last {
            return Err(Refusal::new(format!("{last} elements are not the first of {size}"), "").at(name, ""));
        }
        dims[axis] = size;
        let whole = sane(dims.into()).map_err(|r| r.at(name, ""))?;
        self.inputs[place] = self.define(name, whole, None);
        let part = format!("{name}.read");
        let ends = Attributes::none().with("axes", [axis as i64]).with("starts", [0]);
        self.add(&part, "Slice", &[self.inputs[place]], ends.with("ends", [last as i64]))?;
        // What has read the input reads this node, which so comes before them.
        let mut node = self.nodes.pop().expect("just added");
        node.output = cropped;
        self.values.pop();
        self.values[cropped.0].name = part;
        self.nodes.insert(0, node);
        Ok(())
    }

    /// Appends a node that the table of layers understands.
    pub(crate) fn add_layer(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[Option<Id>],
        attributes: Attributes,
    ) -> Result<Id, Problem> {
        let name = self.node_name(name, op);
        self.add_named(&name, op, inputs, attributes)
    }

    /// As [`Graph::add_layer`], for a name that [`Graph::node_name`] has made.
    pub(crate) fn add_named(
        &mut self,
        name: &str,
        op: &str,
        inputs: &[Option<Id>],
        attributes: Attributes,
    ) -> Result<Id, Problem> {
        if self.nodes.len() >= MAX_NODES {
            let what = format!("the graph has more than {MAX_NODES} nodes once operators are taken apart");
            return Err(Refusal::new(what, "split the model").at(name, op));
        }
        let call = Call { graph: self, attributes: &attributes, inputs };
        let layer = understand(op, &call)
            .and_then(|layer| match layer.known() {
                // Lists of integers may be empty: shapes of what has no dimensions.
                Some(Constant::Ints(_)) => Ok(layer),
                _ => sane(layer.shape().clone()).map(|_| layer),
            })
            .map_err(|r| r.at(name, op))?;
        if let Some(constant) = fold(self, op, inputs, &*layer).map_err(|r| r.at(name, op))? {
            self.pay_for_folding(fold_cost(&*layer));
            return Ok(self.constant(name, constant));
        }
        let output = self.define(name, layer.shape().clone(), None);
        self.nodes.push(Node {
            name: name.into(),
            op: op.into(),
            attributes,
            inputs: inputs.to_vec(),
            output,
            layer,
        });
        Ok(output)
    }

    /// Pays for a list of so many places that a node is steered by, or refuses it: a small file may
    /// ask for long ones.
    pub(crate) fn afford(&mut self, places: usize) -> Result<(), Refusal> {
        let cost = PER_ELEMENT.saturating_mul(places as u64);
        if self.folding().saturating_add(cost) > BUDGET {
            return refuse(
                "rearranges too many elements one by one",
                "use a smaller batch, or split the model",
            );
        }
        self.pay_for_folding(cost);
        Ok(())
    }

    /// The inputs of a node that computes with integers of the model and with other numbers: the
    /// integers are numbers then, too.
    fn numbers(&mut self, op: &str, inputs: &[Option<Id>]) -> Vec<Option<Id>> {
        let of_numbers = match op {
            "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Mod" | "Pow" | "Sum" | "Mean" | "Concat"
            | "PRelu" | "MatMul" | "Gemm" | "Clip" | "Equal" | "Greater" | "GreaterOrEqual" | "Less"
            | "LessOrEqual" | "And" | "Or" | "Xor" => 0..usize::MAX,
            "Where" => 1..3,
            // A table whose rows are named by what is secret is shared.
            "Gather" => 0..1,
            // The number to pad with is of the kind of the data.
            "Pad" => 2..3,
            _ => return inputs.to_vec(),
        };
        let ints = |id: &Id| matches!(self.value(*id).constant, Some(Constant::Ints(_)));
        let compared = match op {
            "Pad" => 0..1,
            "Gather" => 0..2,
            _ => of_numbers.clone(),
        };
        let all = (inputs.iter().enumerate())
            .filter(|(i, _)| compared.contains(i))
            .all(|(_, id)| id.as_ref().is_none_or(ints));
        if all {
            return inputs.to_vec();
        }
        let mut convert = |id: Option<Id>| {
            let value = self.value(id?);
            let Some(Constant::Ints(t)) = value.constant.clone() else { return id };
            let name = value.name.clone();
            let data = t.data.iter().map(|&v| v as f32).collect();
            Some(self.constant(&name, Tensor::new(t.shape.clone(), data)))
        };
        let each = inputs.iter().enumerate();
        each.map(|(i, &id)| if of_numbers.contains(&i) { convert(id) } else { id }).collect()
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
        return match graph.folding() + fold_cost(layer) > BUDGET {
            true => refuse("makes constants that are too large", "compute them before you export the model"),
            false => Ok(Some(known)),
        };
    }
    let mut floats: Vec<&Tensor> = vec![];
    let mut ints: Vec<&Tensor<i64>> = vec![];
    let mut secret = false;
    for &id in inputs.iter().flatten() {
        match &graph.value(id).constant {
            Some(Constant::Floats(t)) => floats.push(t),
            Some(Constant::Ints(t)) => ints.push(t),
            // What is multiplied by a public matrix is not folded.
            Some(Constant::Public(_)) | None => secret = true,
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
