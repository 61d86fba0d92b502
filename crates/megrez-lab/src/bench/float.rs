//! `megrez bench op OP --protocol secfloat`: floating point between two parties over oblivious
//! transfer, measured, verified against the functionality in the clear, beside its price.
//!
//! The parties are a [`pair`]. They take test data from the seed, not from a client: each is the
//! owner of one operand.

use megrez::protocols::SECFLOAT;
use megrez::report::Seconds;
use megrez::{Error, Result, Work};
use megrez_engine::peak_rss_mib;
use megrez_float::{Float, Format, accuracy};
use megrez_kernels::Cpu;
use megrez_net::{NetProfile, Network};
use megrez_service::pair::{self, Job};
use megrez_session::{Party, Phase};
use megrez_twoparty::Sirnn;
use megrez_twoparty::ops::{OPS, Opened, in_the_clear, run_in_parts, sample};
use megrez_twoparty::ot::Ots;
use megrez_twoparty::price::{Bill, Price};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloatBench {
    /// The operation, one of [`OPS`].
    pub op: String,
    /// How many lanes.
    pub batch: usize,
    /// How many of them at a time: more take more memory, fewer more rounds.
    pub lanes: usize,
    /// How many runs.
    pub repeat: u32,
    /// Seeds the test data, never shares.
    pub seed: u64,
    /// How the parties work.
    pub work: Work,
    /// The network between the parties.
    #[serde(skip, default = "NetProfile::loopback")]
    pub net: NetProfile,
}

/// What one party measured in one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Measured {
    seconds: f64,
    busy_seconds: f64,
    rounds: u32,
    bytes: u64,
    wrong: usize,
    ulp: Option<f64>,
}

/// What one party measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    setup_seconds: f64,
    setup_bytes: u64,
    runs: Vec<Measured>,
    peak_rss_mib: Option<f64>,
}

impl FloatBench {
    /// How many lanes go together, for one run.
    fn slices(&self) -> impl Iterator<Item = usize> {
        let (batch, lanes) = (self.batch, self.lanes.max(1));
        (0..batch).step_by(lanes).map(move |from| lanes.min(batch - from))
    }
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
    let reports = if processes { pair::in_processes(o, &o.net)? } else { pair::in_threads(o, &o.net)? };
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
        "protocol": SECFLOAT.name,
        "insecure": false,
        "numbers": "float32",
        "batch": o.batch,
        "options": { "extension": "softspoken", "group": o.work.group, "threads": o.work.threads, "lanes": o.lanes },
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
        "peak_rss_mib": reports.iter().map(|r| r.peak_rss_mib).collect::<Vec<_>>(),
        "max_ulp": reports[0].runs.iter().filter_map(|m| m.ulp).reduce(f64::max),
        "wrong": wrong,
        "verified": verified,
    }))
}

/// What the operation costs by its formulas.
fn price(o: &FloatBench) -> Bill {
    let mut price = Price::new(o.work.group).with_threads(o.work.threads as usize);
    for lanes in o.slices() {
        // Two of them: squares are cheaper than products.
        let [x, y] = [(); 2].map(|()| Float::constant(&price, Format::FLOAT32, 0, lanes));
        let Ok(_) = run_in_parts(&o.op, &mut price, &x, &y);
    }
    price.bill
}

impl Job for FloatBench {
    const NAME: &'static str = "bench op";
    type Report = Report;

    fn run(&self, network: Network) -> Result<Report> {
        party(network, self)
    }
}

/// One party's part: sets up, then for every run shares, computes, opens and compares.
fn party(network: Network, o: &FloatBench) -> Result<Report> {
    let start = Instant::now();
    let mut party = Party::start(network, Cpu::new(1))?;
    let me = party.me();
    party.enter(Phase::Setup, 1);
    let before = party.meter().total(Phase::Setup, 2)[1 - me];
    let ots = Ots::set_up(&mut party, o.work.group)?;
    let setup_bytes = party.meter().total(Phase::Setup, 2)[1 - me] - before;
    let setup_seconds = start.elapsed().as_secs_f64();
    let mut b = Sirnn::new(party, ots).with_threads(o.work.threads as usize)?;
    let mut runs = vec![];
    let mut number = 0;
    for _ in 0..o.repeat {
        let mut total = Measured::default();
        for lanes in o.slices() {
            let slice = measure(&mut b, o, number, lanes)?;
            number += 1;
            total.seconds += slice.seconds;
            total.busy_seconds += slice.busy_seconds;
            total.rounds += slice.rounds;
            total.bytes += slice.bytes;
            total.wrong += slice.wrong;
            total.ulp = slice.ulp.map(|ulp| ulp.max(total.ulp.unwrap_or(0.0)));
        }
        runs.push(total);
    }
    // Nobody leaves before the other has everything.
    b.party_mut().barrier("end")?;
    Ok(Report { setup_seconds, setup_bytes, runs, peak_rss_mib: peak_rss_mib() })
}

/// Shares, computes, opens and compares some lanes; `number` is unique in the session.
fn measure(b: &mut Sirnn<Cpu>, o: &FloatBench, number: u32, lanes: usize) -> Result<Measured> {
    let me = b.party().me();
    let operands = [0, 1].map(|i| sample(o.seed.wrapping_mul(1 << 20) + u64::from(number) * 2 + i, lanes));
    b.party_mut().enter(Phase::Input, number);
    let mut share = |owner: usize| {
        let mine = (me == owner).then_some(&operands[owner]);
        b.share(owner, &format!("operand {owner}"), Format::FLOAT32, lanes, mine)
    };
    let (x, y) = (share(0)?, share(1)?);
    b.party_mut().enter(Phase::Online, number);
    b.party_mut().barrier("start")?;
    let before = b.party().meter().total(Phase::Online, 2)[1 - me];
    let start = Instant::now();
    let out = b.step("op", |b| run_in_parts(&o.op, b, &x, &y))?;
    let seconds = start.elapsed().as_secs_f64();
    let busy_seconds = seconds - b.party().waited().as_secs_f64();
    let bytes = b.party().meter().total(Phase::Online, 2)[1 - me] - before;
    let rounds = b.party().rounds();
    b.party_mut().enter(Phase::Output, number);
    let Some(out) = out else {
        return Err(Error::Refused(format!("there is no operation `{}`", o.op)));
    };
    let opened = Opened::of(b, &out)?;
    let want = in_the_clear(&o.op, &operands[0], &operands[1]);
    let wrong = want.map_or(lanes, |want| opened.differences(&want));
    let ulp = match &opened {
        Opened::Float(z) => accuracy::worst(&o.op, &operands[0], &operands[1], z),
        _ => None,
    };
    Ok(Measured { seconds, busy_seconds, rounds, bytes, wrong, ulp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_right_and_cost_what_they_should() {
        let o = FloatBench {
            op: "lt".into(),
            batch: 300,
            lanes: 256,
            repeat: 2,
            seed: 1,
            work: Work { group: 4, threads: 1 },
            net: NetProfile::loopback(),
        };
        for op in ["lt", "mul", "relu", "to-fixed"] {
            let report = bench(&FloatBench { op: op.into(), ..o.clone() }, false).unwrap();
            assert_eq!(report["verified"], json!(true), "{report}");
            assert_eq!(report["bits_per_element"], report["formula_bits_per_element"]);
        }
        assert!(bench(&FloatBench { op: "no".into(), ..o }, false).is_err());
    }
}
