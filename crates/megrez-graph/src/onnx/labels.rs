//! Strings in models: labels of classes. Shares hold numbers, so a string is its place in a list
//! of names that everybody sees, and its recipient gets the name.

use super::importer::{Importer, Names};
use super::message;
use crate::graph::{Attribute, Attributes, Id};
use crate::layers::LABELS;
use crate::problem::{Problem, Refusal, refuse};

/// Operators that pass on what each number of their first input is called.
const PASS: [&str; 9] = [
    "ArrayFeatureExtractor",
    "Cast",
    "Flatten",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

impl Importer<'_> {
    /// What the first output of a node is called; refuses to compute with names.
    pub(super) fn named_by(
        &self,
        node: &message::Node,
        inputs: &[Option<Id>],
        attributes: &Attributes,
    ) -> Result<Option<Names>, Refusal> {
        let of = |i: usize| inputs.get(i).copied().flatten().and_then(|id| self.labels.get(&id));
        let strings = |name: &str| match attributes.0.get(name) {
            Some(Attribute::Strings(list)) if !list.is_empty() => Some(list.clone()),
            _ => None,
        };
        let ints = |name: &str| match attributes.0.get(name) {
            Some(Attribute::Ints(list)) if !list.is_empty() => Some(list.clone()),
            _ => None,
        };
        if let Some(i) = (0..inputs.len()).find(|&i| of(i).is_some_and(|names| !names.columns)) {
            return match of(i) {
                Some(names) if i == 0 && PASS.contains(&node.op) => Ok(Some(names.clone())),
                _ => refuse(
                    "computes with strings, of which shares hold only the number",
                    "use numbers within the model, and strings at its end",
                ),
            };
        }
        let named = |names: Vec<String>| Ok(Some(Names { names, columns: false }));
        match node.op {
            "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier" => {
                match ints("classlabels_ints").or(ints("classlabels_int64s")) {
                    Some(_) => Ok(None),
                    None => strings("classlabels_strings").map_or(Ok(None), named),
                }
            }
            "LabelEncoder" => match strings("values_strings") {
                Some(mut names) => {
                    let default = attributes.0.get("default_string");
                    names.push(match default {
                        Some(Attribute::String(default)) => default.clone(),
                        _ => "_Unused".into(),
                    });
                    named(names)
                }
                None => Ok(None),
            },
            "ZipMap" => {
                let numbers = ints("classlabels_int64s");
                let numbers = numbers.map(|list| list.iter().map(ToString::to_string).collect());
                let names = strings("classlabels_strings").or(numbers);
                Ok(names.map(|names| Names { names, columns: true }))
            }
            _ => Ok(None),
        }
    }

    /// An output, with the names that its recipient gets.
    pub(super) fn with_names(&mut self, id: Id) -> Result<Id, Problem> {
        let Some(Names { names, columns }) = self.labels.get(&id).cloned() else { return Ok(id) };
        let name = format!("{}.labels", self.graph.value(id).name);
        let attributes =
            Attributes::none().with("names", Attribute::Strings(names)).with("columns", i64::from(columns));
        self.graph.add(&name, LABELS, &[id], attributes)
    }
}
