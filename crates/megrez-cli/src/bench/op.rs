//! `megrez bench op`: one operation on many elements.

use super::options::options;
use crate::options::{Common, PartiesKind};
use crate::outcome::reported;
use clap::Args;
use megrez::protocols::find;
use megrez::{DeviceChoice, Error, Result};
use megrez_lab::bench::{BenchOptions, FloatBench, KernelBench, bench_op, float, kernel};
use std::process::ExitCode;

#[derive(Args)]
#[command(mut_arg("input_range", |a| a.hide(true)), mut_arg("ranges", |a| a.hide(true)))]
#[command(mut_arg("declared", |a| a.hide(true)), mut_arg("fit", |a| a.hide(true)))]
#[command(mut_arg("calibration", |a| a.hide(true)), mut_arg("mix", |a| a.hide(true)))]
pub(crate) struct BenchOp {
    /// The operation.
    op: String,
    /// How many elements.
    #[arg(long, default_value_t = 1 << 17)]
    batch: usize,
    /// How many runs.
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// Fraction bits that ReLU drops in the same step.
    #[arg(long, default_value_t = 0)]
    truncate: u32,
    /// m,k,n of a matrix product; m,k: rows and columns of softmax and layernorm.
    #[arg(long, value_delimiter = ',', default_values_t = [128, 500, 100])]
    shape: Vec<usize>,
    /// Elements that floating point takes at a time: more take more memory, fewer more rounds.
    #[arg(long, default_value_t = 1 << 17)]
    lanes: usize,
    /// Seed of the test data, never of shares.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &BenchOp) -> Result<ExitCode> {
    let request = &args.common.request;
    if let [_, ..] = request.unused_in_operation()[..] {
        return Err(Error::Refused(
            "a single operation has no layers: leave out --input-range, --range, --declared, --fit and --calibration"
                .into(),
        ));
    }
    if request.is_float()? {
        let options = FloatBench {
            protocol: request.runs_under().into(),
            parties: find(request.runs_under())?.parties,
            op: args.op.clone(),
            batch: args.batch,
            lanes: args.lanes,
            repeat: args.repeat,
            seed: args.seed,
            work: request.work()?,
            net: request.net.clone(),
        };
        return Ok(reported(&float::bench(&options, args.common.parties == PartiesKind::Process)?));
    }
    let shape = match args.shape[..] {
        [m, k, n] => [m, k, n],
        [m, k] => [m, k, 1],
        _ => return Err(Error::Refused("--shape is m,k,n or m,k".into())),
    };
    if kernel::OPS.contains(&args.op.as_str()) {
        let options = KernelBench {
            op: args.op.clone(),
            ring: request.ring,
            shape,
            batch: args.batch,
            repeat: args.repeat,
            seed: args.seed,
            device: DeviceChoice::each(&args.common.device, 1)?[0],
        };
        return Ok(reported(&kernel::bench(&options)?));
    }
    let options = options(&args.common, args.batch, args.repeat, args.seed)?;
    let options = BenchOptions { truncate: args.truncate, shape, ..options };
    let mut backend = args.common.backend()?;
    Ok(reported(&bench_op(&mut backend, &args.op, &options)?))
}
