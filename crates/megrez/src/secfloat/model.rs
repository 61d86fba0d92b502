//! Models in floating point: compiled, run on data, kept at a cluster.

use super::{PROTOCOL, Work};
use crate::client::{Cluster, RunOptions};
use crate::infer::{Backend, one_hot};
use crate::inference::{Batches, Described, End, Inference, check_description};
use crate::report::Cost;
use crate::rows;
use crate::wire::{ModelPlan, Source, Upload, fresh_name};
use crate::{Error, Result};
use megrez_engine::float::{FloatInputs, FloatRun, run_floats};
use megrez_engine::local::LocalOptions;
use megrez_graph::{
    DataInput, FloatCompiled, FloatOptions, Graph, ModelInput, Revealed, Tensor, compile_floats,
};
use megrez_net::ClockKind;
use megrez_plan::{FloatPlan, Input};
use megrez_session::Error as SessionError;
use std::time::Duration;

/// A model all of whose inputs, weights included, belong to one client, who also learns the output.
pub struct FloatModel {
    /// The plan and its description.
    pub compiled: FloatCompiled,
}

impl FloatModel {
    /// Compiles a graph for a client.
    ///
    /// # Errors
    /// Every layer that has no floating-point form, or `work` that no party does.
    pub fn new(graph: &Graph, client: &str, work: Work) -> Result<Self> {
        let owner = client.to_owned();
        let options = FloatOptions {
            model_owner: owner.clone(),
            data_owner: owner.clone(),
            recipient: owner,
            group: work.group,
            threads: work.threads,
        };
        let compiled = compile_floats(graph, &options)?;
        compiled.plan.validate().map_err(|e| Error::Refused(e.to_string()))?;
        Ok(FloatModel { compiled })
    }

    /// The plan with all inputs and outputs given to another client than the one that it was compiled for.
    #[must_use]
    pub fn plan_for(&self, client: &str) -> FloatPlan {
        let mut plan = self.compiled.plan.clone();
        plan.inputs.iter_mut().for_each(|i| i.owner = client.into());
        plan.outputs.iter_mut().for_each(|o| o.recipient = client.into());
        plan
    }

    /// The numbers of an input: weights by name, or data of run `run` from `data`.
    ///
    /// # Errors
    /// Those of `data`, or if the model has no such input.
    pub fn numbers(
        &self,
        run: u32,
        input: &Input,
        data: &dyn Fn(u32, &DataInput) -> Result<Tensor>,
    ) -> std::result::Result<Vec<f32>, SessionError> {
        if let Some(weights) = weights(&self.compiled.model_inputs, input) {
            return Ok(weights);
        }
        let wanted = self.compiled.data_inputs.iter().find(|d| d.name == input.name);
        let wanted = wanted.ok_or_else(|| refused(unknown(input)))?;
        data(run, wanted).and_then(|numbers| spread(wanted, numbers)).map_err(refused)
    }
}

impl Described for FloatModel {
    fn inputs(&self) -> &[DataInput] {
        &self.compiled.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        &self.compiled.outputs
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed_floats(&self.compiled.plan, self.inputs(), self.outputs(), rows)
    }
}

/// A stored model, as the parties describe it.
struct Stored<'a> {
    plan: FloatPlan,
    approved: &'a ModelPlan,
}

impl Described for Stored<'_> {
    fn inputs(&self) -> &[DataInput] {
        &self.approved.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        &self.approved.outputs
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed_floats(&self.plan, self.inputs(), self.outputs(), rows)
    }
}

/// The numbers to share: those of the data, or for tokens a one and zeros.
fn spread(input: &DataInput, data: Tensor) -> Result<Vec<f32>> {
    input.check(&data)?;
    match input.tokens {
        Some(rows) => one_hot(input, rows, &data, 1.0),
        None => Ok(data.data),
    }
}

fn weights(all: &[ModelInput], input: &Input) -> Option<Vec<f32>> {
    Some(all.iter().find(|w| w.name == input.name)?.values.clone())
}

fn unknown(input: &Input) -> Error {
    Error::Refused(format!("the plan has an unknown input `{}`", input.name))
}

fn refused(e: Error) -> SessionError {
    SessionError::Refused(e.to_string())
}

impl Backend {
    /// Runs a plan of floating point whose inputs and outputs are all this client's.
    ///
    /// # Errors
    /// If a party refuses or fails.
    pub fn run_floats(
        &mut self,
        plan: &FloatPlan,
        options: &RunOptions,
        inputs: &FloatInputs<'_>,
        progress: &dyn Fn(u32),
    ) -> Result<FloatRun> {
        match self {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => {
                let source = Source::Plan(plan.to_bytes());
                cluster.run_floats(plan, source, options, &|_| true, inputs, progress)
            }
            Backend::Threads(_) => {
                let local = LocalOptions {
                    net: options.net.clone(),
                    clock: ClockKind::Real,
                    runs: options.runs,
                    timeout: Duration::from_secs(3600),
                    tap: None,
                };
                Ok(run_floats(plan, inputs, progress, &local)?)
            }
        }
    }
}

/// Runs a model on data, one tensor per input of the model, in as many batches as it takes. `before` hears of every run before it
/// begins, and ends all by an error.
///
/// # Errors
/// If the data does not fit, or a party fails.
pub fn infer(
    backend: &mut Backend,
    model: &FloatModel,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    let inputs = &model.compiled.data_inputs;
    let batches = Batches::new(model, data)?;
    let end = End::default();
    let rows = |run: u32, input: &DataInput| {
        if inputs[0].name == input.name {
            end.keep(before(run))?;
        }
        Ok(batches.rows(run, &input.name).expect("an input of the model").1)
    };
    let numbers = |run: u32, input: &Input| model.numbers(run, input, &rows);
    let options = RunOptions { runs: batches.runs, ..options.clone() };
    let plan = model.plan_for(backend.client());
    let run = end.of(backend.run_floats(&plan, &options, &numbers, &|_| {}))?;
    Ok(finish(&batches, &model.compiled.outputs, &run, &options))
}

/// As [`infer`], with a model that is stored at the cluster, in a batch size that its owner approved.
///
/// # Errors
/// If the data does not fit, or a party refuses or fails.
pub fn infer_stored(
    cluster: &mut Cluster,
    model: &str,
    approved: &ModelPlan,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    let plan = FloatPlan::from_bytes(&approved.plan).map_err(|e| Error::Refused(e.to_string()))?;
    check_description(model, approved, plan.outputs.iter().map(|o| plan.shape(o.value)))?;
    let inputs = &approved.data_inputs;
    let stored = Stored { plan, approved };
    let batches = Batches::new(&stored, data)?;
    let end = End::default();
    let numbers = |run: u32, input: &Input| {
        if inputs[0].name == input.name {
            end.keep(before(run)).map_err(refused)?;
        }
        let rows = batches.rows(run, &input.name);
        let (wanted, rows) = rows.ok_or_else(|| refused(unknown(input)))?;
        spread(wanted, rows).map_err(refused)
    };
    let mine = |input: &Input| inputs.iter().any(|d| d.name == input.name);
    let options = RunOptions { protocol: PROTOCOL.name.into(), runs: batches.runs, ..options.clone() };
    let source = Source::Model { model: model.into(), batch: approved.batch };
    let run = end.of(cluster.run_floats(&stored.plan, source, &options, &mine, &numbers, &|_| {}))?;
    Ok(finish(&batches, &approved.outputs, &run, &options))
}

fn finish(batches: &Batches<'_>, revealed: &[Revealed], run: &FloatRun, options: &RunOptions) -> Inference {
    let part = |of_run: usize, i: usize| revealed[i].finish(run.outputs[of_run][i].clone());
    Inference {
        outputs: batches.outputs(revealed, &part),
        protocol: options.protocol.clone(),
        insecure: false,
        proven: None,
        batch: batches.size,
        runs: batches.runs,
        cost: Cost::of(&run.reports),
    }
}

/// Keeps a model's weights at a cluster, in shares. `graphs` are the same model at the batch sizes that may be run, and
/// `allow` names the clients who may.
///
/// # Errors
/// Every layer that has no floating-point form, or if a party refuses.
pub fn upload(
    cluster: &mut Cluster,
    name: &str,
    graphs: &[Graph],
    work: Work,
    allow: &[String],
) -> Result<()> {
    // Whoever uses the model takes the place of the user.
    let user = || "user".to_owned();
    let options = FloatOptions {
        model_owner: cluster.name().into(),
        data_owner: user(),
        recipient: user(),
        group: work.group,
        threads: work.threads,
    };
    let (mut plans, mut inputs) = (vec![], vec![]);
    for graph in graphs {
        let FloatCompiled { plan, model_inputs, data_inputs, outputs, .. } = compile_floats(graph, &options)?;
        let batch = data_inputs.first().and_then(|i| i.shape.dims().first().copied()).unwrap_or(1);
        plans.push(ModelPlan { batch, plan: plan.to_bytes(), data_inputs, outputs });
        inputs = model_inputs;
    }
    let protocol = PROTOCOL.name.into();
    let upload =
        Upload { session: fresh_name()?, protocol, model: name.into(), plans, allow: allow.to_vec() };
    cluster.upload_floats(upload, &|input| weights(&inputs, input).ok_or_else(|| unknown(input)))
}
