//! `megrez offline`: correlated randomness, made ahead at a cluster.

use crate::cluster::There;
use clap::Args;
use megrez::{Cluster, ErrorKind, Material, Result, StoredModel};
use serde_json::json;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Offline {
    /// The stored model.
    #[arg(long)]
    model_name: String,
    /// The batch size.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Make as much as is missing until there is that of so many runs in stock. Runs take it from
    /// there by themselves.
    #[arg(long, value_name = "RUNS")]
    keep: Option<usize>,
    /// Look again after so many seconds, until this is interrupted.
    #[arg(long, value_name = "SECONDS", requires = "keep", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    #[command(flatten)]
    there: There,
}

pub(crate) fn run(args: &Offline, json: bool) -> Result<ExitCode> {
    let mut cluster = args.there.connect()?;
    let Some(runs) = args.keep else {
        let model = StoredModel::describe(&mut cluster, &args.model_name, args.batch)?;
        let name = model.prepare(&mut cluster)?.to_string();
        if json {
            println!("{}", json!({ "schema": "megrez.offline/1", "material": name }));
        } else {
            println!("material {name} is ready for one run: megrez infer --material {name}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let mut result = keep(args, &mut cluster, runs, json);
    let Some(seconds) = args.every else { return result.map(|()| ExitCode::SUCCESS) };
    // Parties are drained and started again, and lines are cut: the next time may do.
    use ErrorKind::{Busy, Internal, PeerLost, TimedOut};
    loop {
        match result {
            Err(e) if !matches!(e.kind(), Busy | Internal | PeerLost | TimedOut) => return Err(e),
            Err(e) => eprintln!("warning: nothing is made for {seconds} s: {e}"),
            Ok(()) => {}
        }
        std::thread::sleep(Duration::from_secs(seconds));
        let connected =
            if cluster.is_connected() { Ok(()) } else { args.there.connect().map(|c| cluster = c) };
        result = connected.and_then(|()| keep(args, &mut cluster, runs, json));
    }
}

/// Makes what is missing, and says so.
fn keep(args: &Offline, cluster: &mut Cluster, runs: usize, json: bool) -> Result<()> {
    let model = StoredModel::describe(cluster, &args.model_name, args.batch)?;
    let made = model.keep(cluster, runs)?;
    let stock = model.stock + made.len();
    if json {
        let made: Vec<String> = made.iter().map(Material::to_string).collect();
        println!("{}", json!({ "schema": "megrez.offline/1", "stock": stock, "made": made }));
    } else if !made.is_empty() || args.every.is_none() {
        println!("material for {stock} runs is in stock, {} of them made now", made.len());
    }
    // Whoever reads a pipe hears of it now.
    let _ = std::io::stdout().flush();
    Ok(())
}
