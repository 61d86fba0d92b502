//! `megrez upload-model` and `megrez upload-data`: weights, or rows to train on, kept at a cluster
//! in shares.

use crate::cluster::{Needs, There};
use crate::options::{Common, Open};
use clap::Args;
use megrez::train::{Form, NewRows, ids, upload_rows};
use megrez::{Error, ErrorKind, Result, npy};
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
    #[command(flatten)]
    open: Open,
    /// The clients who may run it.
    #[arg(long, value_delimiter = ',')]
    allow: Vec<String>,
    #[command(flatten)]
    there: There,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &UploadModel, json: bool) -> Result<ExitCode> {
    let mut cluster = args.there.connect(Needs::Any)?;
    let file = args.open.file(&args.model)?;
    let graph = |&size: &usize| file.graph(None, &args.open.shape, Some(size));
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
        let others = if args.allow.is_empty() { "nobody else".into() } else { args.allow.join(", ") };
        println!("model `{}` is stored in shares; {others} may run it", args.name);
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub(crate) struct UploadData {
    /// The name to keep them under.
    #[arg(long)]
    name: String,
    /// The rows, .npy of [N, …]. Inputs or labels may be another owner's.
    #[arg(long, value_name = "FILE", required_unless_present = "labels")]
    inputs: Option<PathBuf>,
    /// Their labels, .npy of class numbers [N] or of rows [N, K].
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Identifiers of the rows, in their order, a line each: what joins them with other columns of
    /// the same rows, `train --data A+B`. Only a hash of all of them leaves this machine.
    #[arg(long, value_name = "FILE")]
    ids: Option<PathBuf>,
    /// A secret that the owners of the columns have in common and nobody else has, which goes into
    /// that hash: without it, whoever guesses the whole list can tell that it is the one.
    #[arg(long, value_name = "FILE", requires = "ids")]
    ids_key: Option<PathBuf>,
    /// How many classes there are, where labels are class numbers.
    #[arg(long)]
    classes: Option<usize>,
    /// The clients who may ask for training on them; each job still waits for this client's
    /// approval.
    #[arg(long, value_delimiter = ',')]
    allow: Vec<String>,
    #[command(flatten)]
    there: There,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run_data(args: &UploadData, json: bool) -> Result<ExitCode> {
    args.common.request.only_fixed()?;
    let options = args.common.request.options()?;
    let (protocol, ring, frac) = (args.common.protocol().to_owned(), options.ring, options.frac);
    let form = Form { protocol, ring, frac, range: options.input_range };
    let array = |path: &Option<PathBuf>| path.as_deref().map(npy::load).transpose();
    let text = |path: &PathBuf| std::fs::read_to_string(path).map_err(|e| Error::file(path, e));
    let key = args.ids_key.as_ref().map(text).transpose()?.unwrap_or_default();
    if args.ids_key.is_some() && key.trim_end().is_empty() {
        return Err(Error::of(ErrorKind::Invalid, "--ids-key is an empty file, which is no secret"));
    }
    let rows_of = |text: String| {
        let lines: Vec<&str> = text.lines().collect();
        Ok::<_, Error>((ids(&lines, key.trim_end())?, lines.len()))
    };
    let new = NewRows {
        inputs: array(&args.inputs)?,
        labels: array(&args.labels)?,
        classes: args.classes,
        ids: args.ids.as_ref().map(text).transpose()?.map(rows_of).transpose()?,
    };
    let mut cluster = args.there.connect(Needs::Any)?;
    let set = upload_rows(&mut cluster, &args.name, &form, new, &args.allow)?;
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.upload-data/1", "data": set.name, "rows": set.rows, "allow": args.allow })
        );
    } else {
        let asking = match &args.allow[..] {
            [] => "nobody else may ask for training on them".into(),
            allow => format!("{} may ask for training on them, and you approve each job", allow.join(", ")),
        };
        println!("{} rows `{}` are stored in shares; {asking}", set.rows, set.name);
    }
    Ok(ExitCode::SUCCESS)
}
