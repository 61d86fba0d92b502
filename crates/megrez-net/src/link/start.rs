//! A session over verified connections begins.

use super::handle::Link;
use super::{Outbox, Peer, Session};
use crate::error::NetError;
use crate::failure::Failure;
use crate::frame::CHUNK;
use crate::inbox::{Inbox, Room};
use crate::limits::Limits;
use crate::network::Network;
use crate::profile::NetProfile;
use crate::shaper::Shaper;
use crate::tls::TlsStream;
use crate::transport::{ClockKind, Counter, SessionId};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Two verified connections with one peer.
pub(crate) struct PeerLinks {
    pub peer: usize,
    /// Written by this side.
    pub out: TlsStream,
    /// Silence after which the peer takes this side for dead.
    pub peer_idle_timeout: Duration,
    /// Read by this side.
    pub incoming: TlsStream,
}

/// Whether a connection leaves this machine.
fn elsewhere(socket: &TcpStream) -> bool {
    match (socket.peer_addr(), socket.local_addr()) {
        (Ok(there), Ok(here)) => there.ip() != here.ip() && !there.ip().is_loopback(),
        // It is closed already.
        _ => false,
    }
}

/// Starts the threads of a session and returns this party's handle on it.
pub(crate) fn start(
    id: SessionId,
    me: usize,
    parties: usize,
    profile: &NetProfile,
    limits: &Limits,
    pairs: Vec<PeerLinks>,
    name: Box<dyn Send + Sync>,
) -> Result<Network, NetError> {
    let room = Room { soft: limits.inbox_soft, hard: limits.inbox_hard };
    // A piece takes at most some 20 ms, so that no idle timeout comes from the shaper.
    let per_piece = 20_000_000.0 / (profile.transmit_ns(1 << 20).max(1) as f64 / f64::from(1 << 20));
    let chunk = if profile.is_unshaped() { CHUNK } else { (per_piece as usize).clamp(64, CHUNK) };
    let mut expected = vec![false; parties];
    let mut peers: Vec<Option<Peer>> = (0..parties).map(|_| None).collect();
    let mut streams = Vec::new();
    let mut far = !profile.is_unshaped();
    for mut pair in pairs {
        let PeerLinks { peer, .. } = pair;
        pair.out.established(None)?;
        pair.out.set_write_timeout(None)?;
        pair.incoming.established(Some(limits.idle_timeout))?;
        expected[peer] = true;
        let (out, incoming) = (pair.out.socket()?, pair.incoming.socket()?);
        far |= elsewhere(&out);
        peers[peer] = Some(Peer {
            index: peer,
            inbox: Inbox::new(room),
            outbox: Outbox::default(),
            sent: Counter::default(),
            received: Counter::default(),
            sockets: Mutex::new([Some(out), Some(incoming)]),
            chunk,
        });
        streams.push(pair);
    }
    let failure = Failure::new(expected, limits.grace);
    let session = Arc::new(Session {
        id,
        me,
        parties,
        far,
        limits: limits.clone(),
        failure,
        order: Mutex::new(()),
        peers,
        _name: name,
    });
    let thread = |what: &str, peer: usize| thread::Builder::new().name(format!("megrez-{what}-{peer}"));
    let spawned = |error| NetError::Io(format!("cannot start a thread: {error}"));
    for PeerLinks { peer, out, peer_idle_timeout, incoming } in streams {
        // Four signs of life in the time after which the peer would give up.
        let keep_alive = (peer_idle_timeout / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let shaper = Shaper::new(profile);
        let writer = Arc::clone(&session);
        thread("send", peer).spawn(move || writer.write(peer, out, keep_alive, shaper)).map_err(spawned)?;
        let reader = Arc::clone(&session);
        thread("recv", peer).spawn(move || reader.read(peer, incoming)).map_err(spawned)?;
    }
    Ok(Network::new(me, parties, ClockKind::Real, Box::new(Link(session))))
}
