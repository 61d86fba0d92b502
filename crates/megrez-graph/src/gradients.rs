//! What a layer's backward is written with.

use crate::node::{Attribute, Attributes, Id};
use crate::problem::{Problem, Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use megrez_ring::Shape;

/// What nodes are appended to. A graph has layers, and layers write gradients: so these do not name
/// the graph.
pub trait Growing {
    /// Appends a node.
    fn grow(&mut self, name: &str, op: &str, inputs: &[Id], attributes: Attributes) -> Result<Id, Problem>;
    /// Declares a constant.
    fn declare(&mut self, name: &str, constant: Constant) -> Id;
    /// The dimensions of a value.
    fn shape_of(&self, id: Id) -> &Shape;
}

/// What a layer without [`Layer::backward`] is refused with.
pub(crate) const NO_BACKWARD: &str = "has no backward yet";

/// The operator's name in a graph of `factor` · x + `offset`, two attributes; ONNX has none for it.
pub(crate) const AFFINE: &str = "Affine";

/// What the names of all nodes of a backward pass begin with.
pub const BACKWARD: &str = "back.";

/// A graph to which a layer appends its backward.
pub struct Gradients<'a> {
    pub(crate) graph: &'a mut dyn Growing,
    /// The layer's node.
    pub(crate) node: String,
}

impl Gradients<'_> {
    /// Appends a node, named after the layer's node and `part`.
    pub fn add(
        &mut self,
        part: &str,
        op: &str,
        inputs: &[Id],
        attributes: Attributes,
    ) -> Result<Id, Refusal> {
        let name = format!("{BACKWARD}{}.{part}", self.node);
        self.graph.grow(&name, op, inputs, attributes).map_err(refusal)
    }

    /// Declares numbers that the backward pass needs.
    pub fn constant(&mut self, part: &str, constant: impl Into<Constant>) -> Id {
        let name = format!("{BACKWARD}{}.{part}", self.node);
        self.graph.declare(&name, constant.into())
    }

    /// The dimensions of a value.
    pub fn shape(&self, id: Id) -> &Shape {
        self.graph.shape_of(id)
    }

    /// The same elements under another shape.
    pub fn reshaped(&mut self, part: &str, x: Id, to: &Shape) -> Result<Id, Refusal> {
        if self.shape(x) == to {
            return Ok(x);
        }
        let dims = to.dims().iter().map(|&n| n as i64).collect();
        self.add(&format!("{part}.shape"), "Reshape", &[x], list("shape", dims))
    }

    /// The elements of x repeated to a shape.
    pub fn repeated(&mut self, part: &str, x: Id, to: &Shape) -> Result<Id, Refusal> {
        let dims: Vec<i64> = to.dims().iter().map(|&n| n as i64).collect();
        let dims = self.constant(&format!("{part}.to"), Tensor::<i64>::new([dims.len()], dims));
        self.add(&format!("{part}.all"), "Expand", &[x, dims], Attributes::none())
    }

    /// The gradient of a value with `size` elements along an axis, out of which `indices` were
    /// read: of each the sum over the places that have read it.
    pub fn unread(
        &mut self,
        part: &str,
        x: Id,
        axis: usize,
        indices: &[usize],
        size: usize,
    ) -> Result<Id, Refusal> {
        let mut places = vec![vec![]; size];
        indices.iter().enumerate().for_each(|(place, &i)| places[i].push(place));
        let most = places.iter().map(Vec::len).max().unwrap_or(0);
        if !(1..=MOST_READ).contains(&most) {
            return refuse(NO_BACKWARD, "it reads one element too often");
        }
        let rank = self.shape(x).rank();
        let mut pads = vec![0; 2 * rank];
        pads[rank + axis] = 1;
        // Behind the end there is a zero, for what nobody has read.
        let x = self.add(&format!("{part}.zero"), "Pad", &[x], list("pads", pads))?;
        let mut sum = None;
        for turn in 0..most {
            let place = |of: &Vec<usize>| of.get(turn).copied().unwrap_or(indices.len()) as i64;
            let index = Tensor::<i64>::new([size], places.iter().map(place).collect());
            let index = self.constant(&format!("{part}.places{turn}"), index);
            let along = Attributes::none().with("axis", axis as i64);
            let read = self.add(&format!("{part}.read{turn}"), "Gather", &[x, index], along)?;
            sum = Some(match sum {
                None => read,
                Some(sum) => {
                    self.add(&format!("{part}.sum{turn}"), "Add", &[sum, read], Attributes::none())?
                }
            });
        }
        Ok(sum.expect("there is at least one turn"))
    }

    /// The elements of x from `starts` on, `sizes` of them along each dimension.
    pub fn block(&mut self, part: &str, x: Id, starts: &[usize], sizes: &[usize]) -> Result<Id, Refusal> {
        let whole = |values: &mut dyn Iterator<Item = usize>| values.map(|v| v as i64).collect::<Vec<_>>();
        let ends = whole(&mut starts.iter().zip(sizes).map(|(a, b)| a + b));
        let attributes = Attributes::none()
            .with("axes", whole(&mut (0..starts.len())))
            .with("starts", whole(&mut starts.iter().copied()))
            .with("ends", ends);
        self.add(part, "Slice", &[x], attributes)
    }

    /// The product of two values of one shape.
    pub fn product(&mut self, part: &str, a: Id, b: Id) -> Result<Id, Refusal> {
        self.add(part, "Mul", &[a, b], Attributes::none())
    }

    /// factor · x + offset.
    pub fn affine(&mut self, part: &str, x: Id, factor: f32, offset: f32) -> Result<Id, Refusal> {
        self.add(part, AFFINE, &[x], Attributes::none().with("factor", factor).with("offset", offset))
    }

    /// The gradient of a function of one value, from its derivative.
    pub fn chain(&mut self, derivative: Id, of_output: Id) -> Result<Vec<Option<Id>>, Refusal> {
        Ok(vec![Some(self.product("input", of_output, derivative)?)])
    }

    /// The gradient of what was broadcast from shape `to`: summed over the dimensions along which
    /// it was repeated.
    pub fn summed(&mut self, part: &str, x: Id, to: &Shape) -> Result<Id, Refusal> {
        let from = self.shape(x).clone();
        let missing = from.rank() - to.rank();
        let repeated = |d: &usize| *d < missing || to.dims()[*d - missing] != from.dims()[*d];
        let axes: Vec<i64> = (0..from.rank()).filter(repeated).map(|d| d as i64).collect();
        if axes.is_empty() {
            return self.reshaped(part, x, to);
        }
        let sum = self.add(&format!("{part}.sum"), "ReduceSum", &[x], list("axes", axes))?;
        self.reshaped(part, sum, to)
    }
}

/// The most elements of a result that one element of a value may be read into, for its gradient to
/// be put together.
const MOST_READ: usize = 64;

/// Of a layer whose first input is its result: that has the gradient of the output, others none.
pub(crate) fn through_first(of_output: Id, wanted: &[bool]) -> Vec<Option<Id>> {
    let mut of_inputs = vec![None; wanted.len()];
    of_inputs[0] = Some(of_output);
    of_inputs
}

pub(crate) fn list(name: &str, values: Vec<i64>) -> Attributes {
    let mut attributes = Attributes::none();
    attributes.0.insert(name.into(), Attribute::Ints(values));
    attributes
}

pub(crate) fn refusal(problem: Problem) -> Refusal {
    let Problem { what, remedy, cause, .. } = problem;
    Refusal { what, remedy, cause }
}
