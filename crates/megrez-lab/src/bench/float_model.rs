//! `megrez bench model NAME` in floating point, and the rows of `megrez protocols`.

use super::options::Errors;
use super::sample::test_data;
use megrez::protocols::find;
use megrez::report::{Cost, PhaseCost};
use megrez::{Backend, Error, FloatModel, Result, RunOptions};
use megrez_engine::float::{dealt_cost, float_cost, in_the_clear};
use megrez_float::{Blocks, Plain, on};
use megrez_graph::models::relevance_features;
use megrez_graph::{DataInput, Tensor, plain};
use megrez_plan::{FloatPlan, Input};
use megrez_session::Phase;
use megrez_twoparty::costing::Costing;
use megrez_twoparty::dealt::costing as dealt;
use megrez_twoparty::ops::{OPS, run};
use megrez_twoparty::ot::Transfers;
use serde_json::{Value as Json, json};
use std::convert::Infallible;

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
/// party sent what its cost says.
///
/// # Errors
/// If a party fails.
pub fn bench_model(backend: &mut Backend, model: &FloatModel, o: &ModelBench) -> Result<Json> {
    let compiled = &model.compiled;
    let plan = &compiled.plan;
    if plan.group == 0 && o.run.runs > 1 {
        let what = "silent transfers keep a stock from run to run, so that runs cost different: --repeat 1";
        return Err(Error::Refused(what.into()));
    }
    let data = |run: u32, input: &DataInput| Ok(o.data(run, input));
    let numbers = |run: u32, input: &Input| Ok(model.numbers(run, input, &data)?);
    let outcome = backend.run_floats(plan, &o.run, &numbers, &|_| {})?;
    let cost = Cost::of(&outcome.reports);

    let protocol = find(&o.run.protocol)?;
    let priced = costing(plan, protocol.parties);
    let none = PhaseCost::default();
    let of = |phase: Phase| cost.phases.get(&phase).unwrap_or(&none);
    let online = of(Phase::Online);
    let on = |phase: Phase, link: &str| of(phase).sent_bytes.get(link).copied().unwrap_or(0);
    let sent = [on(Phase::Online, "0>1"), on(Phase::Online, "1>0")];
    let dealt = on(Phase::Offline, "2>0");

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
    let offline = match protocol.parties {
        3 => of(Phase::Offline).clone(),
        _ => PhaseCost {
            busy_seconds: vec![0.0; 2],
            sent_bytes: online.sent_bytes.keys().map(|link| (link.clone(), 0)).collect(),
            ..PhaseCost::default()
        },
    };
    let options = match protocol.parties {
        2 => {
            json!({ "extension": Transfers::of(plan.group).name(), "group": plan.group, "threads": plan.threads })
        }
        _ => json!({}),
    };
    let part = |phase: Phase| json!(cost.phases.get(&phase).unwrap_or(&none));
    Ok(json!({
        "schema": "megrez.bench/1",
        "op": null,
        "model": o.name,
        "protocol": protocol.name,
        "insecure": false,
        "numbers": "float32",
        "batch": o.batch,
        "options": options,
        "net": { "name": o.run.net.name, "rtt_ms": o.run.net.rtt_ms, "mbps": o.run.net.mbps },
        "parties": o.parties,
        "device": cost.device,
        "repeat": o.run.runs,
        "phases": { "offline": offline, "online": part(Phase::Online) },
        "setup": part(Phase::Setup),
        "input": part(Phase::Input),
        "output": part(Phase::Output),
        "formula_bytes": priced.by_link(),
        "formula_rounds": priced.rounds,
        "error": { "max_abs": errors.max, "mean_abs": errors.mean(), "max_ulp": most },
        "wrong": wrong,
        "peak_rss_mib": cost.peak_rss_mib,
        "wire_bytes": cost.wire_bytes,
        "layers": cost.layers,
        "verified": wrong == 0 && sent == priced.online && dealt == priced.dealt,
    }))
}

/// What a plan costs by its formulas: bytes online from 0 to 1 and from 1 to 0, dealt bytes from 2
/// to 0.
struct Priced {
    online: [u64; 2],
    dealt: u64,
    rounds: u32,
}

impl Priced {
    fn by_link(&self) -> Json {
        let mut links = json!({ "0>1": self.online[0], "1>0": self.online[1] });
        if self.dealt > 0 {
            links["2>0"] = json!(self.dealt);
        }
        links
    }
}

fn costing(plan: &FloatPlan, parties: usize) -> Priced {
    if parties == 2 {
        let costs = float_cost(plan);
        let online = [0, 1].map(|party| costs.iter().map(|b| b.bytes[party]).sum());
        return Priced { online, dealt: 0, rounds: costs.iter().map(|b| b.rounds).sum() };
    }
    let costs = dealt_cost(plan);
    let opened = costs.iter().map(|b| b.opened).sum();
    Priced {
        online: [opened; 2],
        dealt: costs.iter().map(|b| b.dealt).sum(),
        rounds: costs.iter().map(|b| b.rounds).sum(),
    }
}

/// What each operation costs for many at once under a protocol of so many parties: rows of
/// `megrez protocols`.
#[must_use]
pub fn price_rows(parties: usize) -> Vec<Json> {
    const LANES: usize = 10_000;
    fn priced<B: Blocks<Error = Infallible> + 'static>(op: &str, mut costing: B) -> B {
        let numbers = Plain::from_f32(&vec![1.0; LANES]);
        let Ok(_) = on(&mut costing, |b| run(op, b, &b.secret(&numbers), &b.secret(&numbers)));
        costing
    }
    let one = |op: &&str| {
        let (offline, online, rounds) = if parties == 2 {
            let cost = priced(op, Costing::new(4)).cost;
            (0, cost.bytes.iter().sum(), cost.rounds)
        } else {
            let cost = priced(op, dealt::Costing::default()).cost;
            (cost.dealt, 2 * cost.opened, cost.rounds)
        };
        let bits = |bytes: u64| bytes as f64 * 8.0 / LANES as f64;
        json!({
            "op": op,
            "numbers": "float32",
            "bits_per_element": { "offline": bits(offline), "online": bits(online) },
            "rounds": rounds,
        })
    };
    OPS.iter().map(one).collect()
}
