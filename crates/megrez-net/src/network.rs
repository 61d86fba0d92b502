//! The handle through which one party of a session sends and receives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::frame::MAX_PARTIES;
use crate::memory::Memory;
use crate::{Abort, AbortKind, NetError, NetProfile, Payload};

/// Name of a session: chosen by whoever starts it, the same at every party, never used twice.
#[derive(Copy, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// Logical clock and virtual time of whoever sends.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Number of messages on the longest chain so far.
    pub round: u32,
    /// Virtual time in nanoseconds since the session began.
    pub time_ns: u64,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender's round; and the virtual time at which the message arrived where the clock is virtual, the
    /// sender's own `time_ns` where it is real.
    pub stamp: Stamp,
    /// The bytes.
    pub payload: Payload,
}

/// What a profile's rates and delays act on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// Messages carry the time at which they would arrive; nothing waits.
    Virtual,
    /// Messages are held back until the time at which they would arrive.
    Real,
}

/// What went over the wire in one direction since the session began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of payload in them.
    pub payload_bytes: u64,
    /// All bytes, with framing, keep-alives and TLS records; equal to `payload_bytes` in memory. Does not count
    /// the TLS handshake, nor TCP and IP headers.
    pub wire_bytes: u64,
}

/// Traffic between this party and one peer.
///
/// Messages and payload bytes are counted when they are sent or delivered, wire bytes when they are written or
/// read; call [`Network::flush`] first for a consistent picture.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct WireCount {
    /// The other party.
    pub peer: usize,
    /// From here to there.
    pub sent: Traffic,
    /// From there to here.
    pub received: Traffic,
}

/// Counters of one direction.
#[derive(Default)]
pub(crate) struct Counter {
    messages: AtomicU64,
    payload: AtomicU64,
    wire: AtomicU64,
}

impl Counter {
    pub fn message(&self, bytes: u64) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.payload.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn wire(&self, bytes: u64) {
        self.wire.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn read(&self) -> Traffic {
        Traffic {
            messages: self.messages.load(Ordering::Relaxed),
            payload_bytes: self.payload.load(Ordering::Relaxed),
            wire_bytes: self.wire.load(Ordering::Relaxed),
        }
    }
}

/// What carries the messages of one party. Implementations validate nothing: `Network` does.
pub(crate) trait Transport: Send + Sync {
    fn send(&self, to: usize, tag: u64, stamp: Stamp, payload: Payload) -> Result<(), NetError>;
    fn recv(&self, from: usize, tag: u64, what: &str) -> Result<Message, NetError>;
    /// Ends the session for the given reason, or for an earlier one.
    fn abort(&self, abort: Abort) -> NetError;
    fn wire(&self) -> Vec<WireCount>;
    fn flush(&self) -> Result<(), NetError>;
    /// This party has said all it will say.
    fn leave(&self);
}

/// One party's handle on a session: named messages to and from the other parties.
///
/// Clones share the session and may be used from several threads at once. A message is named by a 64-bit tag
/// that both sides compute; a tag is used once for each ordered pair of parties, and messages can be asked for in
/// any order.
///
/// When the last clone is dropped, or [`close`](Self::close) is called, the party has left: its messages are still
/// delivered, but a peer that waits for another one fails. A drop while panicking ends the session everywhere.
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
    /// With [`ClockKind::Virtual`] nothing waits for the profile: each direction of each link delivers a message
    /// that is sent at `t` at `max(t, busy) + bytes / rate + rtt / 2`, counting payload bytes, and is busy for
    /// `bytes / rate`. That is deterministic as long as the sends on one direction of a link come in a
    /// deterministic order, so from one thread at a time. With [`ClockKind::Real`] the same holds of real time.
    ///
    /// `timeout` bounds every wait for a message, and every wait for room when a peer does not take its messages
    /// (1 GiB may lie around in each direction).
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
        Memory::session(parties, profile, clock, timeout)
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

    /// Queues a message to party `to`, and returns; waits only when too many bytes are on their way.
    ///
    /// # Errors
    /// [`NetError::Aborted`] when the session has failed, [`NetError::Config`] when `to` is no peer,
    /// [`NetError::Limit`] when the message is larger than a message may be.
    pub fn send(&self, to: usize, tag: u64, stamp: Stamp, payload: Payload) -> Result<(), NetError> {
        self.check_peer(to)?;
        self.handle.transport.send(to, tag, stamp, payload)
    }

    /// Waits for the message `tag` from party `from`. `what` names the step, for errors.
    ///
    /// # Errors
    /// [`NetError::Aborted`] when the session has failed; this call fails it when the message does not come in
    /// time. [`NetError::Config`] when `from` is no peer or the tag was asked for before.
    pub fn recv(&self, from: usize, tag: u64, what: &str) -> Result<Message, NetError> {
        self.check_peer(from)?;
        self.handle.transport.recv(from, tag, what)
    }

    /// Ends the session at every party, and returns the reason that all of them will report: this one, unless
    /// another failure came first. The reason is sent to the other parties, so it must not hold secrets.
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

    /// Says that this party has sent all it will send, for all clones of the handle; what was sent before is
    /// still delivered.
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
