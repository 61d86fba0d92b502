//! Compiling for floating point: passes, then every layer as a few steps on single-precision
//! numbers. No ranges, no scales, no truncations: what is computed is what the layer says, every
//! operation rounded once.

use super::lowering::{FloatLowering, FloatOperand};
use crate::clients::{DataInput, ModelInput, Revealed};
use crate::graph::{Graph, Id};
use crate::passes;
use crate::problem::{Problems, Refusal};
use crate::range::Interval;
use crate::tokens::vocabularies;
use megrez_plan::{FloatPlan, ValueId};
use megrez_ring::Shape;
use std::collections::HashMap;

/// How to compile.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatOptions {
    /// The client who provides the weights.
    pub model_owner: String,
    /// The client who provides the inputs.
    pub data_owner: String,
    /// The client who learns the outputs.
    pub recipient: String,
    /// Bits of a group of the OT extension, 1, 2, 4 or 8: more is fewer bytes and more work.
    pub group: u32,
    /// Threads of each party.
    pub threads: u32,
}

impl Default for FloatOptions {
    fn default() -> Self {
        FloatOptions {
            model_owner: "model-owner".into(),
            data_owner: "data-owner".into(),
            recipient: "data-owner".into(),
            group: 4,
            threads: 1,
        }
    }
}

/// A plan, with what its clients and its reports need.
#[derive(Clone, Debug)]
pub struct FloatCompiled {
    /// What the parties execute.
    pub plan: FloatPlan,
    /// The graph that the plan computes: the model's after all passes.
    pub graph: Graph,
    /// The weights that the model owner shares.
    pub model_inputs: Vec<ModelInput>,
    /// The inputs that the data owner shares, in the plan's order; any number may be in them.
    pub data_inputs: Vec<DataInput>,
    /// The outputs, in the plan's order.
    pub outputs: Vec<Revealed>,
    /// The layers in the order of `graph.nodes`, but for those that rearrange tokens.
    pub layers: Vec<FloatLayer>,
}

/// One layer of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatLayer {
    /// The node's name, the first part of its steps' names.
    pub name: String,
    /// Its operator.
    pub op: String,
    /// Where the plan holds its output.
    pub value: ValueId,
    /// Where the graph holds its output.
    pub graph_value: Id,
}

/// Lowers a graph to floating point.
///
/// # Errors
/// Every node that has no floating-point form.
pub fn compile_floats(graph: &Graph, options: &FloatOptions) -> Result<FloatCompiled, Problems> {
    let (graph, after) = passes::optimise(&passes::for_floats(graph)?)?;
    let plan = FloatPlan::new(options.group).with_threads(options.threads);
    let mut cx = FloatLowering::new(plan, &options.model_owner);
    let (mut problems, mut data_inputs, mut layers) = (vec![], vec![], vec![]);
    let mut secrets: HashMap<Id, ValueId> = HashMap::new();
    let tokens = vocabularies(&graph)?;
    for &id in &graph.inputs {
        let (name, shape) = (&graph.value(id).name, graph.shape(id));
        if !cx.names.insert(name.clone()) {
            problems.push(Refusal::new("two inputs have the same name", "rename one").at(name, ""));
            continue;
        }
        let tokens = tokens.get(&id).copied();
        let held: Shape = shape.dims().iter().copied().chain(tokens).collect::<Vec<_>>().into();
        let value = cx.plan.input(name, &options.data_owner, held);
        secrets.insert(id, value);
        tokens.map(|rows| cx.vocabularies.insert(value, rows));
        let range = match tokens {
            Some(rows) => Interval { low: 0.0, high: (rows - 1) as f64 },
            None => Interval { low: f64::NEG_INFINITY, high: f64::INFINITY },
        };
        data_inputs.push(DataInput {
            name: name.clone(),
            shape: shape.clone(),
            frac: 0,
            range,
            tokens,
            table: None,
        });
    }
    for node in &graph.nodes {
        let operands = node.inputs.iter().flatten().filter_map(|&id| match graph.floats(id) {
            Some(tensor) => Some(Some(FloatOperand::Constant(tensor.clone()))),
            None if graph.value(id).constant.is_some() => None,
            None => Some(secrets.get(&id).copied().map(FloatOperand::Secret)),
        });
        // What depends on a node that failed is not reported: it would say nothing new.
        let Some(operands) = operands.collect::<Option<Vec<_>>>() else { continue };
        cx.layer.clone_from(&node.name);
        match node.layer.float(&mut cx, &operands) {
            Ok(value) => {
                let (name, op) = (node.name.clone(), node.op.clone());
                // Tokens are held as other numbers than the graph has.
                if cx.vocabulary(value).is_none() {
                    layers.push(FloatLayer { name, op, value, graph_value: node.output });
                }
                secrets.insert(node.output, value);
            }
            Err(refusal) => problems.push(refusal.at(&node.name, &node.op)),
        }
    }
    let mut outputs = vec![];
    for (output, after) in graph.outputs.iter().zip(after) {
        let (name, shape) = (output.name.clone(), graph.shape(output.id).clone());
        match secrets.get(&output.id) {
            Some(&value) => {
                cx.plan.output(&name, &options.recipient, value);
                outputs.push(Revealed { name, shape, frac: 0, after });
            }
            None if problems.is_empty() => {
                let refusal = Refusal::new("the output does not depend on any input", "remove it");
                problems.push(refusal.at(&name, ""));
            }
            None => {}
        }
    }
    if problems.is_empty() && outputs.is_empty() {
        problems.push(Refusal::new("the model has no output", "declare one").at(&graph.name, ""));
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let FloatLowering { plan, model_inputs, .. } = cx;
    Ok(FloatCompiled { plan, graph, model_inputs, data_inputs, outputs, layers })
}
