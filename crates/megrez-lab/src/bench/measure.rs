//! One operation or one model, measured, verified against the plaintext oracle, beside its formula
//! and its floor.

use super::layer::LayerOp;
use super::operation::{canonical, factors_of, op_plan, winner_of};
use super::options::{BenchOptions, Errors};
use super::sample::{test_data, test_words};
use megrez::protocols::{self, find};
use megrez::report::{Cost, Floor, PhaseCost, Seconds};
use megrez::{Backend, Error, FixedModel, Result, RunOptions};
use megrez_engine::PlanCost;
use megrez_graph::{Activations, DataInput, Tensor, plain};
use megrez_plan::{List, Op, Plan, PlanError, Relu, ReluForm, SignBit};
use megrez_ring::decode_words;
use megrez_session::Phase;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Measures one operation.
pub fn bench_op(backend: &mut Backend, op: &str, o: &BenchOptions) -> Result<Json> {
    let mut plan = op_plan(op, backend.client(), o)?;
    if find(&o.run.protocol)?.deferred_resharing {
        let refuse = |e: PlanError| Error::Refused(e.to_string());
        megrez_passes::legalise(&mut plan, 0).map_err(refuse)?;
    }
    let planned = protocols::cost(&o.run.protocol, &plan)?;
    // Magnitude bits of the data: what the comparison or the product may hold.
    let bits = match op {
        "mul" | "mul3" | "mul4" | "fixed-mul" | "matmul" => {
            (o.ring - 2) / factors_of(op) as u32 - 8.min(o.ring / 8)
        }
        // Sums of products must not wrap before they are truncated.
        "fixed-matmul" => (o.ring - 4).saturating_sub(o.shape[1].max(1).ilog2()) / 2,
        "truncate" => o.ring - 3,
        // Values that are cut before they are compared need room for two cuts.
        "maxpool" if o.sign.cut > 0 => o.sign.cut + o.sign.width(o.ring).max(3) - 3,
        "winner" => winner_data(o)?,
        "select-truncate" | "relu" if o.truncate > 0 || op == "select-truncate" => {
            (o.sign.cut + o.sign.width(o.ring) - 2).min(o.ring - 3)
        }
        _ => (o.sign.cut + o.sign.width(o.ring) - 2).min(o.ring - 2),
    };
    let layer = LayerOp::find(op);
    let inputs = |run: u32, input: &megrez_plan::Input| {
        if let Some(layer) = layer {
            return Ok(layer.words(o, run));
        }
        let n = plan.value(input.value).shape.elements();
        Ok(test_words(o.seed, run, &input.name, n, o.ring, bits))
    };
    let outcome = backend.run(&plan, &o.run, &inputs, &|_| {})?;
    let elements = match op {
        // Their outputs are bits of values.
        "a2b" | "adder" => o.batch,
        _ => plan.value(plan.outputs[0].value).shape.elements(),
    };
    if let Some(layer) = layer {
        let (errors, verified) = layer.errors(o, &outcome.outputs)?;
        let cost = Cost::of(&outcome.reports);
        return Ok(report(Some(op), None, o, &plan, &cost, &planned, elements, errors, verified));
    }
    let clear = RunOptions { runs: o.run.runs, insecure: true, ..RunOptions::new("clear") };
    let oracle = Backend::threads().run(&plan, &clear, &inputs, &|_| {})?;
    let frac = plan.value(plan.outputs[0].value).kind.frac();
    // One unit in the last place for a truncation, nothing otherwise; the cut's own error where it
    // cuts.
    let truncates =
        matches!(op, "fixed-mul" | "fixed-matmul" | "truncate" | "select-truncate") || o.truncate > 0;
    let cut = match op {
        "relu" if o.truncate == 0 => 1 << o.sign.cut,
        "maxpool" | "winner" if o.sign.cut > 0 => 2 << o.sign.cut,
        _ => 0,
    };
    let slack = u64::from(truncates) + cut;
    let mask = u64::MAX >> (64 - o.ring);
    let mut verified = true;
    let mut errors = Errors::default();
    for (got, expected) in outcome.outputs.iter().zip(&oracle.outputs) {
        for (&g, &e) in got[0].iter().zip(&expected[0]) {
            let difference = g.wrapping_sub(e) & mask;
            let magnitude = difference.min(difference.wrapping_neg() & mask);
            verified &=
                magnitude <= slack || o.sign.cut > 0 && matches!(canonical(op), "sign-bit" | "compare-many");
            errors.add(magnitude as f64 * 2f64.powi(-(frac as i32)));
        }
    }
    let cost = Cost::of(&outcome.reports);
    Ok(report(Some(op), None, o, &plan, &cost, &planned, elements, errors, verified))
}

/// Magnitude bits of data for `winner`: any two differ by no more than it may compare.
fn winner_data(o: &BenchOptions) -> Result<u32> {
    let (cut, bits) = (o.sign.cut, winner_of(o).bits);
    match (cut, bits) {
        (0, _) => Ok(bits.saturating_sub(2)),
        (_, ..3) => Err(Error::Refused(format!(
            "values that are cut and compared by {bits} bits may not differ at all: compare 3 bits or more"
        ))),
        _ => Ok(cut + bits - 3),
    }
}

/// Measures a model on random inputs in [0, 1].
pub fn bench_model(backend: &mut Backend, name: &str, model: &FixedModel, o: &BenchOptions) -> Result<Json> {
    let plan = &model.compiled.plan;
    let planned = protocols::cost(&o.run.protocol, plan)?;
    let data = |run: u32, input: &DataInput| Ok(test_data(o.seed, run, input));
    let words = |run: u32, input: &megrez_plan::Input| Ok(model.words(run, input, &data)?);
    let outcome = backend.run(plan, &o.run, &words, &|_| {})?;
    let mut errors = Errors::default();
    let mut verified = true;
    for (run, outputs) in outcome.outputs.iter().enumerate() {
        let inputs: Vec<Tensor> =
            model.compiled.data_inputs.iter().map(|d| data(run as u32, d)).collect::<Result<_>>()?;
        let expected = plain::run(&model.compiled.graph, &inputs)?;
        for ((revealed, words), expected) in model.compiled.outputs.iter().zip(outputs).zip(&expected) {
            let got = decode_words(plan.ring, words, revealed.frac);
            let scale = expected.data.iter().fold(1f64, |m, v| m.max(f64::from(v.abs())));
            for (g, e) in got.iter().zip(&expected.data) {
                let error = (f64::from(*g) - f64::from(*e)).abs();
                errors.add(error);
                // A wrong layer is off by the size of its values; rounding is far below.
                verified &= error <= 0.05 * scale;
            }
        }
    }
    let cost = Cost::of(&outcome.reports);
    Ok(report(None, Some(name), o, plan, &cost, &planned, 1, errors, verified))
}

#[derive(Serialize)]
struct PhaseJson<'a> {
    seconds: Seconds,
    rounds: u32,
    sent_bytes: &'a BTreeMap<String, u64>,
    busy_seconds: &'a [f64],
}

/// The choices that were made: of the one comparison of an operation, or of all those of a model.
fn options(plan: &Plan, o: &BenchOptions) -> Json {
    let sized = plan.steps.iter().filter_map(|step| match &step.op {
        Op::Relu(relu) => Some((plan.value(step.output).shape.elements(), relu)),
        _ => None,
    });
    let sized: Vec<(usize, &Relu)> = sized.collect();
    let relus: Vec<&Relu> = sized.iter().map(|&(_, relu)| relu).collect();
    // Small ReLUs may take keys where others do not.
    let form = sized.iter().max_by_key(|(n, _)| n).map_or(o.form, |(_, relu)| relu.form);
    let keyed = sized.iter().filter(|(_, relu)| relu.form == ReluForm::Key).map(|(n, _)| n).max();
    // A ReLU by a tree is a comparison and a selection.
    let signs: Vec<&SignBit> = plan
        .steps
        .iter()
        .filter_map(|s| match &s.op {
            Op::Relu(relu) => Some(&relu.sign),
            Op::NonNegative(sign) if sign.list == List::Tree => Some(sign),
            _ => None,
        })
        .collect();
    let selected = plan.steps.iter().find_map(|s| match s.op {
        Op::Select { truncate } if truncate > 0 => Some(truncate),
        _ => None,
    });
    let first = *signs.first().unwrap_or(&&o.sign);
    let list = match &first.list {
        List::Bits => "bits",
        List::Digits(_) => "digits",
        List::Tree => "tree",
    };
    let widths = match &first.list {
        List::Digits(widths) if signs.len() <= 1 => json!(widths),
        _ => Json::Null,
    };
    // Where a protocol has no maximum of all pairs, it is spread over steps of these names.
    let pairs = plan.steps.iter().any(|s| matches!(s.op, Op::Maximum(_)) || s.name.ends_with("/compare"));
    let bits: Vec<u32> = signs.iter().map(|sign| sign.width(o.ring)).collect();
    json!({
        "list": list,
        "widths": widths,
        "form": form_name(form),
        "keys": keyed.filter(|_| form != ReluForm::Key),
        "bits": if signs.len() > 1 { json!(bits) } else { json!(first.width(o.ring)) },
        "cut": first.cut,
        "activations": match o.activations {
            Activations::Minimax => "minimax",
            Activations::Fine => "fine",
            Activations::Lookup => "lookup",
            Activations::Tables => "tables",
            Activations::Mizar => "mizar",
        },
        "pool": if pairs { "all-pairs" } else { "tournament" },
        "truncate": relus.first().map(|r| r.truncate).or(selected).unwrap_or(o.truncate),
    })
}

#[allow(clippy::too_many_arguments)]
pub(super) fn report(
    op: Option<&str>,
    model: Option<&str>,
    o: &BenchOptions,
    plan: &Plan,
    cost: &Cost,
    planned: &PlanCost,
    elements: usize,
    errors: Errors,
    verified: bool,
) -> Json {
    let none = PhaseCost::default();
    let phase = |p: Phase| cost.phases.get(&p).unwrap_or(&none);
    let part = |p: Phase| {
        let c = phase(p);
        PhaseJson {
            seconds: c.seconds,
            rounds: c.rounds,
            sent_bytes: &c.sent_bytes,
            busy_seconds: &c.busy_seconds,
        }
    };
    let per_element = |bits: f64| if op.is_some() { json!(bits / elements as f64) } else { Json::Null };
    let measured = |p: Phase| per_element(phase(p).sent_bytes.values().sum::<u64>() as f64 * 8.0);
    let formula = |p: Phase| per_element(planned.bits(p));
    let floor = Floor::of(planned, phase(Phase::Online), Phase::Online, &o.run.net);
    let options = options(plan, o);
    json!({
        "schema": "megrez.bench/1",
        "op": op,
        "model": model,
        "protocol": o.run.protocol,
        "insecure": o.run.insecure,
        "ring": o.ring,
        "frac": o.frac,
        "batch": o.batch,
        "options": options,
        "net": { "name": o.run.net.name, "rtt_ms": o.run.net.rtt_ms, "mbps": o.run.net.mbps },
        "parties": o.parties,
        "device": cost.device,
        "repeat": o.run.runs,
        "phases": { "offline": part(Phase::Offline), "online": part(Phase::Online) },
        "input": part(Phase::Input),
        "output": part(Phase::Output),
        "bits_per_element": { "offline": measured(Phase::Offline), "online": measured(Phase::Online) },
        "formula_bits_per_element": { "offline": formula(Phase::Offline), "online": formula(Phase::Online) },
        "floor": floor,
        "error": { "max_abs": errors.max, "mean_abs": errors.mean() },
        "peak_rss_mib": cost.peak_rss_mib,
        "kernel_seconds": cost.kernel_seconds,
        "peak_device_mib": cost.peak_device_mib,
        "wire_bytes": cost.wire_bytes,
        "layers": cost.layers,
        "verified": verified,
    })
}

/// A form's name on the command line.
pub fn form_name(form: ReluForm) -> &'static str {
    match form {
        ReluForm::ThreeRounds => "3R",
        ReluForm::TwoRounds => "2R",
        ReluForm::TwoRoundsFresh => "2R-fresh",
        ReluForm::Table => "table",
        ReluForm::Key => "key",
        ReluForm::DigitTables => "digit-tables",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_winner_differ_by_no_more_than_it_compares() {
        for (cut, bits) in [0u32, 1, 5].into_iter().flat_map(|cut| (2..=11u32).map(move |bits| (cut, bits))) {
            let sign = SignBit { cut, bits: Some(bits), ..SignBit::FULL };
            let Ok(size) = winner_data(&BenchOptions { sign, ..BenchOptions::new(RunOptions::new("mizar")) })
            else {
                assert!(cut > 0 && bits == 2);
                continue;
            };
            let words = test_words(1, 0, "x", 4000, 64, size);
            let words: Vec<i64> = words.into_iter().map(|word| word as i64).collect();
            let apart = words.iter().max().unwrap() - words.iter().min().unwrap();
            let right = (1 << (cut + bits - 1)) - if cut == 0 { 1 } else { 2 << cut };
            assert!((right / 4..=right).contains(&apart), "{cut}, {bits}: {apart}");
        }
    }
}
