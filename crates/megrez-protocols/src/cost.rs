//! Exact costs: every message of a step as a formula. A test holds the meter to them, per party, direction and phase.

use megrez_ring::Prime;
use megrez_session::Phase;

/// What a message consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Elements of this many bits, densely packed; the message is rounded up to bytes.
    Bits(u32),
    /// Elements of F_p, as many to a 64-bit word as fit; the message is rounded up to words.
    Field(Prime),
}

impl Unit {
    /// Bits per element, before the message is rounded up.
    pub fn bits(self) -> f64 {
        match self {
            Unit::Bits(bits) => f64::from(bits),
            Unit::Field(prime) => prime.wire_bits(),
        }
    }

    /// Bytes of a message of `n` elements.
    pub fn bytes(self, n: usize) -> u64 {
        match self {
            Unit::Bits(bits) => (n as u64 * u64::from(bits)).div_ceil(8),
            Unit::Field(prime) => prime.words(n) as u64 * 8,
        }
    }
}

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Offline or online.
    pub phase: Phase,
    /// Its place in the step: messages of a lower round are sent and received before it. Round 0 is that of offline
    /// messages which are sent online because a mask is late.
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

    fn message(mut self, transfer: Transfer) -> Self {
        if transfer.n > 0 {
            self.transfers.push(transfer);
        }
        self
    }

    /// The cost where an input's masks are known only online: offline messages are sent online, before the step's own.
    pub fn made_online(mut self) -> Self {
        for t in self.transfers.iter_mut().filter(|t| t.phase == Phase::Offline) {
            (t.phase, t.round) = (Phase::Online, 0);
        }
        self
    }

    /// Messages on the critical path of a phase when the step runs alone.
    pub fn rounds(&self, phase: Phase) -> u32 {
        critical_path([self], phase, 0.0, |_| 0.0).rounds
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

/// The critical path of steps that run one after the other.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Path {
    /// Messages on it.
    pub rounds: u32,
    /// Seconds of the network on it: delays and transmissions, no local work.
    pub seconds: f64,
}

/// Follows every party's clock through the messages of `steps` in a phase. A message takes `delay` seconds and `transmit`
/// of its bytes, after what its link still has to send.
pub fn critical_path<'a>(
    steps: impl IntoIterator<Item = &'a Cost>,
    phase: Phase,
    delay: f64,
    transmit: impl Fn(u64) -> f64,
) -> Path {
    let mut clocks = [Path::default(); 3];
    let mut links = [[0f64; 3]; 3];
    for step in steps {
        let mut messages: Vec<&Transfer> = step.transfers.iter().filter(|t| t.phase == phase).collect();
        messages.sort_by_key(|t| t.round);
        for round in messages.chunk_by(|a, b| a.round == b.round) {
            let before = clocks;
            for t in round {
                let (from, to) = (before[t.from], &mut clocks[t.to]);
                let sent = links[t.from][t.to].max(from.seconds) + transmit(t.unit.bytes(t.n));
                links[t.from][t.to] = sent;
                to.rounds = to.rounds.max(from.rounds + 1);
                to.seconds = to.seconds.max(sent + delay);
            }
        }
    }
    let latest = |f: fn(&Path) -> f64| clocks.iter().map(f).fold(0.0, f64::max);
    Path { rounds: latest(|p| f64::from(p.rounds)) as u32, seconds: latest(|p| p.seconds) }
}
