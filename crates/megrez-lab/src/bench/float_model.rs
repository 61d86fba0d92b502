//! `megrez bench model NAME --protocol secfloat`, and the rows of `megrez protocols`.

use super::options::Errors;
use super::sample::test_data;
use megrez::protocols::SECFLOAT;
use megrez::report::{Cost, PhaseCost};
use megrez::{Backend, FloatModel, Result, RunOptions};
use megrez_engine::float::{float_price, in_the_clear};
use megrez_float::{Float, Plain};
use megrez_graph::models::relevance_features;
use megrez_graph::{DataInput, Tensor, plain};
use megrez_plan::Input;
use megrez_session::Phase;
use megrez_twoparty::ops::{OPS, run};
use megrez_twoparty::price::Price;
use serde_json::{Value as Json, json};

/// How to measure.
pub struct ModelBench {
    /// The model's name, for the report.
    pub name: String,
    /// Inputs per run.
    pub batch: usize,
    /// Seed of weights and data, never of shares.
    pub seed: u64,
    /// How to run it.
    pub run: RunOptions,
    /// What a party is on this machine.
    pub parties: &'static str,
}

impl ModelBench {
    fn data(&self, run: u32, input: &DataInput) -> Tensor {
        if self.name == "relevance" {
            return relevance_features(self.batch, self.seed << 20 | u64::from(run));
        }
        test_data(self.seed, run, input)
    }
}

/// Units in the last place of `truth` between two numbers.
fn ulps(got: f32, truth: f32) -> f64 {
    let unit = f64::from(truth.abs().max(f32::MIN_POSITIVE).next_up())
        - f64::from(truth.abs().max(f32::MIN_POSITIVE));
    (f64::from(got) - f64::from(truth)).abs() / unit
}

/// Measures a model on random inputs in [0, 1], or the relevance network on features of its own.
/// Verified is that every output equals single precision in the clear, bit for bit, and that every
/// party sent what its price says.
///
/// # Errors
/// If a party fails.
pub fn bench_model(backend: &mut Backend, model: &FloatModel, o: &ModelBench) -> Result<Json> {
    let compiled = &model.compiled;
    let plan = &compiled.plan;
    let data = |run: u32, input: &DataInput| Ok(o.data(run, input));
    let numbers = |run: u32, input: &Input| Ok(model.numbers(run, input, &data)?);
    let outcome = backend.run_floats(plan, &o.run, &numbers, &|_| {})?;
    let cost = Cost::of(&outcome.reports);

    let bills = float_price(plan);
    let bytes = [0, 1].map(|party| bills.iter().map(|b| b.bytes[party]).sum::<u64>());
    let rounds: u32 = bills.iter().map(|b| b.rounds).sum();
    let none = PhaseCost::default();
    let online = cost.phases.get(&Phase::Online).unwrap_or(&none);
    let sent = ["0>1", "1>0"].map(|link| online.sent_bytes.get(link).copied().unwrap_or(0));

    let (mut wrong, mut errors, mut most) = (0, Errors::default(), 0f64);
    for (run, outputs) in outcome.outputs.iter().enumerate() {
        let run = run as u32;
        let inputs = plan
            .inputs
            .iter()
            .map(|i| numbers(run, i))
            .collect::<std::result::Result<Vec<_>, megrez_session::Error>>()?;
        let clear = in_the_clear(plan, &inputs);
        let tensors: Vec<Tensor> = compiled.data_inputs.iter().map(|i| o.data(run, i)).collect();
        let trace = plain::trace(&compiled.graph, &tensors)?;
        for (i, (got, output)) in outputs.iter().zip(&plan.outputs).enumerate() {
            let single = &clear[output.value.0 as usize];
            wrong += got.iter().zip(single).filter(|(g, s)| g.to_bits() != s.to_bits()).count();
            let Some(truth) = trace.value(compiled.graph.outputs[i].id) else { continue };
            for (&g, &t) in got.iter().zip(&truth.data) {
                errors.add((f64::from(g) - f64::from(t)).abs());
                most = most.max(ulps(g, t));
            }
        }
    }
    let offline = PhaseCost {
        busy_seconds: vec![0.0; 2],
        sent_bytes: online.sent_bytes.keys().map(|link| (link.clone(), 0)).collect(),
        ..PhaseCost::default()
    };
    let part = |phase: Phase| json!(cost.phases.get(&phase).unwrap_or(&none));
    Ok(json!({
        "schema": "megrez.bench/1",
        "op": null,
        "model": o.name,
        "protocol": SECFLOAT.name,
        "insecure": false,
        "numbers": "float32",
        "batch": o.batch,
        "options": { "extension": "softspoken", "group": plan.group, "threads": plan.threads },
        "net": { "name": o.run.net.name, "rtt_ms": o.run.net.rtt_ms, "mbps": o.run.net.mbps },
        "parties": o.parties,
        "device": cost.device,
        "repeat": o.run.runs,
        "phases": { "offline": offline, "online": part(Phase::Online) },
        "setup": part(Phase::Setup),
        "input": part(Phase::Input),
        "output": part(Phase::Output),
        "formula_bytes": { "0>1": bytes[0], "1>0": bytes[1] },
        "formula_rounds": rounds,
        "error": { "max_abs": errors.max, "mean_abs": errors.mean(), "max_ulp": most },
        "wrong": wrong,
        "peak_rss_mib": cost.peak_rss_mib,
        "wire_bytes": cost.wire_bytes,
        "layers": cost.layers,
        "verified": wrong == 0 && sent == bytes,
    }))
}

/// What each operation costs for many at once: rows of `megrez protocols`.
#[must_use]
pub fn price_rows() -> Vec<Json> {
    const LANES: usize = 10_000;
    let one = |op: &&str| {
        let mut price = Price::new(4);
        let numbers = Plain::from_f32(&vec![1.0; LANES]);
        let (x, y) = (Float::public(&price, &numbers), Float::public(&price, &numbers));
        let Ok(_) = run(op, &mut price, &x, &y);
        let bits = price.bill.bytes.iter().sum::<u64>() as f64 * 8.0 / LANES as f64;
        json!({
            "op": op,
            "numbers": "float32",
            "bits_per_element": { "offline": 0.0, "online": bits },
            "rounds": price.bill.rounds,
        })
    };
    OPS.iter().map(one).collect()
}
