//! A party's way to its clients during a request.

use crate::Error;
use crate::wire::{self, Reply};
use megrez_engine::Clients;
use megrez_net::{Channel, Network, Payload};
use megrez_plan::{Input, Output};
use megrez_session::Error as SessionError;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a client may take within a request before it is given up, and its session with it.
pub(super) const WITHIN_REQUEST: Duration = Duration::from_secs(3600);
/// How often a party that waits for its client looks whether the session still lives.
const SESSION_CHECK: Duration = Duration::from_millis(200);

/// A client's channel during a long request: whoever talks to the client holds it.
pub(super) type Shared = Mutex<Channel>;

pub(super) fn hold(channel: &Shared) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does long work for a client, and tells the client meanwhile that this party is alive.
pub(super) fn alive<T>(channel: &Shared, work: impl FnOnce() -> T) -> T {
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(wire::HEARTBEAT) {
                // If somebody holds the channel, the client hears from this party or is expected to
                // speak itself.
                if let Ok(mut channel) = channel.try_lock() {
                    let _ = channel.keep_alive();
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// The client's channel during a run.
pub(super) struct ChannelClients<'a> {
    pub(super) channel: &'a Shared,
    pub(super) network: Network,
}

/// A client that went away is no peer of the session: its loss is this party's own failure, for all
/// to hear.
fn client_lost(e: Error) -> SessionError {
    SessionError::Refused(format!("the client was lost: {e}"))
}

impl Clients for ChannelClients<'_> {
    fn mask_key(&mut self, _: &Input, mask_key: Vec<u8>) -> std::result::Result<(), SessionError> {
        wire::send(&mut hold(self.channel), &Reply::MaskKey(mask_key)).map_err(client_lost)
    }
    fn data(&mut self, _: &Input, limit: usize) -> std::result::Result<Payload, SessionError> {
        // A session that fails meanwhile must not wait for its client.
        let until = Instant::now() + WITHIN_REQUEST;
        while !hold(self.channel).readable(SESSION_CHECK)? && Instant::now() < until {
            self.network.flush()?;
        }
        hold(self.channel).recv(limit as u64).map_err(|e| client_lost(e.into()))
    }
    fn output(&mut self, _: &Output, share: Payload) -> std::result::Result<(), SessionError> {
        let mut channel = hold(self.channel);
        wire::send(&mut channel, &Reply::Share).map_err(client_lost)?;
        channel.send(share.as_bytes()).map_err(|e| client_lost(e.into()))
    }
}
