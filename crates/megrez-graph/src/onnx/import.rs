//! A file's graph becomes a graph of megrez, node by node. Everything that stands in the way is
//! listed.

use super::elements::STRINGS;
use super::importer::{Importer, Known, Names, label};
use super::kinds::{Kind, output_kind};
use super::options::{constant, fixed};
use super::{message, old, sequences};
use crate::graph::{Attribute, Attributes, Graph, Id};
use crate::layers::{self, FLATTENED, PUBLISHED, TO_TYPE};
use crate::passes::enumerate_tokens;
use crate::problem::{Problem, Problems, Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use std::collections::BTreeMap;

/// What to do about an input that the file leaves open.
const SHAPE: &str = "give the input's shape: --shape NAME=1,3,224,224, in Python shapes={…}";

impl<'a> Importer<'a> {
    pub(super) fn import(mut self, model: &message::Graph<'a>) -> Result<Graph, Problems> {
        self.initializers(model);
        self.constants(model);
        let data = || model.inputs.iter().filter(|i| !self.names.contains_key(i.name));
        let given = |i: &&message::ValueInfo| self.options.shapes.contains_key(i.name);
        let first = |i: &message::ValueInfo| i.dims.as_ref().and_then(|dims| dims.first().map(fixed));
        // A batch that no input leaves open is the file's.
        if self.options.batch != 1
            && !data().any(|i| given(&i) || matches!(first(i), Some(None)))
            && let Some((input, size)) = data().find_map(|i| Some((i, first(i)??)))
            && size != self.options.batch
        {
            let what = format!("the model is made for batches of {size}, not of {}", self.options.batch);
            let remedy = "export it with a dynamic batch dimension, or give the input's shape";
            self.problems.push(Refusal::new(what, remedy).at(input.name, ""));
        }
        for input in &model.inputs {
            // Old files list initializers among the inputs.
            if !self.names.contains_key(input.name) {
                let known = match self.options.shapes.get(input.name) {
                    Some(shape) if shape.contains(&0) => Ok(self.nothing(shape.clone())),
                    _ => self.input(input).map(|id| {
                        self.kinds.insert(id, Kind::of(input.element));
                        self.types.insert(id, input.element);
                        Known::Value(id)
                    }),
                };
                self.learn(input.name, known);
            }
        }
        self.nodes(&model.nodes);
        for output in &model.outputs {
            match self.names.get(output.name) {
                Some(&Known::Value(id)) => match self.published(id).and_then(|id| self.with_names(id)) {
                    Ok(id) => self.graph.output(output.name, id),
                    Err(problem) => self.problems.push(problem),
                },
                Some(Known::Failed) => {}
                Some(Known::Empty(_)) => {
                    self.problems.push(Refusal::new("the output has no elements", "").at(output.name, ""));
                }
                Some(Known::Sequence(_)) => {
                    let refusal = Refusal::new("the output is a sequence", "give its values one by one");
                    self.problems.push(refusal.at(output.name, ""));
                }
                None => {
                    self.problems.push(Refusal::new("no node defines this output", "").at(output.name, ""));
                }
            }
        }
        if self.problems.is_empty() && self.graph.outputs.is_empty() {
            self.problems.push(Refusal::new("the model has no output", "").at("(model)", ""));
        }
        if !self.problems.is_empty() {
            return Err(Problems(self.problems));
        }
        Ok(enumerate_tokens(&self.graph)?)
    }

    /// An output, which the plan must hold: integers that are known come into it.
    fn published(&mut self, id: Id) -> Result<Id, Problem> {
        // Tokens are no numbers; an output is.
        let beside = self.graph.outputs.first().map(|output| output.id);
        match (&self.graph.value(id).constant, beside.or(self.graph.inputs.first().copied())) {
            (Some(Constant::Ints(_)), Some(beside)) => {
                let name = self.graph.value(id).name.clone();
                self.graph.add(&name, PUBLISHED, &[beside, id], Attributes::none())
            }
            _ => Ok(id),
        }
    }

    /// The inputs that the options fix.
    fn constants(&mut self, model: &message::Graph<'a>) {
        for (name, value) in &self.options.constants {
            let input = model.inputs.iter().find(|i| i.name == name && !self.names.contains_key(i.name));
            let Some(input) = input else {
                let what = "is given as a constant, and the model has no such input";
                self.problems.push(Refusal::new(what, "look for the inputs' names").at(name, ""));
                continue;
            };
            let known = constant(input, value).map(|value| {
                let id = self.graph.constant(input.name, value);
                self.types.insert(id, input.element);
                Known::Value(id)
            });
            self.learn(input.name, known.map_err(|refusal| refusal.at(input.name, "")));
        }
    }

    pub(super) fn initializers(&mut self, model: &message::Graph<'a>) {
        for tensor in &model.tensors {
            self.once(tensor.name, tensor.name, "initializer");
            if tensor.element() == Ok(STRINGS) {
                let known = tensor.strings().map(|names| {
                    let places = (0..names.len() as i64).collect();
                    let id = self.graph.constant(tensor.name, Tensor::new([names.len()], places));
                    self.labels.insert(id, Names { names, columns: false });
                    Known::Value(id)
                });
                let known = known.map_err(|what| Refusal::new(what, "").at(tensor.name, "initializer"));
                self.learn(tensor.name, known);
                continue;
            }
            let known = tensor
                .decode(|place, bytes| self.beside.bytes(place, bytes))
                .map(|constant| Known::Value(self.graph.constant(tensor.name, constant)));
            let known = known.map_err(|what| Refusal::new(what, "").at(tensor.name, "initializer"));
            if let (Ok(Known::Value(id)), Ok(element)) = (&known, tensor.element()) {
                self.types.insert(*id, element);
            }
            self.learn(tensor.name, known);
        }
    }

    /// Reads nodes in their order and learns what their outputs are.
    pub(super) fn nodes(&mut self, nodes: &[message::Node<'a>]) {
        for node in nodes {
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                self.once(output, label(node), node.op);
            }
            match self.node(node) {
                Ok(known) => self.names.extend(node.outputs.iter().copied().zip(known)),
                Err(problem) => {
                    self.problems.extend(problem);
                    // What only this node could define is not complained about again.
                    self.names.extend(node.outputs.iter().map(|&name| (name, Known::Failed)));
                }
            }
        }
    }

    /// Every name has one meaning: a file that gives it two would be read in one way here and in
    /// another elsewhere.
    fn once(&mut self, name: &str, node: &str, op: &str) {
        if self.names.contains_key(name) {
            let what = format!("defines `{name}`, which is defined already");
            self.problems.push(Refusal::new(what, "export the model again").at(node, op));
        }
    }

    fn learn(&mut self, name: &'a str, known: Result<Known, Problem>) {
        let known = known.unwrap_or_else(|problem| {
            self.problems.push(problem);
            Known::Failed
        });
        self.names.insert(name, known);
    }

    /// A value without elements.
    fn nothing(&mut self, dims: Vec<usize>) -> Known {
        self.empty.push(dims);
        Known::Empty(self.empty.len() - 1)
    }

    fn input(&mut self, info: &message::ValueInfo) -> Result<Id, Problem> {
        let problem = |what: &str, remedy: &str| Refusal::new(what, remedy).at(info.name, "");
        // Integers are tokens, if a table is gathered by them, or just numbers.
        if !matches!(info.element, 1..=7 | 9..=13 | 16) {
            return Err(problem("the input does not hold numbers", "export the model in float32"));
        }
        if let Some(shape) = self.options.shapes.get(info.name) {
            return self.graph.input(info.name, shape.clone());
        }
        let Some(dims) = &info.dims else {
            return Err(problem("the input has no shape", SHAPE));
        };
        let mut shape = vec![];
        for (d, dim) in dims.iter().enumerate() {
            shape.push(match fixed(dim) {
                Some(size) => size,
                None if d == 0 => self.options.batch,
                None => {
                    let what = format!("dimension {d} of the input is open");
                    return Err(problem(&what, SHAPE));
                }
            });
        }
        self.graph.input(info.name, shape)
    }

    /// What a node's outputs are. `Err(None)` where one of its inputs has failed, which is known
    /// already.
    fn node(&mut self, node: &message::Node<'a>) -> Result<Vec<Known>, Option<Problem>> {
        let at = |refusal: Refusal| Some(refusal.at(label(node), node.op));
        if !matches!(node.domain, "" | "ai.onnx" | "ai.onnx.ml") {
            if let Some(function) = self.functions.get(&(node.domain, node.op)).cloned() {
                return self.function(node, &function);
            }
            let what = format!("the operator is of the domain `{}`", node.domain);
            return Err(at(Refusal::new(what, "export with standard operators only")));
        }
        if matches!(node.op, "If" | "Loop" | "Scan") {
            return self.control(node);
        }
        if sequences::handles(node.op) {
            return self.sequence(node);
        }
        if !layers::is_supported(node.op) {
            return Err(at(Refusal::new("the operator is not supported", layers::hint(node.op))));
        }
        let mut inputs = match self.inputs(node) {
            Ok(inputs) => inputs,
            Err(Some(Known::Empty(i))) => return self.on_nothing(node, i).map_err(at),
            Err(Some(Known::Sequence(_))) => {
                return Err(at(Refusal::new("reads a sequence", "take its values one by one")));
            }
            Err(Some(_)) => return Err(None),
            Err(None) => {
                let missing = node.inputs.iter().find(|n| !n.is_empty() && !self.names.contains_key(*n));
                let what = format!("reads `{}`, which nothing before it defines", missing.unwrap_or(&""));
                return Err(at(Refusal::new(what, "export the model again")));
            }
        };
        let mut attributes = Attributes::none();
        for (name, raw) in &node.attributes {
            let value = raw.decode().map_err(|what| at(Refusal::new(format!("`{name}` {what}"), "")))?;
            attributes.0.insert(name.to_string(), value);
        }
        let output = node.outputs.first().copied().unwrap_or("");
        // What is only joined to other values may have no elements.
        if let ("ConstantOfShape", [Some(dims)]) = (node.op, &inputs[..])
            && let Some(Constant::Ints(dims)) = &self.graph.value(*dims).constant
            && dims.data.contains(&0)
        {
            let dims = dims.data.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
            return Ok(vec![self.nothing(dims)]);
        }
        if node.op == "Constant" {
            let constant = held(&attributes).map_err(at)?;
            return Ok(vec![Known::Value(self.graph.constant(output, constant))]);
        }
        if self.opset < 7 {
            old::update(self, self.opset, node.op, &mut inputs, &mut attributes).map_err(at)?;
        }
        self.untrained(node, &inputs).map_err(at)?;
        let read_as = self.scaled_back.get(output).copied();
        if node.op == "DynamicQuantizeLinear" && read_as.is_none() {
            return Err(at(Refusal::new(
                "its integers are read by something else than a product that is scaled back by both scales",
                "quantise with static scales, or export the model in floating point",
            )));
        }
        let named = self.named_by(node, &inputs, &attributes).map_err(at)?;
        let kind = output_kind(&self.graph, &self.kinds, node.op, &inputs, &attributes).map_err(at)?;
        let op = self.modernise(node.op, &inputs, &mut attributes, kind);
        let inputs = if op == node.op { inputs } else { inputs[..1].to_vec() };
        let op = read_as.unwrap_or(op);
        let before = self.graph.values.len();
        let reads = |name: &&str| !name.is_empty() && self.read.contains(name);
        let read: Vec<bool> = node.outputs.iter().map(reads).collect();
        let ids = self
            .graph
            .add_nodes(node.name, op, &inputs, attributes, &read)
            .map_err(|p| Some(Problem { node: label(node).into(), op: node.op.into(), ..p }))?;
        if read.first() == Some(&true) {
            self.labels.extend(named.map(|named| (ids[0], named)));
        }
        if let Some(extra) = node.outputs.iter().zip(&read).skip(ids.len()).find(|(_, read)| **read) {
            let what = format!("its extra output `{}` is used, which is not supported", extra.0);
            return Err(at(Refusal::new(what, "use its first output only")));
        }
        for (i, (&id, &name)) in ids.iter().zip(&node.outputs).enumerate() {
            // A value that was there before keeps its name.
            if id.0 >= before {
                self.graph.values[id.0].name = name.into();
            }
            let kind = if i > 0 { Kind::of_extra(node.op, kind) } else { kind };
            if kind != Kind::Real {
                self.kinds.insert(id, kind);
            }
        }
        Ok(ids.into_iter().map(Known::Value).collect())
    }

    /// A node's inputs; `Err` with the first that is no value, or with nothing where a name means
    /// nothing.
    fn inputs(&self, node: &message::Node<'a>) -> Result<Vec<Option<Id>>, Option<Known>> {
        let mut inputs = vec![];
        for &name in &node.inputs {
            match self.names.get(name) {
                _ if name.is_empty() => inputs.push(None),
                Some(Known::Value(id)) => inputs.push(Some(*id)),
                // Joining nothing to something leaves it as it is.
                Some(Known::Empty(_)) if node.op == "Concat" => {}
                other => return Err(other.copied()),
            }
        }
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        Ok(inputs)
    }

    /// What a node gives that reads a value without elements.
    fn on_nothing(&mut self, node: &message::Node<'a>, i: usize) -> Result<Vec<Known>, Refusal> {
        if node.op == "Shape" && node.attributes.is_empty() {
            let dims: Vec<i64> = self.empty[i].iter().map(|&d| d as i64).collect();
            let output = node.outputs.first().copied().unwrap_or("");
            return Ok(vec![Known::Value(self.graph.constant(output, Tensor::new([dims.len()], dims)))]);
        }
        // Nothing times a number is nothing.
        let single = |name: &&str| match self.names.get(*name) {
            Some(Known::Empty(other)) => *other == i,
            Some(Known::Value(id)) => self.graph.shape(*id).elements() == 1,
            _ => false,
        };
        let pointwise = ["Add", "Cast", "Div", "Identity", "Mul", "Neg", "Relu", "Sigmoid", "Sub", "Tanh"];
        if pointwise.contains(&node.op) && node.inputs.iter().all(single) {
            return Ok(vec![Known::Empty(i)]);
        }
        let nothing = |name: &&&str| matches!(self.names.get(**name), Some(Known::Empty(_)));
        let name = node.inputs.iter().find(nothing).copied().unwrap_or_default();
        refuse(format!("reads `{name}`, which has no elements"), "give the input at least one element")
    }

    /// Refuses nodes that train: what they compute depends on chance or on the other inputs of the
    /// batch.
    fn untrained(&self, node: &message::Node<'a>, inputs: &[Option<Id>]) -> Result<(), Refusal> {
        let eval = "call `model.eval()` before you export the model";
        match node.op {
            "Dropout" => match inputs.get(2).copied().flatten().map(|id| &self.graph.value(id).constant) {
                None => Ok(()),
                Some(Some(Constant::Ints(t))) if t.data[..] == [0] => Ok(()),
                Some(Some(_)) => refuse("is in training mode: it drops numbers at random", eval),
                Some(None) => refuse("whether it is in training mode depends on an input", eval),
            },
            // Before set 14 there was no attribute: the means and variances of the batch as outputs
            // said it.
            "BatchNormalization" if self.opset < 14 && node.outputs.iter().skip(1).any(|o| !o.is_empty()) => {
                refuse("is in training mode: it has outputs for the batch's mean and variance", eval)
            }
            _ => Ok(()),
        }
    }

    /// Says what older operator sets left to defaults that have changed since, and what a cast of
    /// secret numbers is: gives the operator to use.
    fn modernise<'o>(
        &self,
        op: &'o str,
        inputs: &[Option<Id>],
        attributes: &mut Attributes,
        to: Kind,
    ) -> &'o str {
        // Up to set 12, all dimensions from the axis on were one.
        if self.opset < 13 && matches!(op, "Softmax" | "LogSoftmax" | "Hardmax") {
            attributes.0.entry("axis".into()).or_insert(Attribute::Int(1));
            attributes.0.insert(FLATTENED.into(), Attribute::Int(1));
        }
        // Integers of the result have the type of its zero point.
        let zero = match op {
            "QuantizeLinear" => inputs.get(2),
            "QLinearConv" | "QLinearMatMul" => inputs.get(7),
            _ => None,
        };
        if let Some(zero) = zero.copied().flatten() {
            let element = self.types.get(&zero).copied().unwrap_or(-1);
            attributes.0.insert(TO_TYPE.into(), Attribute::Int(element));
        }
        let Some(id) = inputs.first().copied().flatten().filter(|_| matches!(op, "Cast" | "CastLike")) else {
            return op;
        };
        if self.graph.value(id).constant.is_some() {
            let to = attributes.0.get("to").cloned().unwrap_or(Attribute::Int(to.number()));
            *attributes = Attributes(BTreeMap::from([("to".into(), to)]));
            return "Cast";
        }
        *attributes = Attributes::none();
        match (self.kinds.get(&id).copied().unwrap_or(Kind::Real), to) {
            (Kind::Real, Kind::Whole) => layers::TOWARDS_ZERO,
            (Kind::Real | Kind::Whole, Kind::Bool) => layers::NOT_ZERO,
            _ => "Identity",
        }
    }
}

/// The value of a Constant node.
fn held(attributes: &Attributes) -> Result<Constant, Refusal> {
    let mut values = attributes.0.iter();
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Ok(match value.clone() {
            Attribute::Tensor(t) => t,
            Attribute::Float(v) => Tensor::new([], vec![v]).into(),
            Attribute::Floats(v) => Tensor::new([v.len()], v).into(),
            Attribute::Int(v) => Tensor::new([], vec![v]).into(),
            Attribute::Ints(v) => Tensor::new([v.len()], v).into(),
            Attribute::String(_) | Attribute::Strings(_) => return refuse("holds a string", "remove it"),
        }),
        _ => refuse("does not have one value", "export the model again"),
    }
}
