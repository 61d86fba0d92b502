//! `megrez bench op OP --protocol secfloat` or `mizar-float`: floating point between two parties
//! over oblivious transfer, or with a dealer; measured, verified against the functionality in the
//! clear, beside its cost.
//!
//! The parties are a [`pair`]. They take test data from the seed, not from a client: each is the
//! owner of one operand.

use crate::supplied::{self, Part, Priced, Sent, SetUp, all_sent, by_link, cost, sent, sent_since};
use megrez::protocols::find;
use megrez::report::Seconds;
use megrez::{Error, Result, Work};
use megrez_engine::peak_rss_mib;
use megrez_float::{AnyBlocks, Failure, Format, Plain, accuracy};
use megrez_net::{NetProfile, Network};
use megrez_service::pair::{self, Job};
use megrez_session::Phase;
use megrez_twoparty::Supplier;
use megrez_twoparty::ops::{OPS, Opened, in_the_clear, run_in_parts, sample};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloatBench {
    /// The protocol: one of floating point.
    pub protocol: String,
    /// How many parties it has.
    pub parties: usize,
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
    /// Payload bytes to each party, offline and online.
    sent: Sent,
    wrong: usize,
    ulp: Option<f64>,
}

/// What one party measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    setup_seconds: f64,
    setup_bytes: Vec<u64>,
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
    if o.batch == 0 || o.repeat == 0 {
        return Err(Error::Refused("--batch and --repeat are at least 1".into()));
    }
    let protocol = find(&o.protocol)?;
    let reports = if processes { pair::in_processes(o, &o.net)? } else { pair::in_threads(o, &o.net)? };
    let cost = cost(o, o.parties, o.work, o.repeat);
    let sent = all_sent(reports.iter().filter_map(|r| Some(&r.runs.last()?.sent)));
    let rounds = reports.iter().filter_map(|r| Some(r.runs.last()?.rounds)).max();
    let slowest = |run: usize| reports.iter().map(|r| r.runs[run].seconds).fold(0.0, f64::max);
    let seconds = Seconds::of((0..o.repeat as usize).map(slowest).collect());
    let busy: Vec<f64> =
        reports.iter().map(|r| Seconds::of(r.runs.iter().map(|m| m.busy_seconds).collect()).median).collect();
    let wrong: usize = reports.iter().flat_map(|r| &r.runs).map(|m| m.wrong).sum();
    let verified = wrong == 0 && sent == cost.sent;
    let bits = |bytes: &Vec<Vec<u64>>| bytes.iter().flatten().sum::<u64>() as f64 * 8.0 / o.batch as f64;
    let [offline, online] = &sent;
    let set_up: Vec<Vec<u64>> = reports.iter().map(|r| r.setup_bytes.clone()).collect();
    let mut options = supplied::options(o.parties, o.work);
    options.insert("lanes".into(), json!(o.lanes));
    Ok(json!({
        "schema": "megrez.bench/1",
        "op": o.op,
        "model": null,
        "protocol": protocol.name,
        "insecure": false,
        "numbers": "float32",
        "batch": o.batch,
        "options": options,
        "net": { "name": o.net.name, "rtt_ms": o.net.rtt_ms, "mbps": o.net.mbps },
        "parties": if processes { "process" } else { "thread" },
        "repeat": o.repeat,
        "phases": {
            "offline": {
                "seconds": Seconds::default(), "rounds": u32::from(o.parties > 2), "sent_bytes": by_link(offline),
            },
            "online": {
                "seconds": seconds,
                "rounds": rounds,
                "sent_bytes": by_link(online),
                "busy_seconds": busy,
            },
        },
        "setup": {
            "seconds": reports.iter().map(|r| r.setup_seconds).fold(0.0, f64::max),
            "sent_bytes": by_link(&set_up),
        },
        "bits_per_element": { "offline": bits(offline), "online": bits(online) },
        "formula_bits_per_element": { "offline": bits(&cost.sent[0]), "online": bits(&cost.sent[1]) },
        "formula_rounds": cost.rounds,
        "peak_rss_mib": reports.iter().map(|r| r.peak_rss_mib).collect::<Vec<_>>(),
        "max_ulp": reports[0].runs.iter().filter_map(|m| m.ulp).reduce(f64::max),
        "wrong": wrong,
        "verified": verified,
    }))
}

impl Priced for FloatBench {
    fn ask(&self, b: &mut AnyBlocks) -> std::result::Result<(), Failure> {
        for lanes in self.slices() {
            // Two of them: squares are cheaper than products.
            let [x, y] = [(); 2].map(|()| b.secret(&Plain::from_f32(&vec![0.0; lanes])));
            run_in_parts(&self.op, b, &x, &y)?;
        }
        Ok(())
    }
}

impl Job for FloatBench {
    const NAME: &'static str = "bench op";
    type Report = Report;

    fn parties(&self) -> usize {
        self.parties
    }

    fn run(&self, network: Network) -> Result<Report> {
        supplied::party(network, self.work, self)
    }
}

impl Part for FloatBench {
    type Report = Report;

    /// For every run shares, computes, opens and compares.
    fn run<S: Supplier>(&self, b: &mut S, set_up: SetUp) -> Result<Report> {
        let mut runs = vec![];
        let mut number = 0;
        for _ in 0..self.repeat {
            let none = vec![0; self.parties];
            let mut total = Measured { sent: [none.clone(), none], ..Measured::default() };
            for lanes in self.slices() {
                let slice = measure(b, self, number, lanes)?;
                number += 1;
                total.seconds += slice.seconds;
                total.busy_seconds += slice.busy_seconds;
                total.rounds += slice.rounds;
                for (total, slice) in total.sent.iter_mut().flatten().zip(slice.sent.iter().flatten()) {
                    *total += slice;
                }
                total.wrong += slice.wrong;
                total.ulp = slice.ulp.map(|ulp| ulp.max(total.ulp.unwrap_or(0.0)));
            }
            runs.push(total);
        }
        let SetUp { seconds, bytes } = set_up;
        Ok(Report { setup_seconds: seconds, setup_bytes: bytes, runs, peak_rss_mib: peak_rss_mib() })
    }
}

/// Shares, computes, opens and compares some lanes; `number` is unique in the session. What a
/// dealer deals is measured with what uses it.
fn measure(b: &mut impl Supplier, o: &FloatBench, number: u32, lanes: usize) -> Result<Measured> {
    let me = b.party().me();
    let operands = [0, 1].map(|i| sample(o.seed.wrapping_mul(1 << 20) + u64::from(number) * 2 + i, lanes));
    b.enter(Phase::Input, number);
    let mut share = |owner: usize| {
        let mine = (me == owner).then_some(&operands[owner]);
        b.share(owner, &format!("operand {owner}"), Format::FLOAT32, lanes, mine)
    };
    let (x, y) = (share(0)?, share(1)?);
    b.enter(Phase::Online, number);
    b.party_mut().barrier("start")?;
    let before = sent(b);
    let start = Instant::now();
    let out = b.step("op", |b| run_in_parts(&o.op, b, &x, &y))?;
    let seconds = start.elapsed().as_secs_f64();
    let busy_seconds = seconds - b.waited().as_secs_f64();
    let sent = sent_since(b, &before);
    let rounds = b.party().rounds();
    b.enter(Phase::Output, number);
    let Some(out) = out else {
        return Err(Error::Refused(format!("there is no operation `{}`", o.op)));
    };
    let opened = Opened::of(b, &out)?;
    let want = in_the_clear(&o.op, &operands[0], &operands[1]);
    let wrong = match (&opened, want) {
        (Some(opened), Some(want)) => opened.differences(&want),
        (None, _) => 0,
        _ => lanes,
    };
    let ulp = match &opened {
        Some(Opened::Float(z)) => accuracy::worst(&o.op, &operands[0], &operands[1], z),
        _ => None,
    };
    Ok(Measured { seconds, busy_seconds, rounds, sent, wrong, ulp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_right_and_cost_what_they_should() {
        let o = FloatBench {
            protocol: "secfloat".into(),
            parties: 2,
            op: "lt".into(),
            batch: 300,
            lanes: 256,
            repeat: 2,
            seed: 1,
            work: Work { group: 4, threads: 1 },
            net: NetProfile::loopback(),
        };
        for op in ["lt", "mul", "relu", "to-fixed"] {
            for (protocol, parties) in [("secfloat", 2), ("mizar-float", 3)] {
                let o = FloatBench { op: op.into(), protocol: protocol.into(), parties, ..o.clone() };
                let report = bench(&o, false).unwrap();
                assert_eq!(report["verified"], json!(true), "{report}");
                assert_eq!(report["bits_per_element"], report["formula_bits_per_element"]);
                assert_eq!(report["phases"]["online"]["rounds"], report["formula_rounds"], "{report}");
            }
        }
        assert!(bench(&FloatBench { op: "no".into(), ..o.clone() }, false).is_err());
        assert!(bench(&FloatBench { repeat: 0, ..o.clone() }, false).is_err());
        assert!(bench(&FloatBench { batch: 0, ..o }, false).is_err());
    }
}
