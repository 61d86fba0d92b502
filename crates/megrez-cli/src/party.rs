//! `megrez party`: a party as a service.

use clap::Args;
use megrez::train::guaranteed;
use megrez::{ClusterConfig, DeviceChoice, Error, ErrorKind, PartyConfig, Result};
use megrez_net::certs::{self, Report};
use megrez_net::{Config, Endpoint, Identity, PeerName};
use megrez_service::audit;
use megrez_service::embedded::serve_embedded;
use megrez_service::log::{Event, Format, Level, Log, LogConfig};
use megrez_service::party::{Models, Policy, Rights, Service, admin, check_models, limits, writable};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct PartyArgs {
    /// The party's configuration file.
    #[arg(long, required_unless_present = "embedded")]
    config: Option<PathBuf>,
    /// Only look whether the party could start: files, certificates, addresses, the data folder and
    /// the device.
    #[arg(long)]
    check: bool,
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
        serve_embedded(guaranteed)?;
        return Ok(ExitCode::SUCCESS);
    };
    let config = PartyConfig::load(path)?;
    if args.check {
        return check(&config, args.device, json);
    }
    let device = args.device.unwrap_or(config.device).open()?;
    let cluster = ClusterConfig::load(&config.cluster)?;
    let name = PeerName::party_of(config.party, cluster.parties.len())?;
    let (peers, models) = config.place(&cluster)?;
    let identity = Identity::load(&config.certs, &name)?;
    let endpoint = Arc::new(Endpoint::bind(Config {
        me: config.party,
        listen: config.listen.clone(),
        peers,
        identity: identity.clone(),
        limits: limits(Duration::from_secs(config.silence_seconds)),
    })?);
    let format = json.then_some(Format::Json).or(args.log_format).unwrap_or(config.log.format);
    let log_config = LogConfig { level: args.log.unwrap_or(config.log.level), format };
    let began = config.clone();
    let policy = Policy {
        replicas: config.other_replicas(&cluster),
        weights: config.weights(),
        settings: config.settings(),
        data: config.data,
        models,
        audit: config.audit,
        traces: config.traces,
        rights: config.policy,
        guarantees: guaranteed,
    };
    let service = Service::new(endpoint, policy, device)?;
    let log = Log::stderr(config.party, log_config);
    let certificate = certs::inspect(&config.certs, &name)?;
    service.set_identity(identity, certificate.not_after)?;
    if let Some(address) = &config.admin {
        let bound = admin::serve(&service, address)?;
        log.write(
            Level::Info,
            Event::new("admin", format!("/console, /livez, /readyz and /metrics are on {bound}")),
        );
    }
    let running = Running { path: path.clone(), began, name };
    listen_to_signals(&service, running, Log::stderr(config.party, log_config))?;
    service.run(log)?;
    Ok(ExitCode::SUCCESS)
}

/// What a party was started with, to read it anew.
struct Running {
    path: PathBuf,
    began: PartyConfig,
    name: PeerName,
}

/// Settings that SIGHUP puts into force; all others need a restart.
const LIVE: [&str; 5] = ["capacity", "max_sessions", "max_elements", "allow_shaping", "allow_insecure"];

/// SIGTERM and SIGINT drain, and end at once if they come again; SIGHUP reads the configuration,
/// certificates and the policy anew.
fn listen_to_signals(service: &Arc<Service>, running: Running, log: Log) -> Result<()> {
    let cannot = |e| Error::of(ErrorKind::Internal, format!("cannot listen to signals: {e}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(cannot)?;
    let service = Arc::clone(service);
    let listen = move || {
        let mut draining = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                reload(&service, &running, &log);
            } else if draining {
                // As a shell says that a signal has ended a program.
                std::process::exit(128 + signal);
            } else {
                draining = true;
                service.drain();
            }
        }
    };
    std::thread::Builder::new().name("megrez-signals".into()).spawn(listen).map_err(cannot)?;
    Ok(())
}

/// The settings of another configuration that take effect with the next start only.
fn for_the_next_start(began: &PartyConfig, now: &PartyConfig) -> Vec<String> {
    let [began, now] = [began, now].map(|config| json!(config));
    let keys = now.as_object().into_iter().flat_map(|now| now.keys());
    keys.filter(|key| !LIVE.contains(&key.as_str()) && began[*key] != now[*key]).cloned().collect()
}

/// New limits, certificates and rights, or the old ones if the new ones are of no use.
fn reload(service: &Service, running: &Running, log: &Log) {
    let Running { path, began, name } = running;
    let folder = &began.certs;
    match PartyConfig::load(path) {
        Ok(config) => {
            let later = for_the_next_start(began, &config);
            if !later.is_empty() {
                let message = format!(
                    "changes of `{}` take effect when this party is started again",
                    later.join("`, `")
                );
                log.write(Level::Warn, Event::new("reloaded", message));
            }
            service.set(config.settings());
            log.write(
                Level::Info,
                Event::new("reloaded", format!("limits are read anew from {}", path.display())),
            );
        }
        Err(e) => {
            let message = format!("limits stay as they were: {e}");
            log.write(Level::Error, Event { kind: Some(e.kind()), ..Event::new("reload-failed", message) });
        }
    }
    if let Err(e) = service.read_rights() {
        let message = format!("what clients may ask for stays as it was: {e}");
        log.write(Level::Error, Event { kind: Some(e.kind()), ..Event::new("reload-failed", message) });
    }
    let renewed = || -> Result<(Report, usize)> {
        let identity = Identity::load(folder, name)?;
        let certificate = certs::inspect(folder, name)?;
        let closed = service.set_identity(identity, certificate.not_after)?;
        Ok((certificate, closed))
    };
    match renewed() {
        Ok((certificate, closed)) => {
            let days = certificate.days_left;
            let revoked = match closed {
                0 => String::new(),
                n => format!("; closed {n} connections of revoked ones"),
            };
            let message = format!("certificates are read anew; this party's has {days} days left{revoked}");
            log.write(Level::Info, Event::new("reloaded", message));
        }
        Err(e) => {
            let message = format!("certificates stay as they were: {e}");
            let event = Event { kind: Some(e.kind()), ..Event::new("reload-failed", message) };
            log.write(Level::Error, event);
        }
    }
}

/// All that could keep the party from starting, at once.
fn check(config: &PartyConfig, device: Option<DeviceChoice>, json: bool) -> Result<ExitCode> {
    let mut problems: Vec<String> = vec![];
    let mut found = serde_json::Map::new();
    match ClusterConfig::load(&config.cluster) {
        Err(e) => problems.push(e.to_string()),
        Ok(cluster) => {
            match PeerName::party_of(config.party, cluster.parties.len())
                .map_err(Error::from)
                .and_then(|name| Ok(certs::inspect(&config.certs, &name)?))
            {
                Err(e) => problems.push(e.to_string()),
                Ok(report) => {
                    found.insert("certificate_days_left".into(), report.days_left.into());
                    problems.extend(report.problems);
                }
            }
            let check = |models: Models| {
                writable(models.folder())?;
                check_models(&models, config.party)
            };
            match config.place(&cluster).and_then(|(_, models)| check(models)) {
                Err(e) => problems.push(e.to_string()),
                Ok((count, wrong)) => {
                    found.insert("stored_models".into(), count.into());
                    problems.extend(wrong.iter().map(Error::to_string));
                }
            }
        }
    }
    for (key, address) in [("listen", Some(&config.listen)), ("admin", config.admin.as_ref())] {
        if let Some(Err(e)) = address.map(TcpListener::bind) {
            problems.push(format!("`{key}`: cannot listen on {}: {e}", address.map_or("", String::as_str)));
        }
    }
    if let Err(e) = writable(&config.data) {
        problems.push(e.to_string());
    }
    if let Some(Err(e)) = config.policy.as_deref().map(Rights::load) {
        problems.push(e.to_string());
    }
    if let Some(Err(e)) =
        config.audit.as_deref().filter(|log| log.exists()).map(|log| audit::verify(log, None))
    {
        problems.push(e.to_string());
    }
    match device.unwrap_or(config.device).open() {
        Err(e) => problems.push(e.to_string()),
        Ok(device) => {
            found.insert("device".into(), megrez_kernels::Memory::describe(&device).into());
        }
    }
    if json {
        println!("{}", json!({ "schema": "megrez.party-check/1", "found": found, "problems": problems }));
    } else {
        found.iter().for_each(|(name, value)| println!("{name}: {value}"));
        problems.iter().for_each(|problem| println!("problem: {problem}"));
        if problems.is_empty() {
            println!("party {} can start", config.party);
        }
    }
    // Two, as for every mistake in a configuration.
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
