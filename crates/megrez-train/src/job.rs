//! From a model and what is wanted of it to a job, and a job's way from the client's side: the
//! parties run it by themselves.

use crate::looks::{bounds, validation_plan};
use crate::session::{compile, compile_shards, of_kept};
use crate::stored::{Part, ROWS, StoredRows, add, named_rows, store};
use crate::{Course, Rehearsal, State};
use megrez_graph::differentiate::{Step, Validation as Looks};
use megrez_graph::{CompileOptions, Graph, Tensor};
use megrez_model::fixed::FixedModel;
use megrez_plan::{KEPT, Kind, Plan};
use megrez_ring::decode_words;
use megrez_service::client::{Cluster, Standing};
use megrez_service::training::{Job, Keep, MAX_SHARDS, Opening, Shards, Stage, Validation, WEIGHTS};
use megrez_service::wire::{ModelPlan, USER, fresh_name};
use megrez_service::{Error, ErrorKind, Result};
use std::time::Duration;

/// How often a client looks how a job stands.
const LOOK: Duration = Duration::from_millis(250);

/// What a job is wanted for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The names of stored rows; `a+b` are rows whose columns, or whose inputs and labels, are in
    /// two sets.
    pub data: Vec<String>,
    /// The stored model that training begins with; without one, the weights of the graph, which are
    /// stored first.
    pub start: Option<String>,
    /// Who learns each epoch's loss.
    pub losses_to: Option<String>,
    /// The names of stored rows, as `data`, that are only looked at, after every epoch, and who
    /// learns what is found there.
    pub validation: Option<(Vec<String>, String)>,
    /// Whether the parties look after every epoch whether numbers keep to bounds.
    pub guard: bool,
    /// Who learns the weights at the end.
    pub weights_to: Option<String>,
    /// The stored model that the weights become.
    pub keep: Option<String>,
    /// Who may run it besides the client.
    pub allow: Vec<String>,
    /// For people: what the client says the step is.
    pub about: String,
}

/// A job, and the weights that have to be stored before it begins.
pub struct Proposal {
    /// The job.
    pub job: Job,
    /// None where it begins with a stored model.
    start: Option<Vec<Part>>,
}

impl Proposal {
    /// Stores the weights to begin with, in shares, under the name that the job has for them.
    ///
    /// # Errors
    /// If a party refuses.
    pub fn store_start(&self, cluster: &mut Cluster) -> Result<()> {
        let Some(parts) = &self.start else { return Ok(()) };
        let ring = self.job.check()?.ring();
        store(cluster, &self.job.start, (&self.job.protocol, ring), parts, (vec![], None, &[]))
    }
}

/// A name that nothing else has.
pub fn fresh(what: &str) -> Result<String> {
    let name: String = fresh_name()?[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{what}-{name}"))
}

/// Makes a job of a course.
///
/// # Errors
/// If a layer has no backward or does not fit the ring, or the parties know no such rows.
pub fn propose(
    cluster: &mut Cluster,
    protocol: &str,
    course: &dyn Course,
    (options, rehearsal): (&CompileOptions, &Rehearsal),
    wanted: &Wanted,
) -> Result<Proposal> {
    let client = cluster.name().to_owned();
    let (step, mut stages, mut first) = (course.step(0)?, vec![], None);
    // Before anything is compiled for each of them.
    if step.shards > MAX_SHARDS {
        return Err(Error::of(ErrorKind::Invalid, format!("a step has at most {MAX_SHARDS} shards")));
    }
    let mut shards = None;
    for (stage, epochs) in course.epochs()?.into_iter().enumerate() {
        let step = course.step(stage)?;
        let (model, plan) = if step.shards > 1 {
            let [shard, update] = compile_shards(&step, &client, options, rehearsal)?;
            let (count, plan) = (step.shards, step_plan(&shard).to_bytes());
            shards = Some(Shards { count, plan });
            (shard, step_plan(&update))
        } else {
            let model = compile(&step, &client, options, rehearsal, true)?;
            let plan = step_plan(&model);
            (model, plan)
        };
        stages.push(Stage { step: plan.to_bytes(), epochs });
        first.get_or_insert(model);
    }
    // They differ in the rate alone.
    let Some(model) = first else {
        return Err(Error::of(ErrorKind::Invalid, "a job has at least one epoch"));
    };
    let (ring, frac) = (model.compiled.plan.ring, model.compiled.frac);
    let rows = StoredRows::named(cluster, &wanted.data)?;
    rows.fit((protocol, ring, frac), options.input_range)?;
    let weights = step.state.iter().filter(|state| state.name.starts_with(WEIGHTS));
    let mut start: Vec<Part> = weights.map(|state| (state.name.clone(), state.start.clone(), frac)).collect();
    for frozen in model.compiled.model_inputs {
        add(&mut start, (frozen.name, Tensor::new(frozen.shape, frozen.values), frozen.frac))?;
    }
    let mut opened = vec![];
    if let Some(recipient) = &wanted.losses_to {
        let (state, recipient) = (Step::LOSS_SO_FAR.to_owned(), recipient.clone());
        opened.push(Opening { state, recipient, every_epoch: true });
    }
    if let Some(recipient) = &wanted.weights_to {
        let of = |state: &State| {
            let (state, recipient) = (state.name.clone(), recipient.clone());
            Opening { state, recipient, every_epoch: false }
        };
        opened.extend(step.state.iter().filter(|state| state.name.starts_with(WEIGHTS)).map(of));
    }
    let mut validation = None;
    if let Some((names, recipient)) = &wanted.validation {
        let Some(looks) = course.validation()? else {
            return Err(Error::of(ErrorKind::Unsupported, "this training has no validation: leave it out"));
        };
        let rows = StoredRows::named(cluster, names)?;
        rows.fit((protocol, ring, frac), options.input_range)?;
        let of = (&step, rows.count());
        let plan = validation_plan(&looks, of, &client, (options, rehearsal), &mut start)?.to_bytes();
        validation = Some(Validation { data: rows.sets, plan });
        let sum = looks.state.last().map(|state| state.name.clone()).unwrap_or_default();
        opened.push(Opening { state: sum, recipient: recipient.clone(), every_epoch: true });
    }
    let mut plans = vec![];
    for model in course.models()? {
        plans.push(run_plan(&model, &step, &client, (options, rehearsal), &mut start)?);
    }
    let allow = wanted.allow.clone();
    let keep = wanted.keep.clone().map(|model| Keep { model, allow, plans });
    let (start_name, start) = match &wanted.start {
        Some(name) => (name.clone(), None),
        None => (fresh("start")?, Some(start)),
    };
    let mut job = Job {
        nonce: fresh_name()?,
        client,
        protocol: protocol.into(),
        data: rows.sets,
        start: start_name,
        stages,
        shards,
        validation,
        bounds: vec![],
        rows: ROWS.map(str::to_owned).to_vec(),
        opened,
        keep,
        about: wanted.about.clone(),
    };
    let work = job.check()?;
    if wanted.guard {
        job.bounds = bounds(&step, rehearsal, &work)?;
        job.check()?;
    }
    Ok(Proposal { job, start })
}

/// The plan of a step that reads rows and state that the parties keep.
fn step_plan(model: &FixedModel) -> Plan {
    named_rows(model.compiled.plan.clone(), &model.compiled.data_inputs)
}

/// The plan by which the trained model is run.
pub(crate) fn run_plan(
    (graph, state): &(Graph, Vec<State>),
    step: &Step,
    client: &str,
    (options, rehearsal): (&CompileOptions, &Rehearsal),
    start: &mut Vec<Part>,
) -> Result<ModelPlan> {
    let options = CompileOptions {
        model_owner: client.into(),
        data_owner: USER.into(),
        recipient: USER.into(),
        ..of_kept(step, state, (options, rehearsal))
    };
    let compiled = megrez_graph::compile(graph, &options)?;
    let mut plan = compiled.plan;
    plan.inputs.iter_mut().filter(|input| input.owner == KEPT).for_each(|input| input.owner = client.into());
    for frozen in compiled.model_inputs {
        add(start, (frozen.name, Tensor::new(frozen.shape, frozen.values), frozen.frac))?;
    }
    let size = graph.inputs.first().and_then(|&id| graph.shape(id).dims().first().copied());
    let batch = size.ok_or_else(|| Error::of(ErrorKind::Invalid, "the model has no batch"))?;
    Ok(ModelPlan {
        batch,
        plan: plan.to_bytes(),
        data_inputs: compiled.data_inputs,
        outputs: compiled.outputs,
    })
}

/// What a job has told its client so far.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Mean losses of epochs, from the first on; none if somebody else learns them.
    pub losses: Vec<f32>,
    /// After each epoch, the part of the validation's rows that the model is right about.
    pub accuracies: Vec<f32>,
    /// In its place where there are no classes, the mean loss of the validation's rows.
    pub validation_losses: Vec<f32>,
    /// The weights, once they are opened: `w.` and the name of the constant, and its numbers.
    pub weights: Vec<(String, Tensor)>,
}

/// What is known of a job.
///
/// # Errors
/// If the parties' shares do not fit it.
pub fn history(cluster: &Cluster, job: &Job, standing: &Standing) -> Result<History> {
    let (work, mut history) = (job.check()?, History::default());
    for learnt in cluster.learnt(job, standing)? {
        let Kind::Ring { frac } = learnt.value.kind else { continue };
        let numbers = decode_words(work.ring(), &learnt.words, frac);
        let sum = numbers.first().copied().unwrap_or(f32::NAN);
        let (batch, batches) = work.validated.as_ref().map_or((0, 0), |v| (v.batch, v.batches));
        match learnt.state.as_str() {
            Step::LOSS_SO_FAR => history.losses.push(sum / work.steps(job) as f32),
            Looks::CORRECT_SO_FAR => history.accuracies.push(sum / (batch * batches as usize) as f32),
            Looks::LOSS_SO_FAR => history.validation_losses.push(sum / batches as f32),
            _ => history.weights.push((learnt.state, Tensor::new(learnt.value.shape, numbers))),
        }
    }
    Ok(history)
}

/// Waits until a job no longer runs. `progress` hears how it stands each time that this client has
/// looked; if it fails, waiting ends and the job goes on.
///
/// # Errors
/// Why the job failed, if it did.
pub fn wait(
    cluster: &mut Cluster,
    job: &Job,
    progress: &mut dyn FnMut(&Standing, &History) -> Result<()>,
) -> Result<(Standing, History)> {
    loop {
        let standing = cluster.jobs(Some(job.id()), false)?.pop();
        let standing =
            standing.ok_or_else(|| Error::of(ErrorKind::Internal, "the parties know no such job"))?;
        let history = history(cluster, job, &standing)?;
        progress(&standing, &history)?;
        if !standing.runs() {
            return match standing.failure() {
                Some(error) => Err(error),
                None => Ok((standing, history)),
            };
        }
        std::thread::sleep(LOOK);
    }
}
