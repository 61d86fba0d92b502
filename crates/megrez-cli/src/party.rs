//! `megrez party`: a party as a service.

use clap::Args;
use megrez::{ClusterConfig, DeviceChoice, PartyConfig, Result};
use megrez_kernels::Device as _;
use megrez_net::{Config, Endpoint, Identity, PeerName};
use megrez_service::embedded::serve_embedded;
use megrez_service::party::{Policy, Service, limits};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct PartyArgs {
    /// The party's configuration file.
    #[arg(long, required_unless_present = "embedded")]
    config: Option<PathBuf>,
    /// Where to compute, whatever the file says: auto, cpu or cuda:N.
    #[arg(long)]
    device: Option<DeviceChoice>,
    /// Take everything from standard input; how `megrez` starts its own parties.
    #[arg(long, hide = true)]
    embedded: bool,
}

pub(crate) fn run(args: &PartyArgs, json: bool) -> Result<ExitCode> {
    let Some(path) = &args.config else {
        serve_embedded()?;
        return Ok(ExitCode::SUCCESS);
    };
    let config = PartyConfig::load(path)?;
    let device = args.device.unwrap_or(config.device).open()?;
    let cluster = ClusterConfig::load(&config.cluster)?;
    let identity = Identity::load(&config.certs, &PeerName::party_of(config.party, cluster.parties.len())?)?;
    let endpoint = Arc::new(Endpoint::bind(Config {
        me: config.party,
        listen: config.listen.clone(),
        peers: cluster.parties,
        identity,
        limits: limits(Duration::from_secs(config.silence_seconds)),
    })?);
    let party = config.party;
    let log = move |line: &str| {
        if json {
            println!("{}", json!({ "schema": "megrez.log/1", "party": party, "line": line }));
        } else {
            eprintln!("{line}");
        }
    };
    let on = device.describe();
    log(&format!("party {party} listens on {} and computes on {on}", endpoint.local_addr()));
    let policy = Policy {
        data: config.data,
        allow_shaping: config.allow_shaping,
        allow_insecure: config.allow_insecure,
        max_sessions: config.max_sessions,
        max_elements: config.max_elements,
    };
    Service::new(endpoint, policy, device).run(log)?;
    Ok(ExitCode::SUCCESS)
}
