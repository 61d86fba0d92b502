//! What is known while a model is read.

use super::dynamic::scaled_back;
use super::external::Beside;
use super::kinds::Kind;
use super::message;
use super::options::ImportOptions;
use crate::graph::{Graph, Id};
use crate::problem::Problem;
use std::collections::{HashMap, HashSet};

/// What the numbers of a value are called.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub names: Vec<String>,
    /// Whether they are those of the columns of the last dimension, not of the numbers.
    pub columns: bool,
}

/// What is known of a name of the model.
#[derive(Clone, Copy)]
pub(super) enum Known {
    Value(Id),
    /// A value without elements, such as a language model's past before its first token.
    Empty(usize),
    /// A list of values.
    Sequence(usize),
    /// A node that has a problem should define it.
    Failed,
}

pub(super) struct Importer<'a> {
    pub(super) graph: Graph,
    pub(super) functions: HashMap<(&'a str, &'a str), message::Function<'a>>,
    pub(super) opset: i64,
    pub(super) options: &'a ImportOptions,
    pub(super) beside: Beside,
    pub(super) names: HashMap<&'a str, Known>,
    /// The dimensions of values without elements.
    pub(super) empty: Vec<Vec<usize>>,
    pub(super) sequences: Vec<Vec<Id>>,
    /// How many values all sequences have together.
    pub(super) listed: usize,
    /// Names that a node reads or the graph gives.
    pub(super) read: HashSet<&'a str>,
    /// What [`super::dynamic`] reads some nodes as, by their first outputs.
    pub(super) scaled_back: HashMap<&'a str, &'static str>,
    /// The ONNX data types of initializers and inputs.
    pub(super) types: HashMap<Id, i64>,
    /// What the numbers of values are called, where strings stand behind them.
    pub(super) labels: HashMap<Id, Names>,
    /// What secret values stand for; real numbers where nothing is said.
    pub(super) kinds: HashMap<Id, Kind>,
    pub(super) problems: Vec<Problem>,
    /// How many graphs within graphs are being read.
    pub(super) depth: usize,
    /// What reading them has cost so far.
    pub(super) repeated: usize,
}

impl<'a> Importer<'a> {
    pub(super) fn new(
        functions: &[message::Function<'a>],
        model: &message::Graph<'a>,
        opset: i64,
        options: &'a ImportOptions,
    ) -> Self {
        let read = model.nodes.iter().flat_map(|n| n.inputs.iter().copied());
        let read = read.chain(model.outputs.iter().map(|o| o.name)).collect();
        Importer {
            graph: Graph::new(model.name),
            functions: functions.iter().map(|f| ((f.domain, f.name), f.clone())).collect(),
            opset,
            options,
            beside: Beside::new(options.folder.as_deref()),
            names: HashMap::new(),
            empty: vec![],
            sequences: vec![],
            listed: 0,
            read,
            scaled_back: scaled_back(&model.nodes, model.outputs.iter().map(|o| o.name)),
            types: HashMap::new(),
            labels: HashMap::new(),
            kinds: HashMap::new(),
            problems: vec![],
            depth: 0,
            repeated: 0,
        }
    }
}

/// The name that the file uses for a node; the graph makes an empty one up.
pub(super) fn label<'a>(node: &message::Node<'a>) -> &'a str {
    if node.name.is_empty() { node.outputs.first().copied().unwrap_or("?") } else { node.name }
}
