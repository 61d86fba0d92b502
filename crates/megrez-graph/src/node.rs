//! What a node of a graph is written with: the values that it reads, and its attributes.

use crate::tensor::Constant;
use std::collections::BTreeMap;

/// A value of a graph: the index into [`Graph::values`](crate::Graph::values).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id(pub usize);

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
    /// A list of strings.
    Strings(Vec<String>),
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
