//! The handle of one party: its links and its transfers.

use crate::ot::Transfers;
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_session::{Error, Party};

/// One of two parties, with transfers set up: what the blocks run on. Both parties call the same blocks with the same
/// widths and lanes in the same order; the first message that does not fit ends the session.
pub struct Sirnn<D: Device> {
    party: Party<D>,
    pub(crate) ot: Transfers,
}

impl<D: Device> Sirnn<D> {
    /// Joins a party with its transfers.
    pub fn new(party: Party<D>, ot: Transfers) -> Self {
        Self { party, ot }
    }

    /// The party.
    #[must_use]
    pub fn party(&self) -> &Party<D> {
        &self.party
    }

    /// The party, to enter a phase or to send.
    pub fn party_mut(&mut self) -> &mut Party<D> {
        &mut self.party
    }

    /// Runs `body` as the plan's step `name`.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn step<R>(
        &mut self,
        name: &str,
        body: impl FnOnce(&mut Self) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut outer = self.party.lane();
        let result = outer.step(name, |party| {
            std::mem::swap(&mut self.party, party);
            let result = body(self);
            std::mem::swap(&mut self.party, party);
            result
        });
        self.party.join(&outer);
        self.party.has_waited(outer.waited());
        result
    }

    /// This party: 0 or 1.
    pub(crate) fn me(&self) -> usize {
        self.party.me()
    }

    /// Sends `out` and receives `expect` bytes at the same time; an empty message is not sent.
    pub(crate) fn exchange(&mut self, out: Payload, expect: usize) -> Result<Payload, Error> {
        let peer = 1 - self.me();
        let label = self.ot.next_message().to_string();
        if !out.is_empty() {
            self.party.send(peer, &label, out)?;
        }
        if expect == 0 { Ok(Payload::zeroed(0)) } else { self.party.recv(peer, &label, expect) }
    }
}
