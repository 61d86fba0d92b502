//! What a step of the protocol sends. Each file of steps has the cost of its own, and
//! [`crate::costing`] adds them up.

/// Bytes and rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Payload bytes that party 0 and party 1 send.
    pub bytes: [u64; 2],
    /// Messages on the longest chain.
    pub rounds: u32,
    /// OTs of one choice bit in which party 0 and party 1 choose: what they take of a stock.
    pub chosen: [u64; 2],
}

impl Cost {
    pub(crate) fn new(bytes: [usize; 2], rounds: u32) -> Self {
        Self { bytes: bytes.map(|b| b as u64), rounds, chosen: [0; 2] }
    }

    /// With so many OTs in which the parties choose.
    pub(crate) fn choosing(self, chosen: [usize; 2]) -> Self {
        Self { chosen: chosen.map(|n| n as u64), ..self }
    }

    pub(crate) fn pay(&mut self, more: Self) {
        self.bytes.iter_mut().zip(more.bytes).for_each(|(b, more)| *b += more);
        self.chosen.iter_mut().zip(more.chosen).for_each(|(n, more)| *n += more);
        self.rounds += more.rounds;
    }
}
