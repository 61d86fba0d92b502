//! Tensors in the clear, and what belongs to a model.

use crate::problem::{Refusal, refuse};
use megrez_plan::View;
use megrez_ring::Shape;
use megrez_weights::Matrix;
use std::fmt;
use std::sync::Arc;

/// More elements than this in one value of a graph are refused (1 GiB of f32): models come from
/// untrusted files.
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
    /// A matrix of weights that everybody knows ([`Publisher`](crate::Publisher)).
    Public(Arc<Public>),
}

/// A public matrix as a constant of a graph.
#[derive(Debug, PartialEq)]
pub struct Public {
    shape: Shape,
    /// What a layer multiplies by, or takes rows of.
    pub matrix: Arc<Matrix>,
}

impl Public {
    /// Its numbers.
    pub fn tensor(&self) -> Tensor {
        Tensor::new(self.shape.clone(), self.matrix.values())
    }
}

impl From<Arc<Matrix>> for Constant {
    fn from(matrix: Arc<Matrix>) -> Self {
        let shape = [matrix.rows(), matrix.columns()].into();
        Constant::Public(Arc::new(Public { shape, matrix }))
    }
}

impl Constant {
    /// Its dimensions.
    pub fn shape(&self) -> &Shape {
        match self {
            Constant::Floats(t) => &t.shape,
            Constant::Ints(t) => &t.shape,
            Constant::Public(p) => &p.shape,
        }
    }
}

/// Weights are secret and don't print.
impl fmt::Debug for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Floats(t) => write!(f, "weights {}", t.shape),
            Constant::Ints(t) => write!(f, "{:?}", t.data),
            Constant::Public(p) => write!(f, "{:?}", p.matrix),
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

/// Numbers for a hash, some at a time: models are large.
pub(crate) fn hash_numbers(hasher: &mut blake3::Hasher, numbers: &[f32]) {
    for some in numbers.chunks(1 << 12) {
        let bytes: Vec<u8> = some.iter().flat_map(|v| v.to_le_bytes()).collect();
        hasher.update(&bytes);
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

/// A number of 16 bits: a sign, 5 bits of exponent, 10 of fraction.
pub(crate) fn half(bits: u16) -> f32 {
    let fraction = f32::from(bits & 0x3ff) / 1024.0;
    let size = match bits >> 10 & 0x1f {
        0 => fraction * 2f32.powi(-14),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        exponent => (1.0 + fraction) * 2f32.powi(i32::from(exponent) - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}
