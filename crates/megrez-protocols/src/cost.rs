//! Exact costs: every message of a step as a formula. A test holds the meter to them, per party,
//! direction and phase.

use megrez_ring::Prime;
use megrez_session::Phase;
use std::collections::HashMap;

/// What a message consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Elements of this many bits, densely packed; the message is rounded up to bytes.
    Bits(u32),
    /// Elements of F_p, as many to a 64-bit word as fit; the message is rounded up to words.
    Field(Prime),
    /// Elements of F_p for a larger p, in ⌈log2 p⌉ bits each, densely packed; the message is
    /// rounded up to bytes.
    Residue(u32),
}

impl Unit {
    /// Bits per element, before the message is rounded up.
    pub fn bits(self) -> f64 {
        match self {
            Unit::Bits(bits) => f64::from(bits),
            Unit::Field(prime) => prime.wire_bits(),
            Unit::Residue(p) => f64::from((p - 1).ilog2() + 1),
        }
    }

    /// Bytes of a message of `n` elements.
    pub fn bytes(self, n: usize) -> u64 {
        match self {
            Unit::Bits(bits) => (n as u64 * u64::from(bits)).div_ceil(8),
            Unit::Field(prime) => prime.words(n) as u64 * 8,
            Unit::Residue(p) => (n as u64 * u64::from((p - 1).ilog2() + 1)).div_ceil(8),
        }
    }
}

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Offline or online.
    pub phase: Phase,
    /// Its place in the step: messages of a lower round are sent and received before it.
    pub round: u32,
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
    /// How many elements.
    pub n: usize,
    /// Of what.
    pub unit: Unit,
}

/// The cost of one step over all parties.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cost {
    /// Every message.
    pub transfers: Vec<Transfer>,
}

impl Cost {
    /// A local step, or one whose messages are added next.
    pub const LOCAL: Cost = Cost { transfers: vec![] };

    /// Adds an offline message, in the first round.
    pub fn offline(self, from: usize, to: usize, n: usize, unit: Unit) -> Self {
        self.message(Transfer { phase: Phase::Offline, round: 1, from, to, n, unit })
    }

    /// Adds an online message in a round of the step.
    pub fn online(self, round: u32, from: usize, to: usize, n: usize, unit: Unit) -> Self {
        self.message(Transfer { phase: Phase::Online, round, from, to, n, unit })
    }

    /// Adds an online message each way.
    pub fn online_swap(self, round: u32, a: usize, b: usize, n: usize, unit: Unit) -> Self {
        self.online(round, a, b, n, unit).online(round, b, a, n, unit)
    }

    /// Adds a message of any phase in a round of the step.
    pub fn in_round(self, phase: Phase, round: u32, from: usize, to: usize, n: usize, unit: Unit) -> Self {
        self.message(Transfer { phase, round, from, to, n, unit })
    }

    /// What this step costs and `next` after it, when every message of `next` waits for those
    /// before.
    pub fn then(mut self, next: Cost) -> Self {
        let last =
            |phase| self.transfers.iter().filter(|t| t.phase == phase).map(|t| t.round).max().unwrap_or(0);
        let shift = [last(Phase::Offline), last(Phase::Online)];
        self.transfers.extend(
            next.transfers
                .into_iter()
                .map(|t| Transfer { round: t.round + shift[usize::from(t.phase == Phase::Online)], ..t }),
        );
        self
    }

    /// What this step costs and `other` beside it, whose rounds count from the same start.
    pub fn beside(mut self, other: Cost) -> Self {
        self.transfers.extend(other.transfers);
        self
    }

    fn message(mut self, transfer: Transfer) -> Self {
        if transfer.n > 0 {
            self.transfers.push(transfer);
        }
        self
    }

    /// The cost where an input's masks are known only online: offline messages are sent online,
    /// before the step's own.
    pub fn made_online(mut self) -> Self {
        let offline = |t: &&Transfer| t.phase == Phase::Offline;
        let before = self.transfers.iter().filter(offline).map(|t| t.round).max().unwrap_or(0);
        for t in &mut self.transfers {
            match t.phase {
                Phase::Offline => t.phase = Phase::Online,
                _ => t.round += before,
            }
        }
        self
    }

    /// The cost of a step that runs before the inputs exist: every message counts as offline.
    pub fn made_offline(mut self) -> Self {
        self.transfers.iter_mut().for_each(|t| t.phase = Phase::Offline);
        self
    }

    /// Messages on the critical path of a phase when the step runs alone.
    pub fn rounds(&self, phase: Phase) -> u32 {
        last(&Wires::new(0.0, |_| 0.0).advance(&Clocks::default(), self, phase)).rounds
    }

    /// Bytes from one party to another in a phase.
    pub fn bytes(&self, phase: Phase, from: usize, to: usize) -> u64 {
        let one = |t: &&Transfer| t.phase == phase && t.from == from && t.to == to;
        self.transfers.iter().filter(one).map(|t| t.unit.bytes(t.n)).sum()
    }

    /// Bits of a phase over all parties, without the rounding of messages.
    pub fn bits(&self, phase: Phase) -> f64 {
        self.transfers.iter().filter(|t| t.phase == phase).map(|t| t.n as f64 * t.unit.bits()).sum()
    }
}

/// A critical path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Path {
    /// Messages on it.
    pub rounds: u32,
    /// Seconds of the network on it: delays and transmissions, no local work.
    pub seconds: f64,
}

/// Where every party stands; parties that have heard nothing yet stand at the beginning.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Clocks(Vec<Path>);

impl Clocks {
    fn at(&self, party: usize) -> Path {
        self.0.get(party).copied().unwrap_or_default()
    }

    /// Moves a party's clock on, if it stands before `path`.
    fn not_before(&mut self, party: usize, path: Path) {
        if self.0.len() <= party {
            self.0.resize(party + 1, Path::default());
        }
        self.0[party] = self.0[party].or_later(path);
    }
}

impl Path {
    fn or_later(self, other: Path) -> Path {
        Path { rounds: self.rounds.max(other.rounds), seconds: self.seconds.max(other.seconds) }
    }
}

/// The links of a network in time: their delay, how long bytes take, and until when each is busy.
pub struct Wires<F> {
    delay: f64,
    transmit: F,
    busy: HashMap<(usize, usize), f64>,
}

impl<F: Fn(u64) -> f64> Wires<F> {
    /// Idle links on which a message takes `delay` seconds and `transmit` of its bytes.
    pub fn new(delay: f64, transmit: F) -> Self {
        Wires { delay, transmit, busy: HashMap::new() }
    }

    /// The parties' clocks after a step's messages of a phase, begun at `start`. A message waits
    /// for what its link still has to send.
    pub fn advance(&mut self, start: &Clocks, step: &Cost, phase: Phase) -> Clocks {
        let mut clocks = start.clone();
        let mut messages: Vec<&Transfer> = step.transfers.iter().filter(|t| t.phase == phase).collect();
        messages.sort_by_key(|t| t.round);
        for round in messages.chunk_by(|a, b| a.round == b.round) {
            let before = clocks.clone();
            for t in round {
                let from = before.at(t.from);
                let link = self.busy.entry((t.from, t.to)).or_default();
                *link = link.max(from.seconds) + (self.transmit)(t.unit.bytes(t.n));
                let heard = Path { rounds: from.rounds + 1, seconds: *link + self.delay };
                clocks.not_before(t.to, heard);
            }
        }
        clocks
    }
}

/// The later of two states, party by party.
pub fn later(a: &Clocks, b: &Clocks) -> Clocks {
    Clocks((0..a.0.len().max(b.0.len())).map(|p| a.at(p).or_later(b.at(p))).collect())
}

/// The party that is last.
pub fn last(clocks: &Clocks) -> Path {
    clocks.0.iter().fold(Path::default(), |a, b| a.or_later(*b))
}
