//! What is common to everything that carries messages: sessions' names, stamps, counters, and the
//! [`Transport`] itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Abort, NetError};
use crate::payload::Payload;

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

/// Which messages of a link go first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// In the order in which they are sent.
    #[default]
    Now,
    /// When nothing of the first class waits, which also goes between the pieces of one of these:
    /// work for later runs does not hold up the run that somebody waits for.
    Behind,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender's round; and the virtual time at which the message arrived where the clock is
    /// virtual, the sender's own `time_ns` where it is real.
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
    /// All bytes, with framing, keep-alives and TLS records; equal to `payload_bytes` in memory.
    /// Does not count the TLS handshake, nor TCP and IP headers.
    pub wire_bytes: u64,
}

/// Traffic between this party and one peer.
///
/// Messages and payload bytes are counted when they are sent or delivered, wire bytes when they are
/// written or read; call [`Network::flush`](crate::Network::flush) first for a consistent picture.
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
    fn send(&self, to: usize, tag: u64, stamp: Stamp, class: Class, payload: Payload)
    -> Result<(), NetError>;
    fn recv(&self, from: usize, tag: u64, what: &str) -> Result<Message, NetError>;
    /// Ends the session for the given reason, or for an earlier one.
    fn abort(&self, abort: Abort) -> NetError;
    fn wire(&self) -> Vec<WireCount>;
    fn flush(&self) -> Result<(), NetError>;
    /// Whether a link leads to another machine, or is slowed down as if it did.
    fn far(&self) -> bool;
    /// This party has said all it will say.
    fn leave(&self);
}

/// A mistake of the program above, not of a peer.
pub(crate) fn asked_twice(me: usize, from: usize, what: &str) -> NetError {
    NetError::Config(format!(
        "party {me} asked for '{what}' from party {from} twice; every message needs a tag of its own"
    ))
}
