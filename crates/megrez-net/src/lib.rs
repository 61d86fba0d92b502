//! Named messages between the two or three parties of a session.
//!
//! A session is one run of a protocol. Each party holds a [`Network`], sends bytes under a 64-bit tag to a peer,
//! and asks for bytes by tag from a peer; the crate never knows what the bytes mean.
//!
//! [`Network::in_memory`] gives the handles of all parties inside one process, under virtual time (deterministic
//! LAN and WAN without sleeping) or real time.
//!
//! A session that fails ends at every party with the same reason, an [`Abort`].

#[cfg(target_endian = "big")]
compile_error!(
    "the wire is little endian and payloads are viewed in place; big-endian machines are not supported"
);

pub mod certs;
mod channel;
mod endpoint;
mod error;
mod failure;
pub mod frame;
#[cfg(test)]
mod hostile;
mod identity;
mod inbox;
mod link;
mod memory;
mod network;
mod payload;
mod profile;
mod shaper;
mod tls;

pub use channel::{Channel, dial};
pub use endpoint::{Config, Endpoint, Limits};
pub use error::{Abort, AbortKind, MAX_REASON, NetError};
pub use identity::{Identity, PeerName};
pub use network::{ClockKind, Message, Network, SessionId, Stamp, Traffic, WireCount};
pub use payload::Payload;
pub use profile::NetProfile;
