//! A node while it is taken apart: what it asks of its inputs and attributes, and the nodes that it
//! adds.

use crate::graph::{Attributes, Graph, Id};
use crate::layers::call::Call;
use crate::layers::{AFFINE, POLYNOMIAL};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// A node while it is taken apart.
pub(crate) struct Parts<'a> {
    pub(crate) graph: &'a mut Graph,
    pub(crate) name: &'a str,
    pub(crate) op: &'a str,
    pub(crate) attributes: &'a Attributes,
    pub(crate) inputs: &'a [Option<Id>],
    /// For each output, whether anything reads it.
    pub(crate) read: &'a [bool],
    /// Whether a part has the node's own name.
    pub(crate) named: bool,
}

/// Where an element of a rearrangement comes from: the number of a source and the place in it.
pub(crate) type Place = Option<(usize, usize)>;

impl Parts<'_> {
    /// What the node says: its attributes and constant inputs.
    pub(crate) fn call(&self) -> Call<'_> {
        Call { graph: self.graph, attributes: self.attributes, inputs: self.inputs }
    }

    /// An input.
    pub(crate) fn input(&self, i: usize) -> Result<Id, Refusal> {
        self.call().id(i)
    }

    /// Whether an input is there.
    pub(crate) fn has(&self, i: usize) -> bool {
        self.call().has(i)
    }

    /// All inputs that are there.
    pub(crate) fn given(&self) -> Vec<Id> {
        self.inputs.iter().copied().flatten().collect()
    }

    /// Whether anything reads output `i`.
    pub(crate) fn reads(&self, i: usize) -> bool {
        self.read.get(i).copied().unwrap_or(false)
    }

    /// The dimensions of a value.
    pub(crate) fn dims(&self, x: Id) -> Vec<usize> {
        self.graph.shape(x).dims().to_vec()
    }

    /// Whether a value belongs to the model.
    pub(crate) fn is_constant(&self, x: Id) -> bool {
        self.graph.value(x).constant.is_some()
    }

    /// The integers of an input that must be known when compiling.
    pub(crate) fn known_ints(&self, i: usize) -> Result<Arc<Tensor<i64>>, Refusal> {
        let value = self.graph.value(self.input(i)?);
        match &value.constant {
            Some(Constant::Ints(t)) => Ok(t.clone()),
            _ => refuse(
                format!("input {i} (`{}`) must be integers known when compiling", value.name),
                "make it a constant of the model",
            ),
        }
    }

    /// The numbers of a constant input.
    pub(crate) fn known_floats(&self, i: usize) -> Result<Arc<Tensor>, Refusal> {
        let value = self.graph.value(self.input(i)?);
        match &value.constant {
            Some(Constant::Floats(t)) => Ok(t.clone()),
            Some(Constant::Public(p)) => Ok(Arc::new(p.tensor())),
            Some(Constant::Ints(t)) => {
                Ok(Arc::new(Tensor::new(t.shape.clone(), t.data.iter().map(|&v| v as f32).collect())))
            }
            None => refuse(
                format!("input {i} (`{}`) must be a constant of the model", value.name),
                "make it a constant of the model",
            ),
        }
    }

    /// The node as the table of layers understands it.
    pub(crate) fn itself(&mut self) -> Result<Vec<Id>, Refusal> {
        let (op, inputs, attributes) = (self.op, self.inputs, self.attributes.clone());
        Ok(vec![self.layer(op, inputs, attributes)?])
    }

    /// A node of an operator that a layer has. The first of the node's own operator keeps its name:
    /// a copy of it is taken apart into itself.
    pub(crate) fn layer(
        &mut self,
        op: &str,
        inputs: &[Option<Id>],
        attributes: Attributes,
    ) -> Result<Id, Refusal> {
        if op == self.op && !self.named {
            self.named = true;
            return self.graph.add_named(self.name, op, inputs, attributes).map_err(into_refusal);
        }
        let name = format!("{}.{}", self.name, op.to_lowercase());
        self.graph.add_layer(&name, op, inputs, attributes).map_err(into_refusal)
    }

    /// A node of any operator, with attributes.
    pub(crate) fn node(&mut self, op: &str, inputs: &[Id], attributes: Attributes) -> Result<Id, Refusal> {
        let name = format!("{}.{}", self.name, op.to_lowercase());
        self.graph.add(&name, op, inputs, attributes).map_err(into_refusal)
    }

    /// A node of any operator, without attributes.
    pub(crate) fn of(&mut self, op: &str, inputs: &[Id]) -> Result<Id, Refusal> {
        self.node(op, inputs, Attributes::none())
    }

    /// A constant of the model.
    pub(crate) fn constant(&mut self, constant: impl Into<Constant>) -> Id {
        let name = format!("{}.constant", self.name);
        self.graph.constant(&name, constant)
    }

    /// One number of the model.
    pub(crate) fn number(&mut self, v: f32) -> Id {
        self.constant(Tensor::new([], vec![v]))
    }

    /// A list of integers.
    pub(crate) fn ints(&mut self, list: &[usize]) -> Id {
        self.constant(Tensor::new([list.len()], list.iter().map(|&v| v as i64).collect()))
    }

    /// factor·x + offset, of numbers that belong to the architecture.
    pub(crate) fn affine(&mut self, x: Id, factor: f32, offset: f32) -> Result<Id, Refusal> {
        if (factor, offset) == (1.0, 0.0) {
            return Ok(x);
        }
        self.node(AFFINE, &[x], Attributes::none().with("factor", factor).with("offset", offset))
    }

    /// c0 + c1·x + … + c7·x⁷ for x between −1 and 1, with numbers of the architecture.
    pub(crate) fn polynomial(&mut self, x: Id, coefficients: [f32; 8]) -> Result<Id, Refusal> {
        let attributes = (0..8).fold(Attributes::none(), |a, i| a.with(&format!("c{i}"), coefficients[i]));
        self.node(POLYNOMIAL, &[x], attributes)
    }

    pub(crate) fn plus(&mut self, a: Id, b: Id) -> Result<Id, Refusal> {
        self.of("Add", &[a, b])
    }

    pub(crate) fn minus(&mut self, a: Id, b: Id) -> Result<Id, Refusal> {
        self.of("Sub", &[a, b])
    }

    pub(crate) fn times(&mut self, a: Id, b: Id) -> Result<Id, Refusal> {
        self.of("Mul", &[a, b])
    }

    /// x to a constant power.
    pub(crate) fn power(&mut self, x: Id, exponent: f32) -> Result<Id, Refusal> {
        let exponent = self.number(exponent);
        self.of("Pow", &[x, exponent])
    }

    /// The same elements under another shape.
    pub(crate) fn reshape(&mut self, x: Id, to: &[usize]) -> Result<Id, Refusal> {
        let to = self.ints(to);
        self.node("Reshape", &[x, to], Attributes::none().with("allowzero", 1))
    }

    /// With the dimensions in another order.
    pub(crate) fn transpose(&mut self, x: Id, order: &[usize]) -> Result<Id, Refusal> {
        let order: Vec<i64> = order.iter().map(|&d| d as i64).collect();
        self.node("Transpose", &[x], Attributes::none().with("perm", order))
    }

    /// The slices of an axis from one place to before another.
    pub(crate) fn slice(&mut self, x: Id, axis: usize, range: Range<usize>) -> Result<Id, Refusal> {
        let attributes = Attributes::none()
            .with("starts", [range.start as i64])
            .with("ends", [range.end as i64])
            .with("axes", [axis as i64]);
        self.node("Slice", &[x], attributes)
    }

    /// Values joined along an axis.
    pub(crate) fn concat(&mut self, parts: &[Id], axis: usize) -> Result<Id, Refusal> {
        match parts {
            [one] => Ok(*one),
            _ => self.node("Concat", parts, Attributes::none().with("axis", axis as i64)),
        }
    }

    /// The sum along dimensions, which stay with size 1 or go.
    pub(crate) fn sum(&mut self, x: Id, axes: &[usize], keep: bool) -> Result<Id, Refusal> {
        let axes = self.ints(axes);
        self.node("ReduceSum", &[x, axes], Attributes::none().with("keepdims", i64::from(keep)))
    }

    /// Slices of an axis by public index.
    pub(crate) fn gather(&mut self, x: Id, axis: usize, indices: &[usize]) -> Result<Id, Refusal> {
        self.graph.afford(indices.len())?;
        let indices = self.ints(indices);
        self.node("Gather", &[x, indices], Attributes::none().with("axis", axis as i64))
    }

    /// A value of this shape whose elements come from public places; zeros where there is none.
    /// Local.
    pub(crate) fn places(
        &mut self,
        sources: &[Id],
        shape: &[usize],
        places: &[Place],
    ) -> Result<Id, Refusal> {
        let mut flat = vec![];
        let mut starts = vec![];
        let mut total = 0;
        for &source in sources {
            let n = self.graph.shape(source).elements();
            flat.push(self.reshape(source, &[n])?);
            starts.push(total);
            total += n;
        }
        let mut flat = self.concat(&flat, 0)?;
        if places.iter().any(Option::is_none) {
            flat = self.node("Pad", &[flat], Attributes::none().with("pads", [0, 1]))?;
        }
        let indices: Vec<usize> = places.iter().map(|p| p.map_or(total, |(s, at)| starts[s] + at)).collect();
        let picked = self.gather(flat, 0, &indices)?;
        self.reshape(picked, shape)
    }
}

/// What stands in the way of a part stands in the way of the node.
fn into_refusal(problem: crate::problem::Problem) -> Refusal {
    Refusal { what: problem.what, remedy: problem.remedy, cause: problem.cause }
}

/// Adds the parts of a node and gives its outputs, the first one at least.
pub(crate) type Decompose = fn(&mut Parts) -> Result<Vec<Id>, Refusal>;
