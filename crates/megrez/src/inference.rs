//! Running a model on as many inputs as there are: the data is checked before any party hears of it, cut into batches,
//! and the outputs are put together again.

use crate::client::{Cluster, RunOptions};
use crate::infer::{
    Backend, Model, batch, compile_for, decode_output, encode_data, encode_words, find, price,
};
use crate::report::Cost;
use crate::wire::{ModelPlan, Source, Upload, fresh_name};
use crate::{Error, Result};
use megrez_engine::PlanCost;
use megrez_graph::lower::{DataInput, ModelInput};
use megrez_graph::{
    Calibration, Comparison, CompileOptions, Graph, ListStyle, PoolForm, Revealed, Tensor, compile, plain,
};
use megrez_net::NetProfile;
use megrez_plan::{Fewest, Input, List, Plan, ReluForm, SignBit};
use megrez_session::{Error as SessionError, Phase};
use serde_json::{Value as Json, json};
use std::cell::RefCell;

/// What came out, and what it cost.
#[derive(Clone, Debug)]
pub struct Inference {
    /// The outputs by name, in the model's order; their first dimension counts the inputs.
    pub outputs: Vec<(String, Tensor)>,
    /// The protocol that ran.
    pub protocol: String,
    /// Whether the caller insisted on a protocol that does not protect.
    pub insecure: bool,
    /// Whether all ranges were proven; `None` for a stored model, whose ranges its owner knows.
    pub proven: Option<bool>,
    /// Inputs per run.
    pub batch: usize,
    /// How many runs it took.
    pub runs: u32,
    /// The cost of one run.
    pub cost: Cost,
}

impl Inference {
    /// The report as `megrez infer --json` prints it, without the numbers that came out.
    pub fn json(&self) -> Json {
        json!({
            "schema": "megrez.infer/1",
            "shape": self.outputs.first().map(|(_, output)| output.shape.dims()),
            "protocol": self.protocol,
            "insecure": self.insecure,
            "range": self.range(),
            "batch": self.batch,
            "runs": self.runs,
            "cost": self.cost,
        })
    }

    /// The report as a table, with the cost of every layer.
    pub fn table(&self) -> String {
        let mut out = format!(
            "cost of one run of {} under {} on {}\n",
            self.batch,
            self.protocol,
            self.cost.device.join(" | ")
        );
        if let Some(range) = self.range() {
            out += &format!("ranges: {range}\n");
        }
        out + &self.cost.table() + "\n" + &self.cost.layer_table()
    }

    fn range(&self) -> Option<&'static str> {
        self.proven.map(|proven| if proven { "proven" } else { "assumed" })
    }
}

/// Data for a model, checked and ready to be cut into batches.
pub(crate) struct Batches<'a> {
    inputs: &'a [DataInput],
    data: &'a [Tensor],
    /// Inputs in all.
    count: usize,
    /// Inputs per run.
    pub size: usize,
    pub runs: u32,
}

impl<'a> Batches<'a> {
    /// `data` has one tensor for each of `inputs`; their first dimensions count the same things.
    pub fn new(inputs: &'a [DataInput], data: &'a [Tensor]) -> Result<Self> {
        if inputs.len() != data.len() {
            let names: Vec<String> = inputs.iter().map(|i| format!("`{}`", i.name)).collect();
            return Err(Error::Refused(format!(
                "the model takes {} ({}), got {}",
                counted(inputs.len(), "input"),
                names.join(", "),
                counted(data.len(), "array")
            )));
        }
        let mut counts = vec![];
        for (input, tensor) in inputs.iter().zip(data) {
            counts.push((input.shape.dims().first().copied(), row_count(input, tensor)?));
        }
        let Some(&(Some(size), count)) = counts.first() else {
            return Err(Error::Refused("the model has no input with a first dimension".into()));
        };
        if counts.iter().any(|&c| c != (Some(size), count)) {
            return Err(Error::Refused(
                "the inputs differ in their first dimension, which counts them".into(),
            ));
        }
        let runs = u32::try_from(count.div_ceil(size))
            .map_err(|_| Error::Refused("this is more data than megrez counts".into()))?;
        Ok(Batches { inputs, data, count, size, runs })
    }

    /// What the plan's input of this name takes in a run.
    pub fn rows(&self, run: u32, name: &str) -> Option<(&DataInput, Tensor)> {
        let i = self.inputs.iter().position(|input| input.name == name)?;
        Some((&self.inputs[i], batch(&self.data[i], run, self.size, self.inputs[i].range)))
    }

    /// One output of all runs, without the rows that filled up the last batch.
    pub fn join(&self, name: &str, parts: Vec<Tensor>) -> Result<Tensor> {
        let mut dims = parts.first().map(|p| p.shape.dims().to_vec()).unwrap_or_default();
        if dims.first() != Some(&self.size) {
            // Without a dimension that counts inputs, one full batch is all that means something.
            return match <[Tensor; 1]>::try_from(parts) {
                Ok([only]) if self.count == self.size => Ok(only),
                _ => Err(Error::Refused(format!(
                    "the first dimension of output `{name}` does not count inputs: give exactly {} of them",
                    self.size
                ))),
            };
        }
        let mut data: Vec<f32> = parts.into_iter().flat_map(|p| p.data).collect();
        data.truncate(data.len() / (self.size * self.runs as usize) * self.count);
        dims[0] = self.count;
        Ok(Tensor::new(dims, data))
    }
}

/// How many inputs a tensor holds. Refuses shapes and numbers that the model was not compiled for: during a run it
/// would be too late, since the parties have begun.
fn row_count(input: &DataInput, tensor: &Tensor) -> Result<usize> {
    let (expected, given) = (input.shape.dims(), tensor.shape.dims());
    let fits = !given.is_empty() && expected.len() == given.len() && expected[1..] == given[1..];
    if !fits {
        let rest: String = expected.iter().skip(1).map(|d| format!(", {d}")).collect();
        return Err(Error::Refused(format!(
            "input `{}` takes the shape [N{rest}], the data has {}",
            input.name, tensor.shape
        )));
    }
    if given[0] == 0 {
        return Err(Error::Refused(format!("the data for input `{}` is empty", input.name)));
    }
    let inside = |v: &f32| (input.range.low..=input.range.high).contains(&f64::from(*v));
    if let Some(i) = tensor.data.iter().position(|v| !inside(v)) {
        let mut place = vec![];
        let mut rest = i;
        for dim in given.iter().rev() {
            place.insert(0, (rest % dim).to_string());
            rest /= dim;
        }
        return Err(Error::Refused(format!(
            "input `{}`: element [{}] is {}, outside the declared range {} … {}; scale the data, or compile for a \
             larger input range",
            input.name,
            place.join(", "),
            tensor.data[i],
            input.range.low,
            input.range.high
        )));
    }
    Ok(given[0])
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn refuse(e: Error) -> SessionError {
    SessionError::Refused(e.to_string())
}

/// Why the caller ended the runs: what follows from that at the parties is no news to the caller.
#[derive(Default)]
pub(crate) struct End(RefCell<Option<String>>);

impl End {
    pub(crate) fn keep(&self, before: Result<()>) -> Result<()> {
        before.inspect_err(|e| *self.0.borrow_mut() = Some(e.to_string()))
    }

    pub(crate) fn of<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| self.0.take().map_or(e, Error::Refused))
    }
}

/// Runs a model on data, one tensor per input of the model, in as many batches as it takes.
///
/// `before` hears of every run before it begins, and ends all by an error.
pub fn infer(
    backend: &mut Backend,
    model: &Model,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    let batches = Batches::new(&model.compiled.data_inputs, data)?;
    let end = End::default();
    let rows = |run: u32, input: &DataInput| {
        if batches.inputs[0].name == input.name {
            end.keep(before(run))?;
        }
        let rows = batches.rows(run, &input.name).map(|(_, rows)| rows);
        rows.ok_or_else(|| Error::Refused(format!("the plan has an unknown input `{}`", input.name)))
    };
    let words = |run: u32, input: &Input| model.words(run, input, &rows);
    let options = RunOptions { runs: batches.runs, ..options.clone() };
    let plan = model.plan_for(backend.client());
    let outcome = end.of(backend.run(&plan, &options, &words, &|_| {}))?;
    let proven = model.compiled.ranges.iter().all(|r| r.proven);
    finish(&batches, plan.ring, &model.compiled.outputs, outcome, &options, Some(proven))
}

/// As [`infer`], with a model that is stored at the cluster, in a batch size that its owner approved.
pub fn infer_stored(
    cluster: &mut Cluster,
    model: &str,
    size: usize,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    let (protocol, approved) = cluster.describe(model, size)?;
    let plan = Plan::from_bytes(&approved.plan).map_err(|e| Error::Refused(e.to_string()))?;
    let batches = Batches::new(&approved.data_inputs, data)?;
    let end = End::default();
    let words = |run: u32, input: &Input| {
        if batches.inputs[0].name == input.name {
            end.keep(before(run)).map_err(refuse)?;
        }
        let Some((wanted, rows)) = batches.rows(run, &input.name) else {
            return Err(SessionError::Refused(format!("the plan has an unknown input `{}`", input.name)));
        };
        encode_data(plan.ring, wanted, &rows).map_err(refuse)
    };
    let mine = |input: &Input| approved.data_inputs.iter().any(|d| d.name == input.name);
    let options = RunOptions { protocol, runs: batches.runs, ..options.clone() };
    let source = Source::Model { model: model.into(), batch: size };
    let outcome = end.of(cluster.run(&plan, source, &options, &mine, &words, &|_| {}))?;
    finish(&batches, plan.ring, &approved.outputs, outcome, &options, None)
}

fn finish(
    batches: &Batches<'_>,
    ring: u32,
    revealed: &[Revealed],
    outcome: crate::client::Outcome,
    options: &RunOptions,
    proven: Option<bool>,
) -> Result<Inference> {
    let mut outputs = vec![];
    for (i, output) in revealed.iter().enumerate() {
        let parts = outcome.outputs.iter().map(|run| decode_output(ring, output, &run[i])).collect();
        outputs.push((output.name.clone(), batches.join(&output.name, parts)?));
    }
    Ok(Inference {
        outputs,
        protocol: options.protocol.clone(),
        insecure: options.insecure,
        proven,
        batch: batches.size,
        runs: batches.runs,
        cost: Cost::of(&outcome.reports),
    })
}

/// A compiled model, by its graph, inputs and outputs, on data in the clear, in floating point: the outputs by name.
pub fn infer_plain(
    graph: &Graph,
    inputs: &[DataInput],
    outputs: &[Revealed],
    data: &[Tensor],
) -> Result<Vec<(String, Tensor)>> {
    let batches = Batches::new(inputs, data)?;
    let mut parts: Vec<Vec<Tensor>> = vec![vec![]; outputs.len()];
    for run in 0..batches.runs {
        let rows: Vec<Tensor> =
            batches.inputs.iter().filter_map(|i| Some(batches.rows(run, &i.name)?.1)).collect();
        let values = plain::run(graph, &rows)?;
        for ((parts, revealed), value) in parts.iter_mut().zip(outputs).zip(values) {
            parts.push(revealed.finish(value.data));
        }
    }
    let named = outputs.iter().zip(parts);
    named.map(|(output, parts)| Ok((output.name.clone(), batches.join(&output.name, parts)?))).collect()
}

/// Measures how large a model's values get on data, for [`fitted`] comparisons; bounds are `margin` times that.
pub fn measure(model: &Model, data: &[Tensor], margin: f64) -> Result<Calibration> {
    let batches = Batches::new(&model.compiled.data_inputs, data)?;
    let [input] = batches.inputs else {
        return Err(Error::Refused("only models with one input can be calibrated".into()));
    };
    let rows: Vec<Tensor> =
        (0..batches.runs).map(|run| batch(&data[0], run, batches.size, input.range)).collect();
    let calibration = megrez_graph::calibrate::calibrate(&model.compiled.graph, &rows, margin)?;
    let calibration = Calibration { inputs: batches.count, ..calibration };
    calibration.check().map_err(|what| Error::Refused(format!("the calibration {what}")))?;
    Ok(calibration)
}

/// The first batch of the data, for [`check`](crate::check::check).
pub fn first_batch(model: &Model, data: &[Tensor]) -> Result<Vec<Tensor>> {
    let batches = Batches::new(&model.compiled.data_inputs, data)?;
    Ok(batches.inputs.iter().filter_map(|i| Some(batches.rows(0, &i.name)?.1)).collect())
}

/// Keeps a model's weights at a cluster, in shares. `graphs` are the same model at the batch sizes that may be run, and
/// `allow` names the clients who may.
pub fn upload(
    cluster: &mut Cluster,
    name: &str,
    protocol: &str,
    graphs: &[Graph],
    options: &CompileOptions,
    allow: &[String],
) -> Result<()> {
    // Whoever uses the model takes the place of the user.
    let options = CompileOptions {
        model_owner: cluster.name().into(),
        data_owner: "user".into(),
        recipient: "user".into(),
        ..options.clone()
    };
    let mut plans = vec![];
    let mut weights: Vec<ModelInput> = vec![];
    for graph in graphs {
        let compiled = compile(graph, &options)?;
        let size = graph.inputs.first().and_then(|&id| graph.shape(id).dims().first().copied());
        plans.push(ModelPlan {
            batch: size
                .ok_or_else(|| Error::Refused("the model has no input with a first dimension".into()))?,
            plan: compiled.plan.to_bytes(),
            data_inputs: compiled.data_inputs,
            outputs: compiled.outputs,
        });
        weights = compiled.model_inputs;
    }
    let session = fresh_name()?;
    let upload =
        Upload { session, protocol: protocol.into(), model: name.into(), plans, allow: allow.to_vec() };
    cluster.upload(upload, &|input| {
        let weight = weights.iter().find(|w| w.name == input.name);
        let weight =
            weight.ok_or_else(|| Error::Refused(format!("the model has no weights `{}`", input.name)))?;
        encode_words(options.ring, &weight.values, weight.frac)
    })
}

/// A comparison by the names that users know: the list is `bits` or `digits`; without widths, digits are the best known
/// for the number of bits.
pub fn sign_bit(
    ring: u32,
    list: &str,
    widths: Option<&[u32]>,
    bits: Option<u32>,
    cut: u32,
) -> Result<SignBit> {
    let full = SignBit { list: List::Bits, cut, bits };
    if cut >= ring || bits.is_some_and(|b| b == 0 || b > ring - cut) {
        return Err(Error::Refused(format!(
            "a comparison on {ring} bits cannot look at {bits:?} after a cut of {cut}"
        )));
    }
    let list = match (list, widths) {
        ("bits", None) => List::Bits,
        ("digits", Some(widths)) => List::Digits(widths.to_vec()),
        ("digits", None) => List::digits(full.width(ring), Fewest::Total),
        _ => return Err(Error::Refused("the list is `bits` or `digits`; widths go with digits".into())),
    };
    Ok(SignBit { list, ..full })
}

/// The forms of pools to choose from: the one that is given, or both where there are pools.
fn pools(graph: &Graph, given: Option<PoolForm>, options: &CompileOptions) -> Vec<PoolForm> {
    match given {
        Some(pool) => vec![pool],
        None if graph.nodes.iter().any(|node| node.op == "MaxPool") => {
            vec![PoolForm::Tournament, PoolForm::AllPairs]
        }
        None => vec![options.pool],
    }
}

/// Seconds of the network and bits, over both phases.
fn both_phases(cost: &PlanCost, net: &NetProfile) -> (f64, f64) {
    let (delay, transmit) = (net.delay_ns() as f64 * 1e-9, |bytes| net.transmit_ns(bytes) as f64 * 1e-9);
    let phases = [Phase::Offline, Phase::Online];
    let seconds = phases.iter().map(|&p| cost.critical_path(p, delay, transmit).seconds).sum();
    (seconds, phases.iter().map(|&p| cost.bits(p)).sum())
}

/// The form of pools that takes the network least time over both phases, and among equals the fewest bytes, under a protocol
/// that has no forms of ReLU to choose from; others keep that of the options.
pub fn fastest_pool(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    protocol: &str,
    net: &NetProfile,
) -> Result<PoolForm> {
    if !find(protocol)?.sums || !graph.nodes.iter().any(|node| node.op == "MaxPool") {
        return Ok(options.pool);
    }
    let mut best = None;
    for pool in [PoolForm::Tournament, PoolForm::AllPairs] {
        let cost =
            price(protocol, &compile_for(graph, client, &CompileOptions { pool, ..options.clone() })?.plan)?;
        let found = both_phases(&cost, net);
        if best.is_none_or(|(least, _)| found < least) {
            best = Some((found, pool));
        }
    }
    Ok(best.map_or(options.pool, |(_, pool)| pool))
}

/// The options whose plan takes the network least time over both phases, and among equals the fewest bytes, when small ReLUs and
/// maxima may be dealt ([`megrez_plan::Plan::deal_below`]): up to which size, in which form, and with which pools, unless these are given.
/// Protocols without such steps get plans without them.
pub fn fastest_mix(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    (pool, form): (Option<PoolForm>, Option<ReluForm>),
    protocol: &str,
    net: &NetProfile,
) -> Result<CompileOptions> {
    let pools = pools(graph, pool, options);
    let forms = match form {
        Some(form) => vec![form],
        None => vec![ReluForm::ThreeRounds, ReluForm::TwoRounds, ReluForm::TwoRoundsFresh],
    };
    let mut best: Option<((f64, f64), CompileOptions)> = None;
    for (pool, relu) in pools.iter().flat_map(|&pool| forms.iter().map(move |&relu| (pool, relu))) {
        let options = CompileOptions { pool, relu, ..options.clone() };
        // The steps as they are before any of them is made of others.
        let plain = compile_for(graph, client, &CompileOptions { sums: false, ..options.clone() })?.plan;
        for deal_below in std::iter::once(0).chain(plain.dealt_sizes()) {
            let mut plan = plain.clone();
            plan.deal_below(deal_below);
            if options.sums {
                plan.spread_maxima()
                    .and_then(|()| plan.leave_sums())
                    .map_err(|e| Error::Refused(e.to_string()))?;
            }
            let Ok(cost) = price(protocol, &plan) else { continue };
            let found = both_phases(&cost, net);
            if best.as_ref().is_none_or(|(least, _)| found < *least) {
                best = Some((found, CompileOptions { deal_below, ..options.clone() }));
            }
        }
    }
    // Without a plan that the protocol can run, compiling says why.
    Ok(best.map_or_else(|| options.clone(), |(_, options)| options))
}

/// Compiles a model with the form of ReLU, and the form of pools unless that is given, whose online phase takes the network
/// least time, and among equals the fewest bytes of both phases. Forms that the protocol lacks are left out. Also gives the
/// options.
pub fn fastest(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    pool: Option<PoolForm>,
    protocol: &str,
    net: &NetProfile,
) -> Result<(Model, CompileOptions)> {
    let delay = net.delay_ns() as f64 * 1e-9;
    let transmit = |bytes| net.transmit_ns(bytes) as f64 * 1e-9;
    let pools = pools(graph, pool, options);
    let forms = [ReluForm::ThreeRounds, ReluForm::TwoRounds, ReluForm::TwoRoundsFresh, ReluForm::Table];
    let mut best: Option<(f64, f64, CompileOptions)> = None;
    let mut last = None;
    for (pool, relu) in pools.into_iter().flat_map(|pool| forms.map(|relu| (pool, relu))) {
        let options = CompileOptions { relu, pool, ..options.clone() };
        match price(protocol, &compile_for(graph, client, &options)?.plan) {
            Err(e) => last = Some(e),
            Ok(cost) => {
                let seconds = cost.critical_path(Phase::Online, delay, transmit).seconds;
                let bits = cost.bits(Phase::Online) + cost.bits(Phase::Offline);
                if best.as_ref().is_none_or(|(s, b, _)| (seconds, bits) < (*s, *b)) {
                    best = Some((seconds, bits, options));
                }
            }
        }
    }
    match (best, last) {
        (Some((_, _, options)), _) => Ok((Model::new(graph, client, &options)?, options)),
        (None, Some(e)) => Err(e),
        (None, None) => unreachable!("every form is priced or refused"),
    }
}

/// Comparisons fitted to each layer's values instead; see [`Comparison::Fitted`] for what that tells whoever sees the plan.
/// `slow` links get the widths that send least online.
pub fn fitted(
    list: &str,
    bits: Option<u32>,
    calibration: Option<Calibration>,
    slow: bool,
) -> Result<Comparison> {
    let list = match list {
        "bits" => ListStyle::Bits,
        "digits" => ListStyle::Digits(if slow { Fewest::Online } else { Fewest::Total }),
        _ => return Err(Error::Refused("the list is `bits` or `digits`".into())),
    };
    if bits.is_some_and(|b| b < 2) {
        return Err(Error::Refused("a comparison looks at 2 bits at least".into()));
    }
    Ok(Comparison::Fitted { list, bits, calibration })
}

/// A calibration from its JSON, checked.
pub fn read_calibration(path: &std::path::Path) -> Result<Calibration> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::file(path, e))?;
    let calibration: Calibration = serde_json::from_str(&text).map_err(|e| Error::file(path, e))?;
    calibration.check().map_err(|what| Error::file(path, what))?;
    Ok(calibration)
}

/// A form of ReLU by the name that users know: `3r`, `2r`, `2r-fresh` or `table`.
pub fn relu_form(name: &str) -> Result<ReluForm> {
    match name.to_lowercase().as_str() {
        "3r" => Ok(ReluForm::ThreeRounds),
        "2r" => Ok(ReluForm::TwoRounds),
        "2r-fresh" => Ok(ReluForm::TwoRoundsFresh),
        "table" => Ok(ReluForm::Table),
        other => Err(Error::Refused(format!("the form of ReLU is 3r, 2r, 2r-fresh or table, not `{other}`"))),
    }
}

/// A form of pools by the name that users know: `tournament` or `all-pairs`.
pub fn pool_form(name: &str) -> Result<PoolForm> {
    match name {
        "tournament" => Ok(PoolForm::Tournament),
        "all-pairs" => Ok(PoolForm::AllPairs),
        other => Err(Error::Refused(format!("the form of pools is tournament or all-pairs, not `{other}`"))),
    }
}

/// Fraction bits that suit a ring.
pub fn default_frac(ring: u32) -> u32 {
    if ring == 32 { 10 } else { 16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::models;
    use megrez_net::NetProfile;

    fn model(size: usize) -> Model {
        let options = CompileOptions::default();
        Model::new(&models::build("net-b", size, 1).unwrap(), crate::embedded::CLIENT, &options).unwrap()
    }

    fn clear(model: &Model, data: &[Tensor]) -> Result<Vec<(String, Tensor)>> {
        let compiled = &model.compiled;
        infer_plain(&compiled.graph, &compiled.data_inputs, &compiled.outputs, data)
    }

    fn data(count: usize) -> Tensor {
        let values = (0..count * 784).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        Tensor::new([count, 1, 28, 28], values)
    }

    #[test]
    fn batches_make_no_difference() {
        let (model, data) = (model(2), [data(5)]);
        let options = RunOptions {
            protocol: "clear".into(),
            runs: 1,
            net: NetProfile::loopback(),
            material: None,
            insecure: true,
        };
        let result = infer(&mut Backend::threads(), &model, &data, &options, &|_| Ok(())).unwrap();
        assert_eq!((result.batch, result.runs), (2, 3));
        let plain = clear(&model, &data).unwrap();
        let whole = clear(&self::model(5), &data).unwrap();
        let (name, output) = &result.outputs[0];
        assert_eq!((name, &output.shape), (&plain[0].0, &plain[0].1.shape));
        assert_eq!(plain[0].1.data, whole[0].1.data);
        let far = output.data.iter().zip(&plain[0].1.data).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(far < 1e-2, "{far}");
        assert_eq!(result.json()["shape"], json!([5, 10]));

        assert_eq!(measure(&model, &data, 2.0).unwrap().inputs, 5);
        assert!(measure(&model, &data, 0.5).is_err());

        let stop = |run| if run == 1 { Err(Error::Refused("enough".into())) } else { Ok(()) };
        let stopped = infer(&mut Backend::threads(), &model, &data, &options, &stop).unwrap_err();
        assert!(stopped.to_string().contains("enough"), "{stopped}");
    }

    #[test]
    fn data_that_does_not_fit_is_refused_by_name() {
        let model = model(2);
        let error = |data: &[Tensor]| clear(&model, data).unwrap_err().to_string();
        assert!(error(&[]).contains("1 input"), "{}", error(&[]));
        assert!(error(&[Tensor::filled([2, 784], 0.0)]).contains("[N, 1, 28, 28]"));
        assert!(error(&[Tensor::filled([0, 1, 28, 28], 0.0)]).contains("empty"));
        for (bad, word) in [(f32::NAN, "NaN"), (1.5, "1.5"), (f32::NEG_INFINITY, "-inf")] {
            let mut data = data(3);
            data.data[784 + 28 + 2] = bad;
            let error = error(&[data]);
            assert!(error.contains("[1, 0, 1, 2]") && error.contains(word), "{error}");
        }
    }

    #[test]
    fn choices_have_names() {
        assert_eq!(sign_bit(64, "bits", None, None, 0).unwrap(), SignBit::FULL);
        assert!(matches!(sign_bit(32, "digits", None, Some(20), 0).unwrap().list, List::Digits(_)));
        assert!(sign_bit(32, "bits", Some(&[3]), None, 0).is_err());
        assert!(sign_bit(32, "digits", None, Some(33), 0).is_err());
        assert!(sign_bit(32, "bits", None, None, 32).is_err());
        assert_eq!(relu_form("2R").unwrap(), ReluForm::TwoRounds);
        assert!(relu_form("1r").is_err());
        assert_eq!(pool_form("all-pairs").unwrap(), PoolForm::AllPairs);
        assert!(pool_form("pairs").is_err());
    }

    #[test]
    fn slow_links_get_pools_with_few_rounds_where_the_protocol_has_them() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options =
            CompileOptions { policy: megrez_graph::RangePolicy::Assume, ..CompileOptions::default() };
        let chosen = |protocol: &str, pool| {
            fastest(&graph, "client", &options, pool, protocol, &NetProfile::wan()).unwrap().1.pool
        };
        assert_eq!(chosen("mizar", None), PoolForm::AllPairs);
        assert_eq!(chosen("mizar", Some(PoolForm::Tournament)), PoolForm::Tournament);
        let few = CompileOptions {
            comparison: Comparison::Fixed(sign_bit(64, "bits", None, Some(20), 0).unwrap()),
            ..options.clone()
        };
        let (model, few) = fastest(&graph, "client", &few, None, "bicoptor", &NetProfile::wan()).unwrap();
        assert_eq!(few.pool, PoolForm::Tournament);
        assert!(price("bicoptor", &model.compiled.plan).is_ok());
    }

    #[test]
    fn plans_are_mixed_where_that_is_faster_and_the_protocol_has_the_steps() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options = CompileOptions {
            policy: megrez_graph::RangePolicy::Assume,
            sums: true,
            ..CompileOptions::default()
        };
        let wan = NetProfile::wan();
        let mixed = |protocol| fastest_mix(&graph, "client", &options, (None, None), protocol, &wan).unwrap();
        let seconds = |options: &CompileOptions| {
            let plan = compile_for(&graph, "client", options).unwrap().plan;
            both_phases(&price("aby3", &plan).unwrap(), &wan).0
        };
        let chosen = mixed("aby3");
        assert!(chosen.deal_below > 0);
        assert!(seconds(&chosen) < 0.9 * seconds(&CompileOptions { deal_below: 0, ..chosen.clone() }));
        assert_eq!(mixed("meteor").deal_below, 0, "it has no such steps");
    }
}
