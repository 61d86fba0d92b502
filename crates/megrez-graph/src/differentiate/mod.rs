//! From a model to the step that trains it, as a graph like any other: forward, backward, update.
//! Each layer brings its backward ([`Layer::backward`](crate::layers::Layer::backward)) as nodes,
//! so passes, ranges, calibration, the plain oracle and costs hold for a step of training without a
//! further word.
//!
//! Backward compares nothing: the bits of ReLUs and pools are those of the forward pass.

mod loss;
mod optimiser;
mod privacy;
mod step;
mod update;
mod validation;

pub use loss::Loss;
pub use optimiser::{Optimiser, Rate, Squares};
pub use privacy::Privacy;
pub use step::{Step, Trained, differentiate, differentiate_in_shards, differentiate_privately, forward};
pub use update::State;
pub(crate) use validation::counting;
pub use validation::{Validation, validation};

pub use crate::gradients::{BACKWARD, Gradients};

use crate::graph::{Attributes, Graph, Id};
use crate::problem::{Problems, Refusal};
use crate::tensor::Tensor;
use std::collections::{HashMap, HashSet};

/// Appends to a graph the gradients of values that `wanted` names: of a function whose gradient
/// with respect to the value `output` is the value `of_output`. `None` for values that `output`
/// does not depend on.
///
/// # Errors
/// Every layer on the way that has no backward.
pub fn gradients(
    graph: &mut Graph,
    output: Id,
    of_output: Id,
    wanted: &[Id],
) -> Result<Vec<Option<Id>>, Problems> {
    // Only what depends on a wanted value has a gradient worth knowing.
    let mut moves: HashSet<Id> = wanted.iter().copied().collect();
    for node in &graph.nodes {
        if node.inputs.iter().flatten().any(|id| moves.contains(id)) {
            moves.insert(node.output);
        }
    }
    let mut problems = vec![];
    // The gradients that have come from each reader.
    let mut parts: HashMap<Id, Vec<Id>> = HashMap::from([(output, vec![of_output])]);
    for node in graph.nodes.clone().iter().rev() {
        if !moves.contains(&node.output) {
            continue;
        }
        let Some(of_readers) = parts.remove(&node.output) else { continue };
        let inputs: Vec<Id> = node.inputs.iter().flatten().copied().collect();
        let wanted: Vec<bool> = inputs.iter().map(|id| moves.contains(id)).collect();
        let mut g = Gradients { graph, node: node.name.clone() };
        let of_inputs = total(&mut g, &of_readers)
            .and_then(|of_output| node.layer.backward(&mut g, &inputs, node.output, of_output, &wanted));
        match of_inputs {
            Ok(of_inputs) => {
                let found = inputs.iter().zip(of_inputs).zip(&wanted).filter(|(_, wanted)| **wanted);
                for ((&id, gradient), _) in found {
                    parts.entry(id).or_default().extend(gradient);
                }
            }
            Err(refusal) => {
                problems.push(refusal.at(&node.name, &node.op));
                // Its inputs count as reached, so that what else is missing is named in one go.
                for (&id, _) in inputs.iter().zip(&wanted).filter(|(_, wanted)| **wanted) {
                    let unknown = graph.constant("(unknown)", Tensor::filled(graph.shape(id).clone(), 0.0));
                    parts.entry(id).or_default().push(unknown);
                }
            }
        }
    }
    let mut found = vec![];
    for id in wanted {
        let name = graph.value(*id).name.clone();
        let mut g = Gradients { graph, node: name.clone() };
        found.push(match parts.get(id) {
            Some(of_readers) => match total(&mut g, of_readers) {
                Ok(gradient) => Some(gradient),
                Err(refusal) => {
                    problems.push(refusal.at(&name, ""));
                    None
                }
            },
            None => None,
        });
    }
    if problems.is_empty() { Ok(found) } else { Err(Problems(problems)) }
}

/// What readers want of one value, added up.
fn total(g: &mut Gradients, parts: &[Id]) -> Result<Id, Refusal> {
    let mut sum = parts[0];
    for &part in &parts[1..] {
        sum = g.add("all", "Add", &[sum, part], Attributes::none())?;
    }
    Ok(sum)
}
