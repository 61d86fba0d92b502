//! Graphs within the graph: functions of the model, and If, Loop and Scan, whose conditions and
//! lengths are known when compiling. Each becomes the nodes of its body, as often as it runs.

use super::dynamic::scaled_back;
use super::importer::{Importer, Known, label};
use super::{elements, message};
use crate::graph::{Attributes, Id};
use crate::layers::axis;
use crate::problem::{Problem, Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use std::collections::HashSet;

/// The most graphs within each other.
const MAX_DEPTH: usize = 8;
/// What the bodies may cost, each as often as it is read: their bytes, and so many for a node.
const MAX_REPEATED: usize = 1 << 28;
const PER_NODE: usize = 1 << 12;

/// A body's outputs; `None` where one of them failed, which has been said.
type Outputs = Result<Vec<Known>, Option<Refusal>>;

impl<'a> Importer<'a> {
    /// A node whose operator the model defines.
    pub(super) fn function(
        &mut self,
        node: &message::Node<'a>,
        function: &message::Function<'a>,
    ) -> Result<Vec<Known>, Option<Problem>> {
        let at = |refusal: Refusal| refusal.at(label(node), node.op);
        let mut given = vec![];
        for (i, &name) in function.inputs.iter().enumerate() {
            let argument = node.inputs.get(i).copied().unwrap_or_default();
            match self.names.get(argument) {
                Some(Known::Failed) => return Err(None),
                Some(known) => given.push((name, *known)),
                None if argument.is_empty() => {}
                None => {
                    let what = format!("reads `{argument}`, which nothing before it defines");
                    return Err(Some(at(Refusal::new(what, "export the model again"))));
                }
            }
        }
        let mut body = message::Graph { nodes: function.nodes.clone(), ..message::Graph::default() };
        for inner in &mut body.nodes {
            // An input that the call leaves out is left out inside.
            for name in &mut inner.inputs {
                if function.inputs.contains(name) && !given.iter().any(|(known, _)| known == name) {
                    *name = "";
                }
            }
            let mut attributes = vec![];
            for (name, raw) in &inner.attributes {
                let reference =
                    raw.reference().map_err(|what| Some(at(Refusal::new(what, "export the model again"))))?;
                match reference {
                    None => attributes.push((*name, *raw)),
                    Some(outer) => {
                        let of = |list: &[(&str, message::RawAttribute<'a>)]| {
                            list.iter().find(|(name, _)| *name == outer).map(|(_, raw)| *raw)
                        };
                        let value = of(&node.attributes).or_else(|| of(&function.defaults));
                        attributes.extend(value.map(|raw| (*name, raw)));
                    }
                }
            }
            inner.attributes = attributes;
        }
        body.outputs = function
            .outputs
            .iter()
            .map(|&name| message::ValueInfo { name, ..message::ValueInfo::default() })
            .collect();
        let outer = std::mem::take(&mut self.names);
        let outputs = self.body(&body, given);
        self.names = outer;
        outputs.map_err(|refusal| refusal.map(at))
    }

    /// Reads a graph within the graph whose inputs are known: its outputs. The names that it
    /// defines are forgotten afterwards.
    fn body(&mut self, body: &message::Graph<'a>, given: Vec<(&'a str, Known)>) -> Outputs {
        let bytes = body.tensors.iter().map(elements::NamedTensor::size).sum::<usize>();
        let attributes = body.nodes.iter().flat_map(|n| &n.attributes);
        self.repeated += bytes + attributes.map(|(_, raw)| raw.size()).sum::<usize>();
        self.repeated += PER_NODE * (1 + body.nodes.len() + body.tensors.len());
        if self.depth >= MAX_DEPTH || self.repeated > MAX_REPEATED {
            return refuse(
                format!("has more than {MAX_DEPTH} graphs within each other, or repeats too much"),
                "export a smaller model",
            )
            .map_err(Some);
        }
        let reads = body.nodes.iter().flat_map(|n| n.inputs.iter().copied());
        let reads: HashSet<&str> = reads.chain(body.outputs.iter().map(|o| o.name)).collect();
        let outer_reads = std::mem::replace(&mut self.read, reads);
        let inside = scaled_back(&body.nodes, body.outputs.iter().map(|o| o.name));
        let outside = std::mem::replace(&mut self.scaled_back, inside);
        // A body may name its values as the graph around it does.
        let defines = body.nodes.iter().flat_map(|n| n.outputs.iter().copied());
        let defines = defines.chain(body.tensors.iter().map(|t| t.name)).chain(given.iter().map(|g| g.0));
        let hidden: Vec<(&str, Option<Known>)> =
            defines.collect::<HashSet<_>>().into_iter().map(|name| (name, self.names.remove(name))).collect();
        self.names.extend(given);
        self.depth += 1;
        self.initializers(body);
        self.nodes(&body.nodes);
        self.depth -= 1;
        (self.read, self.scaled_back) = (outer_reads, outside);
        let outputs: Vec<Option<Known>> =
            body.outputs.iter().map(|output| self.names.get(output.name).copied()).collect();
        for (name, known) in hidden {
            match known {
                Some(known) => drop(self.names.insert(name, known)),
                None => drop(self.names.remove(name)),
            }
        }
        (body.outputs.iter().zip(outputs))
            .map(|(output, known)| match known {
                Some(Known::Failed) => Err(None),
                Some(known) => Ok(known),
                None => {
                    refuse(format!("its body does not define `{}`", output.name), "export the model again")
                        .map_err(Some)
                }
            })
            .collect()
    }

    /// If, Loop or Scan.
    pub(super) fn control(&mut self, node: &message::Node<'a>) -> Result<Vec<Known>, Option<Problem>> {
        let outputs = match node.op {
            "If" => self.branch(node),
            "Loop" => self.repeat(node),
            _ => self.scan(node),
        };
        outputs.map_err(|refusal| refusal.map(|refusal| refusal.at(label(node), node.op)))
    }

    fn graph_of(&self, node: &message::Node<'a>, name: &str) -> Result<message::Graph<'a>, Option<Refusal>> {
        let raw = node.attributes.iter().find(|(known, _)| *known == name).map(|(_, raw)| raw);
        let graph = raw.map(message::RawAttribute::graph).transpose();
        match graph.map_err(|what| Some(Refusal::new(what, "export the model again")))?.flatten() {
            Some(graph) => Ok(graph),
            None => Err(Some(Refusal::new(format!("`{name}` is missing"), "export the model again"))),
        }
    }

    /// What the input of a node is; `None` where it is left out.
    fn argument(&self, node: &message::Node<'a>, i: usize) -> Result<Option<Known>, Option<Refusal>> {
        match node.inputs.get(i).copied().unwrap_or_default() {
            "" => Ok(None),
            name => match self.names.get(name) {
                Some(Known::Failed) => Err(None),
                Some(known) => Ok(Some(*known)),
                None => refuse(format!("reads `{name}`, which nothing before it defines"), "").map_err(Some),
            },
        }
    }

    /// An integer or truth value that must be known when compiling.
    fn known(&self, value: Known, what: &str) -> Result<i64, Option<Refusal>> {
        let constant = match value {
            Known::Value(id) => self.graph.value(id).constant.clone(),
            _ => None,
        };
        match constant {
            Some(Constant::Ints(t)) if t.data.len() == 1 => Ok(t.data[0]),
            _ => refuse(
                format!("its {what} depends on secret data"),
                "make an input that decides it a constant (--constant NAME=1, in Python constants={…}), or compute both ways and choose with Where",
            )
            .map_err(Some),
        }
    }

    fn branch(&mut self, node: &message::Node<'a>) -> Outputs {
        let Some(condition) = self.argument(node, 0)? else {
            return refuse("has no condition", "").map_err(Some);
        };
        let yes = self.known(condition, "condition")? != 0;
        let body = self.graph_of(node, if yes { "then_branch" } else { "else_branch" })?;
        self.body(&body, vec![])
    }

    fn repeat(&mut self, node: &message::Node<'a>) -> Outputs {
        let body = self.graph_of(node, "body")?;
        let count = match self.argument(node, 0)? {
            Some(count) => self.known(count, "number of turns")?,
            None => i64::MAX,
        };
        let mut goes_on = match self.argument(node, 1)? {
            Some(condition) => self.known(condition, "condition")? != 0,
            None => true,
        };
        let carried = node.inputs.len().saturating_sub(2);
        if body.inputs.len() != carried + 2 || body.outputs.len() < carried + 1 {
            return refuse("its body has other inputs or outputs", "export the model again").map_err(Some);
        }
        let mut state = vec![];
        for i in 0..carried {
            state.extend(self.argument(node, i + 2)?);
        }
        let mut scans: Vec<Vec<Known>> = vec![vec![]; body.outputs.len() - carried - 1];
        let mut turn = 0;
        while goes_on && turn < count {
            let number = self.graph.constant("turn", Tensor::new([], vec![turn]));
            let truth = self.graph.constant("condition", Tensor::new([], vec![1i64]));
            let mut given = vec![(body.inputs[0].name, Known::Value(number))];
            given.push((body.inputs[1].name, Known::Value(truth)));
            given.extend(body.inputs[2..].iter().map(|i| i.name).zip(state));
            let outputs = self.body(&body, given)?;
            // The condition counts only where something else than the number of turns may end it.
            goes_on = match self.known(outputs[0], "condition") {
                Ok(condition) => condition != 0,
                Err(refusal) => return Err(refusal),
            };
            state = outputs[1..=carried].to_vec();
            scans.iter_mut().zip(&outputs[1 + carried..]).for_each(|(scan, value)| scan.push(*value));
            turn += 1;
        }
        for scan in scans {
            state.push(self.stacked(node, &scan, 0, false)?);
        }
        Ok(state)
    }

    fn scan(&mut self, node: &message::Node<'a>) -> Outputs {
        let body = self.graph_of(node, "body")?;
        let lists =
            ["scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"];
        let mut attributes = Attributes::none();
        for (name, raw) in node.attributes.iter().filter(|(name, _)| *name != "body") {
            let value = raw.decode().map_err(|what| Some(Refusal::new(format!("`{name}` {what}"), "")))?;
            attributes.0.insert((*name).into(), value);
        }
        let call = crate::layers::Call { graph: &self.graph, attributes: &attributes, inputs: &[] };
        let scanned = usize::try_from(call.int("num_scan_inputs", 0).map_err(Some)?).unwrap_or(0);
        let [axes_in, axes_out, turns_in, turns_out] = lists.map(|name| call.ints(name).ok().flatten());
        let list = |list: &Option<Vec<i64>>, i: usize| {
            list.as_ref().and_then(|list| list.get(i).copied()).unwrap_or(0)
        };
        let Some(carried) = node.inputs.len().checked_sub(scanned).filter(|_| scanned > 0) else {
            return refuse("scans nothing", "export the model again").map_err(Some);
        };
        if body.inputs.len() != node.inputs.len() || body.outputs.len() < carried {
            return refuse("its body has other inputs or outputs", "export the model again").map_err(Some);
        }
        let mut state = vec![];
        let mut sources = vec![];
        for i in 0..node.inputs.len() {
            match self.argument(node, i)? {
                Some(known) if i < carried => state.push(known),
                Some(Known::Value(id)) => sources.push(id),
                // Operator set 8 had a length per batch in the first place.
                _ => return refuse("scans a value without elements, or is of set 8", "").map_err(Some),
            }
        }
        let mut places = vec![];
        for (i, &id) in sources.iter().enumerate() {
            let rank = self.graph.shape(id).rank();
            places.push(axis(list(&axes_in, i), rank).map_err(Some)?);
        }
        let length = self.graph.shape(sources[0]).dims()[places[0]];
        if sources.iter().zip(&places).any(|(id, axis)| self.graph.shape(*id).dims()[*axis] != length) {
            return refuse("scans values of different lengths", "").map_err(Some);
        }
        let mut scans: Vec<Vec<Known>> = vec![vec![]; body.outputs.len() - carried];
        for turn in 0..length {
            let mut given: Vec<(&str, Known)> = body.inputs.iter().map(|i| i.name).zip(state).collect();
            for (i, &id) in sources.iter().enumerate() {
                let at = if list(&turns_in, i) == 1 { length - 1 - turn } else { turn };
                let index = self.graph.constant("place", Tensor::new([], vec![at as i64]));
                let gather = Attributes::none().with("axis", places[i] as i64);
                let slice = self.add(node, "Gather", &[id, index], gather)?;
                given.push((body.inputs[carried + i].name, Known::Value(slice)));
            }
            let outputs = self.body(&body, given)?;
            state = outputs[..carried].to_vec();
            scans.iter_mut().zip(&outputs[carried..]).for_each(|(scan, value)| scan.push(*value));
        }
        for (i, scan) in scans.into_iter().enumerate() {
            state.push(self.stacked(node, &scan, list(&axes_out, i), list(&turns_out, i) == 1)?);
        }
        Ok(state)
    }

    /// Values of several turns along a new dimension.
    fn stacked(
        &mut self,
        node: &message::Node<'a>,
        values: &[Known],
        at: i64,
        reverse: bool,
    ) -> Result<Known, Option<Refusal>> {
        let mut slices = vec![];
        for value in values {
            let Known::Value(id) = *value else {
                return refuse("collects values without elements", "").map_err(Some);
            };
            let axes = self.graph.constant("axis", Tensor::new([1], vec![at]));
            slices.push(self.add(node, "Unsqueeze", &[id, axes], Attributes::none())?);
        }
        if reverse {
            slices.reverse();
        }
        if slices.is_empty() {
            return refuse("takes no turn, so that an output has no elements", "").map_err(Some);
        }
        let joined = self.add(node, "Concat", &slices, Attributes::none().with("axis", at))?;
        Ok(Known::Value(joined))
    }

    fn add(
        &mut self,
        node: &message::Node<'a>,
        op: &str,
        inputs: &[Id],
        attributes: Attributes,
    ) -> Result<Id, Option<Refusal>> {
        let name = format!("{}.{}", label(node), op.to_lowercase());
        self.graph
            .add(&name, op, inputs, attributes)
            .map_err(|p| Some(Refusal { what: p.what, remedy: p.remedy, cause: p.cause }))
    }
}
