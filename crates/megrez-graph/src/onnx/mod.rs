//! Reading ONNX models: operator sets 7 to 22, weights inside the file, float32.
//!
//! Everything that stands in the way is listed at once, with the node's name and what to do. Files are not trusted:
//! sizes and counts are bounded, and no bytes lead to a panic.

mod message;
mod protobuf;

use crate::graph::{Attribute, Attributes, Graph, Id};
use crate::layers;
use crate::problem::{Cause, Problem, Problems, Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Protobuf files cannot be larger.
const MAX_FILE: u64 = 1 << 31;
/// What to do about an input that the file leaves open.
const SHAPE: &str = "give the input's shape: --shape NAME=1,3,224,224, in Python shapes={…}";
/// The operator sets whose semantics the layers follow.
const OPSETS: std::ops::RangeInclusive<i64> = 7..=22;

/// What the file leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The size of the first dimension of every input where the model leaves it open.
    pub batch: usize,
    /// Whole shapes for inputs by name; they replace what the model says. An input without elements may be joined to
    /// others only.
    pub shapes: BTreeMap<String, Vec<usize>>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions { batch: 1, shapes: BTreeMap::new() }
    }
}

/// Reads a model from a file of at most 2 GiB.
pub fn read_file(path: &Path, options: &ImportOptions) -> Result<Graph, Problems> {
    read(&bytes(path)?, options)
}

/// The bytes of a file of at most 2 GiB.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Problems> {
    let place = path.display().to_string();
    let problem =
        |what: String| Problems::from(Refusal::new(what, "").because(Cause::Invalid).at(&place, ""));
    let file = File::open(path).map_err(|e| problem(e.to_string()))?;
    let mut bytes = vec![];
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| problem(e.to_string()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(problem("has more than 2 GiB, which no ONNX model can".into()));
    }
    Ok(bytes)
}

/// Bytes that are no ONNX model.
fn damaged(what: String) -> Problems {
    Refusal::new(what, "export the model again").because(Cause::Damaged).at("(model)", "").into()
}

/// Reads a model. Memory: a small multiple of the bytes.
pub fn read(bytes: &[u8], options: &ImportOptions) -> Result<Graph, Problems> {
    let whole = |what: String, remedy: &str| Problems::from(Refusal::new(what, remedy).at("(model)", ""));
    let model = message::model(bytes).map_err(damaged)?;
    let Some(graph) = model.graph else {
        return Err(whole("there is no graph in the file".into(), "is it an ONNX model?"));
    };
    let opset = model.opset.unwrap_or(0);
    if !OPSETS.contains(&opset) {
        let (first, last) = OPSETS.into_inner();
        return Err(whole(
            format!("uses operator set {opset}, megrez reads {first} to {last}"),
            "export with opset_version=17",
        ));
    }
    if graph.has_sparse {
        return Err(whole("has sparse weights".into(), "export them dense"));
    }
    Importer::new(&graph, opset, options).import(&graph)
}

/// An input as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInput {
    /// Its name.
    pub name: String,
    /// Its dimensions; `None` where the file does not even say how many.
    pub dims: Option<Vec<Dim>>,
}

/// A dimension of a declared input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Of this size.
    Fixed(usize),
    /// Of any size; the file's name for it, which may be empty.
    Open(String),
}

impl fmt::Display for FileInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => size.to_string(),
            Dim::Open(name) if name.is_empty() => "?".into(),
            Dim::Open(name) => name.clone(),
        };
        match &self.dims {
            Some(dims) => {
                write!(f, "`{}` [{}]", self.name, dims.iter().map(dim).collect::<Vec<_>>().join(", "))
            }
            None => write!(f, "`{}` of unknown shape", self.name),
        }
    }
}

/// The inputs of a model in a file's bytes, weights left out.
pub fn inputs(bytes: &[u8]) -> Result<Vec<FileInput>, Problems> {
    let model = message::model(bytes).map_err(damaged)?;
    let graph = model.graph.ok_or_else(|| damaged("there is no graph in the file".into()))?;
    let weights: HashSet<&str> = graph.tensors.iter().map(|t| t.name).collect();
    let dim = |dim: &message::Dim| fixed(dim).map_or_else(|| Dim::Open(dim.name.into()), Dim::Fixed);
    let declared = |i: &message::ValueInfo| FileInput {
        name: i.name.into(),
        dims: i.dims.as_ref().map(|dims| dims.iter().map(dim).collect()),
    };
    Ok(graph.inputs.iter().filter(|i| !weights.contains(i.name)).map(declared).collect())
}

/// The size of a dimension; `None` without one, or with one that exporters write for "any".
fn fixed(dim: &message::Dim) -> Option<usize> {
    dim.size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0)
}

/// What is known of a name of the model.
#[derive(Clone, Copy)]
enum Known {
    Value(Id),
    /// An input without elements, such as a language model's past before its first token.
    Empty(usize),
    /// A node that has a problem should define it.
    Failed,
}

struct Importer<'a> {
    graph: Graph,
    opset: i64,
    options: &'a ImportOptions,
    names: HashMap<&'a str, Known>,
    /// The dimensions of inputs without elements.
    empty: Vec<Vec<usize>>,
    /// Names that a node reads or the graph gives.
    read: HashSet<&'a str>,
    /// Secret values that hold integers.
    integers: HashSet<Id>,
    problems: Vec<Problem>,
}

impl<'a> Importer<'a> {
    fn new(model: &message::Graph<'a>, opset: i64, options: &'a ImportOptions) -> Self {
        let read = model.nodes.iter().flat_map(|n| n.inputs.iter().copied());
        let read = read.chain(model.outputs.iter().map(|o| o.name)).collect();
        Importer {
            graph: Graph::new(model.name),
            opset,
            options,
            names: HashMap::new(),
            empty: vec![],
            read,
            integers: HashSet::new(),
            problems: vec![],
        }
    }

    fn import(mut self, model: &message::Graph<'a>) -> Result<Graph, Problems> {
        for tensor in &model.tensors {
            self.once(tensor.name, tensor.name, "initializer");
            let known =
                tensor.decode().map(|constant| Known::Value(self.graph.constant(tensor.name, constant)));
            let known = known.map_err(|what| Refusal::new(what, "").at(tensor.name, "initializer"));
            self.learn(tensor.name, known);
        }
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
                    Some(shape) if shape.contains(&0) => {
                        self.empty.push(shape.clone());
                        Ok(Known::Empty(self.empty.len() - 1))
                    }
                    _ => self.input(input).map(|id| {
                        if input.element != 1 {
                            self.integers.insert(id);
                        }
                        Known::Value(id)
                    }),
                };
                self.learn(input.name, known);
            }
        }
        for node in &model.nodes {
            for output in node.outputs.iter().filter(|output| !output.is_empty()) {
                self.once(output, if node.name.is_empty() { output } else { node.name }, node.op);
            }
            if node.op == "Split" {
                self.split(node);
                continue;
            }
            let output = node.outputs.first().copied().unwrap_or_default();
            match self.node(node) {
                Ok(known) => self.names.insert(output, known),
                Err(problem) => {
                    self.problems.push(problem);
                    // What only this node could define is not complained about again.
                    self.names.extend(node.outputs.iter().map(|&name| (name, Known::Failed)));
                    None
                }
            };
        }
        for output in &model.outputs {
            match self.names.get(output.name) {
                Some(&Known::Value(id)) => self.graph.output(output.name, id),
                Some(Known::Failed) => {}
                Some(Known::Empty(_)) => {
                    self.problems.push(Refusal::new("the output has no elements", "").at(output.name, ""));
                }
                None => {
                    self.problems.push(Refusal::new("no node defines this output", "").at(output.name, ""));
                }
            }
        }
        if self.problems.is_empty() && self.graph.outputs.is_empty() {
            self.problems.push(Refusal::new("the model has no output", "").at("(model)", ""));
        }
        if self.problems.is_empty() { Ok(self.graph) } else { Err(Problems(self.problems)) }
    }

    /// Every name has one meaning: a file that gives it two would be read in one way here and in another elsewhere.
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

    fn input(&mut self, info: &message::ValueInfo) -> Result<Id, Problem> {
        let problem = |what: &str, remedy: &str| Refusal::new(what, remedy).at(info.name, "");
        // Integers are tokens, if a table is gathered by them, or just numbers.
        if ![1, 6, 7].contains(&info.element) {
            return Err(problem(
                "the input is neither float32 nor of integers",
                "export the model in float32",
            ));
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

    fn node(&mut self, node: &message::Node<'a>) -> Result<Known, Problem> {
        // The name that the file uses; the graph makes an empty one up.
        let label =
            if node.name.is_empty() { node.outputs.first().copied().unwrap_or("?") } else { node.name };
        let at = |refusal: Refusal| refusal.at(label, node.op);
        if !matches!(node.domain, "" | "ai.onnx") {
            let what = format!("the operator is of the domain `{}`", node.domain);
            return Err(at(Refusal::new(what, "export with standard operators only")));
        }
        if !layers::is_supported(node.op) {
            return Err(at(Refusal::new("the operator is not supported", layers::hint(node.op))));
        }
        if let Some(extra) = node.outputs.iter().skip(1).find(|o| !o.is_empty() && self.read.contains(*o)) {
            let what = format!("its extra output `{extra}` is used, which is not supported");
            return Err(at(Refusal::new(what, "use its first output only")));
        }
        let mut inputs = vec![];
        for &name in &node.inputs {
            match self.names.get(name) {
                _ if name.is_empty() => inputs.push(None),
                Some(Known::Value(id)) => inputs.push(Some(*id)),
                Some(Known::Failed) => return Ok(Known::Failed),
                // Joining nothing to something leaves it as it is.
                Some(Known::Empty(_)) if node.op == "Concat" => {}
                Some(&Known::Empty(i)) if node.op == "Shape" && node.attributes.is_empty() => {
                    let dims: Vec<i64> = self.empty[i].iter().map(|&d| d as i64).collect();
                    let output = node.outputs.first().copied().unwrap_or("");
                    return Ok(Known::Value(self.graph.constant(output, Tensor::new([dims.len()], dims))));
                }
                Some(Known::Empty(_)) => {
                    let what = format!("reads `{name}`, which has no elements");
                    return Err(at(Refusal::new(what, "give the input at least one element")));
                }
                None => {
                    let what = format!("reads `{name}`, which nothing before it defines");
                    return Err(at(Refusal::new(what, "export the model again")));
                }
            }
        }
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        let mut attributes = Attributes::none();
        for (name, raw) in &node.attributes {
            let value = raw.decode().map_err(|what| at(Refusal::new(format!("`{name}` {what}"), "")))?;
            attributes.0.insert(name.to_string(), value);
        }
        let output = node.outputs.first().copied().unwrap_or("");
        if node.op == "Constant" {
            let constant = constant(&attributes).map_err(at)?;
            return Ok(Known::Value(self.graph.constant(output, constant)));
        }
        self.modernise(node.op, &inputs, &mut attributes).map_err(at)?;
        self.untrained(node, &inputs).map_err(at)?;
        let whole = self.whole_numbers(node.op, &inputs, &attributes).map_err(at)?;
        let id = self
            .graph
            .add_node(node.name, node.op, &inputs, attributes)
            .map_err(|p| Problem { node: label.into(), ..p })?;
        self.graph.values[id.0].name = output.into();
        if whole {
            self.integers.insert(id);
        }
        Ok(Known::Value(id))
    }

    /// Refuses nodes that train: what they compute depends on chance or on the other inputs of the batch.
    fn untrained(&self, node: &message::Node<'a>, inputs: &[Option<Id>]) -> Result<(), Refusal> {
        let eval = "call `model.eval()` before you export the model";
        match node.op {
            "Dropout" => match inputs.get(2).copied().flatten().map(|id| &self.graph.value(id).constant) {
                None => Ok(()),
                Some(Some(Constant::Ints(t))) if t.data[..] == [0] => Ok(()),
                Some(Some(_)) => refuse("is in training mode: it drops numbers at random", eval),
                Some(None) => refuse("whether it is in training mode depends on an input", eval),
            },
            // Before set 14 there was no attribute: the means and variances of the batch as outputs said it.
            "BatchNormalization" if self.opset < 14 && node.outputs.iter().skip(1).any(|o| !o.is_empty()) => {
                refuse("is in training mode: it has outputs for the batch's mean and variance", eval)
            }
            _ => Ok(()),
        }
    }

    /// Whether a node gives integers; refuses what means something else on integers than on real numbers, which is all that
    /// shares hold.
    fn whole_numbers(
        &self,
        op: &str,
        inputs: &[Option<Id>],
        attributes: &Attributes,
    ) -> Result<bool, Refusal> {
        let secret = |id: &Id| self.graph.value(*id).constant.is_none();
        let integer = |id: &Id| secret(id) && self.integers.contains(id);
        let integers = inputs.iter().flatten().any(integer);
        let reals = inputs.iter().flatten().any(|id| secret(id) && !integer(id));
        match op {
            "Cast" => match attributes.0.get("to") {
                Some(Attribute::Int(6 | 7)) if reals => refuse(
                    "rounds secret numbers to integers",
                    "keep values in float32, or round them where the result is used",
                ),
                Some(Attribute::Int(to)) => Ok(integers && *to != 1 && *to != 11),
                _ => Ok(false),
            },
            "ReduceMean" | "AveragePool" | "Reciprocal" | "Sqrt"
                if !inputs.first().is_some_and(|x| x.as_ref().is_some_and(integer)) =>
            {
                Ok(false)
            }
            "Div" | "Pow" | "ReduceMean" | "AveragePool" | "Reciprocal" | "Sqrt" if integers => refuse(
                "computes with secret integers, which it would have to round",
                "cast them to float32 before",
            ),
            // Of what a gather reads, the indices are integers.
            "Gather" => Ok(inputs.first().is_some_and(|x| x.as_ref().is_some_and(integer))),
            _ => Ok(integers),
        }
    }

    /// Split as one Slice per output: nodes of the graph define one value.
    fn split(&mut self, node: &message::Node<'a>) {
        let label =
            if node.name.is_empty() { node.outputs.first().copied().unwrap_or("?") } else { node.name };
        let slices = match self.slices(node) {
            Ok(slices) => slices,
            Err(refusal) => {
                self.problems.extend(refusal.map(|refusal| refusal.at(label, node.op)));
                self.names.extend(node.outputs.iter().map(|&name| (name, Known::Failed)));
                return;
            }
        };
        for (&output, (x, [axis, start, end])) in node.outputs.iter().zip(slices) {
            if output.is_empty() {
                continue;
            }
            let attributes =
                Attributes::none().with("starts", [start]).with("ends", [end]).with("axes", [axis]);
            let known = self.graph.add(output, "Slice", &[x], attributes).map(|id| {
                self.graph.values[id.0].name = output.into();
                if self.integers.contains(&x) {
                    self.integers.insert(id);
                }
                Known::Value(id)
            });
            self.learn(output, known);
        }
    }

    /// What a Split takes from which value for each output: axis, start and end. `None` where its input has failed.
    fn slices(&self, node: &message::Node<'a>) -> Result<Vec<(Id, [i64; 3])>, Option<Refusal>> {
        let wrong = |what: &str| Err(Some(Refusal::new(what, "export the model again")));
        let known = |i: usize| self.names.get(node.inputs.get(i).copied().unwrap_or_default());
        let x = match known(0) {
            Some(Known::Value(id)) => *id,
            Some(Known::Failed) => return Err(None),
            Some(Known::Empty(_)) => return wrong("splits what has no elements"),
            None => return wrong("reads what nothing before it defines"),
        };
        let (mut axis, mut sizes) = (0, None);
        for (name, raw) in &node.attributes {
            match (*name, raw.decode()) {
                ("axis", Ok(Attribute::Int(a))) => axis = a,
                ("split", Ok(Attribute::Ints(s))) => sizes = Some(s),
                ("num_outputs", Ok(Attribute::Int(n))) if n == node.outputs.len() as i64 => {}
                _ => return wrong("has an attribute that is not understood"),
            }
        }
        match known(1) {
            Some(Known::Value(id)) => match &self.graph.value(*id).constant {
                Some(Constant::Ints(t)) => sizes = Some(t.data.clone()),
                _ => return wrong("has sizes that are not known when compiling"),
            },
            Some(Known::Failed) => return Err(None),
            Some(Known::Empty(_)) | None => {}
        }
        let shape = self.graph.shape(x);
        let rank = shape.rank() as i64;
        let axis = if axis < 0 { axis + rank } else { axis };
        let Some(&total) = usize::try_from(axis).ok().and_then(|a| shape.dims().get(a)) else {
            return wrong("splits along a dimension that there is not");
        };
        let (total, parts) = (total as i64, node.outputs.len() as i64);
        let sizes = sizes.unwrap_or_else(|| {
            // Equal parts, the last one smaller.
            let part = (total + parts - 1) / parts.max(1);
            (0..parts).map(|i| part.min(total - i * part)).collect()
        });
        let fits = sizes.len() == node.outputs.len() && sizes.iter().all(|&s| s > 0 && s <= total);
        if !fits || sizes.iter().sum::<i64>() != total {
            return wrong("has sizes that do not make up the dimension");
        }
        let mut start = 0;
        Ok(sizes
            .iter()
            .map(|size| {
                start += size;
                (x, [axis, start - size, start])
            })
            .collect())
    }

    /// Says what older operator sets left to defaults that have changed since.
    fn modernise(&self, op: &str, inputs: &[Option<Id>], attributes: &mut Attributes) -> Result<(), Refusal> {
        if self.opset < 13 && matches!(op, "Softmax" | "LogSoftmax") {
            let rank = inputs.first().copied().flatten().map_or(0, |id| self.graph.shape(id).rank());
            let axis = attributes.0.entry("axis".into()).or_insert(Attribute::Int(1));
            // Up to set 12, all dimensions from the axis on were one.
            if *axis != Attribute::Int(rank as i64 - 1) && *axis != Attribute::Int(-1) {
                return refuse(
                    "flattens its input, as operator sets before 13 do",
                    "export with opset_version=17",
                );
            }
        }
        Ok(())
    }
}

/// The value of a Constant node.
fn constant(attributes: &Attributes) -> Result<Constant, Refusal> {
    let mut values = attributes.0.iter();
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Ok(match value.clone() {
            Attribute::Tensor(t) => t,
            Attribute::Float(v) => Tensor::new([], vec![v]).into(),
            Attribute::Floats(v) => Tensor::new([v.len()], v).into(),
            Attribute::Int(v) => Tensor::new([], vec![v]).into(),
            Attribute::Ints(v) => Tensor::new([v.len()], v).into(),
            Attribute::String(_) => return refuse("holds a string", "remove it"),
        }),
        _ => refuse("does not have one value", "export the model again"),
    }
}
