//! `megrez bench model`: a whole model on random data, or a step of training.

use super::options::options;
use crate::options::{Common, PartiesKind};
use crate::outcome::reported;
use clap::Args;
use megrez::choices::Ranges;
use megrez::protocols::find;
use megrez::{Error, ErrorKind, Model, Result};
use megrez_lab::bench::{ModelBench, TrainBench, any_model, bench_float_model, bench_model, bench_training};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct BenchModel {
    /// The model: lenet, alexnet-cifar, vgg16-cifar, net-a, net-b, net-c, relevance, …, or an ONNX
    /// file.
    pub(super) model: String,
    /// Measure a step of training instead: forward, backward and update, in floating point.
    #[arg(long)]
    train: bool,
    /// Inputs per run.
    #[arg(long, default_value_t = 1)]
    pub(super) batch: usize,
    /// How many runs.
    #[arg(long, default_value_t = 5)]
    repeat: u32,
    /// Seed of weights and data, never of shares.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

pub(crate) fn run(args: &BenchModel) -> Result<ExitCode> {
    // Random weights prove nothing about ranges; the result is compared with the clear all the
    // same.
    let mut request = args.common.with(Ranges::Assume);
    let float = request.is_float()?;
    if !float {
        // Figures of models are compared with each other: all have as many fraction bits.
        request.frac = Some(request.frac());
    }
    if args.train && !float {
        let what = "a step in floating point takes --numbers float32, or --protocol secfloat; one in fixed point is \
                    `megrez bench train`";
        return Err(Error::of(ErrorKind::Unsupported, what));
    }
    let options = options(&args.common, args.batch, args.repeat, args.seed)?;
    if args.train {
        let options = TrainBench {
            parties: find(request.runs_under())?.parties,
            protocol: request.runs_under().into(),
            model: args.model.clone(),
            batch: args.batch,
            repeat: args.repeat,
            seed: args.seed,
            work: request.work()?,
            rate: 0.125,
        };
        let processes = args.common.parties == PartiesKind::Process;
        return Ok(reported(&bench_training(&options, &request.net, processes)?));
    }
    let graph = any_model(&args.model, args.batch, args.seed)?;
    let mut backend = args.common.backend()?;
    let report = match request.compile(&graph, backend.client())? {
        Model::Fixed(model) => bench_model(&mut backend, &args.model, &model, &options)?,
        Model::Float(model) => {
            let options = ModelBench {
                name: args.model.clone(),
                batch: args.batch,
                seed: args.seed,
                run: options.run,
                parties: options.parties,
            };
            bench_float_model(&mut backend, &model, &options)?
        }
    };
    Ok(reported(&report))
}
