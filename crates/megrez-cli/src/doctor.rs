//! `megrez doctor`: what is wrong with a deployment, or with this machine's GPUs.

use crate::cluster::identity;
use clap::Args;
use megrez::{Cluster, ClusterConfig, DeviceChoice, Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_kernels::{Device, Memory};
use megrez_net::{Identity, PeerName, certs};
use megrez_service::party::RENEW_DAYS;
use megrez_service::wire::Info;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Args)]
pub(crate) struct Doctor {
    /// The cluster's file; without it, this machine is examined.
    #[arg(long)]
    cluster: Option<PathBuf>,
    /// The folder with certificates.
    #[arg(long, default_value = "certs")]
    certs: PathBuf,
    /// Act as this client.
    #[arg(long, default_value = "alice")]
    client: String,
}

pub(crate) fn run(args: &Doctor, json: bool) -> Result<ExitCode> {
    let mut problems: Vec<String> = Vec::new();
    let mut parties = Vec::new();
    let client = PeerName::client(&args.client)?;
    let Some(cluster) = &args.cluster else {
        let device = AnyDevice::default().describe();
        let (gpus, why) = gpus();
        if json {
            println!(
                "{}",
                json!({ "schema": "megrez.doctor/1", "device": device, "gpus": gpus, "no_gpu": why, "problems": problems })
            );
        } else {
            println!("device: {device}\nrelease: {}", env!("CARGO_PKG_VERSION"));
            why.iter().for_each(|why| println!("gpu: none: {why}"));
            for gpu in &gpus {
                println!("gpu: {gpu}");
            }
            println!("give --cluster cluster.toml to examine a deployment");
        }
        return Ok(ExitCode::SUCCESS);
    };
    let config = ClusterConfig::load(cluster)?;
    match certs::inspect(&args.certs, &client) {
        Ok(report) => {
            problems.extend(report.problems.iter().map(|p| format!("{}: {p}", report.name)));
            problems.extend(ends_soon(&report.name.to_string(), report.days_left));
        }
        Err(e) => problems.push(format!("{client}: {e}")),
    }
    // Parties one by one, so that one that is down does not hide the others.
    match identity(&args.certs, &args.client) {
        Err(e) => problems.push(format!("{client}: {e}")),
        Ok(identity) => {
            let triples = config.triples();
            let all = triples.iter().enumerate();
            for (replica, i, address) in
                all.flat_map(|(replica, triple)| triple.iter().enumerate().map(move |(i, a)| (replica, i, a)))
            {
                match examine(i, address, &identity) {
                    Ok(Examined { info, skew, round_trip }) => {
                        let days = info.certificate_ends_s.map(days_until);
                        problems.extend(days.and_then(|days| ends_soon(&format!("party {i}"), days)));
                        if !info.writable {
                            problems.push(format!(
                                "party {i}: its data folder cannot be written: its disk may be full, its log says more"
                            ));
                        }
                        if info.release != env!("CARGO_PKG_VERSION") {
                            problems.push(format!(
                                "party {i} runs release {}, this is {}: install one release everywhere",
                                info.release,
                                env!("CARGO_PKG_VERSION")
                            ));
                        }
                        if skew.abs() > 60_000 {
                            problems.push(format!(
                                "party {i}: its clock is off by {} s; certificates may look expired: run NTP",
                                skew / 1000
                            ));
                        }
                        parties.push(
                            json!({ "party": i, "replica": replica, "address": address, "reachable": true,
                            "release": info.release, "device": info.device, "clock_skew_ms": skew,
                            "sessions": info.sessions, "round_trip_ms": round_trip.as_secs_f64() * 1e3,
                            "certificate_days_left": days, "writable": info.writable }),
                        );
                    }
                    Err(e) => {
                        problems.push(format!("party {i} at {address}: {e}"));
                        parties.push(
                            json!({ "party": i, "replica": replica, "address": address, "reachable": false }),
                        );
                    }
                }
            }
        }
    }
    if json {
        println!("{}", json!({ "schema": "megrez.doctor/1", "parties": parties, "problems": problems }));
    } else {
        for p in &parties {
            println!("{p}");
        }
        problems.iter().for_each(|p| println!("problem: {p}"));
        if problems.is_empty() {
            println!("all parties are reachable, of one release, their clocks agree, and certificates last");
        }
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every GPU of this machine with what it can do or what is wrong with it; or why there is none.
fn gpus() -> (Vec<serde_json::Value>, Option<String>) {
    match megrez_cuda::Cuda::available() {
        Err(why) => (vec![], Some(why)),
        Ok(gpus) if gpus.is_empty() => (vec![], Some("the driver finds no GPU".into())),
        Ok(gpus) => {
            let examined = gpus.iter().map(|gpu| {
                json!({ "device": format!("cuda:{}", gpu.ordinal), "name": gpu.name,
                    "capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
                    "memory_mib": gpu.memory >> 20, "driver": format!("{}.{}", gpu.driver.0, gpu.driver.1),
                    "nvrtc": format!("{}.{}", gpu.nvrtc.0, gpu.nvrtc.1),
                    "problem": problem(gpu.ordinal) })
            });
            (examined.collect(), None)
        }
    }
}

/// What is wrong with a GPU, if anything is.
fn problem(ordinal: usize) -> Option<String> {
    let works = DeviceChoice::Cuda(ordinal).open().map_err(Error::from).and_then(|device| works(&device));
    works.err().map(|e| e.to_string())
}

/// Compiles a kernel, runs it and compares: what a missing library or an unfit driver breaks.
fn works(device: &AnyDevice) -> Result<()> {
    let stream = megrez_prg::Key::from_bytes([0; 32]).stream();
    let made = device.random::<u64>(&stream, 1000).and_then(|made| device.download(made));
    match made {
        Ok(made) if made == stream.words(1000) => Ok(()),
        Ok(_) => Err(Error::of(
            ErrorKind::Internal,
            "its kernels compute wrong numbers: do not use it; its driver or its memory may be broken",
        )),
        Err(e) => Err(Error::of(ErrorKind::Internal, e)),
    }
}

/// What a party says of itself.
struct Examined {
    info: Info,
    /// By how much its clock is ahead of this machine's, in milliseconds.
    skew: i64,
    round_trip: Duration,
}

/// Whole days until a second since 1970.
fn days_until(second: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    second.saturating_sub(now).div_euclid(24 * 3600)
}

/// That a certificate ends soon, if it does.
fn ends_soon(whose: &str, days: i64) -> Option<String> {
    (days < RENEW_DAYS)
        .then(|| format!("{whose}: the certificate has {days} days left: megrez certs --renew"))
}

fn examine(party: usize, address: &str, identity: &Identity) -> Result<Examined> {
    let mut one = Cluster::connect_one(party, address, identity, Duration::from_secs(5))?;
    let before = SystemTime::now();
    let info = one.info()?.remove(0);
    let round_trip = before.elapsed().unwrap_or_default();
    let middle = before + round_trip / 2;
    let here = middle.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    if info.party != party {
        return Err(Error::Refused(format!("says that it is party {}", info.party)));
    }
    let skew = info.clock_ms as i64 - here;
    Ok(Examined { info, skew, round_trip })
}
