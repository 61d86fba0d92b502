//! The handle through which one party of a session sends and receives.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Abort, AbortKind, NetError};
use crate::frame::MAX_PARTIES;
use crate::memory::Memory;
use crate::payload::Payload;
use crate::profile::NetProfile;
use crate::transport::{Class, ClockKind, Message, Stamp, Transport, WireCount};

/// One party's handle on a session: named messages to and from the other parties.
///
/// Clones share the session and may be used from several threads at once. A message is named by a
/// 64-bit tag that both sides compute; a tag is used once for each ordered pair of parties, and
/// messages can be asked for in any order.
///
/// When the last clone is dropped, or [`close`](Self::close) is called, the party has left: its
/// messages are still delivered, but a peer that waits for another one fails. A drop while
/// panicking ends the session everywhere.
#[derive(Clone)]
pub struct Network {
    handle: Arc<Handle>,
}

struct Handle {
    me: usize,
    parties: usize,
    clock: ClockKind,
    transport: Box<dyn Transport>,
}

impl Network {
    pub(crate) fn new(me: usize, parties: usize, clock: ClockKind, transport: Box<dyn Transport>) -> Self {
        Self { handle: Arc::new(Handle { me, parties, clock, transport }) }
    }

    /// The handles of all parties of a session inside this process.
    ///
    /// With [`ClockKind::Virtual`] nothing waits for the profile: each direction of each link
    /// delivers a message that is sent at `t` at `max(t, busy) + bytes / rate + rtt / 2`, counting
    /// payload bytes, and is busy for `bytes / rate`. That is deterministic as long as the sends on
    /// one direction of a link come in a deterministic order, so from one thread at a time. With
    /// [`ClockKind::Real`] the same holds of real time.
    ///
    /// `timeout` bounds every wait for a message, and every wait for room when a peer does not take
    /// its messages (1 GiB may lie around in each direction).
    ///
    /// # Panics
    /// When `parties` is not 1 to 64, or the profile fails [`NetProfile::check`].
    #[must_use]
    pub fn in_memory(
        parties: usize,
        profile: &NetProfile,
        clock: ClockKind,
        timeout: Duration,
    ) -> Vec<Network> {
        assert!(
            (1..=MAX_PARTIES).contains(&parties),
            "a session has 1 to {MAX_PARTIES} parties, not {parties}"
        );
        if let Err(error) = profile.check() {
            panic!("{error}");
        }
        let ends = Memory::session(parties, profile, clock, timeout).into_iter().enumerate();
        ends.map(|(me, end)| Self::new(me, parties, clock, Box::new(end))).collect()
    }

    /// Number of this party, from 0.
    #[must_use]
    pub fn me(&self) -> usize {
        self.handle.me
    }

    /// Number of parties in the session.
    #[must_use]
    pub fn parties(&self) -> usize {
        self.handle.parties
    }

    /// Whether profiles act on virtual or on real time.
    #[must_use]
    pub fn clock(&self) -> ClockKind {
        self.handle.clock
    }

    /// Whether a link leads to another machine, or is slowed down as if it did: there is time to do
    /// something else in while messages are on their way. Parties that share a machine without that
    /// share its processors, too.
    #[must_use]
    pub fn far(&self) -> bool {
        self.handle.transport.far()
    }

    /// Queues a message to party `to`, and returns; waits only when too many bytes are on their
    /// way.
    ///
    /// # Errors
    /// [`NetError::Aborted`] when the session has failed, [`NetError::Config`] when `to` is no
    /// peer, [`NetError::Limit`] when the message is larger than a message may be.
    pub fn send(&self, to: usize, tag: u64, stamp: Stamp, payload: Payload) -> Result<(), NetError> {
        self.send_as(Class::Now, to, tag, stamp, payload)
    }

    /// As [`send`](Self::send), as a message of `class`. Inside one process all are of one class.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub fn send_as(
        &self,
        class: Class,
        to: usize,
        tag: u64,
        stamp: Stamp,
        payload: Payload,
    ) -> Result<(), NetError> {
        self.check_peer(to)?;
        self.handle.transport.send(to, tag, stamp, class, payload)
    }

    /// Waits for the message `tag` from party `from`. `what` names the step, for errors.
    ///
    /// # Errors
    /// [`NetError::Aborted`] when the session has failed; this call fails it when the message does
    /// not come in time. [`NetError::Config`] when `from` is no peer or the tag was asked for
    /// before.
    pub fn recv(&self, from: usize, tag: u64, what: &str) -> Result<Message, NetError> {
        self.check_peer(from)?;
        self.handle.transport.recv(from, tag, what)
    }

    /// Ends the session at every party, and returns the reason that all of them will report: this
    /// one, unless another failure came first. The reason is sent to the other parties, so it must
    /// not hold secrets.
    pub fn fail(&self, reason: &str) -> NetError {
        let Handle { me, transport, .. } = &*self.handle;
        let text = if reason.starts_with("party ") {
            reason.to_owned()
        } else {
            format!("party {me} gave up: {reason}")
        };
        transport.abort(Abort::new(AbortKind::Failed, Some(*me), *me, &text))
    }

    /// Traffic so far, one entry for each peer.
    #[must_use]
    pub fn wire(&self) -> Vec<WireCount> {
        self.handle.transport.wire()
    }

    /// Waits until everything sent so far has been handed to the operating system.
    ///
    /// # Errors
    /// [`NetError::Aborted`] when the session has failed.
    pub fn flush(&self) -> Result<(), NetError> {
        self.handle.transport.flush()
    }

    /// Says that this party has sent all it will send, for all clones of the handle; what was sent
    /// before is still delivered.
    pub fn close(self) {
        self.handle.transport.leave();
    }

    fn check_peer(&self, peer: usize) -> Result<(), NetError> {
        let Handle { me, parties, .. } = *self.handle;
        if peer < parties && peer != me {
            return Ok(());
        }
        Err(NetError::Config(format!(
            "party {me} has no link to party {peer}: the session has parties 0 to {} and nobody talks to itself",
            parties - 1
        )))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = format!("party {} panicked", self.me);
            self.transport.abort(Abort::new(AbortKind::Failed, Some(self.me), self.me, &reason));
        }
        self.transport.leave();
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Network(party {} of {})", self.me(), self.parties())
    }
}
