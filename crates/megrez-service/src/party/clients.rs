//! A party's way to its clients during a request.

use crate::wire::{self, Reply};
use crate::{Error, ErrorKind, Result};
use megrez_engine::Clients;
use megrez_net::{Channel, NetError, Network, Payload};
use megrez_plan::{Input, Output};
use megrez_session::Error as SessionError;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a party that waits for its client looks whether the session still lives.
const SESSION_CHECK: Duration = Duration::from_millis(200);

/// A client's channel, for whoever talks to the client during a request.
pub(super) struct ClientChannel {
    channel: Mutex<Channel>,
    /// A client that a session waits for and from which nothing comes for so long is given up.
    idle_timeout: Duration,
}

impl ClientChannel {
    pub(super) fn new(channel: Channel, idle_timeout: Duration) -> Self {
        ClientChannel { channel: Mutex::new(channel), idle_timeout }
    }

    pub(super) fn into_channel(self) -> Channel {
        self.channel.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the client is known to have gone. Does not wait for whoever talks to it, so one with
    /// whom somebody does is there.
    pub(super) fn gone(&self) -> bool {
        self.channel.try_lock().is_ok_and(|channel| channel.hung_up())
    }

    /// Fails once the client has gone.
    pub(super) fn present(&self) -> Result<()> {
        match hold(self).hung_up() {
            true => Err(Error::of(ErrorKind::PeerLost, "the client has gone")),
            false => Ok(()),
        }
    }
}

pub(super) fn hold(shared: &ClientChannel) -> MutexGuard<'_, Channel> {
    shared.channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does long work for a client, and tells the client meanwhile that this party is alive.
pub(super) fn alive<T>(shared: &ClientChannel, work: impl FnOnce() -> T) -> T {
    alive_to(&[shared], work)
}

/// As [`alive`], to several.
pub(super) fn alive_to<T>(all: &[&ClientChannel], work: impl FnOnce() -> T) -> T {
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let beat = move || {
            while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(wire::HEARTBEAT) {
                // If somebody holds the channel, the client hears from this party or is expected to
                // speak itself.
                for shared in all {
                    if let Ok(mut channel) = shared.channel.try_lock() {
                        let _ = channel.keep_alive();
                    }
                }
            }
        };
        // Without a thread for it the client may lose its patience; nothing else is wrong.
        let _ = std::thread::Builder::new().name("megrez-alive".into()).spawn_scoped(scope, beat);
        let result = work();
        drop(done);
        result
    })
}

/// Does a session's work, which ends at all parties when its client's time is over: nobody waits
/// for what comes out of it.
pub(super) fn until<T>(due: Option<Instant>, network: &Network, work: impl FnOnce() -> T) -> T {
    let Some(due) = due else { return work() };
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watch = move || {
            let left = due.saturating_duration_since(Instant::now());
            if let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(left) {
                network.fail("the time that its client gave is over");
            }
        };
        // Without a thread for it the session ends when its client is looked for.
        let _ = std::thread::Builder::new().name("megrez-watch".into()).spawn_scoped(scope, watch);
        let result = work();
        drop(done);
        result
    })
}

/// The client's channel during a run.
pub(super) struct ChannelClients<'a> {
    pub(super) channel: &'a ClientChannel,
    pub(super) network: Network,
    /// When what is waited for must be there, where others wait for it besides this client.
    pub(super) due: Option<Instant>,
}

/// Talks to a client, whose connection is closed if that takes longer.
///
/// # Errors
/// If the operating system refuses, and those of the work.
pub(super) fn by<T>(
    due: Instant,
    channel: &ClientChannel,
    work: impl FnOnce() -> std::result::Result<T, SessionError>,
) -> std::result::Result<T, SessionError> {
    let handle = hold(channel).hang_up_handle().map_err(|e| client_lost(e.into()))?;
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let watch = move || {
            let left = due.saturating_duration_since(Instant::now());
            if let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(left) {
                handle.hang_up();
            }
        };
        let thread = std::thread::Builder::new().name("megrez-watch".into());
        let started = thread.spawn_scoped(scope, watch);
        started.map_err(|e| SessionError::Refused(format!("no thread to watch a client: {e}")))?;
        let result = work();
        drop(done);
        result
    })
}

/// A client that went away is no peer of the session: its loss is this party's own failure, for all
/// to hear. Of what kind it is, is for the client's other attempts: a cut connection is no mistake
/// of whoever asked.
fn client_lost(e: Error) -> SessionError {
    match e {
        Error::Net(NetError::Closed(what)) => NetError::Closed(format!("the client was lost: {what}")).into(),
        Error::Net(NetError::Timeout(what)) => {
            NetError::Timeout(format!("the client was lost: {what}")).into()
        }
        e => SessionError::Refused(format!("the client was lost: {e}")),
    }
}

impl Clients for ChannelClients<'_> {
    fn mask_key(&mut self, _: &Input, mask_key: Vec<u8>) -> std::result::Result<(), SessionError> {
        wire::send(&mut hold(self.channel), &Reply::MaskKey(mask_key)).map_err(client_lost)
    }
    fn data(&mut self, _: &Input, limit: usize) -> std::result::Result<Payload, SessionError> {
        self.next(limit as u64)
    }
    fn output(&mut self, _: &Output, share: Payload) -> std::result::Result<(), SessionError> {
        let mut channel = hold(self.channel);
        wire::send(&mut channel, &Reply::Share).map_err(client_lost)?;
        channel.send(share.as_bytes()).map_err(|e| client_lost(e.into()))
    }
}

impl ChannelClients<'_> {
    /// The next message of the client, of at most `limit` bytes.
    pub(super) fn next(&mut self, limit: u64) -> std::result::Result<Payload, SessionError> {
        // A session that fails meanwhile must not wait for its client; who had to wait for it need
        // not have spoken.
        let since = Instant::now();
        loop {
            let mut channel = hold(self.channel);
            match channel.recv_within(limit, SESSION_CHECK).map_err(|e| client_lost(e.into()))? {
                Some(data) => return Ok(data),
                None if channel.silent().min(since.elapsed()) > self.channel.idle_timeout => {
                    let what = format!("the client was silent for {} s", self.channel.idle_timeout.as_secs());
                    return Err(NetError::Timeout(what).into());
                }
                None if self.due.is_some_and(|due| Instant::now() >= due) => {
                    let what = "the inputs of all clients were not here in time".into();
                    return Err(NetError::Timeout(what).into());
                }
                None => drop(channel),
            }
            self.network.flush()?;
        }
    }
}
