//! Named messages between the parties of a session.
//!
//! A session is one run of a protocol. Each party holds a [`Network`], sends bytes under a 64-bit
//! tag to a peer, and asks for bytes by tag from a peer; the crate never knows what the bytes mean.
//!
//! ```
//! use std::time::Duration;
//! use megrez_net::{ClockKind, NetProfile, Network, Payload, Stamp};
//!
//! let nets = Network::in_memory(2, &NetProfile::lan(), ClockKind::Virtual, Duration::from_secs(10));
//! nets[0].send(1, 7, Stamp::default(), Payload::from_pod(&[1u32, 2, 3]))?;
//! let message = nets[1].recv(0, 7, "hello")?;
//! assert_eq!(message.payload.as_pod::<u32>()?, [1, 2, 3]);
//! // 12 bytes at 1 Gbit/s, and 1 ms on the way.
//! assert_eq!(message.stamp.time_ns, 96 + 1_000_000);
//! # Ok::<(), megrez_net::NetError>(())
//! ```
//!
//! # Two kinds of session
//!
//! [`Network::in_memory`] gives the handles of all parties inside one process, under virtual time
//! (a LAN or a WAN without sleeping) or real time.
//!
//! [`Endpoint`] is a party on a real network. Every pair of parties is joined by two TCP
//! connections, one for each direction, dialled by the side that sends, so that reading and writing
//! never wait for each other. Both sides prove who they are by certificates of the deployment's own
//! authority ([`certs`]), with TLS 1.3, without tickets or early data. A [`NetProfile`] other than
//! loopback slows down what a party sends, without privileges, so that machines in one room measure
//! like machines far apart. Clients [`dial`] an endpoint and get a [`Channel`].
//!
//! # When something goes wrong
//!
//! A party that is killed, stopped, cut off, or sends what it must not, ends the session at all
//! parties, and all report the same [`Abort`]: root causes win over their consequences. Links carry
//! signs of life, so a party may compute for as long as it likes; one that is silent for
//! [`Limits::idle_timeout`] is gone. A message that does not come within [`Limits::step`] from a
//! party that lives ends the session too, and the error names who waited for whom, and at which
//! step. What a peer can make this process hold is bounded by [`Limits`], and memory for a message
//! is taken as its bytes come in, not as its header claims.
//!
//! Peers and clients are authenticated, and reasons that they send are shown; the text is cut and
//! cleaned first.

#[cfg(target_endian = "big")]
compile_error!(
    "the wire is little endian and payloads are viewed in place; big-endian machines are not supported"
);

pub mod certs;
mod channel;
mod connect;
mod door;
mod endpoint;
mod error;
mod failure;
mod files;
pub mod frame;
mod handshakes;
#[cfg(test)]
mod hostile;
mod identity;
mod inbox;
mod limits;
mod link;
mod memory;
mod names;
mod network;
mod payload;
mod profile;
mod shaper;
mod signature;
mod tls;
mod transport;
mod trust;

pub use channel::{Channel, HangUp, Patience, dial};
pub use endpoint::{Config, Endpoint};
pub use error::{Abort, AbortKind, MAX_REASON, NetError};
pub use identity::Identity;
pub use limits::Limits;
pub use names::PeerName;
pub use network::Network;
pub use payload::Payload;
pub use profile::NetProfile;
pub use transport::{Class, ClockKind, Message, SessionId, Stamp, Traffic, WireCount};
pub use trust::CertificateId;
