//! Compiling for floating point: passes, then every layer as a few steps on single-precision numbers. No ranges, no scales, no
//! truncations: what is computed is what the layer says, every operation rounded once.

use crate::compile::{DataInput, ModelInput, Revealed, vocabularies};
use crate::graph::{Graph, Id, Tensor};
use crate::passes;
use crate::problem::{Problems, Refusal, refuse};
use crate::range::Interval;
use megrez_plan::{FloatOp, FloatPlan, Function, Operation, ValueId, View};
use megrez_ring::Shape;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How to compile.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatOptions {
    /// The client who provides the weights.
    pub model_owner: String,
    /// The client who provides the inputs.
    pub data_owner: String,
    /// The client who learns the outputs.
    pub recipient: String,
    /// Bits of a group of the transfer extension, 1, 2, 4 or 8: more is fewer bytes and more work.
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

/// What a layer computes on.
#[derive(Clone, Debug)]
pub enum FloatOperand {
    /// A secret value.
    Secret(ValueId),
    /// Weights, not yet in the plan.
    Constant(Arc<Tensor>),
}

impl FloatOperand {
    /// The weights, if it is some.
    pub fn constant(&self) -> Option<&Arc<Tensor>> {
        match self {
            FloatOperand::Constant(tensor) => Some(tensor),
            FloatOperand::Secret(_) => None,
        }
    }
}

/// The plan under construction, as layers see it. Each method emits one step under the name `layer/…`.
pub struct FloatLowering {
    plan: FloatPlan,
    model_owner: String,
    model_inputs: Vec<ModelInput>,
    /// Weights that are in the plan already, by tensor.
    shared: HashMap<*const Tensor, ValueId>,
    /// The weights that `shared` points to: they stay, so that no other takes their place.
    held: Vec<Arc<Tensor>>,
    names: HashSet<String>,
    /// For tokens, the rows of the table that they name: the last dimension of their value.
    vocabularies: HashMap<ValueId, usize>,
    layer: String,
}

impl FloatLowering {
    /// The value of an operand; weights become an input of the model's owner.
    pub fn value(&mut self, operand: &FloatOperand) -> ValueId {
        let tensor = match operand {
            FloatOperand::Secret(id) => return *id,
            FloatOperand::Constant(tensor) => tensor,
        };
        if let Some(&id) = self.shared.get(&Arc::as_ptr(tensor)) {
            return id;
        }
        let name = self.unique("weights");
        let id = self.plan.input(&name, &self.model_owner, tensor.shape.clone());
        let shape = tensor.shape.clone();
        self.model_inputs.push(ModelInput { name, shape, frac: 0, values: tensor.data.clone() });
        self.shared.insert(Arc::as_ptr(tensor), id);
        self.held.push(tensor.clone());
        id
    }

    /// The value of weights that the layer has changed in the clear.
    pub fn weights(&mut self, tensor: Tensor) -> ValueId {
        self.value(&FloatOperand::Constant(Arc::new(tensor)))
    }

    /// The dimensions of a value.
    pub fn shape(&self, x: ValueId) -> &Shape {
        self.plan.shape(x)
    }

    /// f(x).
    pub fn map(&mut self, name: &str, f: Function, x: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Map(f), &[x])
    }

    /// An operation on two values, both broadcast to `shape`.
    pub fn pair(
        &mut self,
        name: &str,
        f: Operation,
        x: ValueId,
        y: ValueId,
        shape: &Shape,
    ) -> Result<ValueId, Refusal> {
        let x = self.broadcast(&format!("{name}-left"), x, shape)?;
        let y = self.broadcast(&format!("{name}-right"), y, shape)?;
        self.step(name, FloatOp::Pair(f), &[x, y])
    }

    /// The operation on a value and one public number.
    pub fn with_number(
        &mut self,
        name: &str,
        f: Operation,
        x: ValueId,
        number: f32,
    ) -> Result<ValueId, Refusal> {
        let shape = self.shape(x).clone();
        let number = self.public(&format!("{name}-number"), &Tensor::filled([], number))?;
        self.pair(name, f, x, number, &shape)
    }

    /// Numbers of the architecture, which everybody may know.
    pub fn public(&mut self, name: &str, tensor: &Tensor) -> Result<ValueId, Refusal> {
        let bits = tensor.data.iter().map(|v| v.to_bits()).collect();
        self.step(name, FloatOp::Constant { shape: tensor.shape.clone(), bits }, &[])
    }

    /// [.., m, k] · [.., k, n].
    pub fn matmul(&mut self, name: &str, x: ValueId, y: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::MatMul, &[x, y])
    }

    /// The sums over the first dimension.
    pub fn sum(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Sum, &[x])
    }

    /// The largest over the first dimension.
    pub fn largest(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Largest, &[x])
    }

    /// The sums over the last dimension.
    pub fn sum_rows(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let x = self.last_first(name, x)?;
        self.step(name, FloatOp::Sum, &[x])
    }

    /// The largest over the last dimension.
    pub fn largest_of_rows(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let x = self.last_first(name, x)?;
        self.step(name, FloatOp::Largest, &[x])
    }

    /// The means over the last dimension: a sum, then a division by a public number.
    pub fn mean_of_rows(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let n = self.shape(x).dims()[self.shape(x).rank() - 1];
        let sum = self.sum_rows(&format!("{name}-sum"), x)?;
        self.divided(name, sum, n)
    }

    /// x / n, by a product where that is exact.
    pub fn divided(&mut self, name: &str, x: ValueId, n: usize) -> Result<ValueId, Refusal> {
        match n {
            1 => Ok(x),
            n if n.is_power_of_two() => self.with_number(name, Operation::Mul, x, 1.0 / n as f32),
            n => self.with_number(name, Operation::Div, x, n as f32),
        }
    }

    /// The last dimension first.
    fn last_first(&mut self, name: &str, x: ValueId) -> Result<ValueId, Refusal> {
        let shape = self.shape(x).clone();
        let rank = shape.rank();
        let order: Vec<usize> = std::iter::once(rank - 1).chain(0..rank - 1).collect();
        self.view(&format!("{name}-terms"), x, View::transpose(&shape, &order))
    }

    /// A rearrangement; none where nothing moves.
    pub fn view(&mut self, name: &str, x: ValueId, view: View) -> Result<ValueId, Refusal> {
        if *self.shape(x) == view.shape && view.is_contiguous() {
            return Ok(x);
        }
        self.step(name, FloatOp::View(view), &[x])
    }

    /// The same elements under another shape.
    pub fn reshape(&mut self, name: &str, x: ValueId, shape: Shape) -> Result<ValueId, Refusal> {
        self.view(name, x, View::whole(shape))
    }

    /// A value repeated to a shape.
    pub fn broadcast(&mut self, name: &str, x: ValueId, to: &Shape) -> Result<ValueId, Refusal> {
        match View::broadcast(self.shape(x), to) {
            Some(view) => self.view(name, x, view),
            None => refuse(format!("{} does not broadcast to {to}", self.shape(x)), ""),
        }
    }

    /// The elements of some values at places counted through one after the other; `None` is +0.
    pub fn gather(
        &mut self,
        name: &str,
        from: &[ValueId],
        shape: Shape,
        places: impl Iterator<Item = Option<usize>>,
    ) -> Result<ValueId, Refusal> {
        let elements: usize = from.iter().map(|&x| self.shape(x).elements()).sum();
        let place = |p: Option<usize>| u32::try_from(p.unwrap_or(elements));
        let Ok(places) = places.map(place).collect::<Result<Vec<u32>, _>>() else {
            return refuse("has too many elements", "use a smaller batch");
        };
        self.step(name, FloatOp::Gather { shape, places }, from)
    }

    /// The rows of a table that rows of zeros and a single 1 name: [t, n] · [n, w].
    pub fn lookup(&mut self, name: &str, ones: ValueId, table: ValueId) -> Result<ValueId, Refusal> {
        self.step(name, FloatOp::Lookup, &[ones, table])
    }

    /// For tokens, the rows of the table that they name.
    pub fn vocabulary(&self, x: ValueId) -> Option<usize> {
        self.vocabularies.get(&x).copied()
    }

    /// A view of tokens as the graph sees them, without the dimension of their table's rows.
    pub fn rearrange_tokens(
        &mut self,
        name: &str,
        x: ValueId,
        view: &View,
        rows: usize,
    ) -> Result<ValueId, Refusal> {
        let y = self.view(name, x, view.of_rows(rows))?;
        self.vocabularies.insert(y, rows);
        Ok(y)
    }

    fn step(&mut self, name: &str, op: FloatOp, inputs: &[ValueId]) -> Result<ValueId, Refusal> {
        let name = self.unique(name);
        self.plan.step(&name, op, inputs).map_err(|e| Refusal::new(e.to_string(), ""))
    }

    fn unique(&mut self, name: &str) -> String {
        let base = format!("{}/{name}", self.layer);
        let candidates = std::iter::once(base.clone()).chain((2..).map(|i| format!("{base}-{i}")));
        candidates.into_iter().find(|n| self.names.insert(n.clone())).expect("numbers do not end")
    }
}

/// Lowers a graph to floating point.
///
/// # Errors
/// Every node that has no floating-point form.
pub fn compile_floats(graph: &Graph, options: &FloatOptions) -> Result<FloatCompiled, Problems> {
    let (graph, after) = passes::optimise(graph)?;
    let mut cx = FloatLowering {
        plan: FloatPlan::new(options.group).with_threads(options.threads),
        model_owner: options.model_owner.clone(),
        model_inputs: vec![],
        shared: HashMap::new(),
        held: vec![],
        names: HashSet::new(),
        vocabularies: HashMap::new(),
        layer: String::new(),
    };
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
        data_inputs.push(DataInput { name: name.clone(), shape: shape.clone(), frac: 0, range, tokens });
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
