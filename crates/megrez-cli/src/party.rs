//! `megrez party`: a party as a service.

use clap::Args;
use megrez::{ClusterConfig, DeviceChoice, PartyConfig, Result};
use megrez_net::{Config, Endpoint, Identity, PeerName};
use megrez_service::embedded::serve_embedded;
use megrez_service::log::{Format, Level, Log, LogConfig};
use megrez_service::party::{Policy, Service, limits};
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
    /// What to log on standard error, whatever the file says: error, warn, info or debug, each with
    /// those before it.
    #[arg(long, value_name = "LEVEL")]
    log: Option<Level>,
    /// How lines of the log look, whatever the file says: text, or json for programs.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
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
    let format = json.then_some(Format::Json).or(args.log_format).unwrap_or(config.log.format);
    let log = LogConfig { level: args.log.unwrap_or(config.log.level), format };
    let policy = Policy {
        data: config.data,
        allow_shaping: config.allow_shaping,
        allow_insecure: config.allow_insecure,
        capacity: config.capacity,
        max_elements: config.max_elements,
    };
    Service::new(endpoint, policy, device).run(Log::stderr(config.party, log))?;
    Ok(ExitCode::SUCCESS)
}
