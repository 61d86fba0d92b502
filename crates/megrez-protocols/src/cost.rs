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
    /// In which round of the step's phase it travels, from 1.
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
    /// Messages on the critical path of the offline phase.
    pub offline_rounds: u32,
    /// Messages on the critical path of the online phase.
    pub online_rounds: u32,
}

impl Cost {
    /// A local step.
    pub const LOCAL: Cost = Cost { transfers: vec![], offline_rounds: 0, online_rounds: 0 };

    /// A step with these numbers of rounds.
    pub fn rounds(offline: u32, online: u32) -> Self {
        Cost { transfers: vec![], offline_rounds: offline, online_rounds: online }
    }

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

    /// The network's time for this step in a phase when nothing else is on the links: per round the delay, and the
    /// transmission of the fullest link. `transmit` gives the seconds that bytes take on a link.
    pub fn network_seconds(&self, phase: Phase, delay: f64, transmit: impl Fn(u64) -> f64) -> f64 {
        let rounds = if phase == Phase::Offline { self.offline_rounds } else { self.online_rounds };
        let mut seconds = f64::from(rounds) * delay;
        for round in 1..=rounds {
            let mut links = std::collections::BTreeMap::<(usize, usize), u64>::new();
            for t in self.transfers.iter().filter(|t| t.phase == phase && t.round == round) {
                *links.entry((t.from, t.to)).or_default() += t.unit.bytes(t.n);
            }
            seconds += links.into_values().map(&transmit).fold(0.0, f64::max);
        }
        seconds
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
