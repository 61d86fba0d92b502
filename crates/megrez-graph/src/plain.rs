//! Running a graph in the clear, in floating point: the oracle for `megrez check` and for accuracy.

use crate::graph::{Graph, Id};
use crate::problem::{Problem, Refusal};
use crate::tensor::Tensor;

/// Every value of one run.
#[derive(Clone)]
pub struct Trace(Vec<Option<Tensor>>);

impl Trace {
    /// A value that depends on the inputs: an input or a node's output.
    pub fn value(&self, id: Id) -> Option<&Tensor> {
        self.0.get(id.0)?.as_ref()
    }
}

/// The graph's outputs, in order. `inputs` are in the graph's order and of its shapes.
pub fn run(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, Problem> {
    let trace = walk(graph, inputs, false)?;
    let output = |id: Id| trace.value(id).cloned().or_else(|| graph.floats(id).map(|t| (**t).clone()));
    graph
        .outputs
        .iter()
        .map(|o| output(o.id).ok_or_else(|| Refusal::new("holds integers", "").at(&o.name, "")))
        .collect()
}

/// Every layer's output.
pub fn trace(graph: &Graph, inputs: &[Tensor]) -> Result<Trace, Problem> {
    walk(graph, inputs, true)
}

fn walk(graph: &Graph, inputs: &[Tensor], keep_all: bool) -> Result<Trace, Problem> {
    if inputs.len() != graph.inputs.len() {
        let what = format!("takes {} inputs, got {}", graph.inputs.len(), inputs.len());
        return Err(Refusal::new(what, "").at(&graph.name, ""));
    }
    let mut values: Vec<Option<Tensor>> = vec![None; graph.values.len()];
    for (&id, input) in graph.inputs.iter().zip(inputs) {
        let value = graph.value(id);
        if value.shape != input.shape {
            let what = format!("takes {}, got {}", value.shape, input.shape);
            return Err(
                Refusal::new(what, "import the model for the batch size of the data").at(&value.name, "")
            );
        }
        values[id.0] = Some(input.clone());
    }
    let mut reads_left: Vec<usize> = graph.readers().iter().map(Vec::len).collect();
    graph.outputs.iter().for_each(|o| reads_left[o.id.0] += 1);
    for node in &graph.nodes {
        let ids = || node.inputs.iter().flatten();
        for &id in ids() {
            if let (None, Some(public)) = (&values[id.0], graph.public(id)) {
                values[id.0] = Some(public.tensor());
            }
        }
        let operands: Vec<&Tensor> = ids()
            .filter_map(|&id| values[id.0].as_ref().or_else(|| graph.floats(id).map(|t| &**t)))
            .collect();
        let output = node.layer.plain(&operands);
        values[node.output.0] = Some(output);
        for id in ids() {
            reads_left[id.0] -= 1;
            if reads_left[id.0] == 0 && !keep_all {
                values[id.0] = None;
            }
        }
    }
    Ok(Trace(values))
}
