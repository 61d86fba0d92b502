//! What a file leaves open.

use super::message;
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the file leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportOptions {
    /// The size of the first dimension of every input where the model leaves it open.
    pub batch: usize,
    /// Whole shapes for inputs by name; they replace what the model says. An input without elements
    /// may be joined to others only.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Values of inputs by name, which are constants of the model then: a mask, a rate, a
    /// temperature. Integers and truth values are whole numbers of at most 2^24.
    pub constants: BTreeMap<String, Tensor>,
    /// The folder in which weights may lie in files of their own, as `external_data` names them.
    /// Without it, models must have their weights inside. [`read_file`](super::read_file) takes the
    /// folder of the file.
    pub folder: Option<PathBuf>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions { batch: 1, shapes: BTreeMap::new(), constants: BTreeMap::new(), folder: None }
    }
}

/// The size of a dimension; `None` without one, or with one that exporters write for "any".
pub(super) fn fixed(dim: &message::Dim) -> Option<usize> {
    dim.size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0)
}

/// The constant that an input is, whose type and dimensions the file declares.
pub(super) fn constant(info: &message::ValueInfo, value: &Tensor) -> Result<Constant, Refusal> {
    let dims = value.shape.dims();
    let differs = |declared: &Vec<message::Dim>| {
        declared.len() != dims.len()
            || declared.iter().zip(dims).any(|(d, &size)| fixed(d).is_some_and(|d| d != size))
    };
    if info.dims.as_ref().is_some_and(differs) {
        return refuse(
            format!("its constant has the shape {dims:?}, and the input another"),
            "give a constant of the input's shape; a number of no dimensions is NAME=16000",
        );
    }
    if matches!(info.element, 1 | 10 | 11 | 16) {
        return Ok(value.clone().into());
    }
    // Beyond, the number may have been another before it was read as an f32.
    if value.data.iter().any(|v| v.fract() != 0.0 || v.abs() > (1 << 24) as f32) {
        return refuse("is an integer, and its constant is not, or beyond 2^24", "give whole numbers");
    }
    Ok(Tensor::new(value.shape.clone(), value.data.iter().map(|&v| v as i64).collect()).into())
}
