//! The graph: nodes in an order in which they can run, values with static shapes, constants. No protocol in it.

use crate::layers::{self, Call, Layer};
use crate::passes;
use crate::problem::{Problem, Refusal, refuse};
use megrez_plan::View;
use megrez_ring::Shape;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// More elements than this in one value of a graph are refused (1 GiB of f32): models come from untrusted files.
pub const MAX_ELEMENTS: usize = 1 << 28;

/// A dense row-major tensor in the clear.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<T = f32> {
    /// Its dimensions.
    pub shape: Shape,
    /// Its elements, row-major; as many as the shape has.
    pub data: Vec<T>,
}

impl<T: Copy> Tensor<T> {
    /// A tensor of these elements.
    ///
    /// # Panics
    /// If the elements do not fill the shape.
    pub fn new(shape: impl Into<Shape>, data: Vec<T>) -> Self {
        let shape = shape.into();
        assert_eq!(shape.elements(), data.len(), "elements do not fill the shape {shape}");
        Tensor { shape, data }
    }

    /// A tensor of one value.
    pub fn filled(shape: impl Into<Shape>, value: T) -> Self {
        let shape = shape.into();
        let data = vec![value; shape.elements()];
        Tensor { shape, data }
    }

    /// The elements that a view of this tensor addresses.
    pub fn view(&self, view: &View) -> Self {
        // A view of the first elements is contiguous as well.
        let data = if view.is_contiguous() && view.shape.elements() == self.data.len() {
            self.data.clone()
        } else {
            view.indices().map(|i| self.data[i]).collect()
        };
        Tensor { shape: view.shape.clone(), data }
    }

    /// The same elements under another shape with as many elements.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Self {
        Tensor::new(shape, self.data.clone())
    }
}

/// A tensor that belongs to the model.
#[derive(Clone, PartialEq)]
pub enum Constant {
    /// Weights.
    Floats(Arc<Tensor>),
    /// Shapes, axes and indices; they steer layers and are never shared.
    Ints(Arc<Tensor<i64>>),
}

impl Constant {
    /// Its dimensions.
    pub fn shape(&self) -> &Shape {
        match self {
            Constant::Floats(t) => &t.shape,
            Constant::Ints(t) => &t.shape,
        }
    }
}

/// Weights are secret and don't print.
impl fmt::Debug for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Floats(t) => write!(f, "weights {}", t.shape),
            Constant::Ints(t) => write!(f, "{:?}", t.data),
        }
    }
}

impl From<Tensor> for Constant {
    fn from(t: Tensor) -> Self {
        Constant::Floats(Arc::new(t))
    }
}

impl From<Tensor<i64>> for Constant {
    fn from(t: Tensor<i64>) -> Self {
        Constant::Ints(Arc::new(t))
    }
}

/// A value of a graph: the index into [`Graph::values`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub usize);

/// A named value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its name in the model.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// Its elements, if they belong to the model.
    pub constant: Option<Constant>,
}

/// What a node's attribute holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f32),
    /// A string.
    String(String),
    /// A list of integers.
    Ints(Vec<i64>),
    /// A list of real numbers.
    Floats(Vec<f32>),
    /// A tensor.
    Tensor(Constant),
}

impl From<i64> for Attribute {
    fn from(v: i64) -> Self {
        Attribute::Int(v)
    }
}

impl From<f32> for Attribute {
    fn from(v: f32) -> Self {
        Attribute::Float(v)
    }
}

impl From<&str> for Attribute {
    fn from(v: &str) -> Self {
        Attribute::String(v.into())
    }
}

impl<const N: usize> From<[i64; N]> for Attribute {
    fn from(v: [i64; N]) -> Self {
        Attribute::Ints(v.to_vec())
    }
}

impl From<Vec<i64>> for Attribute {
    fn from(v: Vec<i64>) -> Self {
        Attribute::Ints(v)
    }
}

/// A node's attributes by name, as ONNX defines them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub BTreeMap<String, Attribute>);

impl Attributes {
    /// No attributes.
    pub fn none() -> Self {
        Attributes::default()
    }

    /// These attributes and one more.
    pub fn with(mut self, name: &str, value: impl Into<Attribute>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }
}

/// One application of an operator.
#[derive(Clone)]
pub struct Node {
    /// Its name; unique in the graph, of letters, digits, `.`, `-` and `_`.
    pub name: String,
    /// The ONNX operator.
    pub op: String,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its inputs; `None` where an optional input is left out.
    pub inputs: Vec<Option<Id>>,
    /// The value that it defines.
    pub output: Id,
    /// The operator, understood.
    pub layer: Arc<dyn Layer>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}{:?} {:?}", self.name, self.op, self.inputs, self.attributes)
    }
}

/// A model with static shapes.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The model's name.
    pub name: String,
    /// All values; inputs, constants and what nodes define.
    pub values: Vec<Value>,
    /// The nodes, each after the nodes that it depends on.
    pub nodes: Vec<Node>,
    /// What the data owner provides.
    pub inputs: Vec<Id>,
    /// What the recipient learns.
    pub outputs: Vec<Output>,
    /// The nodes' names, and for each the next number that makes a namesake unique.
    names: HashMap<String, usize>,
    /// What constant folding has cost so far.
    folding: u64,
}

/// A value that the recipient learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The name that the recipient knows it by.
    pub name: String,
    /// The value.
    pub id: Id,
}

impl Graph {
    /// A graph without nodes.
    pub fn new(name: &str) -> Self {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// A value.
    ///
    /// # Panics
    /// If `id` is of another graph.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id.0]
    }

    /// The dimensions of a value.
    pub fn shape(&self, id: Id) -> &Shape {
        &self.value(id).shape
    }

    /// A value's elements, if they are weights.
    pub fn floats(&self, id: Id) -> Option<&Arc<Tensor>> {
        match &self.value(id).constant {
            Some(Constant::Floats(t)) => Some(t),
            _ => None,
        }
    }

    /// Declares an input. Every dimension is at least 1.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>) -> Result<Id, Problem> {
        let shape = sane(shape.into()).map_err(|r| r.at(name, ""))?;
        let id = self.define(name, shape, None);
        self.inputs.push(id);
        Ok(id)
    }

    /// Declares weights, or integers that steer layers.
    pub fn constant(&mut self, name: &str, constant: impl Into<Constant>) -> Id {
        let constant = constant.into();
        self.define(name, constant.shape().clone(), Some(constant))
    }

    /// Appends a node and gives the value that it defines, which is named like the node. An empty name becomes the
    /// operator's with a number. A node on constants is computed at once and leaves only its result, a constant.
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
        let layer = layers::understand(op, &call)
            .and_then(|layer| sane(layer.shape().clone()).map(|_| layer))
            .map_err(|r| r.at(&name, op))?;
        if let Some(constant) = passes::fold(self, op, inputs, &*layer).map_err(|r| r.at(&name, op))? {
            self.folding += passes::fold_cost(&*layer);
            return Ok(self.constant(&name, constant));
        }
        let output = self.define(&name, layer.shape().clone(), None);
        self.nodes.push(Node { name, op: op.into(), attributes, inputs: inputs.to_vec(), output, layer });
        Ok(output)
    }

    /// Declares that the recipient learns a value, under this name.
    pub fn output(&mut self, name: &str, id: Id) {
        self.outputs.push(Output { name: name.into(), id });
    }

    /// For every value, the nodes that read it, by index; a node that reads it twice occurs twice.
    pub fn readers(&self) -> Vec<Vec<usize>> {
        let mut readers = vec![vec![]; self.values.len()];
        for (n, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().flatten().for_each(|id| readers[id.0].push(n));
        }
        readers
    }

    /// Whether the recipient learns a value.
    pub fn is_output(&self, id: Id) -> bool {
        self.outputs.iter().any(|output| output.id == id)
    }

    /// What constant folding has cost so far.
    pub(crate) fn folding(&self) -> u64 {
        self.folding
    }

    fn define(&mut self, name: &str, shape: Shape, constant: Option<Constant>) -> Id {
        self.values.push(Value { name: name.into(), shape, constant });
        Id(self.values.len() - 1)
    }

    /// `name` as a part of a step's path: `/` separates the parts, so it cannot stay; a number makes it unique.
    pub(crate) fn node_name(&mut self, name: &str, op: &str) -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '.' };
        let clean: String = name.trim_matches('/').chars().take(200).map(keep).collect();
        let base = match clean.as_str() {
            "" => op.chars().take(60).map(keep).collect::<String>().to_lowercase(),
            _ if !self.names.contains_key(&clean) => {
                self.names.insert(clean.clone(), 2);
                return clean;
            }
            _ => clean + "_",
        };
        loop {
            let number = self.names.entry(base.clone()).or_insert(if base.ends_with('_') { 2 } else { 1 });
            let name = format!("{base}{number}");
            *number += 1;
            if !self.names.contains_key(&name) {
                self.names.insert(name.clone(), 2);
                return name;
            }
        }
    }
}

/// Refuses shapes without elements and shapes that no machine holds.
pub(crate) fn sane(shape: Shape) -> Result<Shape, Refusal> {
    match shape.clone().checked() {
        Ok(s) if s.rank() <= 8 && (1..=MAX_ELEMENTS).contains(&s.elements()) => Ok(s),
        _ => refuse(
            format!("a value of shape {shape} has no elements, more than 2^28 or more than 8 dimensions"),
            "give the model sane input shapes or a smaller batch",
        ),
    }
}
