//! A node while it is being understood: what layers ask of its inputs and attributes.

use crate::graph::{Attribute, Attributes, Graph, Id};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_ring::Shape;
use std::sync::Arc;

/// The attribute of a node that stands for more digits than floating point has: a choice by a
/// secret condition, b + c·(a − b), and the levels of a quantised number, whose ties such a product
/// misses.
pub(crate) const FIXED_ONLY: &str = "fixed_only";

/// The refusal of such a node in floating point.
pub(super) fn refuse_floats<T>() -> Result<T, Refusal> {
    refuse(
        "chooses by a secret condition, or quantises, where floating point loses digits",
        "run it in fixed point: --numbers fixed",
    )
}

/// A node while it is being understood.
pub struct Call<'a> {
    /// The graph so far.
    pub graph: &'a Graph,
    /// The node's attributes.
    pub attributes: &'a Attributes,
    /// The node's inputs.
    pub inputs: &'a [Option<Id>],
}

impl Call<'_> {
    /// Refuses attributes other than these, and more inputs than `inputs`: what is not understood
    /// is not ignored.
    pub(crate) fn only(&self, inputs: usize, attributes: &[&str]) -> Result<(), Refusal> {
        if self.inputs.len() > inputs {
            return refuse(format!("has {} inputs, takes {inputs}", self.inputs.len()), "");
        }
        match self.attributes.0.keys().find(|name| !attributes.contains(&name.as_str())) {
            Some(name) => refuse(format!("the attribute `{name}` is not supported"), "remove it"),
            None => Ok(()),
        }
    }

    pub(crate) fn id(&self, input: usize) -> Result<Id, Refusal> {
        match self.inputs.get(input) {
            Some(Some(id)) => Ok(*id),
            _ => refuse(format!("input {input} is missing"), ""),
        }
    }

    pub(crate) fn has(&self, input: usize) -> bool {
        matches!(self.inputs.get(input), Some(Some(_)))
    }

    /// The shape of an input that holds real numbers.
    pub(crate) fn shape(&self, input: usize) -> Result<&Shape, Refusal> {
        let value = self.graph.value(self.id(input)?);
        match value.constant {
            Some(Constant::Ints(_)) => {
                refuse(format!("input {input} (`{}`) holds integers", value.name), "use float32")
            }
            _ => Ok(&value.shape),
        }
    }

    /// The shape of an input of any type.
    pub(crate) fn any_shape(&self, input: usize) -> Result<&Shape, Refusal> {
        Ok(self.graph.shape(self.id(input)?))
    }

    /// An input that must be weights of the model.
    pub(crate) fn floats(&self, input: usize) -> Result<&Arc<Tensor>, Refusal> {
        let id = self.id(input)?;
        match self.graph.floats(id) {
            Some(t) => Ok(t),
            None => refuse(
                format!("input {input} (`{}`) must be a constant of the model", self.graph.value(id).name),
                "",
            ),
        }
    }

    pub(crate) fn is_constant(&self, input: usize) -> bool {
        self.id(input).is_ok_and(|id| self.graph.value(id).constant.is_some())
    }

    /// A real number given as attribute (older opsets) or as a constant input.
    pub(crate) fn number(&self, input: usize, attribute: &str) -> Result<Option<f32>, Refusal> {
        if !self.has(input) {
            return Ok(match self.attributes.0.get(attribute) {
                Some(Attribute::Float(v)) => Some(*v),
                Some(_) => return refuse(format!("`{attribute}` is not a number"), ""),
                None => None,
            });
        }
        match self.floats(input)?.data[..] {
            [v] => Ok(Some(v)),
            _ => refuse(format!("input {input} is not one number"), ""),
        }
    }

    /// Integers given as attribute (older opsets) or as a constant input.
    pub(crate) fn integers(&self, input: usize, attribute: &str) -> Result<Option<Vec<i64>>, Refusal> {
        if !self.has(input) {
            return self.ints(attribute);
        }
        let value = self.graph.value(self.id(input)?);
        match &value.constant {
            Some(Constant::Ints(t)) => Ok(Some(t.data.clone())),
            _ => refuse(
                format!("input {input} (`{}`) must be integers known when compiling", value.name),
                "export the model with static shapes",
            ),
        }
    }

    pub(crate) fn int(&self, name: &str, default: i64) -> Result<i64, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Int(v)) => Ok(*v),
            Some(_) => refuse(format!("`{name}` is not an integer"), ""),
            None => Ok(default),
        }
    }

    pub(crate) fn float(&self, name: &str, default: f32) -> Result<f32, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Float(v)) if v.is_finite() => Ok(*v),
            Some(_) => refuse(format!("`{name}` is not a finite number"), ""),
            None => Ok(default),
        }
    }

    pub(crate) fn string(&self, name: &str, default: &str) -> Result<String, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::String(v)) => Ok(v.clone()),
            Some(_) => refuse(format!("`{name}` is not a string"), ""),
            None => Ok(default.into()),
        }
    }

    pub(crate) fn strings(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Strings(v)) => Ok(Some(v.clone())),
            Some(_) => refuse(format!("`{name}` is not a list of strings"), ""),
            None => Ok(None),
        }
    }

    /// A list of numbers, which may be a tensor; of doubles it has another name.
    pub(crate) fn reals(&self, name: &str) -> Result<Option<Vec<f32>>, Refusal> {
        let of_doubles = || self.attributes.0.get(&format!("{name}_as_tensor"));
        match self.attributes.0.get(name).or_else(of_doubles) {
            Some(Attribute::Floats(v)) => Ok(Some(v.clone())),
            Some(Attribute::Tensor(Constant::Floats(t))) if t.shape.rank() == 1 => Ok(Some(t.data.clone())),
            Some(_) => refuse(format!("`{name}` is not a list of numbers"), ""),
            None => Ok(None),
        }
    }

    pub(crate) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, Refusal> {
        match self.attributes.0.get(name) {
            Some(Attribute::Ints(v)) => Ok(Some(v.clone())),
            Some(_) => refuse(format!("`{name}` is not a list of integers"), ""),
            None => Ok(None),
        }
    }

    /// A list of `N` small non-negative integers.
    pub(crate) fn sizes<const N: usize>(
        &self,
        name: &str,
        default: [usize; N],
    ) -> Result<[usize; N], Refusal> {
        let Some(list) = self.ints(name)? else { return Ok(default) };
        let sizes: Vec<usize> =
            list.iter().filter_map(|&v| usize::try_from(v).ok()).filter(|&v| v < 1 << 24).collect();
        match <[usize; N]>::try_from(sizes) {
            Ok(sizes) if list.len() == N => Ok(sizes),
            _ => refuse(format!("`{name}` = {list:?} is not {N} sizes"), "only 2-D images are supported"),
        }
    }
}

/// A dimension counted from the end if negative.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Refusal> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match from_start.and_then(|a| usize::try_from(a).ok()) {
        Some(a) if a < rank => Ok(a),
        _ => refuse(format!("axis {axis} is outside of {rank} dimensions"), ""),
    }
}

/// The four dimensions of a batch of images.
pub(crate) fn image(shape: &Shape) -> Result<[usize; 4], Refusal> {
    match shape.dims().try_into() {
        Ok(dims) => Ok(dims),
        Err(_) => refuse(format!("takes images [N, C, H, W], got {shape}"), "only 2-D images are supported"),
    }
}
