//! `megrez bench train`: a step of training in fixed point on random data.

use super::options::options;
use crate::options::Common;
use crate::outcome::reported;
use crate::train_options::Learning;
use clap::Args;
use megrez::Result;
use megrez::train::{Trained, differentiate};
use megrez_lab::bench::{any_model, bench_step};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct BenchTrain {
    /// The model: net-a, lenet, …, or an ONNX file.
    model: String,
    /// How many steps, each from the same weights.
    #[arg(long, default_value_t = 5)]
    steps: u32,
    /// Seed of weights and data, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make the material of a step while the one before goes on, as training does; the report says
    /// what a step takes then.
    #[arg(long)]
    streamed: bool,
    #[command(flatten)]
    learning: Learning,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &BenchTrain) -> Result<ExitCode> {
    let mut options = options(&args.common, args.learning.batch, args.steps, args.seed)?;
    options.run.streamed = args.streamed;
    let model = any_model(&args.model, args.learning.batch, args.seed)?;
    let step = differentiate(&model, args.learning.loss, &Trained::All, args.learning.optimiser()?)?;
    let mut backend = args.common.backend()?;
    let report = bench_step(&mut backend, &args.model, &step, &args.common.request.options()?, &options)?;
    Ok(reported(&report))
}
