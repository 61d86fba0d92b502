//! `megrez demo-train`: two owners of handwritten digits have a LeNet trained that nobody ever
//! holds.

use crate::digits::{Digits, rows};
use crate::jobs::{describe, follow};
use crate::options::Common;
use clap::Args;
use megrez::train::{
    Consent, Form, Learning, Loss, Network, NewRows, Optimiser, Trained, Wanted, propose, room, upload_rows,
};
use megrez::{Error, ErrorKind, Parties, Program, Result, StoredModel, models, protocols};
use megrez_graph::Tensor;
use megrez_net::Limits;
use serde_json::json;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Instant;

/// The owners; who asks for the training and runs the model is a third client, without rows.
const OWNERS: [&str; 2] = ["clinic-a", "clinic-b"];
/// Held-out rows.
const TEST: usize = 60;
const BATCH: usize = 30;
const MODEL: &str = "digits";

#[derive(Args)]
pub(crate) struct DemoTrain {
    #[command(flatten)]
    digits: Digits,
    /// How often every row is learnt from.
    #[arg(long, default_value_t = 6)]
    epochs: u32,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &DemoTrain, json: bool) -> Result<ExitCode> {
    let (images, labels) = args.digits.rows()?;
    let count = labels.data.len();
    if images.shape.dims() != [count, 1, 28, 28] || count < TEST + 2 * BATCH {
        return Err(Error::of(ErrorKind::Invalid, "the folder does not hold the digits"));
    }
    let start = Instant::now();
    let say = |line: String| {
        if !json {
            println!("{:6.1} s  {line}", start.elapsed().as_secs_f64());
        }
    };
    let (protocol, options) = (args.common.protocol(), args.common.request.options()?);
    args.common.request.only_fixed()?;
    args.common.request.only_private()?;
    let parties = protocols::find(protocol)?.parties;
    let parties = Parties::start_for(
        Program::current()?,
        parties,
        &args.common.device,
        Limits::default().idle_timeout,
        &OWNERS,
    )?;
    let mut asks = parties.connect()?;
    let form = Form {
        protocol: protocol.into(),
        ring: options.ring,
        frac: options.frac,
        range: options.input_range,
    };
    let half = (count - TEST) / 2;
    let mut owners = vec![];
    for (i, owner) in OWNERS.into_iter().enumerate() {
        let mut cluster = parties.connect_as(owner)?;
        let part = |all: &Tensor| rows(all, i * half, (i + 1) * half);
        let allow = [asks.name().to_owned()];
        let new = NewRows::whole(part(&images), part(&labels), Some(10));
        let set = upload_rows(&mut cluster, owner, &form, new, &allow)?;
        say(format!("`{owner}` stores {} rows in shares", set.rows));
        owners.push(cluster);
    }

    let build = |batch| models::build("lenet", batch, 1).map_err(Error::from);
    let rate = "2^-5".parse().map_err(|what: String| Error::of(ErrorKind::Internal, what))?;
    let optimiser =
        Optimiser::with_momentum(rate, 0.5).map_err(|what| Error::of(ErrorKind::Internal, what))?;
    let (loss, trained) = (Loss::CrossEntropy, Trained::All);
    let learning =
        Learning { loss, trained, optimiser, halve_every: None, privacy: None, shards: NonZeroU32::MIN };
    let (graph, runnable) = (build(BATCH)?, [build(TEST)?]);
    let rehearsal = room(&learning.step(&graph)?, options.input_range, 64.0)?;
    let wanted = Wanted {
        data: OWNERS.map(str::to_owned).to_vec(),
        losses_to: Some(asks.name().to_owned()),
        keep: Some(MODEL.into()),
        guard: true,
        about: "lenet from random weights".into(),
        ..Wanted::default()
    };
    let made = (&options, &rehearsal);
    let course = Network {
        learning: &learning,
        graph: &graph,
        runnable: &runnable,
        validated: None,
        epochs: args.epochs,
    };
    let proposal = propose(&mut asks, protocol, &course, made, &wanted)?;
    proposal.store_start(&mut asks)?;
    let job = proposal.job;
    let lines = describe(&job)?;
    say("the job that both owners are asked to approve:".into());
    if !json {
        lines.iter().for_each(|line| println!("          {line}"));
    }
    // Without them no party begins.
    let net = &args.common.request.net;
    match asks.train(&job, net) {
        Err(e) if e.kind() == ErrorKind::NotPermitted => say(format!("before they have: {e}")),
        Err(e) => return Err(e),
        Ok(()) => {
            return Err(Error::of(ErrorKind::Internal, "the parties began a job that nobody has approved"));
        }
    }
    for (owner, cluster) in OWNERS.iter().zip(&mut owners) {
        let of = vec![(*owner).to_owned()];
        let consent = Consent { job: job.hash(), of, withdrawn: false, until_s: None };
        cluster.consent(&consent)?;
        say(format!("`{owner}` approves it at every party"));
    }
    let mut asks = parties.connect()?;
    asks.train(&job, net)?;
    say("the parties train by themselves; the loss of each epoch is all that is opened".into());
    let (_, history) = follow(&mut asks, &job)?;
    let trained = start.elapsed().as_secs_f64();
    for (i, loss) in history.losses.iter().enumerate() {
        say(format!("epoch {}: loss {loss:.4}", i + 1));
    }
    let model = StoredModel::describe(&mut asks, MODEL, TEST)?;
    let data = [rows(&images, count - TEST, count)];
    let inference = model.infer(&mut asks, &data, &args.common.run(1), &|_| Ok(()))?;
    let logits = &inference.outputs[0].1;
    let largest = |row: &[f32]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let pairs = logits.data.chunks(10).zip(&labels.data[count - TEST..]);
    let right = pairs.filter(|(row, label)| largest(row) == **label as usize).count();
    say(format!("the kept model, run on {TEST} digits that it has not seen: {right} are right"));
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.demo-train/1", "protocol": protocol, "rows": 2 * half, "losses": history.losses,
                "test": TEST, "right": right, "trained_seconds": trained, "seconds": start.elapsed().as_secs_f64() })
        );
    }
    Ok(crate::outcome::verdict(right * 10 >= TEST * 7))
}
