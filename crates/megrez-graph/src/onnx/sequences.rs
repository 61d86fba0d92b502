//! Sequences: lists of values whose lengths and places are known when compiling. Exporters write
//! them for chunks, splits and lists of Python; they never reach the graph.

use super::importer::{Importer, Known, label};
use super::message;
use crate::graph::{Attributes, Id};
use crate::problem::{Problem, Refusal, refuse};
use crate::tensor::{Constant, Tensor};

/// The most values in all sequences together.
const MOST: usize = 1 << 16;

/// Whether an operator makes or reads sequences.
pub(super) fn handles(op: &str) -> bool {
    matches!(
        op,
        "SequenceEmpty"
            | "SequenceConstruct"
            | "SequenceInsert"
            | "SequenceErase"
            | "SequenceAt"
            | "SequenceLength"
            | "SplitToSequence"
            | "ConcatFromSequence"
    )
}

impl<'a> Importer<'a> {
    /// What such a node gives.
    pub(super) fn sequence(&mut self, node: &message::Node<'a>) -> Result<Vec<Known>, Option<Problem>> {
        let mut given = vec![];
        for &name in &node.inputs {
            match self.names.get(name) {
                Some(Known::Failed) => return Err(None),
                Some(known) => given.push(*known),
                None => {
                    let what = format!("reads `{name}`, which nothing before it defines");
                    return Err(Some(Refusal::new(what, "export the model again").at(label(node), node.op)));
                }
            }
        }
        self.on_sequences(node, &given).map_err(|r| Some(r.at(label(node), node.op))).map(|known| vec![known])
    }

    fn on_sequences(&mut self, node: &message::Node<'a>, given: &[Known]) -> Result<Known, Refusal> {
        let mut attributes = Attributes::none();
        for (name, raw) in &node.attributes {
            let value = raw.decode().map_err(|what| Refusal::new(format!("`{name}` {what}"), ""))?;
            attributes.0.insert((*name).into(), value);
        }
        let number = |name: &str, default: i64| {
            crate::layers::Call { graph: &self.graph, attributes: &attributes, inputs: &[] }
                .int(name, default)
        };
        match node.op {
            "SequenceEmpty" => self.list(vec![]),
            "SequenceConstruct" => {
                let values = given.iter().map(value).collect::<Result<_, _>>()?;
                self.list(values)
            }
            "SequenceInsert" => {
                let (mut values, added) =
                    (self.values(given, 0)?, value(given.get(1).unwrap_or(&Known::Failed))?);
                let at = self.place(given, 2, values.len() as i64, values.len(), true)?;
                values.insert(at, added);
                self.list(values)
            }
            "SequenceErase" => {
                let mut values = self.values(given, 0)?;
                let at = self.place(given, 1, values.len() as i64 - 1, values.len(), false)?;
                values.remove(at);
                self.list(values)
            }
            "SequenceAt" => {
                let values = self.values(given, 0)?;
                let at = self.place(given, 1, 0, values.len(), false)?;
                Ok(Known::Value(values[at]))
            }
            "SequenceLength" => {
                let length = self.values(given, 0)?.len() as i64;
                Ok(Known::Value(self.graph.constant("length", Tensor::new([], vec![length]))))
            }
            "SplitToSequence" => self.split(node, given, number("axis", 0)?, number("keepdims", 1)? != 0),
            _ => {
                let (axis, new) = (number("axis", 0)?, number("new_axis", 0)? != 0);
                let mut values = self.values(given, 0)?;
                if new {
                    for x in &mut values {
                        let axes = self.graph.constant("axis", Tensor::new([1], vec![axis]));
                        *x = self.part(node, "Unsqueeze", &[*x, axes], Attributes::none())?;
                    }
                }
                if values.is_empty() {
                    return refuse("joins nothing", "export the model again");
                }
                let joined = self.part(node, "Concat", &values, Attributes::none().with("axis", axis))?;
                Ok(Known::Value(joined))
            }
        }
    }

    fn split(
        &mut self,
        node: &message::Node<'a>,
        given: &[Known],
        axis: i64,
        keep: bool,
    ) -> Result<Known, Refusal> {
        let x = value(given.first().unwrap_or(&Known::Failed))?;
        let at = crate::layers::axis(axis, self.graph.shape(x).rank())?;
        let size = self.graph.shape(x).dims()[at];
        let lengths = match given.get(1) {
            None => vec![1; size],
            Some(lengths) => match &self.graph.value(value(lengths)?).constant {
                Some(Constant::Ints(t)) if t.shape.rank() == 0 && t.data[0] > 0 => {
                    let length = usize::try_from(t.data[0]).unwrap_or(size).min(size);
                    let whole = vec![length; size / length];
                    whole.into_iter().chain((!size.is_multiple_of(length)).then_some(size % length)).collect()
                }
                Some(Constant::Ints(t)) => {
                    t.data.iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect::<Vec<_>>()
                }
                _ => {
                    return refuse(
                        "splits at places that are not known when compiling",
                        "make them constants",
                    );
                }
            },
        };
        if lengths.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(size) || lengths.len() > MOST
        {
            return refuse("splits into parts that do not add up", "export the model again");
        }
        let (mut parts, mut start) = (vec![], 0);
        for length in lengths {
            let slice = Attributes::none()
                .with("starts", [start as i64])
                .with("ends", [(start + length) as i64])
                .with("axes", [at as i64]);
            let mut part = self.part(node, "Slice", &[x], slice)?;
            // Only parts of one element each lose the dimension.
            if !keep && given.len() < 2 {
                let axes = self.graph.constant("axis", Tensor::new([1], vec![at as i64]));
                part = self.part(node, "Squeeze", &[part, axes], Attributes::none())?;
            }
            parts.push(part);
            start += length;
        }
        self.list(parts)
    }

    fn list(&mut self, values: Vec<Id>) -> Result<Known, Refusal> {
        self.listed += values.len();
        if self.listed > MOST {
            return refuse(format!("makes sequences of more than {MOST} values"), "export a smaller model");
        }
        self.sequences.push(values);
        Ok(Known::Sequence(self.sequences.len() - 1))
    }

    fn values(&self, given: &[Known], i: usize) -> Result<Vec<Id>, Refusal> {
        match given.get(i) {
            Some(Known::Sequence(s)) => Ok(self.sequences[*s].clone()),
            _ => refuse(format!("input {i} is no sequence"), "export the model again"),
        }
    }

    /// A place among `count`, counted from the end if negative; with `end` also the place behind
    /// the last.
    fn place(
        &self,
        given: &[Known],
        i: usize,
        default: i64,
        count: usize,
        end: bool,
    ) -> Result<usize, Refusal> {
        let at = match given.get(i) {
            None => default,
            Some(at) => match &self.graph.value(value(at)?).constant {
                Some(Constant::Ints(t)) if t.data.len() == 1 => t.data[0],
                _ => return refuse("takes a place that is not known when compiling", "make it a constant"),
            },
        };
        if end && at == count as i64 {
            return Ok(count);
        }
        crate::layers::axis(at, count).map_err(|_| Refusal::new(format!("takes place {at} of {count}"), ""))
    }

    fn part(
        &mut self,
        node: &message::Node<'a>,
        op: &str,
        inputs: &[Id],
        attributes: Attributes,
    ) -> Result<Id, Refusal> {
        let name = format!("{}.{}", label(node), op.to_lowercase());
        let added = self.graph.add(&name, op, inputs, attributes);
        added.map_err(|p| Refusal { what: p.what, remedy: p.remedy, cause: p.cause })
    }
}

/// A value that is no sequence.
fn value(known: &Known) -> Result<Id, Refusal> {
    match known {
        Known::Value(id) => Ok(*id),
        _ => refuse("holds values without elements, or sequences, in a sequence", "export the model again"),
    }
}
