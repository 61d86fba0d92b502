//! What a file leaves open.

use super::message;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What the file leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// The size of the first dimension of every input where the model leaves it open.
    pub batch: usize,
    /// Whole shapes for inputs by name; they replace what the model says. An input without elements
    /// may be joined to others only.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// The folder in which weights may lie in files of their own, as `external_data` names them.
    /// Without it, models must have their weights inside. [`read_file`](super::read_file) takes the
    /// folder of the file.
    pub folder: Option<PathBuf>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        ImportOptions { batch: 1, shapes: BTreeMap::new(), folder: None }
    }
}

/// The size of a dimension; `None` without one, or with one that exporters write for "any".
pub(super) fn fixed(dim: &message::Dim) -> Option<usize> {
    dim.size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0)
}
