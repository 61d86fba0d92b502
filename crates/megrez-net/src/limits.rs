//! What a party waits for at most, and what it holds at most.

use std::time::Duration;

/// Time-outs and bounds. The defaults suit parties that trust each other to be alive, not to be
/// correct.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long [`Endpoint::open_session`](crate::Endpoint::open_session) waits for all peers, and
    /// how long a peer's link waits for this party to open the session. Default 60 s.
    pub connect: Duration,
    /// From an accepted connection to the end of its hello. Default 10 s.
    pub handshake: Duration,
    /// A peer from which no byte came for this long is taken for dead. Peers that are busy send
    /// signs of life. Default 30 s.
    pub idle_timeout: Duration,
    /// How long one message may take to come from a peer that is alive. Default 1 hour.
    pub step: Duration,
    /// How long parties wait for each other's account of a failure, so that all report the same;
    /// only a party that does not answer makes them wait for all of it. Default 1 s.
    pub grace: Duration,
    /// Largest message in bytes. Default 2 GiB.
    pub max_message: u64,
    /// Bytes of one class of messages that may wait to be written to one peer before `send` waits.
    /// Default 256 MiB.
    pub queue: u64,
    /// Bytes from one peer that may lie undelivered before its link is paused; ignored while
    /// somebody waits for a message that has yet to come. Default 1 GiB.
    pub inbox_soft: u64,
    /// Bytes from one peer that may lie undelivered at all. Default 4 GiB.
    pub inbox_hard: u64,
    /// Connections whose handshake is not done, at most; beyond that the address with the most of
    /// them loses its oldest. Default 256.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
            step: Duration::from_secs(3600),
            grace: Duration::from_secs(1),
            max_message: 2 << 30,
            queue: 256 << 20,
            inbox_soft: 1 << 30,
            inbox_hard: 4 << 30,
            pending: 256,
        }
    }
}
