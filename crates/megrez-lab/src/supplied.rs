//! Programs on floats between two parties by transfers, or three with a dealer: how a party begins,
//! what it sends, and what the formulas say that it sends. Benchmarks and examples are made of
//! this.

use megrez::protocols::{find, in_floats};
use megrez::{Result, Work};
use megrez_float::{AnyBlocks, Blocks, Failure, on};
use megrez_kernels::Cpu;
use megrez_net::Network;
use megrez_session::{Party, Phase};
use megrez_twoparty::costing::Costing;
use megrez_twoparty::dealt::{self, DEALER, Dealt};
use megrez_twoparty::ot::{Ots, Transfers};
use megrez_twoparty::{Sirnn, Supplier};
use serde_json::{Map, Value as Json, json};
use std::convert::Infallible;
use std::time::Instant;

/// How many parties a protocol on floats has.
///
/// # Errors
/// If there is none of this name, or it has no floats.
pub(crate) fn parties(protocol: &str) -> Result<usize> {
    Ok(find(in_floats(protocol)?)?.parties)
}

/// What it took to begin.
pub(crate) struct SetUp {
    pub seconds: f64,
    /// Bytes to each party.
    pub bytes: Vec<u64>,
}

/// A party's part of a program.
pub(crate) trait Part {
    /// What comes of it.
    type Report;

    /// Does it.
    fn run<S: Supplier>(&self, b: &mut S, set_up: SetUp) -> Result<Self::Report>;
}

/// Begins with the blocks of two parties or of three, and does a part. Nobody leaves before the
/// others have everything.
pub(crate) fn party<P: Part>(network: Network, work: Work, part: &P) -> Result<P::Report> {
    let start = Instant::now();
    let mut party = Party::start(network, Cpu::new(1))?;
    let parties = party.parties();
    if parties != 2 {
        let set_up = SetUp { seconds: start.elapsed().as_secs_f64(), bytes: vec![0; parties] };
        return to_the_end(Dealt::new(party)?, part, set_up);
    }
    party.enter(Phase::Setup, 1);
    let before = party.meter().total(Phase::Setup, parties);
    let ots = Ots::set_up(&mut party, work.group)?;
    let bytes = less(party.meter().total(Phase::Setup, parties), &before);
    let set_up = SetUp { seconds: start.elapsed().as_secs_f64(), bytes };
    let b = Sirnn::new(party, ots).with_threads(work.threads as usize)?;
    to_the_end(b, part, set_up)
}

fn to_the_end<P: Part>(mut b: impl Supplier, part: &P, set_up: SetUp) -> Result<P::Report> {
    let report = part.run(&mut b, set_up)?;
    b.party_mut().barrier("end")?;
    Ok(report)
}

fn less(after: Vec<u64>, before: &[u64]) -> Vec<u64> {
    after.iter().zip(before).map(|(a, b)| a - b).collect()
}

/// Payload bytes that a party sent to each, offline and online.
pub(crate) type Sent = [Vec<u64>; 2];

/// What this party has sent so far.
pub(crate) fn sent(b: &impl Supplier) -> Sent {
    let parties = b.party().parties();
    [Phase::Offline, Phase::Online].map(|phase| b.party().meter().total(phase, parties))
}

/// What it has sent since.
pub(crate) fn sent_since(b: &impl Supplier, before: &Sent) -> Sent {
    let [offline, online] = sent(b);
    [less(offline, &before[0]), less(online, &before[1])]
}

/// What a program costs: payload bytes from each party to each, offline and online, and rounds
/// online.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Cost {
    pub sent: [Vec<Vec<u64>>; 2],
    pub rounds: u32,
}

impl Cost {
    /// Bytes by link, dealt ones among them.
    pub fn by_link(&self) -> Map<String, Json> {
        let mut links = by_link(&self.sent[1]);
        links.extend(by_link(&self.sent[0]).into_iter().filter(|(_, bytes)| *bytes != json!(0)));
        links
    }

    /// Bytes of all parties in both phases.
    pub fn bytes(&self) -> u64 {
        self.sent.iter().flatten().flatten().sum()
    }
}

/// What all parties sent, each by its own count.
pub(crate) fn all_sent<'a>(each: impl Iterator<Item = &'a Sent> + Clone) -> [Vec<Vec<u64>>; 2] {
    [0, 1].map(|phase| each.clone().map(|sent| sent[phase].clone()).collect())
}

/// A program that can be priced.
pub(crate) trait Priced {
    /// Asks blocks for what the program asks.
    fn ask(&self, b: &mut AnyBlocks) -> std::result::Result<(), Failure>;
}

/// What the last of so many runs costs by the formulas.
pub(crate) fn cost(program: &impl Priced, parties: usize, work: Work, runs: u32) -> Cost {
    fn asked<B: Blocks<Error = Infallible> + 'static>(program: &impl Priced, mut costing: B) -> B {
        let Ok(()) = on(&mut costing, |b| program.ask(b));
        costing
    }
    let mut sent = [vec![vec![0; parties]; parties], vec![vec![0; parties]; parties]];
    if parties == 2 {
        let mut costing = Costing::new(work.group).with_threads(work.threads as usize);
        // Stocks that a run has left are there in the next one.
        for _ in 0..runs.max(1) {
            costing.cost = Default::default();
            costing = asked(program, costing);
        }
        [sent[1][0][1], sent[1][1][0]] = costing.cost.bytes;
        return Cost { sent, rounds: costing.cost.rounds };
    }
    let cost = asked(program, dealt::costing::Costing::default()).cost;
    sent[0][DEALER][0] = cost.dealt;
    (sent[1][0][1], sent[1][1][0]) = (cost.opened, cost.opened);
    Cost { sent, rounds: cost.rounds }
}

/// Bytes by `from>to`, as far as parties send each other any; both directions between the first
/// two.
pub(crate) fn by_link(sent: &[Vec<u64>]) -> Map<String, Json> {
    let links = sent.iter().enumerate().flat_map(|(from, to)| to.iter().enumerate().map(move |t| (from, t)));
    let used = links.filter(|&(from, (to, &bytes))| from != to && (bytes > 0 || from + to == 1));
    used.map(|(from, (to, bytes))| (format!("{from}>{to}"), json!(bytes))).collect()
}

/// How parties work, for reports: nothing where a dealer supplies them.
pub(crate) fn options(parties: usize, work: Work) -> Map<String, Json> {
    let mut options = Map::new();
    if parties == 2 {
        options.insert("extension".into(), json!(Transfers::of(work.group).name()));
        options.insert("group".into(), json!(work.group));
        options.insert("threads".into(), json!(work.threads));
    }
    options
}
