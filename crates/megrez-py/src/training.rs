//! Training as a job of the parties, which goes on while Python does something else.

use super::arrays::{Given, tensors};
use super::cluster::Cluster;
use super::error::{error, refused};
use super::model::Model;
use super::wait::wait;
use megrez::train::{
    Boosting, Budget, Course, Form, Grows, History, Job, Learning, Network, NewRows, Optimiser, Rehearsal,
    Rows, Stands, Trained, Wanted, fresh, history, propose, rehearse, rehearse_trees, room, tree_options,
    upload_rows, validation_batch,
};
use megrez::{CompileRequest, Error, ErrorKind, Recipe, Result};
use megrez_graph::{CompileOptions, Tensor};
use megrez_net::NetProfile;
use pyo3::prelude::*;
use serde_json::json;
use std::num::NonZeroU32;

/// Stores rows, and begins training on them. Gives the job as bytes, and the names of what was
/// stored for it alone.
#[pyfunction]
pub fn begin<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    model: &Model,
    data: Vec<Given<'py>>,
    how: (String, String, Option<f64>, String, u32, String),
    only: Vec<String>,
    size: (usize, NonZeroU32, u32, usize, Option<(f64, f64, f32)>),
    kept: (String, Vec<String>, Vec<usize>, bool),
) -> PyResult<(Vec<u8>, Vec<String>)> {
    let (
        (loss, rate, momentum, decay, halve_every, optimiser),
        (batch, shards, epochs, rehearsed, private),
        (keep, allow, mut batches, guard),
    ) = (how, size, kept);
    if batch == 0 || epochs == 0 {
        return Err(refused("batch and epochs are at least 1"));
    }
    let whole = batch;
    let batch = batch / shards.get() as usize;
    if batch == 0 || whole % shards.get() as usize != 0 {
        return Err(refused(format!("a step of {whole} rows is not {shards} shards of one size")));
    }
    let (job, protocol, net) = (cluster.job()?, cluster.protocol_name(), cluster.net());
    model.model(&protocol)?;
    let mut given = tensors(&data)?.into_iter();
    let (Some(inputs), Some(labels)) = (given.next(), given.next()) else {
        return Err(refused("inputs and labels are needed"));
    };
    let validation = given.next().zip(given.next());
    let validated = validation.as_ref().and_then(|(inputs, _)| inputs.shape.dims().first()).copied();
    let validated = validated.map(validation_batch);
    if validated == Some(0) {
        return Err(refused("the validation data has no rows"));
    }
    batches.extend(validated);
    let loss: megrez::train::Loss = loss.parse().map_err(refused)?;
    let decay = match decay.as_str() {
        "0" | "0.0" => None,
        decay => Some(decay.parse().map_err(refused)?),
    };
    let rate = rate.parse().map_err(refused)?;
    let optimiser = Optimiser::named(&optimiser, rate, momentum, decay).map_err(refused)?;
    let trained = if only.is_empty() { Trained::All } else { Trained::Only(only) };
    let privacy = |(epsilon, delta, clip)| Budget { epsilon, delta }.privacy(clip, epochs);
    let privacy = private.map(privacy).transpose().map_err(error)?;
    let halve_every = NonZeroU32::new(halve_every);
    let learning = Learning { loss, trained, optimiser, halve_every, privacy, shards };
    let graphs = model.graphs([vec![batch], batches].concat());
    let work = move |_: &_| -> Result<_> {
        let (mut graphs, recipe) = graphs()?;
        let Recipe::Fixed(options) = recipe else {
            return Err(Error::of(ErrorKind::Unsupported, "training is in fixed point"));
        };
        let mut runnable = graphs.split_off(1);
        let validated = validated.and_then(|_| runnable.pop());
        let graph = graphs.remove(0);
        let (step, rows) = (learning.step(&graph)?, Rows::new(&graph, loss, inputs.clone(), labels.clone())?);
        // What rows have shown would stand in the plan, which no noise covers.
        let blind = rehearsed == 0 || learning.privacy.is_some();
        let rehearsal = match blind {
            true => room(&step, options.input_range, 64.0)?,
            false => rehearse(&step, rows.batches(batch, epochs, 1).take(rehearsed))?,
        };
        let held_out = validation.as_ref().map(|(x, y)| Rows::new(&graph, loss, x.clone(), y.clone()));
        let held_out = held_out.transpose()?;
        let rehearsal = match learning.privacy {
            Some(_) => rehearsal,
            None => [&rows].into_iter().chain(&held_out).fold(rehearsal, Rehearsal::with_labels_of),
        };
        let form = Form {
            protocol: protocol.clone(),
            ring: options.ring,
            frac: options.frac,
            range: options.input_range,
        };
        let classes = graph.outputs.first().and_then(|output| graph.shape(output.id).dims().get(1).copied());
        let course = Network {
            learning: &learning,
            graph: &graph,
            runnable: &runnable,
            validated: validated.as_ref(),
            epochs,
        };
        let data = Data { rows: [inputs, labels], validation: validation.map(|(x, y)| [x, y]), classes };
        let made = (&*options, &rehearsal);
        let wanted = Wanted { keep: Some(keep), allow, guard, ..Wanted::default() };
        job.run_connected(|cluster| start(cluster, (&protocol, &net), &form, data, &course, made, wanted))
    };
    wait(py, None, work)
}

/// Stores rows of indicators with targets, and begins growing trees on them; gives what [`begin`]
/// gives. `how` are objective, trees, depth, rate and penalty.
#[pyfunction]
pub fn boost<'py>(
    py: Python<'py>,
    cluster: &Cluster,
    data: Vec<Given<'py>>,
    how: (String, usize, u32, f32, f32),
    kept: (String, Vec<String>, Vec<usize>),
) -> PyResult<(Vec<u8>, Vec<String>)> {
    let ((objective, trees, depth, rate, penalty), (keep, allow, batches)) = (how, kept);
    let (job, protocol, net) = (cluster.job()?, cluster.protocol_name(), cluster.net());
    let [inputs, targets]: [Tensor; 2] =
        tensors(&data)?.try_into().map_err(|_| refused("indicators and targets are needed"))?;
    let objective = objective.parse().map_err(refused)?;
    let boosting = Boosting { objective, trees, depth, rate, penalty };
    if batches.contains(&0) {
        return Err(refused("batches are at least 1"));
    }
    let work = move |_: &_| -> Result<_> {
        let rows = targets.data.len();
        let targets = Tensor::new([rows, 1], targets.data);
        let rehearsal = rehearse_trees(&boosting, &inputs, &targets)?;
        let columns = inputs.data.len() / rows;
        // No layer is a ReLU.
        let form = "3r".parse().map_err(|what: String| Error::of(ErrorKind::Internal, what))?;
        let request = CompileRequest { protocol: protocol.clone(), form, ..CompileRequest::default() };
        let options = tree_options(request.options()?);
        let form = Form {
            protocol: protocol.clone(),
            ring: options.ring,
            frac: options.frac,
            range: options.input_range,
        };
        let course = Grows { boosting: &boosting, rows, columns, batches: &batches, validated: None };
        let data = Data { rows: [inputs, targets], validation: None, classes: Some(1) };
        let wanted = Wanted { keep: Some(keep), allow, ..Wanted::default() };
        let made = (&options, &rehearsal);
        job.run_connected(|cluster| start(cluster, (&protocol, &net), &form, data, &course, made, wanted))
    };
    wait(py, None, work)
}

/// Rows to store: inputs and labels.
struct Data {
    rows: [Tensor; 2],
    /// Those that it is only looked at on.
    validation: Option<[Tensor; 2]>,
    classes: Option<usize>,
}

/// Stores rows, and begins a course on them.
fn start(
    cluster: &mut megrez_service::client::Cluster,
    (protocol, net): (&str, &NetProfile),
    form: &Form,
    data: Data,
    course: &dyn Course,
    made: (&CompileOptions, &Rehearsal),
    wanted: Wanted,
) -> Result<(Vec<u8>, Vec<String>)> {
    let mut own = vec![];
    let classes = data.classes;
    for [inputs, labels] in [Some(data.rows), data.validation].into_iter().flatten() {
        let name = fresh("rows")?;
        upload_rows(cluster, &name, form, NewRows::whole(inputs, labels, classes), &[])?;
        own.push(name);
    }
    let me = cluster.name().to_owned();
    let wanted = Wanted {
        data: own[..1].to_vec(),
        losses_to: Some(me.clone()),
        validation: own.get(1).map(|name| (vec![name.clone()], me)),
        ..wanted
    };
    let proposal = propose(cluster, protocol, course, made, &wanted)?;
    proposal.store_start(cluster)?;
    cluster.train(&proposal.job, net)?;
    own.push(proposal.job.start.clone());
    Ok((proposal.job.to_bytes(), own))
}

/// How a job stands, as JSON: `state`, `epoch`, `step`, `steps`, `losses`, `accuracies`,
/// `validation_losses`.
#[pyfunction]
pub fn job_state(py: Python<'_>, cluster: &Cluster, job: &[u8]) -> PyResult<String> {
    let (connection, job) = (cluster.job()?, Job::from_bytes(job).map_err(error)?);
    wait(py, None, move |_| {
        connection.run_connected(|cluster| {
            let standing = cluster.jobs(Some(job.id()), false)?.pop();
            let standing =
                standing.ok_or_else(|| Error::of(ErrorKind::Internal, "the parties know no such job"))?;
            if let Some(failure) = standing.failure().filter(|_| !standing.runs()) {
                return Err(failure);
            }
            let History { losses, accuracies, validation_losses, .. } = history(cluster, &job, &standing)?;
            let steps = standing.parties.first().map_or(0, |state| state.steps);
            let done = standing.parties.iter().all(|state| state.stands == Stands::Done);
            let state = if done { "done" } else { standing.word() };
            let (epoch, step) = (standing.epoch(), standing.step());
            let all = json!({ "state": state, "epoch": epoch, "step": step, "steps": steps, "losses": losses,
                "accuracies": accuracies, "validation_losses": validation_losses });
            Ok(all.to_string())
        })
    })
}

/// Goes on with a job after its last checkpoint.
#[pyfunction]
pub fn resume_job(py: Python<'_>, cluster: &Cluster, job: &[u8]) -> PyResult<()> {
    let (connection, job) = (cluster.job()?, Job::from_bytes(job).map_err(error)?);
    let net = cluster.net();
    wait(py, None, move |_| connection.run_connected(|cluster| cluster.train(&job, &net)))
}

/// Stops a job at the border of a step.
#[pyfunction]
pub fn stop_job(py: Python<'_>, cluster: &Cluster, job: &[u8]) -> PyResult<()> {
    let (connection, job) = (cluster.job()?, Job::from_bytes(job).map_err(error)?);
    wait(py, None, move |_| connection.run_connected(|cluster| cluster.stop(job.id())))
}
