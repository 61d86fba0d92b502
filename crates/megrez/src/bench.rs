//! `megrez bench`: one operation or one model, measured, verified against the plaintext oracle, beside its formula and
//! its floor.

use crate::bench_layer::LayerOp;
use crate::client::RunOptions;
use crate::device::AnyDevice;
use crate::infer::{Backend, Model, decode_words, find, price};
use crate::report::{Cost, Floor, PhaseCost};
use crate::{Error, Result};
use megrez_engine::PlanCost;
use megrez_engine::local::{LocalOptions, run_each};
use megrez_graph::onnx::{self, ImportOptions};
use megrez_graph::{DataInput, Graph, PoolForm, Tensor, models, plain};
use megrez_plan::{Kind, List, Op, Plan, PlanError, Relu, ReluForm, SignBit, ValueId, View};
use megrez_ring::Shape;
use megrez_session::Phase;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// ℓ.
    pub ring: u32,
    /// Fraction bits.
    pub frac: u32,
    /// Elements of an operation, or inputs of a model.
    pub batch: usize,
    /// How the sign bit is computed.
    pub sign: SignBit,
    /// The form of ReLU.
    pub form: ReluForm,
    /// How `maxpool` finds the maxima.
    pub pool: PoolForm,
    /// What stands for smooth activations.
    pub activations: megrez_graph::Activations,
    /// Fraction bits that ReLU drops in the same step.
    pub truncate: u32,
    /// m, k, n of a matrix product; m rows of k for `softmax` and `layernorm`.
    pub shape: [usize; 3],
    /// Seeds the test data, never shares.
    pub seed: u64,
    /// The protocol, the repetitions and the network.
    pub run: RunOptions,
    /// `process` or `thread`, for the report.
    pub parties: &'static str,
}

/// The operations that `bench op` knows.
pub const OPS: &[&str] = &[
    "sign-bit",
    "msb",
    "drelu",
    "relu",
    "maxpool",
    "mul",
    "mul3",
    "mul4",
    "fixed-mul",
    "matmul",
    "fixed-matmul",
    "truncate",
    "select",
    "mux",
    "and",
    "and2",
    "and4",
    "andn",
    "bit-to-ring",
    "bit2a",
    "a2b",
    "b2a",
    "adder",
    "compare-many",
    "sigmoid",
    "tanh",
    "gelu",
    "silu",
    "exp",
    "log",
    "reciprocal",
    "rsqrt",
    "softmax",
    "layernorm",
];

/// How many bits `andn` takes.
const MANY: usize = 16;

/// The operation's one name: papers have others.
fn canonical(op: &str) -> &str {
    match op {
        "msb" | "drelu" => "sign-bit",
        "mux" => "select",
        "and2" => "and",
        "bit2a" => "bit-to-ring",
        op => op,
    }
}

/// How many factors a product has.
fn factors_of(op: &str) -> usize {
    match op {
        "mul3" => 3,
        "mul4" => 4,
        _ => 2,
    }
}

/// The conjunction of bits, by a tree of conjunctions of up to `factors`.
fn conjunction(
    plan: &mut Plan,
    bits: Vec<ValueId>,
    factors: usize,
) -> std::result::Result<ValueId, PlanError> {
    let (mut bits, mut level) = (bits, 0);
    while bits.len() > 1 {
        let mut next = vec![];
        for (i, part) in bits.chunks(factors).enumerate() {
            next.push(match part {
                [only] => *only,
                part => plan.step(&format!("op/{level}-{i}"), Op::And, part)?,
            });
        }
        (bits, level) = (next, level + 1);
    }
    Ok(bits[0])
}

/// The plan of one operation on `batch` elements.
pub fn op_plan(op: &str, client: &str, o: &BenchOptions) -> Result<Plan> {
    if let Some(layer) = LayerOp::find(op) {
        return layer.plan(client, o);
    }
    let mut plan = Plan::new(o.ring);
    let n: Shape = [o.batch].into();
    let refuse = |e: megrez_plan::PlanError| Error::Refused(e.to_string());
    let sign = || Op::NonNegative(o.sign.clone());
    let relu = |truncate| Op::Relu(Relu { sign: o.sign.clone(), form: o.form, truncate });
    let input =
        |plan: &mut Plan, name: &str, shape: &Shape, frac| plan.input(name, client, shape.clone(), frac);
    let z = match canonical(op) {
        "sign-bit" => {
            let x = input(&mut plan, "x", &n, o.frac);
            plan.step("op", sign(), &[x])
        }
        "relu" => {
            let x = input(&mut plan, "x", &n, o.frac + o.truncate);
            plan.step("op", relu(o.truncate), &[x])
        }
        "mul" | "fixed-mul" => {
            let (x, y) = (input(&mut plan, "x", &n, o.frac), input(&mut plan, "y", &n, o.frac));
            let z = plan.step("op", Op::Mul, &[x, y]).map_err(refuse)?;
            if op == "mul" { Ok(z) } else { plan.step("truncate", Op::Truncate { bits: o.frac }, &[z]) }
        }
        "mul3" | "mul4" => {
            let names = &["x", "y", "z", "w"][..factors_of(op)];
            let factors: Vec<_> = names.iter().map(|name| input(&mut plan, name, &n, o.frac)).collect();
            plan.step("op", Op::Mul, &factors)
        }
        "matmul" | "fixed-matmul" => {
            let [m, k, n] = o.shape;
            let x = input(&mut plan, "x", &[m, k].into(), o.frac);
            let y = input(&mut plan, "y", &[k, n].into(), o.frac);
            let z = plan.step("op", Op::MatMul, &[x, y]).map_err(refuse)?;
            if op == "matmul" { Ok(z) } else { plan.step("truncate", Op::Truncate { bits: o.frac }, &[z]) }
        }
        "truncate" => {
            let x = input(&mut plan, "x", &n, 2 * o.frac);
            plan.step("op", Op::Truncate { bits: o.frac }, &[x])
        }
        "select" | "and" | "bit-to-ring" => {
            // The bit is a comparison's; the report separates the steps.
            let x = input(&mut plan, "x", &n, o.frac);
            let b = plan.step("bit", sign(), &[x]).map_err(refuse)?;
            match canonical(op) {
                "select" => plan.step("op", Op::Select, &[b, x]),
                "and" => plan.step("op", Op::And, &[b, b]),
                _ => plan.step("op", Op::BitToRing, &[b]),
            }
        }
        "and4" | "andn" => {
            let count = if op == "and4" { 4 } else { MANY };
            let factors = find(&o.run.protocol)?.factors;
            let x = input(&mut plan, "x", &[count * o.batch].into(), o.frac);
            let bits = plan.step("bit", sign(), &[x]).map_err(refuse)?;
            let part = |i: usize| Op::View(View { offset: i * o.batch, ..View::whole(n.clone()) });
            let parts = (0..count).map(|i| plan.step(&format!("part{i}"), part(i), &[bits]));
            let parts = parts.collect::<std::result::Result<Vec<_>, _>>().map_err(refuse)?;
            conjunction(&mut plan, parts, factors)
        }
        "a2b" | "b2a" | "adder" => {
            // Values in bits are made of ring values; the report separates the steps.
            let mut bits = |name: &str, step: &str| {
                let x = input(&mut plan, name, &n, o.frac);
                plan.step(step, Op::ToBits, &[x]).map_err(refuse)
            };
            match op {
                "a2b" => bits("x", "op"),
                "b2a" => {
                    let b = bits("x", "a2b")?;
                    plan.step("op", Op::FromBits, &[b]).map_err(refuse)
                }
                _ => {
                    let (a, b) = (bits("x", "a2b/x")?, bits("y", "a2b/y")?);
                    plan.step("op", Op::AddBits, &[a, b]).map_err(refuse)
                }
            }
            .map(Ok)?
        }
        "compare-many" => {
            let x = input(&mut plan, "x", &n, o.frac);
            let one = 1i64 << o.frac;
            plan.step("op", Op::CompareMany { sign: o.sign.clone(), thresholds: vec![-one, 0, one] }, &[x])
        }
        "maxpool" if o.pool == PoolForm::AllPairs => {
            let x = input(&mut plan, "x", &[4, o.batch].into(), o.frac);
            let tap = |plan: &mut Plan, i: usize| {
                let view = View { offset: i * o.batch, ..View::whole(n.clone()) };
                plan.step(&format!("tap{i}"), Op::View(view), &[x]).map_err(refuse)
            };
            let taps = [0, 1, 2, 3].map(|i| tap(&mut plan, i));
            let taps = taps.into_iter().collect::<Result<Vec<_>>>()?;
            plan.step("op", Op::Maximum(o.sign.clone()), &taps)
        }
        "maxpool" => {
            // `batch` outputs of 2×2 windows: a tournament of two levels.
            let mut values = input(&mut plan, "x", &[4, o.batch].into(), o.frac);
            for (level, half) in [2, 1].into_iter().enumerate() {
                let shape: Shape = [2 * half, o.batch].into();
                let part = |plan: &mut Plan, name: &str, start| {
                    let view = View::slice(&shape, 0, start, 1, half);
                    plan.step(&format!("level{level}/{name}"), Op::View(view), &[values]).map_err(refuse)
                };
                let (a, b) = (part(&mut plan, "left", 0)?, part(&mut plan, "right", half)?);
                let difference = Op::Combine { coefficients: vec![1, -1], constant: 0 };
                let d =
                    plan.step(&format!("level{level}/difference"), difference, &[a, b]).map_err(refuse)?;
                let d = plan.step(&format!("level{level}/relu"), relu(0), &[d]).map_err(refuse)?;
                let sum = Op::Combine { coefficients: vec![1, 1], constant: 0 };
                values = plan.step(&format!("level{level}/max"), sum, &[b, d]).map_err(refuse)?;
            }
            Ok(values)
        }
        other => {
            return Err(Error::Refused(format!(
                "there is no operation `{other}`; there are: {}",
                OPS.join(", ")
            )));
        }
    };
    let z = z.map_err(refuse)?;
    plan.output("z", client, z);
    Ok(plan)
}

/// Test data: uniform words whose products and comparisons stay in range.
pub(crate) fn test_words(seed: u64, run: u32, name: &str, n: usize, ring: u32, bits: u32) -> Vec<u64> {
    let mut state = seed ^ u64::from(run) << 32 ^ name.bytes().fold(0, |h, b| h * 131 + u64::from(b));
    (0..n)
        .map(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (((z ^ (z >> 31)) as i64) >> (63 - bits)) as u64 & (u64::MAX >> (64 - ring))
        })
        .collect()
}

/// Test data for models: uniform in [0, 1].
pub fn test_image(seed: u64, run: u32, name: &str, shape: Shape) -> Tensor {
    let words = test_words(seed, run, name, shape.elements(), 64, 24);
    let unit = |w: &u64| (*w as i64).unsigned_abs() as f32 / (1u64 << 24) as f32;
    Tensor::new(shape, words.iter().map(unit).collect::<Vec<f32>>())
}

/// A model by the path of its ONNX file or by the name of a built-in network.
pub fn any_model(model: &str, batch: usize, seed: u64) -> Result<Graph> {
    let path = std::path::Path::new(model);
    if path.extension().is_some_and(|e| e == "onnx") {
        return Ok(onnx::read_file(path, &ImportOptions { batch, ..ImportOptions::default() })?);
    }
    Ok(models::build(model, batch, seed)?)
}

/// Measures one operation.
pub fn bench_op(backend: &mut Backend, op: &str, o: &BenchOptions) -> Result<Json> {
    let mut plan = op_plan(op, backend.client(), o)?;
    if find(&o.run.protocol)?.sums {
        let refuse = |e: PlanError| Error::Refused(e.to_string());
        plan.spread_maxima().map_err(refuse)?;
        plan.leave_sums().map_err(refuse)?;
    }
    let price = price(&o.run.protocol, &plan)?;
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
        "relu" if o.truncate > 0 => (o.sign.cut + o.sign.width(o.ring) - 2).min(o.ring - 3),
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
        return Ok(report(Some(op), None, o, &plan, &cost, &price, elements, errors, verified));
    }
    let oracle = run_each::<AnyDevice>(
        "clear",
        &plan,
        &inputs,
        &|_| {},
        &LocalOptions { runs: o.run.runs, ..LocalOptions::default() },
    )
    .map_err(|e| Error::Refused(e.to_string()))?;
    let frac = match plan.value(plan.outputs[0].value).kind {
        Kind::Ring { frac } | Kind::Sum { frac } | Kind::Public { frac } => frac,
        Kind::Bit => 0,
    };
    // One unit in the last place for a truncation, nothing otherwise; the cut's own error where it cuts.
    let truncates = matches!(op, "fixed-mul" | "fixed-matmul" | "truncate") || o.truncate > 0;
    let cut = match op {
        "relu" if o.truncate == 0 => 1 << o.sign.cut,
        "maxpool" if o.sign.cut > 0 => 2 << o.sign.cut,
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
    Ok(report(Some(op), None, o, &plan, &cost, &price, elements, errors, verified))
}

/// Random numbers in [0, 1], or random tokens.
pub(crate) fn test_data(seed: u64, run: u32, input: &DataInput) -> Tensor {
    let mut data = test_image(seed, run, &input.name, input.shape.clone());
    if let Some(rows) = input.tokens {
        data.data.iter_mut().for_each(|v| *v = (*v * rows as f32).floor().min(rows as f32 - 1.0));
    }
    data
}

/// Measures a model on random inputs in [0, 1].
pub fn bench_model(backend: &mut Backend, name: &str, model: &Model, o: &BenchOptions) -> Result<Json> {
    let plan = &model.compiled.plan;
    let price = price(&o.run.protocol, plan)?;
    let data = |run: u32, input: &DataInput| Ok(test_data(o.seed, run, input));
    let words = |run: u32, input: &megrez_plan::Input| model.words(run, input, &data);
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
    Ok(report(None, Some(name), o, plan, &cost, &price, 1, errors, verified))
}

/// Largest and mean absolute error.
#[derive(Default)]
pub(crate) struct Errors {
    pub max: f64,
    sum: f64,
    count: usize,
}

impl Errors {
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    pub fn add(&mut self, error: f64) {
        self.max = self.max.max(error);
        self.sum += error;
        self.count += 1;
    }
}

#[derive(Serialize)]
struct PhaseJson<'a> {
    seconds: crate::report::Seconds,
    rounds: u32,
    sent_bytes: &'a BTreeMap<String, u64>,
    busy_seconds: &'a [f64],
}

/// The choices that were made: of the one comparison of an operation, or of all those of a model.
fn options(plan: &Plan, o: &BenchOptions) -> Json {
    let relus: Vec<&Relu> =
        plan.steps.iter().filter_map(|s| if let Op::Relu(r) = &s.op { Some(r) } else { None }).collect();
    let first = relus.first().map_or(&o.sign, |r| &r.sign);
    let list = match &first.list {
        List::Bits => "bits",
        List::Digits(_) => "digits",
    };
    let widths = match &first.list {
        List::Digits(widths) if relus.len() <= 1 => json!(widths),
        _ => Json::Null,
    };
    // Where a protocol has no maximum of all pairs, it is spread over steps of these names.
    let pairs = plan.steps.iter().any(|s| matches!(s.op, Op::Maximum(_)) || s.name.ends_with("/compare"));
    let bits: Vec<u32> = relus.iter().map(|r| r.sign.width(o.ring)).collect();
    json!({
        "list": list,
        "widths": widths,
        "form": form_name(relus.first().map_or(o.form, |r| r.form)),
        "bits": if relus.len() > 1 { json!(bits) } else { json!(first.width(o.ring)) },
        "cut": first.cut,
        "activations": match o.activations {
            megrez_graph::Activations::Minimax => "minimax",
            megrez_graph::Activations::Fine => "fine",
            megrez_graph::Activations::Mizar => "mizar",
        },
        "pool": if pairs { "all-pairs" } else { "tournament" },
        "truncate": relus.first().map_or(o.truncate, |r| r.truncate),
    })
}

#[allow(clippy::too_many_arguments)]
fn report(
    op: Option<&str>,
    model: Option<&str>,
    o: &BenchOptions,
    plan: &Plan,
    cost: &Cost,
    price: &PlanCost,
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
    let formula = |p: Phase| per_element(price.bits(p));
    let floor = Floor::of(price, phase(Phase::Online), Phase::Online, &o.run.net);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_plan_and_a_price() {
        for (ring, frac) in [(32, 10), (64, 16)] {
            let options = BenchOptions {
                ring,
                frac,
                batch: 30,
                sign: SignBit::FULL,
                form: ReluForm::ThreeRounds,
                pool: PoolForm::Tournament,
                activations: megrez_graph::Activations::Minimax,
                truncate: 0,
                shape: [2, 3, 4],
                seed: 1,
                run: RunOptions {
                    protocol: "mizar".into(),
                    runs: 1,
                    net: megrez_net::NetProfile::loopback(),
                    material: None,
                    insecure: false,
                },
                parties: "",
            };
            for op in OPS {
                let plan = op_plan(op, "client", &options).unwrap_or_else(|e| panic!("{op}: {e}"));
                plan.validate().unwrap();
                // Mizar's conjunctions are of two bits, and trees follow the protocol.
                let protocol = match *op {
                    "a2b" | "b2a" | "adder" => "alkaid",
                    "mul3" | "mul4" => "meteor",
                    _ => "mizar",
                };
                assert!(price(protocol, &plan).unwrap().bits(Phase::Online) > 0.0, "{op}");
            }
        }
    }
}
