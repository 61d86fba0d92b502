//! A model in fixed point, compared layer by layer.

use crate::fixed::FixedModel;
use megrez_graph::calibrate::compared;
use megrez_graph::lower::DataInput;
use megrez_graph::plain::{self, Trace};
use megrez_graph::{Graph, Interval, LayerInfo, Tensor};
use megrez_ring::decode_words;
use megrez_service::client::RunOptions;
use megrez_service::{Backend, Error, Result};
use serde::Serialize;

/// One layer's numbers on shares against the clear.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerCheck {
    /// The layer's name.
    pub layer: String,
    /// Its operator.
    pub op: String,
    /// Largest absolute difference.
    pub max_error: f64,
    /// Mean absolute difference.
    pub mean_error: f64,
    /// Largest magnitude in the clear.
    pub max_value: f64,
    /// Bits between the largest magnitude and the ring's limit of 2^(ℓ−2); negative if it was
    /// exceeded.
    pub headroom_bits: f64,
    /// Whether the range was proven before the run.
    pub proven: bool,
    /// Whether it rests on what was measured on data, where it was not proven.
    pub calibrated: bool,
    /// Elements whose magnitude in the clear lies outside what the layer can hold: wrong numbers on
    /// shares.
    pub outside: usize,
}

/// Runs `model` on one batch, a tensor per input of the model, with every layer's output opened to
/// the caller, and compares.
///
/// Opening inner layers reveals them to the caller: the caller must own model and data.
pub fn check(
    backend: &mut Backend,
    model: &FixedModel,
    data: &[Tensor],
    options: &RunOptions,
) -> Result<Vec<LayerCheck>> {
    let client = backend.client().to_owned();
    let mut plan = model.plan_for(&client);
    plan.outputs.clear();
    for layer in &model.compiled.layers {
        plan.output(&layer.name, &client, layer.value);
    }
    let options = RunOptions { runs: 1, ..options.clone() };
    let inputs = &model.compiled.data_inputs;
    let rows = |_: u32, input: &DataInput| {
        let rows = inputs.iter().position(|i| i.name == input.name).and_then(|i| data.get(i));
        rows.cloned().ok_or_else(|| Error::Refused(format!("there is no data for input `{}`", input.name)))
    };
    let words = |run: u32, input: &megrez_plan::Input| Ok(model.words(run, input, &rows)?);
    let outcome = backend.run(&plan, &options, &words, &|_| {})?;

    let graph = &model.compiled.graph;
    let trace = plain::trace(graph, data)?;
    let mut checks = Vec::new();
    for ((layer, words), range) in
        model.compiled.layers.iter().zip(&outcome.outputs[0]).zip(&model.compiled.ranges)
    {
        let Some(expected) = trace.value(layer.graph_value) else { continue };
        let frac = plan.value(layer.value).kind.frac();
        let got = decode_words(plan.ring, words, frac);
        let limit = 2f64.powi(plan.ring as i32 - 2 - frac as i32);
        // What follows is laid out for numbers as they were measured.
        let measured = range.calibrated.then_some(range.output);
        let left = |v: f64| v.abs() >= limit || measured.is_some_and(|r| !(r.low..=r.high).contains(&v));
        let errors: Vec<f64> =
            got.iter().zip(&expected.data).map(|(g, e)| (f64::from(*g) - f64::from(*e)).abs()).collect();
        let max_value = expected.data.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
        let wrong = layer.domain.map_or(0, |domain| outside_domain(graph, layer, &trace, domain));
        let beyond = wrong + layer.compared.map_or(0, |limit| wrong_comparisons(graph, layer, &trace, limit));
        checks.push(LayerCheck {
            layer: layer.name.clone(),
            op: layer.op.clone(),
            max_error: errors.iter().copied().fold(0.0, f64::max),
            mean_error: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            max_value,
            headroom_bits: if max_value > 0.0 {
                (limit / max_value).log2()
            } else {
                f64::from(plan.ring - 2)
            },
            proven: range.proven,
            calibrated: range.calibrated,
            outside: expected.data.iter().filter(|v| left(f64::from(**v))).count() + beyond,
        });
    }
    Ok(checks)
}

/// How many elements a layer compares that are larger than its comparisons hold; a pool whose
/// window may hold a larger difference counts once.
fn wrong_comparisons(graph: &Graph, layer: &LayerInfo, trace: &Trace, limit: f64) -> usize {
    let node = graph.nodes.iter().find(|n| n.output == layer.graph_value);
    let input = node.and_then(|n| n.inputs.first().copied().flatten()).and_then(|id| trace.value(id));
    match input {
        Some(input) if layer.op == "MaxPool" => {
            usize::from(compared("MaxPool", input).is_some_and(|largest| largest > limit))
        }
        Some(input) => input.data.iter().filter(|v| f64::from(v.abs()) > limit).count(),
        None => 0,
    }
}

/// How many elements of one of a layer's inputs lie where the layer has no right result.
fn outside_domain(
    graph: &Graph,
    layer: &LayerInfo,
    trace: &Trace,
    (input, domain): (usize, Interval),
) -> usize {
    let node = graph.nodes.iter().find(|n| n.output == layer.graph_value);
    // Operands are counted without the inputs that are left out.
    let id = node.and_then(|n| n.inputs.iter().flatten().nth(input));
    let Some(values) = id.and_then(|&id| trace.value(id)) else { return 0 };
    let inside = |v: &&f32| (domain.low..=domain.high).contains(&f64::from(**v));
    values.data.len() - values.data.iter().filter(inside).count()
}

/// A table for people.
pub fn table(layers: &[LayerCheck]) -> String {
    let mut out = format!(
        "{:<16} {:<18} {:>11} {:>11} {:>11} {:>9}  range\n",
        "layer", "operator", "max error", "mean error", "max value", "headroom"
    );
    for l in layers {
        let range = match (l.outside, l.proven, l.calibrated) {
            (0, true, _) => "proven".into(),
            (0, false, true) => "calibrated".into(),
            (0, false, false) => "assumed".into(),
            (k, ..) => format!("EXCEEDED by {k} elements"),
        };
        out += &format!(
            "{:<16} {:<18} {:>11.3e} {:>11.3e} {:>11.4} {:>6.1} bit  {range}\n",
            l.layer, l.op, l.max_error, l.mean_error, l.max_value, l.headroom_bits
        );
    }
    out
}
