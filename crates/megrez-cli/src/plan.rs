//! `megrez plan show`: what a run of a model would tell whom. Nothing runs.

use crate::options::{Common, Open};
use clap::{Args, Subcommand};
use megrez::{Disclosure, Result, Roles};
use megrez_lab::bench::any_model;
use std::path::Path;
use std::process::ExitCode;

#[derive(Subcommand)]
pub(crate) enum Plan {
    /// Who gives what, who learns what, what everybody sees, and what is not protected.
    Show(Show),
}

#[derive(Args)]
pub(crate) struct Show {
    /// The model: an ONNX file, or a built-in network.
    model: String,
    #[command(flatten)]
    open: Open,
    /// How many inputs go together [default: 1, or as many as the model is made for].
    #[arg(long)]
    batch: Option<usize>,
    /// Who gives the weights.
    #[arg(long, default_value_t = Roles::default().model_owner)]
    model_owner: String,
    /// Who gives the data.
    #[arg(long, default_value_t = Roles::default().data_owner)]
    data_owner: String,
    /// Who learns the outputs.
    #[arg(long, default_value_t = Roles::default().recipient)]
    recipient: String,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(plan: &Plan, json: bool) -> Result<ExitCode> {
    let Plan::Show(args) = plan;
    let path = Path::new(&args.model);
    let graph = match path.extension().is_some_and(|e| e == "onnx") {
        true => args.open.file(path)?.graph(None, &args.open.shape, args.batch)?,
        false => any_model(&args.model, args.batch.unwrap_or(1), 1)?,
    };
    let roles = Roles {
        model_owner: args.model_owner.clone(),
        data_owner: args.data_owner.clone(),
        recipient: args.recipient.clone(),
    };
    let model = args.common.request.compile(&graph, "client")?;
    let found = Disclosure::of(&model, args.common.protocol(), &roles)?;
    match json {
        true => println!("{}", serde_json::json!(found)),
        false => print!("{}", found.text()),
    }
    Ok(ExitCode::SUCCESS)
}
