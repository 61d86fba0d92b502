//! Compiling: passes, then lowering layer by layer, then what the clients and the reports need beside the plan.

use crate::calibrate::Calibration;
use crate::graph::{Graph, Id, Tensor};
use crate::layers::After;
use crate::lower::{Lowering, Operand, Secret};
use crate::passes;
use crate::problem::{Cause, Problem, Problems, Refusal};
use crate::range::{Interval, RangePolicy};
use megrez_plan::{Fewest, Plan, ReluForm, SignBit, ValueId};
use megrez_ring::Shape;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

/// How to lower a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileOptions {
    /// ℓ: 32 or 64.
    pub ring: u32,
    /// f: the fraction bits of inputs, weights and truncated values. 1 ≤ f ≤ ℓ/2 − 2.
    pub frac: u32,
    /// The client who provides the weights.
    pub model_owner: String,
    /// The client who provides the inputs.
    pub data_owner: String,
    /// The client who learns the outputs.
    pub recipient: String,
    /// What every element of an input lies in.
    pub input_range: Interval,
    /// Other ranges for inputs by name.
    pub input_ranges: BTreeMap<String, Interval>,
    /// Ranges that take the place of what the weights prove, so that the plan tells nothing about secret weights.
    pub declared: Option<Declared>,
    /// Outputs by name that stay with the parties in shares, and the name that they are kept under; an input of that name
    /// is what an earlier run kept.
    pub kept: BTreeMap<String, String>,
    /// What to do where a range cannot be proven.
    pub policy: RangePolicy,
    /// How ReLUs compare.
    pub comparison: Comparison,
    /// The form of every ReLU.
    pub relu: ReluForm,
    /// How pools find the largest value of a window.
    pub pool: PoolForm,
    /// Whether products wait for their truncation before they are shared ([`Plan::leave_sums`]), and maxima of all pairs are made of
    /// other steps ([`Plan::spread_maxima`]): for protocols of equal parties.
    pub sums: bool,
    /// The largest ReLUs and maxima, in elements, that are computed by two workers and a dealer ([`Plan::deal_below`]): for plans of
    /// replicated values, that is, with `sums`.
    pub deal_below: usize,
    /// What stands for smooth activations.
    pub activations: Activations,
    /// Whether the weights are secret. If not they stand in the plan, for every party to see.
    pub private_weights: bool,
}

/// Ranges of the layers that read secret weights. Everything behind such a layer is laid out for the declared range: which
/// form an exponential or a root takes, how many multiples it compares with, how wide a fitted comparison is. Without a declaration
/// all of this follows from the range that the weights prove, so that whoever sees the plan learns something about them.
///
/// The weights must still prove that each declaration holds (or the policy assumes it).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// What the output of every such layer lies in, where `layers` does not say.
    pub all: Option<Interval>,
    /// By the layer's name.
    pub layers: BTreeMap<String, Interval>,
}

/// How a pool finds the largest value of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolForm {
    /// By ReLUs, two values at a time: every protocol has it.
    Tournament,
    /// Up to four values at a time, by comparing all pairs at once: fewer rounds, and more bits offline.
    AllPairs,
}

/// What stands for smooth activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activations {
    /// Splines of four segments, fitted for the least error.
    Minimax,
    /// Splines of higher degree, a fifth to a sixtieth of the error for two rounds and some bits more; on the 64-bit ring.
    Fine,
    /// Sigmoid and GELU as MIZAR's Appendix B prints them, the others as ever: to compare with.
    Mizar,
}

/// How the comparisons of a plan are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// The same everywhere, for values of `frac` fraction bits: where a value carries more, and `bits` is given, as many
    /// more low bits are cut.
    Fixed(SignBit),
    /// As many bits as the values of each comparison need: fraction bits beyond `frac` are cut, because the truncation
    /// that follows drops them, and high bits that the range of the values leaves empty. No such comparison errs by more
    /// than the truncation does. The widths follow from the weights (or from [`CompileOptions::declared`]) or from the
    /// calibration data, and stand in the plan: whoever sees it learns each layer's magnitude to a factor of two.
    Fitted {
        /// The list.
        list: ListStyle,
        /// Compare at most so many bits: where more are needed, more low bits are cut, and negative values smaller than
        /// 2^cut may count as positive.
        bits: Option<u32>,
        /// Measured magnitudes; without them, the proven ranges decide.
        calibration: Option<Calibration>,
    },
}

/// The list of fitted comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListStyle {
    /// One entry per bit.
    Bits,
    /// One entry per digit.
    Digits(Fewest),
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            ring: 64,
            frac: 16,
            model_owner: "model-owner".into(),
            data_owner: "data-owner".into(),
            recipient: "data-owner".into(),
            input_range: Interval::abs(1.0),
            input_ranges: BTreeMap::new(),
            declared: None,
            kept: BTreeMap::new(),
            policy: RangePolicy::Prove,
            comparison: Comparison::Fixed(SignBit::FULL),
            relu: ReluForm::ThreeRounds,
            pool: PoolForm::Tournament,
            sums: false,
            deal_below: 0,
            activations: Activations::Minimax,
            private_weights: true,
        }
    }
}

/// A plan, with what its clients and its reports need.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What the parties execute.
    pub plan: Plan,
    /// The graph that the plan computes: the model's after all passes.
    pub graph: Graph,
    /// The weights that the model owner shares: the plan's inputs of that owner, in order (by name, should the owners
    /// be the same client).
    pub model_inputs: Vec<ModelInput>,
    /// The inputs that the data owner shares: the plan's inputs of that owner, in order.
    pub data_inputs: Vec<DataInput>,
    /// The outputs that a recipient learns, in the plan's order.
    pub outputs: Vec<Revealed>,
    /// The outputs that are kept: their names, and the bounds of their elements.
    pub kept: Vec<(String, Interval)>,
    /// The layers in the order of `graph.nodes`.
    pub layers: Vec<LayerInfo>,
    /// What is known about each layer's range, in the order of `layers`. It follows from the weights: as private.
    pub ranges: Vec<LayerRange>,
}

/// Weights to share.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInput {
    /// The plan's name of the input.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// Fraction bits to encode with.
    pub frac: u32,
    /// Row-major.
    pub values: Vec<f32>,
}

/// Weights are secret and don't print.
impl fmt::Debug for ModelInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} with {} fraction bits", self.name, self.shape, self.frac)
    }
}

/// An input to share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataInput {
    /// The plan's name of the input.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// Fraction bits to encode with.
    pub frac: u32,
    /// What every element must lie in; its owner checks, because nobody else can.
    pub range: Interval,
    /// For tokens: the rows of their table. Each is shared as so many whole numbers, zeros and a one at its place.
    #[serde(default)]
    pub tokens: Option<usize>,
}

/// An output that the recipient opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Revealed {
    /// The plan's name of the output.
    pub name: String,
    /// The dimensions of what is opened.
    pub shape: Shape,
    /// Fraction bits to decode with.
    pub frac: u32,
    /// What the recipient does with what is opened, in order.
    pub after: Vec<After>,
}

impl Revealed {
    /// Applies `after` to the opened and decoded output.
    pub fn finish(&self, opened: Vec<f32>) -> Tensor {
        self.after.iter().fold(Tensor::new(self.shape.clone(), opened), |x, after| after.apply(&x))
    }
}

/// One layer of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerInfo {
    /// The node's name, the first part of its steps' names.
    pub name: String,
    /// Its operator.
    pub op: String,
    /// Where the plan holds its output.
    pub value: ValueId,
    /// Where the graph holds its output.
    pub graph_value: Id,
    /// The output's dimensions.
    pub shape: Shape,
    /// The output's fraction bits.
    pub frac: u32,
    /// Where the layer compares: the magnitude below which its comparisons are right, of an activation's input or of the
    /// differences within a pool's.
    pub compared: Option<f64>,
    /// An input of the layer, and what it must lie in for the result to be right, where that is assumed and not proven.
    pub domain: Option<(usize, Interval)>,
    /// Multiplications or comparisons of the layer in the clear.
    pub work: u64,
}

/// What is known about the numbers in a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerRange {
    /// The layer.
    pub layer: String,
    /// The bounds of its output, as real numbers.
    pub output: Interval,
    /// Of its steps, the one with the least room: its words are below 2^`bits` in magnitude, …
    pub bits: u32,
    /// … and must be below 2^`limit`.
    pub limit: u32,
    /// Whether this was proven, or assumed because it could not be.
    pub proven: bool,
}

/// Lowers a graph. The ranges of all steps are proven, or assumed where the policy says so.
///
/// Errors list every node that cannot be lowered. Cost: the constants are copied once; time is linear in them.
pub fn compile(graph: &Graph, options: &CompileOptions) -> Result<Compiled, Problems> {
    check(options)?;
    let (graph, after) = passes::optimise(graph)?;
    let (mut problems, out_of_range) = match lower(&graph, &after, options) {
        Ok(compiled) => return Ok(compiled),
        Err(failure) => failure,
    };
    for i in out_of_range {
        problems.0[i].remedy = remedy(&graph, &after, options);
    }
    Err(problems)
}

fn check(options: &CompileOptions) -> Result<(), Problem> {
    let wrong = |what: &str| Err(Refusal::new(what, "").because(Cause::Invalid).at("(options)", ""));
    if ![32, 64].contains(&options.ring) {
        return wrong("the ring is 32 or 64 bits");
    }
    if options.frac == 0 || options.frac > options.ring / 2 - 2 {
        return wrong(&format!("the fraction has 1 to {} bits on this ring", options.ring / 2 - 2));
    }
    if [&options.model_owner, &options.data_owner, &options.recipient].iter().any(|name| name.is_empty()) {
        return wrong("owners and recipient need names");
    }
    let finite = |r: &Interval| r.low <= r.high && r.low.is_finite() && r.high.is_finite();
    if !options.input_ranges.values().chain([&options.input_range]).all(finite) {
        return wrong("an input range is finite, from low to high");
    }
    if !options.declared.iter().flat_map(|d| d.all.iter().chain(d.layers.values())).all(finite) {
        return wrong("a declared range is finite, from low to high");
    }
    Ok(())
}

/// What to do about a range that cannot be proven: which settings can.
fn remedy(graph: &Graph, after: &[Vec<After>], options: &CompileOptions) -> String {
    let provable = |ring: u32, frac: u32| {
        let options = CompileOptions { ring, frac, policy: RangePolicy::Prove, ..options.clone() };
        check(&options).is_ok() && lower(graph, after, &options).is_ok()
    };
    let mut ways = vec![];
    // Fewer fraction bits than these leave no model that is worth running.
    if let Some(frac) = (6..options.frac).rev().find(|&f| provable(options.ring, f)) {
        ways.push(format!("use {frac} fraction bits"));
    }
    if options.ring < 64 && provable(64, options.frac) {
        ways.push("use the 64-bit ring".into());
    }
    ways.push("declare a smaller input range".into());
    ways.push("assume the ranges and let `megrez check` compare every layer on your data".into());
    ways.join(", or ")
}

/// The inputs that are tokens, because a table is gathered by them, and the rows of that table.
pub fn vocabularies(graph: &Graph) -> Result<HashMap<Id, usize>, Problem> {
    let mut tokens: HashMap<Id, usize> = HashMap::new();
    for node in graph.nodes.iter().rev() {
        let rows = match (node.op.as_str(), node.inputs.get(1)) {
            ("Gather", Some(&Some(index))) if graph.value(index).constant.is_none() => {
                node.inputs[0].map(|table| (index, graph.shape(table).dims()[0]))
            }
            // What rearranges tokens gives tokens.
            _ if node.layer.view().is_some() => {
                let rows = tokens.get(&node.output).copied();
                rows.zip(node.inputs[0]).map(|(rows, input)| (input, rows))
            }
            _ => None,
        };
        let Some((id, rows)) = rows else { continue };
        if tokens.insert(id, rows).is_some_and(|other| other != rows) {
            let what = "the same tokens name rows of tables of different sizes";
            return Err(Refusal::new(what, "give each table its own input").at(&node.name, &node.op));
        }
    }
    for node in &graph.nodes {
        let reads = node.inputs.iter().flatten().any(|id| tokens.contains_key(id));
        let computes = node.op != "Gather" && !tokens.contains_key(&node.output);
        if reads && computes {
            let what = "computes with secret tokens";
            return Err(Refusal::new(what, "tokens can name rows of a table only").at(&node.name, &node.op));
        }
    }
    Ok(tokens.into_iter().filter(|(id, _)| graph.inputs.contains(id)).collect())
}

/// The problems, and which of them are about ranges.
type Failure = (Problems, Vec<usize>);

fn lower(graph: &Graph, after: &[Vec<After>], options: &CompileOptions) -> Result<Compiled, Failure> {
    let truncate = passes::truncation::place(graph, options);
    let mut cx = Lowering::new(options);
    let mut secrets: HashMap<Id, Secret> = HashMap::new();
    let (mut problems, mut out_of_range) = (vec![], vec![]);
    let mut data_inputs = vec![];
    let vocabularies = vocabularies(graph).map_err(|p| (Problems(vec![p]), vec![]))?;
    for &id in &graph.inputs {
        let (name, shape) = (&graph.value(id).name, graph.shape(id));
        if options.kept.values().any(|kept| kept == name) {
            match cx.kept_input(name, shape) {
                Ok(secret) => drop(secrets.insert(id, secret)),
                Err(refusal) => problems.push(refusal.at(name, "")),
            }
            continue;
        }
        let declared = match vocabularies.get(&id) {
            Some(&rows) => cx.token_input(name, shape, rows),
            None => cx.data_input(name, shape),
        };
        match declared {
            Ok((secret, input)) => {
                secrets.insert(id, secret);
                data_inputs.push(input);
            }
            Err(refusal) => problems.push(refusal.at(&graph.value(id).name, "")),
        }
    }
    let (mut layers, mut ranges) = (vec![], vec![]);
    for (n, node) in graph.nodes.iter().enumerate() {
        let operands = node.inputs.iter().flatten().filter_map(|&id| match graph.floats(id) {
            Some(tensor) => Some(Some(Operand::Constant(tensor.clone()))),
            None if graph.value(id).constant.is_some() => None,
            None => Some(secrets.get(&id).cloned().map(Operand::Secret)),
        });
        // What depends on a node that failed is not reported: it would say nothing new.
        let Some(operands) = operands.collect::<Option<Vec<Operand>>>() else { continue };
        cx.enter(&node.name);
        cx.operands = operands
            .iter()
            .map(|operand| match operand {
                Operand::Secret(x) => Some(x.id),
                Operand::Constant(_) => None,
            })
            .collect();
        let lowered = cx.operands(operands, node.layer.scale()).and_then(|operands| {
            let y = node.layer.lower(&mut cx, &operands)?;
            let y = if truncate[n] { cx.settle_last(&y)? } else { y };
            cx.declared(y)
        });
        match lowered {
            Ok(secret) => {
                layers.push(LayerInfo {
                    name: node.name.clone(),
                    op: node.op.clone(),
                    value: secret.id,
                    graph_value: node.output,
                    shape: node.layer.shape().clone(),
                    frac: cx.frac_of(&secret),
                    compared: cx.compared(),
                    domain: cx.domain(),
                    work: node.layer.work(),
                });
                ranges.push(cx.layer_range(&secret));
                secrets.insert(node.output, secret);
            }
            Err(refusal) => {
                if cx.out_of_range {
                    out_of_range.push(problems.len());
                }
                problems.push(refusal.at(&node.name, &node.op));
            }
        }
    }
    if let Some(name) = cx.declared_in_vain().filter(|_| problems.is_empty()) {
        let what = "a range is declared for it, and no layer of this name reads secret weights";
        problems.push(Refusal::new(what, "leave it out").because(Cause::Invalid).at(name, ""));
    }
    let (mut outputs, mut kept) = (vec![], vec![]);
    for (output, after) in graph.outputs.iter().zip(after) {
        match secrets.get(&output.id) {
            Some(secret) if options.kept.contains_key(&output.name) => {
                cx.enter(&format!("keep.{}", output.name));
                match cx.keep(&options.kept[&output.name], secret) {
                    Ok(range) => kept.push((options.kept[&output.name].clone(), range)),
                    Err(refusal) => problems.push(refusal.at(&output.name, "")),
                }
            }
            Some(secret) => {
                cx.plan.output(&output.name, &options.recipient, secret.id);
                outputs.push(Revealed {
                    name: output.name.clone(),
                    shape: graph.shape(output.id).clone(),
                    frac: cx.frac_of(secret),
                    after: after.clone(),
                });
            }
            None if problems.is_empty() => problems.push(
                Refusal::new("the output does not depend on any input", "remove it").at(&output.name, ""),
            ),
            None => {}
        }
    }
    let mut names = HashSet::new();
    if let Some(twice) = graph.outputs.iter().find(|output| !names.insert(&output.name)) {
        problems.push(Refusal::new("two outputs have this name", "rename one").at(&twice.name, ""));
    }
    if problems.is_empty() && outputs.is_empty() && kept.is_empty() {
        problems.push(Refusal::new("the model has no output", "declare one").at(&graph.name, ""));
    }
    if !problems.is_empty() {
        return Err((Problems(problems), out_of_range));
    }
    let graph = graph.clone();
    let mut plan = cx.plan;
    if options.sums {
        plan.deal_below(options.deal_below);
        plan.spread_maxima().expect("a plan that was built by the rules keeps to them");
        plan.leave_sums().expect("a plan that was built by the rules keeps to them");
    }
    Ok(Compiled { plan, graph, model_inputs: cx.model_inputs, data_inputs, outputs, kept, layers, ranges })
}
