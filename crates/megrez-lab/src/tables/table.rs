//! What a table is: columns, what to take from a report, and rows, what the paper prints and what
//! to run.

use crate::bench::{BenchOptions, bench_model, bench_op, bench_step};
use megrez::choices::List;
use megrez::protocols::find;
use megrez::request::sign_bit;
use megrez::train::{Loss, Optimiser, Rate, Trained, differentiate};
use megrez::{Backend, DeviceChoice, Error, FixedModel, Program, Result, RunOptions, fastest_pool};
use megrez_device::open_each;
use megrez_graph::{Comparison, CompileOptions, Graph, RangePolicy, models};
use megrez_net::NetProfile;
use megrez_plan::Op;
use serde_json::Value as Json;

/// A table of a paper.
pub struct Table {
    /// Its name: the paper's and the number.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper really counts.
    pub counts: &'static str,
    /// The paper's networks: name, and profile as [`NetProfile`] parses it.
    pub nets: &'static [(&'static str, &'static str)],
    /// The columns.
    pub columns: &'static [Column],
    /// Its rows.
    pub rows: fn() -> Vec<Row>,
}

/// A figure of every row.
pub struct Column {
    /// Its name, with the unit.
    pub name: &'static str,
    /// Whether there is one for every network.
    pub per_net: bool,
    /// The figure in a report; `None` where it has none.
    pub ours: fn(&Measured) -> Option<f64>,
}

/// A row: what the paper prints of one system, and what is measured for it.
pub struct Row {
    /// What is computed.
    pub label: String,
    /// With what.
    pub system: &'static str,
    /// The paper's figures in the order of the columns, a column of each network after the other;
    /// empty if it has none.
    pub paper: Vec<Option<f64>>,
    /// What is particular about it.
    pub note: String,
    /// Whether it takes minutes or gigabytes: runs only if asked for.
    pub large: bool,
    pub(super) bench: Option<Bench>,
    pub(super) layer: Option<&'static str>,
}

/// Runs a row and reports as `megrez bench` does.
pub(super) type Bench = Box<dyn Fn(&Setting) -> Result<Json>>;

/// How to run a row.
pub struct Setting {
    /// The network.
    pub net: NetProfile,
    /// How many runs; times are medians.
    pub repeat: u32,
    /// Whether parties are processes, over TLS, or threads.
    pub processes: bool,
    /// Where parties compute: one device for all, or one for each.
    pub devices: Vec<DeviceChoice>,
    /// Seeds weights and data, never shares.
    pub seed: u64,
}

impl Row {
    /// A row that is not measured.
    pub fn new(label: impl Into<String>, system: &'static str) -> Self {
        Row {
            label: label.into(),
            system,
            paper: vec![],
            note: String::new(),
            large: false,
            bench: None,
            layer: None,
        }
    }

    /// With the paper's figures; one that is not a number is not there.
    pub fn paper(self, figures: &[f64]) -> Self {
        Row { paper: figures.iter().map(|&f| Some(f).filter(|f| f.is_finite())).collect(), ..self }
    }

    /// With something to run, which reports as `megrez bench` does.
    pub fn bench(self, bench: impl Fn(&Setting) -> Result<Json> + 'static) -> Self {
        Row { bench: Some(Box::new(bench)), ..self }
    }

    /// With one layer of the report instead of the whole: what comes before it only makes its
    /// inputs.
    pub fn layer(self, layer: &'static str) -> Self {
        Row { layer: Some(layer), ..self }
    }

    /// With a remark.
    pub fn note(self, note: impl Into<String>) -> Self {
        Row { note: note.into(), ..self }
    }

    /// Runs only if asked for.
    pub fn large(self) -> Self {
        Row { large: true, ..self }
    }
}

/// The options of `megrez bench` by default: a protocol on the 64-bit ring with `frac` fraction
/// bits.
pub fn options(protocol: &str, frac: u32, setting: &Setting) -> BenchOptions {
    let run = RunOptions {
        runs: setting.repeat,
        net: setting.net.clone(),
        insecure: find(protocol).is_ok_and(|p| p.insecure),
        ..RunOptions::new(protocol)
    };
    let parties = if setting.processes { "process" } else { "thread" };
    BenchOptions { frac, seed: setting.seed, parties, ..BenchOptions::new(run) }
}

/// Where the parties of a protocol run.
pub fn backend(protocol: &str, setting: &Setting) -> Result<Backend> {
    if setting.processes {
        Backend::processes(Program::current()?, protocol, &setting.devices)
    } else {
        Ok(Backend::Threads(open_each(&setting.devices, find(protocol)?.parties)?))
    }
}

/// Measures an operation of `megrez bench op` with options changed by `change`.
pub fn op(
    op: &'static str,
    protocol: &'static str,
    frac: u32,
    change: impl Fn(&mut BenchOptions) + 'static,
) -> impl Fn(&Setting) -> Result<Json> + 'static {
    move |setting| {
        let mut o = options(protocol, frac, setting);
        change(&mut o);
        bench_op(&mut backend(protocol, setting)?, op, &o)
    }
}

/// Measures a built-in network.
pub fn model(
    name: &'static str,
    protocol: &'static str,
    frac: u32,
    batch: usize,
) -> impl Fn(&Setting) -> Result<Json> + 'static {
    model_on_bits(name, protocol, frac, batch, None)
}

/// Measures a built-in network whose comparisons look at so many bits, or at all.
pub fn model_on_bits(
    name: &'static str,
    protocol: &'static str,
    frac: u32,
    batch: usize,
    bits: Option<u32>,
) -> impl Fn(&Setting) -> Result<Json> + 'static {
    move |setting| {
        let mut backend = backend(protocol, setting)?;
        let graph = models::build(name, batch, setting.seed)?;
        let o = BenchOptions { batch, ..options(protocol, frac, setting) };
        let mut options =
            CompileOptions { defer_resharing: find(protocol)?.deferred_resharing, ..compile(&o)? };
        options.comparison = Comparison::Fixed(sign_bit(o.ring, List::Digits, None, bits, 0)?);
        options.pool = fastest_pool(&graph, backend.client(), &options, protocol, &setting.net)?;
        let model = FixedModel::new(&graph, backend.client(), &options)?;
        bench_model(&mut backend, name, &model, &o)
    }
}

/// Measures a step of SGD on a built-in network, softmax cross-entropy.
pub fn step(
    name: &'static str,
    protocol: &'static str,
    frac: u32,
    batch: usize,
) -> impl Fn(&Setting) -> Result<Json> + 'static {
    move |setting| {
        let mut backend = backend(protocol, setting)?;
        let graph = models::build(name, batch, setting.seed)?;
        let rate = Rate::new(1, 6).ok_or_else(|| Error::Refused("no such rate".into()))?;
        let step = differentiate(&graph, Loss::CrossEntropy, &Trained::All, Optimiser::sgd(rate))?;
        let o = BenchOptions { batch, ..options(protocol, frac, setting) };
        let options = CompileOptions { defer_resharing: find(protocol)?.deferred_resharing, ..compile(&o)? };
        bench_step(&mut backend, name, &step, &options, &o)
    }
}

/// Measures a layer as within a network: its result is truncated to `frac` fraction bits.
pub fn layer(
    graph: impl Fn() -> Result<Graph> + 'static,
    protocol: &'static str,
    frac: u32,
) -> impl Fn(&Setting) -> Result<Json> + 'static {
    move |setting| {
        let mut backend = backend(protocol, setting)?;
        let o = options(protocol, frac, setting);
        let refuse = |e: megrez_plan::PlanError| Error::Refused(e.to_string());
        let mut model = FixedModel::new(&graph()?, backend.client(), &compile(&o)?)?;
        let (plan, revealed) = (&mut model.compiled.plan, &mut model.compiled.outputs[0]);
        if revealed.frac > frac {
            let truncate = Op::Truncate { bits: revealed.frac - frac };
            plan.outputs[0].value =
                plan.step("truncate", truncate, &[plan.outputs[0].value]).map_err(refuse)?;
            revealed.frac = frac;
        }
        if find(protocol)?.deferred_resharing {
            megrez_passes::legalise(plan, 0).map_err(refuse)?;
        }
        bench_model(&mut backend, "layer", &model, &o)
    }
}

/// How a bench's model is compiled: nothing is proven of random weights.
fn compile(o: &BenchOptions) -> Result<CompileOptions> {
    Ok(CompileOptions {
        ring: o.ring,
        frac: o.frac,
        policy: RangePolicy::Assume,
        comparison: Comparison::Fixed(sign_bit(o.ring, List::Digits, None, None, 0)?),
        relu: o.form,
        pool: o.pool,
        activations: o.activations,
        ..CompileOptions::default()
    })
}

/// A report, or one layer of it.
pub struct Measured {
    pub(super) report: Json,
    pub(super) layer: Option<&'static str>,
}

impl Measured {
    /// The whole report.
    pub fn report(&self) -> &Json {
        &self.report
    }

    fn layer(&self) -> Option<&Json> {
        let layer = self.layer?;
        self.report["layers"].as_array()?.iter().find(|l| l["layer"] == layer)
    }

    /// Payload bytes of a phase over all links.
    pub fn bytes(&self, phase: &str) -> Option<f64> {
        match self.layer() {
            Some(layer) => layer[format!("{phase}_bytes")].as_f64(),
            None => {
                let links = self.report["phases"][phase]["sent_bytes"].as_object()?;
                Some(links.values().filter_map(Json::as_f64).sum())
            }
        }
    }

    /// Bytes that a party sends in a phase, the parties' mean.
    pub fn sent(&self, phase: &str) -> Option<f64> {
        let links = self.report["phases"][phase]["sent_bytes"].as_object()?.len();
        // n parties have n·(n − 1) links.
        let parties = (2..).find(|n| n * (n - 1) >= links)?;
        Some(self.bytes(phase)? / parties as f64)
    }

    /// Bytes of all links in the offline phase: what a dealer sends.
    pub fn dealt(&self) -> Option<f64> {
        self.bytes("offline")
    }

    /// Bytes that party 0 sends and receives in a phase.
    pub fn at_party_0(&self, phase: &str) -> Option<f64> {
        let links = self.report["phases"][phase]["sent_bytes"].as_object()?.iter();
        let touches = |link: &str| link.split('>').any(|party| party == "0");
        Some(links.filter(|(link, _)| touches(link)).filter_map(|(_, bytes)| bytes.as_f64()).sum())
    }

    /// Messages on the critical path.
    pub fn rounds(&self, phase: &str) -> Option<f64> {
        match self.layer() {
            Some(layer) => layer[format!("{phase}_rounds")].as_f64(),
            None => self.report["phases"][phase]["rounds"].as_f64(),
        }
    }

    /// Seconds of the slowest party.
    pub fn seconds(&self, phase: &str) -> Option<f64> {
        match self.layer() {
            Some(layer) => layer[format!("{phase}_seconds")].as_f64(),
            None => self.report["phases"][phase]["seconds"]["median"].as_f64(),
        }
    }
}
