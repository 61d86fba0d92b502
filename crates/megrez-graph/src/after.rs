//! What is left to the recipient: work in the clear on what is revealed.

use crate::tensor::Tensor;
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};

/// Work of the recipient on an opened output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum After {
    /// exp(x) / Σ exp(x) along an axis.
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// The logarithm of Softmax.
    LogSoftmax {
        /// The axis.
        axis: usize,
    },
    /// The index of the largest element along an axis, as a number.
    ArgMax {
        /// The axis.
        axis: usize,
        /// Whether the axis stays, with size 1.
        keep: bool,
        /// Whether the last of equal elements wins, not the first.
        last: bool,
    },
    /// Is 0, or all other outputs of the run are worth nothing: some value has left the range that
    /// was measured ([`CompileOptions::guard`](crate::CompileOptions::guard)). No output of the
    /// model's.
    InRange,
    /// Numbers are places in a list of names, such as the labels of classes. The numbers stay as
    /// they are; [`Revealed::named`](crate::Revealed::named) has the names.
    Labels {
        /// The names.
        names: Vec<String>,
    },
    /// The columns along the last dimension have names. The numbers stay as they are.
    Columns {
        /// The names, one for each column.
        names: Vec<String>,
    },
}

/// The most names of a list, and the most bytes of one: they come from files and from parties.
pub(crate) const MAX_NAMES: usize = 1 << 12;
pub(crate) const MAX_NAME: usize = 1 << 8;

impl After {
    /// The axis along which elements meet, if any do.
    pub fn axis(&self) -> Option<usize> {
        match *self {
            After::Softmax { axis } | After::LogSoftmax { axis } | After::ArgMax { axis, .. } => Some(axis),
            After::Labels { .. } | After::Columns { .. } | After::InRange => None,
        }
    }

    /// Whether it can be done to a value of this shape: it may come from anywhere.
    pub fn fits(&self, from: &Shape) -> bool {
        let sane =
            |names: &[String]| names.len() <= MAX_NAMES && names.iter().all(|name| name.len() <= MAX_NAME);
        match self {
            After::Labels { names } => sane(names),
            After::Columns { names } => sane(names) && from.dims().last() == Some(&names.len()),
            After::InRange => true,
            _ => self.axis().is_some_and(|axis| axis < from.rank()),
        }
    }

    /// The shape of the result.
    ///
    /// # Panics
    /// If the axis is outside of the shape.
    pub fn shape(&self, from: &Shape) -> Shape {
        let mut dims = from.dims().to_vec();
        match *self {
            After::ArgMax { axis, keep: true, .. } => dims[axis] = 1,
            After::ArgMax { axis, .. } => drop(dims.remove(axis)),
            _ => {}
        }
        dims.into()
    }

    /// The result on an opened value.
    ///
    /// # Panics
    /// If the axis is outside of the shape.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        let Some(axis) = self.axis() else { return x.clone() };
        let (stride, size) = (x.shape.strides()[axis], x.shape.dims()[axis]);
        let shape = self.shape(&x.shape);
        let mut y = Tensor::filled(shape.clone(), 0.0);
        for line in 0..x.data.len() / size {
            let start = line / stride * stride * size + line % stride;
            let places = || (0..size).map(|i| start + i * stride);
            let largest = places().map(|p| x.data[p]).fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = places().map(|p| f64::from(x.data[p] - largest).exp()).sum();
            match *self {
                After::Softmax { .. } => {
                    places().for_each(|p| y.data[p] = (f64::from(x.data[p] - largest).exp() / sum) as f32);
                }
                After::LogSoftmax { .. } => {
                    places().for_each(|p| y.data[p] = (f64::from(x.data[p] - largest) - sum.ln()) as f32);
                }
                After::ArgMax { last, .. } => {
                    let mut equal = (0..size).filter(|i| x.data[start + i * stride] == largest);
                    let index = if last { equal.next_back() } else { equal.next() };
                    y.data[line] = index.unwrap_or(0) as f32;
                }
                After::Labels { .. } | After::Columns { .. } | After::InRange => {
                    unreachable!("they have no axis")
                }
            }
        }
        y
    }
}
