//! `megrez train --data`, `--keep` and `--job`: training as a job of the parties, on rows that they
//! keep in shares.

use crate::cluster::{Needs, Place};
use crate::jobs::{begin, go_on, load};
use crate::train_options::{Train, load as load_rows, rehearsal, rows};
use megrez::train::{
    Form, Learning, Network, NewRows, Proposal, StoredRows, Wanted, fresh, propose, upload_rows,
    validation_batch,
};
use megrez::{Cluster, Error, ErrorKind, Result, npy};
use megrez_lab::bench::any_model;
use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) fn run(args: &Train, json: bool) -> Result<ExitCode> {
    let place: &Place = &args.place;
    let mut cluster = match place.connect(Needs::Own)? {
        Some(cluster) => cluster,
        None => return Err(Error::of(ErrorKind::Invalid, "a job is for a cluster: --cluster")),
    };
    if let Some(path) = &args.job.job {
        let job = load(path)?;
        cluster.train(&job, &args.common.request.net)?;
        return go_on(&mut cluster, &job, args.job.terms.detach, args.weights_to.as_deref(), json);
    }
    let (rows, test) = ((&args.inputs, &args.labels), (&args.test_inputs, &args.test_labels));
    let own = match &args.job.terms.data[..] {
        [] => Some(store_own(args, &mut cluster, rows)?),
        _ => None,
    };
    let test = args.test_inputs.as_ref().map(|_| store_own(args, &mut cluster, test)).transpose()?;
    let names = own.iter().chain(&args.job.terms.data).cloned().collect();
    let validation = test.iter().chain(&args.job.terms.validation).cloned().collect();
    let proposal = made(args, &mut cluster, (names, validation))?;
    let start = args.job.start.is_none().then_some(&proposal.job.start);
    let alone: Vec<&String> = own.iter().chain(&test).chain(start).collect();
    let how = (&args.job.terms, &args.common.request.net);
    begin(&mut cluster, &proposal, how, &alone, args.weights_to.as_deref(), json)
}

/// Stores rows of the command line, for this job alone.
fn store_own(
    args: &Train,
    cluster: &mut Cluster,
    (inputs, labels): (&Option<PathBuf>, &Option<PathBuf>),
) -> Result<String> {
    let (Some(inputs), Some(labels)) = (inputs, labels) else {
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
    upload_rows(cluster, &name, &form, NewRows::whole(inputs, labels, classes), &[])?;
    Ok(name)
}

fn made(
    args: &Train,
    cluster: &mut Cluster,
    (data, validation): (Vec<String>, Vec<String>),
) -> Result<Proposal> {
    let options = args.common.request.options()?;
    let learning = Learning { shards: args.job.shards, ..args.how()? };
    let (batch, shards) = (args.learning.batch, learning.shards.get() as usize);
    if batch % shards != 0 {
        let what = format!("a step of {batch} rows is not {shards} shards of one size: --batch, --shards");
        return Err(Error::of(ErrorKind::Invalid, what));
    }
    let graph = any_model(args.model()?, batch / shards, args.seed)?;
    let step = learning.step(&graph)?;
    let sample = match (&args.inputs, &args.labels) {
        (Some(_), Some(_)) => Some(rows(args, &graph)?),
        _ => None,
    };
    let mut rehearsal = rehearsal(args, &step, sample.as_ref(), &options)?;
    if let (Some(inputs), Some(labels), None) = (&args.test_inputs, &args.test_labels, &learning.privacy) {
        rehearsal = rehearsal.with_labels_of(&load_rows(&graph, learning.loss, inputs, labels)?);
    }
    let terms = &args.job.terms;
    let sizes = terms.keep.iter().flat_map(|_| &terms.run_batch);
    let runnable =
        sizes.map(|&batch| any_model(args.model()?, batch, args.seed)).collect::<Result<Vec<_>>>()?;
    let validated = match &validation[..] {
        [] => None,
        names => {
            let batch = validation_batch(StoredRows::named(cluster, names)?.count());
            Some(any_model(args.model()?, batch, args.seed)?)
        }
    };
    let me = cluster.name().to_owned();
    let wanted = Wanted {
        guard: !args.job.unguarded,
        start: args.job.start.clone(),
        weights_to: args.weights_to.is_some().then_some(me.clone()),
        about: args.about(),
        // No noise covers a loss.
        ..terms.wanted(&me, learning.privacy.is_some(), [data, validation])
    };
    let course = Network {
        learning: &learning,
        graph: &graph,
        runnable: &runnable,
        validated: validated.as_ref(),
        epochs: args.epochs,
    };
    propose(cluster, args.common.protocol(), &course, (&options, &rehearsal), &wanted)
}
