//! The graph: nodes in an order in which they can run, values with static shapes, constants. No
//! protocol in it.

pub use crate::node::{Attribute, Attributes, Id};

use crate::gradients::Growing;
use crate::layer::Layer;
use crate::problem::Problem;
use crate::tensor::{Constant, Public, Tensor, sane};
use megrez_ring::Shape;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

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

    /// A value's matrix, if it is one that everybody knows.
    pub fn public(&self, id: Id) -> Option<&Arc<Public>> {
        match &self.value(id).constant {
            Some(Constant::Public(public)) => Some(public),
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

    /// Folding has cost more.
    pub(crate) fn pay_for_folding(&mut self, cost: u64) {
        self.folding += cost;
    }

    pub(crate) fn define(&mut self, name: &str, shape: Shape, constant: Option<Constant>) -> Id {
        self.values.push(Value { name: name.into(), shape, constant });
        Id(self.values.len() - 1)
    }

    /// `name` as a part of a step's path: `/` separates the parts, so it cannot stay; a number
    /// makes it unique.
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

impl Growing for Graph {
    fn grow(&mut self, name: &str, op: &str, inputs: &[Id], attributes: Attributes) -> Result<Id, Problem> {
        self.add(name, op, inputs, attributes)
    }
    fn declare(&mut self, name: &str, constant: Constant) -> Id {
        self.constant(name, constant)
    }
    fn shape_of(&self, id: Id) -> &Shape {
        self.shape(id)
    }
}
