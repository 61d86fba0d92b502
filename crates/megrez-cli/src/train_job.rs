//! `megrez train --data`, `--keep` and `--job`: training as a job of the parties, on rows that they keep in shares.

use crate::cluster::Place;
use crate::jobs::{describe, digits, finish, follow, go_on, load};
use crate::train::{Train, rehearsal, rows};
use clap::Args;
use megrez::train::{Form, Job, Learning, Proposal, Wanted, fresh, propose, upload_rows};
use megrez::{Cluster, Error, ErrorKind, Result, npy};
use megrez_lab::bench::any_model;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Training by the parties alone.
#[derive(Args)]
#[command(next_help_heading = "As a job of the parties")]
pub(crate) struct AsJob {
    /// Train on rows that are stored at the cluster, by name; those of several are joined. --inputs
    /// and --labels are then only rehearsed on.
    #[arg(long, value_delimiter = ',', value_name = "NAME", requires = "cluster")]
    pub(crate) data: Vec<String>,
    /// Keep the weights in shares, as a stored model of this name.
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub(crate) keep: Option<String>,
    /// The clients who may run the kept model.
    #[arg(long, value_delimiter = ',', requires = "keep", value_name = "CLIENT")]
    allow: Vec<String>,
    /// The batch sizes in which the kept model may be run.
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "ROWS")]
    run_batch: Vec<usize>,
    /// Begin with a stored model of this client that was trained before.
    #[arg(long, value_name = "NAME", requires = "cluster")]
    start: Option<String>,
    /// Who learns the loss of each epoch: a client, or `nobody` [default: this client].
    #[arg(long, value_name = "CLIENT")]
    losses_to: Option<String>,
    /// Write the job here, for the owners of the rows to approve, and do not begin it.
    #[arg(long, value_name = "FILE")]
    propose: Option<PathBuf>,
    /// Begin this job, or go on with it.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub(crate) job: Option<PathBuf>,
    /// Do not wait for the end: `megrez jobs` says how it stands.
    #[arg(long)]
    detach: bool,
}

impl AsJob {
    /// Whether the parties are to train by themselves.
    pub(crate) fn wanted(&self) -> bool {
        !self.data.is_empty() || self.keep.is_some() || self.job.is_some()
    }
}

pub(crate) fn run(args: &Train, json: bool) -> Result<ExitCode> {
    let place: &Place = &args.place;
    let mut cluster = match place.connect()? {
        Some(cluster) => cluster,
        None => return Err(Error::of(ErrorKind::Invalid, "a job is for a cluster: --cluster")),
    };
    if let Some(path) = &args.job.job {
        let job = load(path)?;
        cluster.train(&job, &args.common.request.net)?;
        return go_on(&mut cluster, &job, args.job.detach, args.weights.as_deref(), json);
    }
    let own = match &args.job.data[..] {
        [] => Some(store_own(args, &mut cluster)?),
        _ => None,
    };
    let names = own.iter().chain(&args.job.data).cloned().collect();
    let proposal = made(args, &mut cluster, names)?;
    let job = &proposal.job;
    proposal.store_start(&mut cluster)?;
    if let Some(path) = &args.job.propose {
        std::fs::write(path, job.to_bytes()).map_err(|e| Error::file(path, e))?;
        return proposed(job, path, json);
    }
    cluster.train(job, &args.common.request.net)?;
    if args.job.detach {
        return go_on(&mut cluster, job, true, None, json);
    }
    let done = follow(&mut cluster, job)?;
    // Nothing is left of what was stored for this job alone, once it has come to its end.
    if done.0.word() == "done" {
        own.iter()
            .chain(args.job.start.is_none().then_some(&job.start))
            .try_for_each(|name| cluster.remove(name))?;
    }
    finish(job, &done, args.weights.as_deref(), json)
}

/// Stores the rows of the command line, for this job alone.
fn store_own(args: &Train, cluster: &mut Cluster) -> Result<String> {
    let (Some(inputs), Some(labels)) = (&args.inputs, &args.labels) else {
        return Err(Error::of(ErrorKind::Invalid, "rows are needed: --data, or --inputs and --labels"));
    };
    let options = args.common.request.options()?;
    let model = any_model(args.model()?, args.learning.batch, args.seed)?;
    let classes = model.outputs.first().and_then(|output| model.shape(output.id).dims().get(1).copied());
    let (inputs, labels) = (npy::load(inputs)?, npy::load(labels)?);
    let form = Form {
        protocol: args.common.protocol().into(),
        ring: options.ring,
        frac: options.frac,
        range: options.input_range,
    };
    let name = fresh("rows")?;
    upload_rows(cluster, &name, &form, inputs, labels, classes, &[])?;
    Ok(name)
}

fn made(args: &Train, cluster: &mut Cluster, data: Vec<String>) -> Result<Proposal> {
    let options = args.common.request.options()?;
    let graph = any_model(args.model()?, args.learning.batch, args.seed)?;
    let learning: Learning = args.how()?;
    let step = learning.step(&graph)?;
    let sample = match (&args.inputs, &args.labels) {
        (Some(_), Some(_)) => Some(rows(args, &graph)?),
        _ => None,
    };
    let rehearsal = rehearsal(args, &step, sample.as_ref(), &options)?;
    let runnable = match &args.job.keep {
        Some(_) => args
            .job
            .run_batch
            .iter()
            .map(|&batch| any_model(args.model()?, batch, args.seed))
            .collect::<Result<Vec<_>>>()?,
        None => vec![],
    };
    let me = cluster.name().to_owned();
    let losses_to = match args.job.losses_to.as_deref() {
        Some("nobody") => None,
        Some(client) => Some(client.to_owned()),
        None => Some(me.clone()),
    };
    let wanted = Wanted {
        data,
        start: args.job.start.clone(),
        epochs: args.epochs,
        losses_to,
        weights_to: args.weights.is_some().then_some(me),
        keep: args.job.keep.clone(),
        allow: args.job.allow.clone(),
        about: args.about(),
    };
    propose(cluster, args.common.protocol(), (&graph, &runnable), &learning, (&options, &rehearsal), &wanted)
}

fn proposed(job: &Job, path: &std::path::Path, json: bool) -> Result<ExitCode> {
    let lines = describe(job)?;
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.propose/1", "job": digits(&job.id()), "hash": digits(&job.hash()), "file": path, "says": lines })
        );
    } else {
        lines.iter().for_each(|line| println!("{line}"));
        println!(
            "written to {0}: the owners of the rows say `megrez approve --job {0} --of NAME`",
            path.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}
