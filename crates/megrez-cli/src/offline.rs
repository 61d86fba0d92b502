//! `megrez offline`: correlated randomness, made ahead at a cluster.

use crate::cluster::{Needs, There};
use clap::Args;
use megrez::{Cluster, ErrorKind, Material, Result, StoredModel};
use serde_json::json;
use std::collections::BTreeMap;
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
    /// Make as much as is missing until there is that of so many runs in stock, at each
    /// replica. Runs take it from there by themselves.
    #[arg(long, value_name = "RUNS")]
    keep: Option<usize>,
    /// Look again after so many seconds, until this is interrupted.
    #[arg(long, value_name = "SECONDS", requires = "keep", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    #[command(flatten)]
    there: There,
}

pub(crate) fn run(args: &Offline, json: bool) -> Result<ExitCode> {
    let Some(runs) = args.keep else {
        let mut cluster = args.there.connect(Needs::Own)?;
        let model = StoredModel::describe(&mut cluster, &args.model_name, args.batch)?;
        let name = model.prepare(&mut cluster)?.to_string();
        if json {
            println!("{}", json!({ "schema": "megrez.offline/1", "material": name }));
        } else {
            println!("material {name} is ready for one run: megrez infer --material {name}");
        }
        return Ok(ExitCode::SUCCESS);
    };
    use ErrorKind::{Busy, Internal, PeerLost, TimedOut};
    let mut connections = BTreeMap::new();
    loop {
        for replica in args.there.replicas()? {
            let stock = connections.remove(&replica).filter(Cluster::is_connected);
            let connected = stock.map_or_else(|| args.there.connect_to(replica), Ok);
            let kept = connected.and_then(|mut cluster| {
                keep(args, &mut cluster, (replica, runs), json)?;
                Ok(cluster)
            });
            match (kept, args.every) {
                (Ok(cluster), _) => drop(connections.insert(replica, cluster)),
                // Parties are drained and started again, and lines are cut: the next time may do.
                (Err(e), Some(seconds)) if matches!(e.kind(), Busy | Internal | PeerLost | TimedOut) => {
                    eprintln!("warning: nothing is made at replica {replica} for {seconds} s: {e}");
                }
                (Err(e), _) => return Err(e),
            }
        }
        let Some(seconds) = args.every else { return Ok(ExitCode::SUCCESS) };
        std::thread::sleep(Duration::from_secs(seconds));
    }
}

/// Makes what is missing at a replica, and says so.
fn keep(args: &Offline, cluster: &mut Cluster, (replica, runs): (usize, usize), json: bool) -> Result<()> {
    let model = StoredModel::describe(cluster, &args.model_name, args.batch)?;
    let made = model.keep(cluster, runs)?;
    let stock = model.stock + made.len();
    if json {
        let made: Vec<String> = made.iter().map(Material::to_string).collect();
        println!(
            "{}",
            json!({ "schema": "megrez.offline/1", "replica": replica, "stock": stock, "made": made })
        );
    } else if !made.is_empty() || args.every.is_none() {
        println!("replica {replica}: material for {stock} runs is in stock, that of {} made now", made.len());
    }
    // Whoever reads a pipe hears of it now.
    let _ = std::io::stdout().flush();
    Ok(())
}
