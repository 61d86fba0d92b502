//! Compiling: passes, then lowering layer by layer, then what the clients and the reports need
//! beside the plan.

use crate::after::After;
use crate::clients::{DataInput, LayerRange, ModelInput, Revealed};
use crate::graph::{Graph, Id, Node};
use crate::lowering::{Lowering, Operand, Secret, rounds_of};
use crate::options::{Comparison, CompileOptions, TreeForm};
use crate::passes;
use crate::problem::{Cause, Problem, Problems, Refusal};
use crate::range::{Interval, RangePolicy};
use crate::tensor::Constant;
use crate::tokens::{tables, vocabularies};
use megrez_plan::{List, Plan, SignBit, ValueId};
use megrez_ring::Shape;
use std::collections::{HashMap, HashSet};

/// A plan, with what its clients and its reports need.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What the parties execute.
    pub plan: Plan,
    /// The fraction bits of inputs, weights and truncated values.
    pub frac: u32,
    /// The graph that the plan computes: the model's after all passes.
    pub graph: Graph,
    /// The weights that the model owner shares: the plan's inputs of that owner, in order (by name,
    /// should the owners be the same client).
    pub model_inputs: Vec<ModelInput>,
    /// The inputs that the data owner shares: the plan's inputs of that owner, in order.
    pub data_inputs: Vec<DataInput>,
    /// The outputs that a recipient learns, in the plan's order.
    pub outputs: Vec<Revealed>,
    /// The outputs that are kept: their names, and the bounds of their elements.
    pub kept: Vec<(String, Interval)>,
    /// What everybody sees of ensembles of trees, should there be any.
    pub trees: TreeForm,
    /// Whether weights are public: in the plan, or in files that it names.
    pub public_weights: bool,
    /// The layers in the order of `graph.nodes`.
    pub layers: Vec<LayerInfo>,
    /// What is known about each layer's range, in the order of `layers`. It follows from the
    /// weights: as private.
    pub ranges: Vec<LayerRange>,
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
    /// Where the layer compares: the magnitude below which its comparisons are right, of an
    /// activation's input or of the differences within a pool's.
    pub compared: Option<f64>,
    /// An input of the layer, and what it must lie in for the result to be right, where that is
    /// assumed and not proven.
    pub domain: Option<(usize, Interval)>,
    /// Multiplications or comparisons of the layer in the clear.
    pub work: u64,
}

/// How many times wider than what data has shown a proof may be before data vouches in its place,
/// from never on.
const VOUCHED: &[Option<i128>] = &[None, Some(1 << 4), Some(1)];

/// Lowers a graph. The ranges of all steps are proven, or assumed where the policy says so.
///
/// Errors list every node that cannot be lowered. Cost: the constants are copied once; time is
/// linear in them.
pub fn compile(graph: &Graph, options: &CompileOptions) -> Result<Compiled, Problems> {
    check(options)?;
    let published = options.publisher.as_ref().map(|publisher| publisher.publish(graph)).transpose()?;
    let (mut graph, after) = passes::for_fixed_point(published.as_ref().unwrap_or(graph))?;
    if options.activations.looks_up() {
        graph = passes::whole_curves(&graph)?;
    }
    // What can be proven whole is; and what data is to vouch for, as little as will do.
    let attempts: &[Option<i128>] = match options.policy {
        RangePolicy::Calibrated => VOUCHED,
        _ => &[None],
    };
    let fractions = passes::precision::fractions(&graph, options);
    let mut failure: Failure = (Problems(vec![]), vec![]);
    for slack in attempts {
        for &frac in &fractions {
            let mut options = CompileOptions { frac, ..options.clone() };
            if frac != fractions[fractions.len() - 1] && options.policy == RangePolicy::Assume {
                // More bits leave less room: only where it is sure to be enough.
                options.policy = RangePolicy::Prove;
            }
            failure = match lower_with(&graph, &after, &options, *slack) {
                Ok(compiled) => return Ok(compiled),
                Err(failure) => failure,
            };
        }
    }
    let (mut problems, out_of_range) = failure;
    for i in out_of_range {
        problems.0[i].remedy = remedy(&graph, &after, options);
    }
    Err(problems)
}

/// Bits of the rings on which models run.
const RINGS: [u32; 4] = [32, 40, 48, 64];

fn check(options: &CompileOptions) -> Result<(), Problem> {
    let wrong = |what: &str| Err(Refusal::new(what, "").because(Cause::Invalid).at("(options)", ""));
    if !RINGS.contains(&options.ring) {
        return wrong("the ring has 32, 40, 48 or 64 bits");
    }
    if options.policy == RangePolicy::Calibrated {
        match &options.measured {
            None => return wrong("calibrated ranges need what was measured: `megrez calibrate`"),
            Some(measured) if measured.ranges.is_empty() => {
                return wrong("the calibration has no ranges of layers: measure again with this release");
            }
            Some(measured) => measured.check().or_else(|what| wrong(&format!("the calibration {what}")))?,
        }
    }
    if options.guard && (options.policy != RangePolicy::Calibrated || options.declared.is_some()) {
        return wrong(
            "a guard holds values to what was measured: it goes with calibrated ranges, and not with declared ones",
        );
    }
    if options.guard && !options.kept.is_empty() {
        return wrong(
            "a guard tells the recipient of a run; where values are kept for another run there is none",
        );
    }
    if options.frac == 0 || options.frac > options.ring / 2 - 2 {
        return wrong(&format!("the fraction has 1 to {} bits on this ring", options.ring / 2 - 2));
    }
    if options.deep_frac.is_some_and(|most| most > options.ring / 2 - 2) {
        return wrong(&format!(
            "a deep model has at most {} fraction bits on this ring",
            options.ring / 2 - 2
        ));
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
    // No proof depends on the digits of a comparison, and those of one ring are not for another.
    let comparison = match options.comparison.clone() {
        Comparison::Fixed(sign) => Comparison::Fixed(SignBit { list: List::Bits, ..sign }),
        fitted @ Comparison::Fitted { .. } => fitted,
    };
    let provable = |ring: u32, frac: u32| {
        let comparison = comparison.clone();
        let options =
            CompileOptions { ring, frac, comparison, policy: RangePolicy::Prove, ..options.clone() };
        check(&options).is_ok() && lower(graph, after, &options).is_ok()
    };
    let mut ways = vec![];
    // Fewer fraction bits than these leave no model that is worth running.
    if let Some(frac) = (6..options.frac).rev().find(|&f| provable(options.ring, f)) {
        ways.push(format!("use {frac} fraction bits"));
    }
    if let Some(ring) = RINGS.into_iter().find(|&ring| ring > options.ring && provable(ring, options.frac)) {
        ways.push(format!("use the {ring}-bit ring"));
    }
    ways.push("declare a smaller input range".into());
    if options.policy == RangePolicy::Prove {
        ways.push("measure them on data: `megrez calibrate`, then --range calibrated".into());
    }
    ways.push("assume the ranges and let `megrez check` compare every layer on your data".into());
    ways.join(", or ")
}

/// How often a graph is lowered with fewer fraction bits in some layers.
const ATTEMPTS: usize = 8;

/// The problems, and which of them are about ranges.
type Failure = (Problems, Vec<usize>);

fn lower(graph: &Graph, after: &[Vec<After>], options: &CompileOptions) -> Result<Compiled, Failure> {
    lower_with(graph, after, options, None)
}

/// As [`lower_each`], with fewer fraction bits for the operands of products that would not have
/// room.
fn lower_with(
    graph: &Graph,
    after: &[Vec<After>],
    options: &CompileOptions,
    slack: Option<i128>,
) -> Result<Compiled, Failure> {
    let mut coarser = HashMap::new();
    let mut first = None;
    for _ in 0..ATTEMPTS {
        let mut short = HashMap::new();
        match lower_each(graph, after, options, slack, &coarser, false, &mut short) {
            Ok(lowered) => return Ok(shallower(graph, after, options, slack, lowered)),
            Err(failure) => drop(first.get_or_insert(failure)),
        }
        if !passes::precision::coarsen(&mut coarser, &short, options) {
            break;
        }
    }
    Err(first.expect("it failed once at least"))
}

/// A compiled model, and after how many rounds the last of its outputs is there.
type Lowered = (Compiled, u32);

/// The model with those truncations left out that can be spared, where the plan may show ranges and
/// that takes fewer rounds.
fn shallower(
    graph: &Graph,
    after: &[Vec<After>],
    options: &CompileOptions,
    slack: Option<i128>,
    (compiled, rounds): Lowered,
) -> Compiled {
    if !options.shows_ranges() || !passes::truncation::spared(graph, options).contains(&true) {
        return compiled;
    }
    let measured: &[Option<i128>] = if options.tells_measured() { VOUCHED } else { &[] };
    let mut best = (compiled, rounds);
    for slack in std::iter::once(&slack).chain(measured) {
        let spared = lower_each(graph, after, options, *slack, &HashMap::new(), true, &mut HashMap::new());
        best = match spared {
            Ok(spared) if spared.1 < best.1 => spared,
            _ => best,
        };
    }
    best.0
}

/// Lowers layer by layer. `coarser` has for nodes how many fraction bits their operands give up;
/// `short` gets those that lack room, and how many bits of it. `spares`: truncations are left out
/// where they can be.
fn lower_each(
    graph: &Graph,
    after: &[Vec<After>],
    options: &CompileOptions,
    slack: Option<i128>,
    coarser: &HashMap<usize, u32>,
    spares: bool,
    short: &mut HashMap<usize, u32>,
) -> Result<Lowered, Failure> {
    let mut truncate = passes::truncation::place(graph, options);
    let spared = match spares {
        true => passes::truncation::spared(graph, options),
        false => vec![false; graph.nodes.len()],
    };
    truncate.iter_mut().zip(&spared).for_each(|(truncate, spared)| *truncate &= !spared);
    let goes_on = passes::truncation::goes_on(graph);
    let mut cx = Lowering::new(options);
    cx.slack = slack;
    let mut secrets: HashMap<Id, Secret> = HashMap::new();
    let (mut problems, mut out_of_range) = (vec![], vec![]);
    let mut data_inputs = vec![];
    let vocabularies = vocabularies(graph).map_err(|p| (Problems(vec![p]), vec![]))?;
    let tables = if options.embed { tables(graph) } else { HashMap::new() };
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
            Some(&rows) => cx.token_input(name, shape, rows, tables.get(&id)),
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
    let needed = |node: &Node| node.layer.beside().and_then(|i| node.inputs.iter().flatten().nth(i).copied());
    let left_for: HashSet<Id> = graph.nodes.iter().filter_map(needed).collect();
    let mut left: HashMap<Id, Vec<Secret>> = HashMap::new();
    for (n, node) in graph.nodes.iter().enumerate() {
        let operands = node.inputs.iter().flatten().filter_map(|&id| match &graph.value(id).constant {
            Some(Constant::Floats(tensor)) => Some(Some(Operand::Constant(tensor.clone()))),
            Some(Constant::Public(public)) => Some(Some(Operand::Public(public.matrix.clone()))),
            Some(Constant::Ints(_)) => None,
            None => Some(secrets.get(&id).cloned().map(Operand::Secret)),
        });
        // What depends on a node that failed is not reported: it would say nothing new.
        let Some(operands) = operands.collect::<Option<Vec<Operand>>>() else { continue };
        cx.enter(&node.name);
        cx.coarser = coarser.get(&n).copied().unwrap_or(0);
        cx.spares = spared[n];
        cx.goes_on = goes_on[n];
        cx.leaving = left_for.contains(&node.output).then(Vec::new);
        cx.given = needed(node).and_then(|id| left.get(&id).cloned()).unwrap_or_default();
        cx.operands = operands
            .iter()
            .map(|operand| match operand {
                Operand::Secret(x) => Some(x.id),
                Operand::Constant(_) | Operand::Public(_) => None,
            })
            .collect();
        let lowered = cx.operands(operands, &*node.layer).and_then(|operands| {
            let y = node.layer.lower(&mut cx, &operands)?;
            let y = if truncate[n] { cx.settle_last(&y)? } else { y };
            let y = cx.declared(y)?;
            cx.measured(y)
        });
        match lowered {
            Ok(secret) => {
                left.extend(cx.leaving.take().map(|left| (node.output, left)));
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
                if cx.shortage > 0 && node.layer.multilinear() {
                    short.insert(n, cx.shortage);
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
    cx.enter("guard");
    match cx.guarded() {
        Ok(Some(outside)) => {
            let taken = |name: &str| graph.outputs.iter().any(|output| output.name == name);
            let mut name = "out of range".to_owned();
            while taken(&name) {
                name.push('\'');
            }
            cx.plan.output(&name, &options.recipient, outside.id);
            let shape = cx.shape(&outside).clone();
            outputs.push(Revealed { name, shape, frac: 0, after: vec![After::InRange] });
        }
        Ok(None) => {}
        Err(refusal) => problems.push(refusal.at("(guard)", "")),
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
    megrez_passes::key_small_relus(&mut plan, options.keyed);
    if options.selects_truncated {
        megrez_passes::select_by_trees(&mut plan).expect("a plan that was built by the rules keeps to them");
    }
    if options.multiplies_truncated {
        let stands_for = megrez_passes::truncate_in_products(&mut plan)
            .expect("a plan that was built by the rules keeps to them");
        for layer in &mut layers {
            if let Some(&value) = stands_for.get(&layer.value) {
                layer.value = value;
                layer.frac = plan.value(value).kind.frac();
            }
        }
    }
    if options.defer_openings {
        megrez_passes::defer_openings(&mut plan).expect("a plan that was built by the rules keeps to them");
    }
    let rounds = rounds_of(&plan);
    if options.defer_resharing {
        megrez_passes::legalise(&mut plan, options.offload)
            .expect("a plan that was built by the rules keeps to them");
    } else if options.replicated {
        megrez_passes::offload_tables(&mut plan);
        megrez_passes::spread_maxima(&mut plan).expect("a plan that was built by the rules keeps to them");
    }
    if let Some(large) = options.sliced {
        megrez_passes::slice_rows(&mut plan, large)
            .expect("a plan that was built by the rules keeps to them");
    }
    let compiled = Compiled {
        plan,
        frac: options.frac,
        graph,
        model_inputs: cx.model_inputs,
        data_inputs,
        outputs,
        kept,
        trees: options.trees,
        public_weights: !options.private_weights,
        layers,
        ranges,
    };
    Ok((compiled, rounds))
}
