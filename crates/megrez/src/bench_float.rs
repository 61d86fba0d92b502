//! `megrez bench op OP --protocol secfloat`: floating point between two parties over oblivious transfer, measured, verified
//! against the functionality in the clear, beside its price.
//!
//! The parties are processes of this machine over loopback TLS, as in [`embedded`](crate::embedded), or threads over memory.
//! They take test data from the seed, not from a client: each is the owner of one operand.

use crate::report::Seconds;
use crate::{Error, Result};
use megrez_float::{Float, Format};
use megrez_kernels::Cpu;
use megrez_net::{
    ClockKind, Config, Endpoint, Identity, Limits, NetProfile, Network, PeerName, SessionId, certs,
};
use megrez_session::{Party, Phase};
use megrez_sirnn::Sirnn;
use megrez_sirnn::ops::{OPS, Opened, Output, in_the_clear, run, sample};
use megrez_sirnn::ot::Transfers;
use megrez_sirnn::price::{Bill, Price};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The protocol's name.
pub const PROTOCOL: &str = "secfloat";

/// What a child process is told on its command line.
const CHILD: [&str; 2] = ["bench", "float-party"];

/// What to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloatBench {
    /// The operation, one of [`OPS`].
    pub op: String,
    /// How many lanes.
    pub batch: usize,
    /// How many runs.
    pub repeat: u32,
    /// Seeds the test data, never shares.
    pub seed: u64,
    /// k of the transfer extension: 1, 2, 4 or 8.
    pub group: u32,
    /// The network between the parties.
    #[serde(skip, default = "NetProfile::loopback")]
    pub net: NetProfile,
}

/// What one party measured in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Measured {
    seconds: f64,
    busy_seconds: f64,
    rounds: u32,
    bytes: u64,
    wrong: usize,
}

/// What one party measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Report {
    setup_seconds: f64,
    setup_bytes: u64,
    runs: Vec<Measured>,
}

/// The first line that a child reads. Holds a private key: it goes through a pipe and nowhere else.
#[derive(Serialize, Deserialize)]
struct Start {
    party: usize,
    session: [u8; 16],
    ca: String,
    certificate: String,
    key: String,
    bench: FloatBench,
    /// Name, RTT in milliseconds and rate in Mbit/s of the network.
    net: (String, f64, f64),
}

/// Measures one operation and reports as `megrez.bench/1`; `processes` or threads.
///
/// # Errors
/// If there is no such operation, or the parties fail.
pub fn bench(o: &FloatBench, processes: bool) -> Result<Json> {
    if !OPS.contains(&o.op.as_str()) {
        return Err(Error::Refused(format!(
            "there is no operation `{}`; there are: {}",
            o.op,
            OPS.join(", ")
        )));
    }
    let reports = if processes { in_processes(o)? } else { in_threads(o)? };
    let bill = price(o);
    let last = |f: &dyn Fn(&Measured) -> u64| -> Vec<u64> {
        reports.iter().map(|r| r.runs.last().map_or(0, f)).collect()
    };
    let sent = last(&|m| m.bytes);
    let slowest = |run: usize| reports.iter().map(|r| r.runs[run].seconds).fold(0.0, f64::max);
    let seconds = Seconds::of((0..o.repeat as usize).map(slowest).collect());
    let busy: Vec<f64> =
        reports.iter().map(|r| Seconds::of(r.runs.iter().map(|m| m.busy_seconds).collect()).median).collect();
    let wrong: usize = reports.iter().flat_map(|r| &r.runs).map(|m| m.wrong).sum();
    let verified = wrong == 0 && sent == bill.bytes;
    let bits = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 * 8.0 / o.batch as f64;
    Ok(json!({
        "schema": "megrez.bench/1",
        "op": o.op,
        "model": null,
        "protocol": PROTOCOL,
        "insecure": false,
        "numbers": "float32",
        "batch": o.batch,
        "options": { "extension": "softspoken", "group": o.group },
        "net": { "name": o.net.name, "rtt_ms": o.net.rtt_ms, "mbps": o.net.mbps },
        "parties": if processes { "process" } else { "thread" },
        "repeat": o.repeat,
        "phases": {
            "offline": { "seconds": Seconds::default(), "rounds": 0, "sent_bytes": { "0>1": 0, "1>0": 0 } },
            "online": {
                "seconds": seconds,
                "rounds": last(&|m| u64::from(m.rounds)).into_iter().max(),
                "sent_bytes": { "0>1": sent[0], "1>0": sent[1] },
                "busy_seconds": busy,
            },
        },
        "setup": {
            "seconds": reports.iter().map(|r| r.setup_seconds).fold(0.0, f64::max),
            "sent_bytes": { "0>1": reports[0].setup_bytes, "1>0": reports[1].setup_bytes },
        },
        "bits_per_element": { "offline": 0.0, "online": bits(&sent) },
        "formula_bits_per_element": { "offline": 0.0, "online": bits(&bill.bytes) },
        "formula_rounds": bill.rounds,
        "wrong": wrong,
        "verified": verified,
    }))
}

/// What the operation costs by its formulas.
fn price(o: &FloatBench) -> Bill {
    let mut price = Price::new(o.group);
    let numbers = sample(0, o.batch);
    let (x, y) = (Float::public(&price, &numbers), Float::public(&price, &numbers));
    let Ok(_) = run(&o.op, &mut price, &x, &y);
    price.bill
}

/// One party's part: sets up, then for every run shares, computes, opens and compares.
fn party(network: Network, o: &FloatBench) -> Result<Report> {
    let start = Instant::now();
    let mut party = Party::start(network, Cpu::new(1))?;
    let me = party.me();
    party.enter(Phase::Setup, 1);
    let before = party.meter().total(Phase::Setup, 2)[1 - me];
    let transfers = Transfers::set_up(&mut party, o.group)?;
    let setup_bytes = party.meter().total(Phase::Setup, 2)[1 - me] - before;
    let setup_seconds = start.elapsed().as_secs_f64();
    let mut b = Sirnn::new(party, transfers);
    let mut runs = vec![];
    for run in 0..o.repeat {
        runs.push(measure(&mut b, o, run)?);
    }
    // Nobody leaves before the other has everything.
    b.party_mut().barrier("end")?;
    Ok(Report { setup_seconds, setup_bytes, runs })
}

fn measure(b: &mut Sirnn<Cpu>, o: &FloatBench, number: u32) -> Result<Measured> {
    let me = b.party().me();
    let operands = [0, 1].map(|i| sample(o.seed.wrapping_mul(1 << 20) + u64::from(number) * 2 + i, o.batch));
    b.party_mut().enter(Phase::Input, number);
    let mut share = |owner: usize| {
        let mine = (me == owner).then_some(&operands[owner]);
        b.share(owner, &format!("operand {owner}"), Format::FLOAT32, o.batch, mine)
    };
    let (x, y) = (share(0)?, share(1)?);
    b.party_mut().enter(Phase::Online, number);
    b.party_mut().barrier("start")?;
    let before = b.party().meter().total(Phase::Online, 2)[1 - me];
    let start = Instant::now();
    let out = b.step("op", |b| run(&o.op, b, &x, &y))?;
    let seconds = start.elapsed().as_secs_f64();
    let busy_seconds = seconds - b.party().waited().as_secs_f64();
    let bytes = b.party().meter().total(Phase::Online, 2)[1 - me] - before;
    let rounds = b.party().rounds();
    b.party_mut().enter(Phase::Output, number);
    let opened = match out {
        Some(Output::Float(z)) => Opened::Float(b.open(&z)?),
        Some(Output::Bit(z)) => Opened::Bit(b.open_bits(&z)?),
        None => return Err(Error::Refused(format!("there is no operation `{}`", o.op))),
    };
    let want = in_the_clear(&o.op, &operands[0], &operands[1]);
    let wrong = want.map_or(o.batch, |want| opened.differences(&want));
    Ok(Measured { seconds, busy_seconds, rounds, bytes, wrong })
}

fn in_threads(o: &FloatBench) -> Result<Vec<Report>> {
    let networks = Network::in_memory(2, &o.net, ClockKind::Real, Limits::default().step);
    std::thread::scope(|scope| {
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || party(n, o))).collect();
        let join = |r: std::thread::ScopedJoinHandle<'_, Result<Report>>| {
            r.join().unwrap_or_else(|_| Err(Error::Refused("a party panicked".into())))
        };
        running.into_iter().map(join).collect()
    })
}

/// A child that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn in_processes(o: &FloatBench) -> Result<Vec<Report>> {
    let deployment = certs::issue(&certs::Request { parties: 2, clients: vec![], hosts: vec![], days: 2 })?;
    let session = crate::wire::fresh_name()?;
    let program = std::env::current_exe().map_err(|e| Error::Refused(e.to_string()))?;
    let mut children = vec![];
    for party in 0..2 {
        let mut child = Command::new(&program)
            .args(CHILD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Error::file(&program, format!("cannot start a party: {e}")))?;
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let child = Running(child);
        let name = PeerName::party(party)?;
        let pair = deployment.pairs.iter().find(|p| p.name == name).expect("issued above");
        let start = Start {
            party,
            session,
            ca: deployment.ca.clone(),
            certificate: pair.certificate.clone(),
            key: pair.key.to_string(),
            bench: o.clone(),
            net: (o.net.name.clone(), o.net.rtt_ms, o.net.mbps),
        };
        write_line(&mut stdin, &start)?;
        children.push((child, stdin, stdout));
    }
    let addresses: Vec<String> =
        children.iter_mut().map(|(_, _, out)| read_line(out)).collect::<Result<_>>()?;
    for (_, stdin, _) in &mut children {
        write_line(stdin, &addresses)?;
    }
    children
        .iter_mut()
        .map(|(_, _, out)| read_line::<std::result::Result<Report, String>>(out)?.map_err(Error::Refused))
        .collect()
}

/// The child's side: one line of settings in, its address out, everybody's addresses in, its report out.
///
/// # Errors
/// If the parent's lines make no sense. What goes wrong between the parties is in the report.
pub fn serve() -> Result<()> {
    let mut stdin = BufReader::new(std::io::stdin());
    let start: Start = read_line(&mut stdin)?;
    let endpoint = Endpoint::bind(Config {
        me: start.party,
        listen: "127.0.0.1:0".into(),
        peers: vec![String::new(); 2],
        identity: Identity::from_pem(&start.ca, &start.certificate, &start.key)?,
        limits: Limits { silence: Duration::from_secs(60), ..Limits::default() },
    })?;
    write_line(&mut std::io::stdout(), &endpoint.local_addr().to_string())?;
    endpoint.set_peers(read_line(&mut stdin)?)?;
    let (name, rtt_ms, mbps) = start.net;
    let network = endpoint.open_session(SessionId(start.session), &NetProfile { name, rtt_ms, mbps });
    let network = network.map_err(Error::Net);
    let result = network.and_then(|network| party(network, &start.bench));
    write_line(&mut std::io::stdout(), &result.map_err(|e| e.to_string()))
}

fn write_line<T: Serialize>(out: &mut impl Write, message: &T) -> Result<()> {
    let line = serde_json::to_string(message).map_err(|e| Error::Refused(e.to_string()))?;
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Error::Refused(format!("a party's pipe: {e}")))
}

fn read_line<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| Error::Refused(format!("a party's pipe: {e}")))?;
    serde_json::from_str(&line).map_err(|_| Error::Refused("the party ended before it had an answer".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_right_and_cost_what_they_should() {
        for op in ["lt", "mul", "relu"] {
            let o = FloatBench {
                op: op.into(),
                batch: 256,
                repeat: 2,
                seed: 1,
                group: 4,
                net: NetProfile::loopback(),
            };
            let report = bench(&o, false).unwrap();
            assert_eq!(report["verified"], json!(true), "{report}");
            assert_eq!(report["bits_per_element"], report["formula_bits_per_element"]);
        }
        let unknown = FloatBench {
            op: "no".into(),
            batch: 1,
            repeat: 1,
            seed: 1,
            group: 4,
            net: NetProfile::loopback(),
        };
        assert!(bench(&unknown, false).is_err());
    }
}
