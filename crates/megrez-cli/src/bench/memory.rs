//! `megrez bench memory`: what a model takes on GPUs, without running it.

use super::model::BenchModel;
use megrez::choices::Ranges;
use megrez::{Error, ErrorKind, Model, Result};
use megrez_lab::bench::{any_model, memory};
use megrez_service::embedded::CLIENT;
use serde_json::json;
use std::process::ExitCode;

pub(crate) fn run(args: &BenchModel) -> Result<ExitCode> {
    let graph = any_model(&args.model, args.batch, args.seed)?;
    let request = args.common.with(Ranges::Assume);
    let Model::Fixed(model) = request.compile(&graph, CLIENT)? else {
        let what = format!("`{}` computes on processors only", request.protocol);
        return Err(Error::of(ErrorKind::Unsupported, what));
    };
    let peaks = memory::planned_peaks(&request.protocol, &model.compiled.plan)?;
    println!(
        "{}",
        json!({
            "schema": "megrez.bench-memory/1",
            "model": args.model,
            "batch": args.batch,
            "protocol": request.protocol,
            "ring": request.ring,
            "planned_device_mib": peaks.iter().map(|&bytes| memory::mib(bytes)).collect::<Vec<f64>>(),
        })
    );
    Ok(ExitCode::SUCCESS)
}
