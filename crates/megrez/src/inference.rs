//! Running a model on as many inputs as there are, for the command, the library and Python alike: the data is checked before any party
//! hears of it, cut into batches where that changes nothing, and the outputs are put together again, all of them, whole.

use crate::client::{Cluster, RunOptions};
use crate::infer::{
    Backend, Model, batch, compile_for, decode_output, encode_data, encode_words, find, price,
};
use crate::report::Cost;
use crate::rows;
use crate::wire::{ModelPlan, Source, Upload, fresh_name};
use crate::{Error, Result};
use megrez_engine::PlanCost;
use megrez_graph::lower::{DataInput, ModelInput, vocabularies};
use megrez_graph::{
    Calibration, Comparison, CompileOptions, FloatOptions, Graph, Id, Interval, ListStyle, PoolForm,
    RangePolicy, Revealed, Tensor, compile, compile_floats, passes, plain,
};
use megrez_net::NetProfile;
use megrez_plan::{Fewest, Input, List, Plan, ReluForm, SignBit};
use megrez_ring::Shape;
use megrez_session::{Error as SessionError, Phase};
use serde_json::{Value as Json, json};
use std::cell::RefCell;

/// What came out, and what it cost.
#[derive(Clone, Debug)]
pub struct Inference {
    /// The outputs by name, in the model's order.
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
    /// The report of `megrez infer --json`. `numbers` says what stands there for the elements of an output: them, or where they are.
    pub fn json(&self, numbers: &dyn Fn(&str, &Tensor) -> Json) -> Json {
        let named = |(name, output): &(String, Tensor)| json!({ "name": name, "shape": output.shape.dims(), "output": numbers(name, output) });
        let outputs: Vec<Json> = self.outputs.iter().map(named).collect();
        json!({
            "schema": "megrez.infer/1",
            "shape": outputs.first().map(|first| &first["shape"]),
            "output": outputs.first().map(|first| &first["output"]),
            "outputs": outputs,
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
        self.summary() + "\n" + &self.cost.layer_table()
    }

    /// The report as a table.
    pub fn summary(&self) -> String {
        let mut out = format!(
            "cost of one run of {} under {} on {}\n",
            self.batch,
            self.protocol,
            self.cost.device.join(" | ")
        );
        if let Some(range) = self.range() {
            out += &format!("ranges: {range}\n");
        }
        out + &self.cost.table()
    }

    fn range(&self) -> Option<&'static str> {
        self.proven.map(|proven| if proven { "proven" } else { "assumed" })
    }
}

/// A model as whoever runs it knows it.
pub trait Described {
    /// What it takes.
    fn inputs(&self) -> &[DataInput];
    /// What it gives.
    fn outputs(&self) -> &[Revealed];
    /// The first output that is not made row by row, when a run takes `rows`.
    fn mixed(&self, rows: usize) -> Option<&Revealed>;
}

impl Described for Model {
    fn inputs(&self) -> &[DataInput] {
        &self.compiled.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        &self.compiled.outputs
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed(&self.compiled.plan, self.inputs(), self.outputs(), rows)
    }
}

/// A stored model, as the parties describe it.
struct Stored {
    plan: Plan,
    approved: ModelPlan,
}

impl Described for Stored {
    fn inputs(&self) -> &[DataInput] {
        &self.approved.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        &self.approved.outputs
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed(&self.plan, self.inputs(), self.outputs(), rows)
    }
}

/// Refuses a description that does not go with its plan: it comes from the parties. `shapes` are those of the plan's outputs.
pub(crate) fn check_description<'a>(
    model: &str,
    approved: &ModelPlan,
    shapes: impl ExactSizeIterator<Item = &'a Shape>,
) -> Result<()> {
    let after = |output: &Revealed| {
        let mut shape = output.shape.clone();
        output.after.iter().all(|after| {
            let inside = after.axis() < shape.rank();
            if inside {
                shape = after.shape(&shape);
            }
            inside
        })
    };
    let fits = shapes.len() == approved.outputs.len()
        && approved.outputs.iter().zip(shapes).all(|(o, shape)| o.shape == *shape && after(o))
        && approved.data_inputs.iter().all(|i| i.shape.clone().checked().is_ok());
    if fits {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the parties describe the stored model `{model}` and its plan differently: do not use it, and ask its owner to store it \
         again"
    )))
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
    /// `data` has one tensor for each of the model's inputs. Data of just the model's shapes is one run. Any other is cut, and the
    /// last run filled up, if the first dimensions count the same rows and every row of the outputs comes from one of them.
    pub fn new(model: &'a dyn Described, data: &'a [Tensor]) -> Result<Self> {
        let batches = Self::cut(model.inputs(), data)?;
        if batches.count != batches.size
            && let Some(output) = model.mixed(batches.size)
        {
            return Err(mixing(output, batches.size, Some(batches.count)));
        }
        Ok(batches)
    }

    /// As [`new`](Self::new), for those who look at runs and not at outputs.
    pub fn cut(inputs: &'a [DataInput], data: &'a [Tensor]) -> Result<Self> {
        let listed = || inputs.iter().map(shown).collect::<Vec<_>>().join(", ");
        if inputs.len() != data.len() || inputs.is_empty() {
            return Err(Error::Refused(format!(
                "the model takes {} ({}), got {}",
                counted(inputs.len(), "input"),
                listed(),
                counted(data.len(), "array")
            )));
        }
        let sizes = || inputs.iter().map(|i| i.shape.dims().first().copied());
        let size = sizes().next().flatten().unwrap_or(1);
        if inputs.iter().zip(data).all(|(input, tensor)| input.shape == tensor.shape) {
            inputs.iter().zip(data).try_for_each(|(input, tensor)| input.check(tensor))?;
            return Ok(Batches { inputs, data, count: size, size, runs: 1 });
        }
        let rows = inputs.iter().zip(data).map(|(input, tensor)| input.check_rows(tensor));
        let counts = rows.collect::<std::result::Result<Vec<usize>, _>>()?;
        if counts.iter().any(|&count| count != counts[0]) || sizes().any(|s| s != Some(size)) {
            return Err(Error::Refused(format!(
                "the inputs differ in their first dimension, so it does not count rows to cut: give data of just the shapes that \
                 the model was compiled for, {}",
                listed()
            )));
        }
        let count = counts[0];
        let runs = u32::try_from(count.div_ceil(size))
            .map_err(|_| Error::Refused("this is more data than megrez counts".into()))?;
        Ok(Batches { inputs, data, count, size, runs })
    }

    /// What the plan's input of this name takes in a run.
    pub fn rows(&self, run: u32, name: &str) -> Option<(&DataInput, Tensor)> {
        let i = self.inputs.iter().position(|input| input.name == name)?;
        let (input, data) = (&self.inputs[i], &self.data[i]);
        let rows =
            if self.count == self.size { data.clone() } else { batch(data, run, self.size, input.range) };
        Some((input, rows))
    }

    /// One output of all runs, without the rows that filled up the last batch.
    fn join(&self, mut parts: Vec<Tensor>) -> Tensor {
        if self.count == self.size {
            return parts.remove(0);
        }
        let mut dims = parts[0].shape.dims().to_vec();
        let row: usize = dims[1..].iter().product();
        let mut data: Vec<f32> = parts.into_iter().flat_map(|p| p.data).collect();
        data.truncate(row * self.count);
        dims[0] = self.count;
        Tensor::new(dims, data)
    }

    /// The outputs of all runs by name; `part` is one of one run.
    pub fn outputs(
        &self,
        outputs: &[Revealed],
        part: &dyn Fn(usize, usize) -> Tensor,
    ) -> Vec<(String, Tensor)> {
        let whole = |(i, output): (usize, &Revealed)| {
            let parts = (0..self.runs as usize).map(|run| part(run, i)).collect();
            (output.name.clone(), self.join(parts))
        };
        outputs.iter().enumerate().map(whole).collect()
    }
}

fn mixing(output: &Revealed, size: usize, count: Option<usize>) -> Error {
    let whole = count.map_or("as many as there are".into(), |count| count.to_string());
    let option = count.map_or("N".into(), |count| count.to_string());
    Error::Refused(format!(
        "output `{}` is not made input by input, so its numbers would depend on how the data is cut: the model runs on {size} at a \
         time; give exactly {size}, or compile for {whole}: --batch {option}, in Python batch={option}",
        output.name
    ))
}

/// Refuses to run a model on one input at a time if that gives other numbers than on several: in a run of one there is nothing that
/// could be mixed, so this looks at the same model for two, `graph`. A model that is made for one, whatever the batch, is fine.
pub fn check_apart(graph: &Graph) -> Result<()> {
    let first = |&id: &Id| graph.shape(id).dims().first().copied();
    if graph.inputs.iter().any(|id| first(id) != Some(2)) {
        return Ok(());
    }
    let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
    let mixed = match compile(graph, &options) {
        Ok(c) => rows::mixed(&c.plan, &c.data_inputs, &c.outputs, 2).cloned(),
        Err(problems) => match compile_floats(graph, &FloatOptions::default()) {
            Ok(c) => rows::mixed_floats(&c.plan, &c.data_inputs, &c.outputs, 2).cloned(),
            Err(_) => return Err(problems.into()),
        },
    };
    mixed.map_or(Ok(()), |output| Err(mixing(&output, 1, None)))
}

/// An input's name and shape, for messages.
fn shown(input: &DataInput) -> String {
    format!("`{}` {:?}", input.name, input.shape.dims())
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
    let batches = Batches::new(model, data)?;
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
    Ok(finish(&batches, plan.ring, model.outputs(), &outcome, &options, Some(proven)))
}

/// As [`infer`], with a model that is stored at the cluster, by the description that the parties gave of it.
pub fn infer_stored(
    cluster: &mut Cluster,
    model: &str,
    (protocol, approved): (String, ModelPlan),
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    let plan = Plan::from_bytes(&approved.plan).map_err(|e| Error::Refused(e.to_string()))?;
    check_description(model, &approved, plan.outputs.iter().map(|o| &plan.value(o.value).shape))?;
    let stored = Stored { plan, approved };
    let Stored { plan, approved } = &stored;
    let batches = Batches::new(&stored, data)?;
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
    let source = Source::Model { model: model.into(), batch: approved.batch };
    let outcome = end.of(cluster.run(plan, source, &options, &mine, &words, &|_| {}))?;
    Ok(finish(&batches, plan.ring, &approved.outputs, &outcome, &options, None))
}

fn finish(
    batches: &Batches<'_>,
    ring: u32,
    revealed: &[Revealed],
    outcome: &crate::client::Outcome,
    options: &RunOptions,
    proven: Option<bool>,
) -> Inference {
    let part = |run: usize, i: usize| decode_output(ring, &revealed[i], &outcome.outputs[run][i]);
    Inference {
        outputs: batches.outputs(revealed, &part),
        protocol: options.protocol.clone(),
        insecure: options.insecure,
        proven,
        batch: batches.size,
        runs: batches.runs,
        cost: Cost::of(&outcome.reports),
    }
}

/// A compiled model, whose graph this is, on data in the clear, in floating point: the outputs by name.
pub fn infer_plain(graph: &Graph, model: &dyn Described, data: &[Tensor]) -> Result<Vec<(String, Tensor)>> {
    let batches = Batches::new(model, data)?;
    let mut values = vec![];
    for run in 0..batches.runs {
        let rows: Vec<Tensor> =
            batches.inputs.iter().filter_map(|i| Some(batches.rows(run, &i.name)?.1)).collect();
        let outputs = plain::run(graph, &rows)?.into_iter().zip(model.outputs());
        values.push(outputs.map(|(value, revealed)| revealed.finish(value.data)).collect::<Vec<_>>());
    }
    Ok(batches.outputs(model.outputs(), &|run, i| values[run][i].clone()))
}

/// Measures how large a model's values get on data, one tensor per input, for [`fitted`] comparisons; bounds are `margin` times that.
pub fn measure(model: &Model, data: &[Tensor], margin: f64) -> Result<Calibration> {
    measure_graph(&model.compiled.graph, model.inputs(), data, margin)
}

/// As [`measure`], for a graph that nobody has compiled: numbers of any size.
pub fn measure_any(graph: &Graph, data: &[Tensor], margin: f64) -> Result<Calibration> {
    let (graph, _) = passes::optimise(graph)?;
    let tokens = vocabularies(&graph)?;
    let input = |id: &Id| {
        let (name, shape) = (graph.value(*id).name.clone(), graph.shape(*id).clone());
        let tokens = tokens.get(id).copied();
        let range = match tokens {
            Some(rows) => Interval { low: 0.0, high: (rows - 1) as f64 },
            None => Interval { low: f64::from(f32::MIN), high: f64::from(f32::MAX) },
        };
        DataInput { name, shape, frac: 0, range, tokens }
    };
    let inputs: Vec<DataInput> = graph.inputs.iter().map(input).collect();
    measure_graph(&graph, &inputs, data, margin)
}

fn measure_graph(graph: &Graph, inputs: &[DataInput], data: &[Tensor], margin: f64) -> Result<Calibration> {
    let batches = Batches::cut(inputs, data)?;
    let of_run = |run| inputs.iter().filter_map(|i| Some(batches.rows(run, &i.name)?.1)).collect();
    let runs: Vec<Vec<Tensor>> = (0..batches.runs).map(of_run).collect();
    let calibration = megrez_graph::calibrate::calibrate(graph, runs, margin)?;
    let calibration = Calibration { inputs: batches.count, ..calibration };
    calibration.check().map_err(|what| Error::Refused(format!("the calibration {what}")))?;
    Ok(calibration)
}

/// The first batch of the data, for [`check`](crate::check::check).
pub fn first_batch(model: &dyn Described, data: &[Tensor]) -> Result<Vec<Tensor>> {
    let batches = Batches::cut(model.inputs(), data)?;
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
        infer_plain(&model.compiled.graph, model, data)
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
        let report = result.json(&|_, output| json!(output.data.len()));
        assert_eq!((&report["shape"], &report["output"]), (&json!([5, 10]), &json!(50)));
        assert_eq!(report["outputs"], json!([{ "name": name, "shape": [5, 10], "output": 50 }]));

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

    /// y = xᵀ, z = x + x, m = the mean of the batch: on x of this many rows.
    fn mixing(size: usize) -> Model {
        let mut g = Graph::new("mixing");
        let x = g.input("x", [size, 3]).unwrap();
        let none = megrez_graph::Attributes::none;
        let y = g.add("y", "Transpose", &[x], none()).unwrap();
        let z = g.add("z", "Add", &[x, x], none()).unwrap();
        let m = g.add("m", "ReduceSum", &[x], none().with("axes", [0]).with("keepdims", 0)).unwrap();
        [("y", y), ("z", z), ("m", m)].into_iter().for_each(|(name, id)| g.output(name, id));
        Model::new(&g, crate::embedded::CLIENT, &CompileOptions::default()).unwrap()
    }

    #[test]
    fn outputs_are_whole_or_refused() {
        let data =
            |count: usize| [Tensor::new([count, 3], (0..3 * count).map(|i| i as f32 / 16.0).collect())];
        let options = RunOptions {
            protocol: "clear".into(),
            runs: 1,
            net: NetProfile::loopback(),
            material: None,
            insecure: true,
        };
        let run = |model: &Model, data: &[Tensor]| {
            let got = infer(&mut Backend::threads(), model, data, &options, &|_| Ok(()))?;
            let clear = clear(model, data)?;
            assert_eq!(
                got.outputs.iter().map(|o| &o.1.shape).collect::<Vec<_>>(),
                clear.iter().map(|o| &o.1.shape).collect::<Vec<_>>()
            );
            Ok::<_, Error>(got.outputs)
        };
        let outputs = run(&mixing(4), &data(4)).unwrap();
        let shapes: Vec<(&str, &[usize])> =
            outputs.iter().map(|(name, o)| (&name[..], o.shape.dims())).collect();
        assert_eq!(shapes, [("y", &[3, 4][..]), ("z", &[4, 3]), ("m", &[3])]);
        assert!((outputs[0].1.data[11] - 11.0 / 16.0).abs() < 1e-3, "the last element is there");
        // With three rows the transposed output has as many as the input: it is not they.
        for size in [1, 2, 3] {
            let error = run(&mixing(size), &data(5)).unwrap_err().to_string();
            assert!(error.contains("`y`") && error.contains("--batch 5"), "{error}");
        }
        let error = run(&mixing(3), &data(2)).unwrap_err().to_string();
        assert!(error.contains("give exactly 3"), "{error}");
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
