//! `megrez certs`: the certificates of a deployment.

use clap::Args;
use megrez::Result;
use megrez_net::certs;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Certs {
    /// The folder to write to.
    #[arg(long, default_value = "certs")]
    folder: PathBuf,
    /// How many parties.
    #[arg(long, default_value_t = 3)]
    parties: usize,
    /// Names of clients.
    #[arg(long, value_delimiter = ',', default_value = "alice")]
    clients: Vec<String>,
    /// Days until the certificates expire.
    #[arg(long, default_value_t = 365)]
    days: u32,
    /// Add one client to an existing folder instead.
    #[arg(long, conflicts_with_all = ["parties", "clients"])]
    add_client: Option<String>,
}

pub(crate) fn run(args: &Certs, json: bool) -> Result<ExitCode> {
    let files = match &args.add_client {
        Some(client) => certs::add_client(&args.folder, client, args.days)?,
        None => {
            let request = certs::Request {
                parties: args.parties,
                clients: args.clients.clone(),
                hosts: vec![],
                days: args.days,
            };
            certs::generate(&args.folder, &request)?
        }
    };
    if json {
        println!("{}", json!({ "schema": "megrez.certs/1", "files": files }));
    } else {
        files.iter().for_each(|f| println!("{}", f.display()));
        println!("give each party its own .pem and .key and ca.pem; keep ca.key off their machines");
    }
    Ok(ExitCode::SUCCESS)
}
