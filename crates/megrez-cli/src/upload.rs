//! `megrez upload-model`: a model's weights, kept at a cluster in shares.

use crate::cluster::There;
use crate::options::Common;
use clap::Args;
use megrez::{Error, ModelFile, Result};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct UploadModel {
    /// The model, an ONNX file.
    #[arg(long)]
    model: PathBuf,
    /// The name to keep it under.
    #[arg(long)]
    name: String,
    /// The batch sizes that may be run.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    batch: Vec<usize>,
    /// The whole shape of an input, NAME=1,3,224,224, where the model leaves more open than the
    /// batch.
    #[arg(long, value_name = "[NAME=]SHAPE")]
    shape: Vec<String>,
    /// The clients who may run it.
    #[arg(long, value_delimiter = ',')]
    allow: Vec<String>,
    #[command(flatten)]
    there: There,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &UploadModel, json: bool) -> Result<ExitCode> {
    let mut cluster = args.there.connect()?;
    let file = ModelFile::open(&args.model)?;
    let graph = |&size: &usize| file.graph(None, &args.shape, Some(size));
    let graphs = args.batch.iter().map(graph).collect::<Result<Vec<_>>>()?;
    let first = graphs.first().ok_or_else(|| Error::Refused("--batch names at least one size".into()))?;
    let (protocol, client) = (args.common.protocol(), cluster.name().to_owned());
    let recipe = args.common.request.recipe(first, &client)?;
    megrez::upload(&mut cluster, &args.name, protocol, &graphs, &recipe, &args.allow)?;
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.upload/1", "model": args.name, "batches": args.batch, "allow": args.allow })
        );
    } else {
        println!("model `{}` is stored in shares; {} may run it", args.name, args.allow.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}
