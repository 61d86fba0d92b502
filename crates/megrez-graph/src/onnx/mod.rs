//! Reading ONNX models: operator sets 1 to 28, weights inside the file or in files of its folder.
//!
//! Everything that stands in the way is listed at once, with the node's name and what to do. Files
//! are not trusted: sizes and counts are bounded, and no bytes lead to a panic.

mod control;
mod dynamic;
mod elements;
mod external;
mod fields;
mod import;
mod importer;
mod kinds;
mod labels;
mod message;
mod old;
mod options;
mod protobuf;
mod sequences;

pub use options::ImportOptions;

use crate::graph::Graph;
use crate::problem::{Cause, Problems, Refusal};
use options::fixed;
use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Protobuf files cannot be larger.
const MAX_FILE: u64 = 1 << 31;
/// The operator sets whose semantics the layers follow.
const OPSETS: std::ops::RangeInclusive<i64> = 1..=28;

/// Reads a model from a file of at most 2 GiB, and weights from files beside it.
pub fn read_file(path: &Path, options: &ImportOptions) -> Result<Graph, Problems> {
    let folder = options.folder.clone().or_else(|| Some(folder(path)));
    read(&bytes(path)?, &ImportOptions { folder, ..options.clone() })
}

/// The folder of a file.
pub fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.into(),
        _ => PathBuf::from("."),
    }
}

/// The bytes of a file of at most 2 GiB.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Problems> {
    let place = path.display().to_string();
    let problem =
        |what: String| Problems::from(Refusal::new(what, "").because(Cause::Invalid).at(&place, ""));
    let file = File::open(path).map_err(|e| problem(e.to_string()))?;
    let mut bytes = vec![];
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|e| problem(e.to_string()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(problem("has more than 2 GiB, which no ONNX model can".into()));
    }
    Ok(bytes)
}

/// Bytes that are no ONNX model.
fn damaged(what: String) -> Problems {
    Refusal::new(what, "export the model again").because(Cause::Damaged).at("(model)", "").into()
}

/// Reads a model. Memory: a small multiple of the bytes.
pub fn read(bytes: &[u8], options: &ImportOptions) -> Result<Graph, Problems> {
    let whole = |what: String, remedy: &str| Problems::from(Refusal::new(what, remedy).at("(model)", ""));
    let model = message::model(bytes).map_err(damaged)?;
    let Some(graph) = model.graph else {
        return Err(whole("there is no graph in the file".into(), "is it an ONNX model?"));
    };
    // A classical model may have no operator of the default domain.
    let opset = model.opset.unwrap_or(if model.classical { *OPSETS.end() } else { 0 });
    if !OPSETS.contains(&opset) {
        let (first, last) = OPSETS.into_inner();
        return Err(whole(
            format!("uses operator set {opset}, megrez reads {first} to {last}"),
            "export with opset_version=17",
        ));
    }
    if graph.has_sparse {
        return Err(whole("has sparse weights".into(), "export them dense"));
    }
    importer::Importer::new(&model.functions, &graph, opset, options).import(&graph)
}

/// An input as the file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInput {
    /// Its name.
    pub name: String,
    /// Its dimensions; `None` where the file does not even say how many.
    pub dims: Option<Vec<Dim>>,
}

/// A dimension of a declared input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dim {
    /// Of this size.
    Fixed(usize),
    /// Of any size; the file's name for it, which may be empty.
    Open(String),
}

impl fmt::Display for FileInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => size.to_string(),
            Dim::Open(name) if name.is_empty() => "?".into(),
            Dim::Open(name) => name.clone(),
        };
        match &self.dims {
            Some(dims) => {
                write!(f, "`{}` [{}]", self.name, dims.iter().map(dim).collect::<Vec<_>>().join(", "))
            }
            None => write!(f, "`{}` of unknown shape", self.name),
        }
    }
}

/// The inputs of a model in a file's bytes, weights left out.
pub fn inputs(bytes: &[u8]) -> Result<Vec<FileInput>, Problems> {
    let model = message::model(bytes).map_err(damaged)?;
    let graph = model.graph.ok_or_else(|| damaged("there is no graph in the file".into()))?;
    let weights: HashSet<&str> = graph.tensors.iter().map(|t| t.name).collect();
    let dim = |dim: &message::Dim| fixed(dim).map_or_else(|| Dim::Open(dim.name.into()), Dim::Fixed);
    let declared = |i: &message::ValueInfo| FileInput {
        name: i.name.into(),
        dims: i.dims.as_ref().map(|dims| dims.iter().map(dim).collect()),
    };
    Ok(graph.inputs.iter().filter(|i| !weights.contains(i.name)).map(declared).collect())
}
