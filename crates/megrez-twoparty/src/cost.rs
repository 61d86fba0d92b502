//! What a step of the protocol sends. Each file of steps has the cost of its own, and
//! [`crate::costing`] adds them up.

/// Bytes and rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Payload bytes that party 0 and party 1 send.
    pub bytes: [u64; 2],
    /// Messages on the longest chain.
    pub rounds: u32,
}

impl Cost {
    pub(crate) fn new(bytes: [usize; 2], rounds: u32) -> Self {
        Self { bytes: bytes.map(|b| b as u64), rounds }
    }

    pub(crate) fn pay(&mut self, more: Self) {
        self.bytes.iter_mut().zip(more.bytes).for_each(|(b, more)| *b += more);
        self.rounds += more.rounds;
    }
}
