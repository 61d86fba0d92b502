//! Training as a job of the parties, which goes on while Python does something else.

use crate::arrays::{Given, tensors};
use crate::cluster::Cluster;
use crate::error::{error, refused};
use crate::model::Model;
use crate::wait::wait;
use megrez::train::{
    Form, Job, Learning, Optimiser, Rows, Stands, Trained, Wanted, fresh, history, propose, rehearse, room,
    upload_rows,
};
use megrez::{Error, ErrorKind, Recipe, Result};
use megrez_graph::Tensor;
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
    size: (usize, u32, usize),
    kept: (String, Vec<String>, Vec<usize>),
) -> PyResult<(Vec<u8>, Vec<String>)> {
    let (
        (loss, rate, momentum, decay, halve_every, optimiser),
        (batch, epochs, rehearsed),
        (keep, allow, batches),
    ) = (how, size, kept);
    if batch == 0 || epochs == 0 {
        return Err(refused("batch and epochs are at least 1"));
    }
    let (job, protocol, net) = (cluster.job()?, cluster.protocol_name(), cluster.net());
    model.model(&protocol)?;
    let [inputs, labels]: [Tensor; 2] =
        tensors(&data)?.try_into().map_err(|_| refused("inputs and labels are needed"))?;
    let loss: megrez::train::Loss = loss.parse().map_err(refused)?;
    let decay = match decay.as_str() {
        "0" | "0.0" => None,
        decay => Some(decay.parse().map_err(refused)?),
    };
    let rate = rate.parse().map_err(refused)?;
    let optimiser = Optimiser::named(&optimiser, rate, momentum, decay).map_err(refused)?;
    let trained = if only.is_empty() { Trained::All } else { Trained::Only(only) };
    let learning = Learning { loss, trained, optimiser, halve_every: NonZeroU32::new(halve_every) };
    let graphs = model.graphs([vec![batch], batches].concat());
    let work = move |_: &_| -> Result<_> {
        let (mut graphs, recipe) = graphs()?;
        let Recipe::Fixed(options) = recipe else {
            return Err(Error::of(ErrorKind::Unsupported, "training is in fixed point"));
        };
        let runnable = graphs.split_off(1);
        let graph = graphs.remove(0);
        let (step, rows) = (learning.step(&graph)?, Rows::new(&graph, loss, inputs.clone(), labels.clone())?);
        let rehearsal = match rehearsed {
            0 => room(&step, options.input_range, 64.0)?,
            _ => rehearse(&step, rows.batches(batch, epochs, 1).take(rehearsed))?,
        };
        let rehearsal = rehearsal.with_labels_of(&rows);
        let form = Form {
            protocol: protocol.clone(),
            ring: options.ring,
            frac: options.frac,
            range: options.input_range,
        };
        let classes = graph.outputs.first().and_then(|output| graph.shape(output.id).dims().get(1).copied());
        job.run_connected(|cluster| {
            let own = fresh("rows")?;
            upload_rows(cluster, &own, &form, inputs, labels, classes, &[])?;
            let wanted = Wanted {
                data: vec![own.clone()],
                epochs,
                losses_to: Some(cluster.name().to_owned()),
                keep: Some(keep),
                allow,
                ..Wanted::default()
            };
            let made = (&*options, &rehearsal);
            let proposal = propose(cluster, &protocol, (&graph, &runnable), &learning, made, &wanted)?;
            proposal.store_start(cluster)?;
            cluster.train(&proposal.job, &net)?;
            Ok((proposal.job.to_bytes(), vec![own, proposal.job.start]))
        })
    };
    wait(py, None, work)
}

/// How a job stands, as JSON: `state`, `epoch`, `step`, `steps`, `losses`.
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
            let losses = history(cluster, &job, &standing)?.losses;
            let steps = standing.parties.first().map_or(0, |state| state.steps);
            let done = standing.parties.iter().all(|state| state.stands == Stands::Done);
            let state = if done { "done" } else { standing.word() };
            let (epoch, step) = (standing.epoch(), standing.step());
            Ok(json!({ "state": state, "epoch": epoch, "step": step, "steps": steps, "losses": losses })
                .to_string())
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
