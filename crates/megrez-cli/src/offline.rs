//! `megrez offline`: correlated randomness, made ahead at a cluster.

use crate::cluster::There;
use clap::Args;
use megrez::{Result, StoredModel};
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Offline {
    /// The stored model.
    #[arg(long)]
    model_name: String,
    /// The batch size.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    #[command(flatten)]
    there: There,
}

pub(crate) fn run(args: &Offline, json: bool) -> Result<ExitCode> {
    let mut cluster = args.there.connect()?;
    let model = StoredModel::describe(&mut cluster, &args.model_name, args.batch)?;
    let name = model.prepare(&mut cluster)?.to_string();
    if json {
        println!("{}", json!({ "schema": "megrez.offline/1", "material": name }));
    } else {
        println!("material {name} is ready for one run: megrez infer --material {name}");
    }
    Ok(ExitCode::SUCCESS)
}
