//! The operations by oblivious transfer and with a dealer, in one run: bytes, rounds, seconds, and
//! whether every result has the bits of the clear:
//! `cargo run --release -p megrez-twoparty --example dealer -- [lanes] [op…]`. Parties are threads
//! over links in memory.

use megrez_float::Format;
use megrez_kernels::Cpu;
use megrez_net::{ClockKind, NetProfile, Network};
use megrez_session::{Error, Party, Phase};
use megrez_twoparty::dealt::Dealt;
use megrez_twoparty::ops::{OPS, Opened, in_the_clear, run, sample};
use megrez_twoparty::ot::Ots;
use megrez_twoparty::{Sirnn, Supplier};
use std::time::{Duration, Instant};

/// What one party measured: whether results differ, bytes sent offline and online, rounds, seconds,
/// and those that it worked.
struct Measured {
    wrong: usize,
    sent: [u64; 2],
    rounds: u32,
    seconds: f64,
    busy: f64,
}

fn measure(mut b: impl Supplier, op: &str, lanes: usize) -> Result<Measured, Error> {
    let (me, parties) = (b.party().me(), b.party().parties());
    let operands = [0, 1].map(|i| sample(i, lanes));
    b.enter(Phase::Input, 0);
    let mut share = |owner: usize| {
        let mine = (me == owner).then_some(&operands[owner]);
        b.share(owner, &format!("operand {owner}"), Format::FLOAT32, lanes, mine)
    };
    let (x, y) = (share(0)?, share(1)?);
    b.enter(Phase::Online, 0);
    b.party_mut().barrier("start")?;
    let start = Instant::now();
    let out = b.step("op", |b| run(op, b, &x, &y))?.expect("an operation");
    let seconds = start.elapsed().as_secs_f64();
    let busy = seconds - b.waited().as_secs_f64();
    let sent =
        [Phase::Offline, Phase::Online].map(|phase| b.party().meter().total(phase, parties).iter().sum());
    let rounds = b.party().rounds();
    b.enter(Phase::Output, 0);
    let opened = Opened::of(&mut b, &out)?;
    b.party_mut().barrier("end")?;
    let want = in_the_clear(op, &operands[0], &operands[1]).expect("an operation");
    let wrong = opened.map_or(0, |opened| opened.differences(&want));
    Ok(Measured { wrong, sent, rounds, seconds, busy })
}

/// All parties' measurements.
fn between(parties: usize, op: &str, lanes: usize) -> Vec<Measured> {
    let links =
        Network::in_memory(parties, &NetProfile::loopback(), ClockKind::Real, Duration::from_secs(600));
    let one = |network: Network| -> Result<Measured, Error> {
        let mut party = Party::start(network, Cpu::new(1))?;
        if parties == 3 {
            return measure(Dealt::new(party)?, op, lanes);
        }
        party.enter(Phase::Setup, 1);
        let ots = Ots::set_up(&mut party, 4)?;
        measure(Sirnn::new(party, ots), op, lanes)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            links.into_iter().map(|n| scope.spawn(|| one(n).expect("the parties run"))).collect();
        running.into_iter().map(|r| r.join().expect("no party panics")).collect()
    })
}

fn main() {
    let mut args = std::env::args().skip(1);
    let lanes = args.next().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let ops: Vec<String> = args.collect();
    println!(
        "{lanes} lanes; bytes an operation of all parties, rounds, seconds, and of the parties' work together"
    );
    println!(
        "{:12} {:>8} {:>8} {:>7} {:>7} {:>7} | {:>8} {:>7} {:>7} {:>7} | {:>6} {:>5}",
        "dealer",
        "all",
        "online",
        "rounds",
        "s",
        "work s",
        "transfer",
        "rounds",
        "s",
        "work s",
        "time",
        "wrong"
    );
    for op in OPS.iter().filter(|op| ops.is_empty() || ops.iter().any(|o| o == *op)) {
        let of = |parties: usize| {
            let all = between(parties, op, lanes);
            let bytes = |phase: usize| all.iter().map(|m| m.sent[phase]).sum::<u64>() as f64 / lanes as f64;
            let slowest = all.iter().map(|m| m.seconds).fold(0.0, f64::max);
            let work: f64 = all.iter().map(|m| m.busy).sum();
            let rounds = all.iter().map(|m| m.rounds).max().unwrap_or(0);
            (bytes(0) + bytes(1), bytes(1), rounds, slowest, work, all.iter().map(|m| m.wrong).sum::<usize>())
        };
        let (dealt, ot) = (of(3), of(2));
        println!(
            "{op:12} {:8.1} {:8.1} {:7} {:7.2} {:7.2} | {:8.1} {:7} {:7.2} {:7.2} | {:6.3} {:5}",
            dealt.0,
            dealt.1,
            dealt.2,
            dealt.3,
            dealt.4,
            ot.0,
            ot.2,
            ot.3,
            ot.4,
            dealt.4 / ot.4,
            dealt.5 + ot.5
        );
    }
}
