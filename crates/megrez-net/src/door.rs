//! Where connections come in: whoever connects proves who it is, says what for, and becomes a
//! client or a peer's link. Until then it is a stranger, of whom little is held.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::endpoint::Inner;
use crate::error::NetError;
use crate::failure::{lock, wait};
use crate::frame::{self, HELLO_LEN, Hello, Verdict, Welcome};
use crate::names::PeerName;
use crate::tls::TlsStream;

/// Links of sessions that this party has not opened yet, at most.
const MAX_WAITING: usize = 64;
/// Clients whose connection nobody has accepted yet, at most.
const MAX_CLIENTS: usize = 64;

/// Counts as a handshake until it is dropped.
struct Stranger<'a> {
    shared: &'a Inner,
    serial: u64,
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        lock(&self.shared.state).handshakes.end(self.serial);
    }
}

impl Inner {
    /// Takes connections until the endpoint stops, each in a thread of its own.
    pub(crate) fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while !self.stopping() {
            let Ok((socket, address)) = listener.accept() else {
                // Out of descriptors, or the other side was too fast; trying again at once would
                // spin.
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            if self.stopping() {
                return;
            }
            let Ok(handle) = socket.try_clone() else { continue };
            let mut state = lock(&self.state);
            let Some((serial, evicted)) = state.handshakes.begin(address, handle, self.limits.pending) else {
                state.refuse(format!("{address}: too many handshakes at once"));
                continue;
            };
            if let Some(evicted) = evicted {
                state.refuse(format!("{evicted}: too many handshakes at once; its oldest was cut off"));
            }
            drop(state);
            let serving = Arc::clone(self);
            let spawned = thread::Builder::new()
                .name("megrez-hello".into())
                .spawn(move || serving.serve(socket, address, serial));
            if spawned.is_err() {
                let mut state = lock(&self.state);
                state.handshakes.end(serial);
                state.refuse(format!("{address}: no thread to serve it"));
            }
        }
    }

    /// One accepted connection, up to the point where it is somebody's.
    fn serve(&self, socket: TcpStream, address: SocketAddr, serial: u64) {
        let stranger = Stranger { shared: self, serial };
        let result = self.greet(socket, address);
        let cut_off = !lock(&self.state).handshakes.has(serial);
        drop(stranger);
        let mut state = lock(&self.state);
        match result {
            // Why has been told when it was.
            Err(_) if cut_off => {}
            Err(error) => state.refuse(format!("{address}: {error}")),
            Ok((Hello::Client, name, stream)) => {
                state.clients.push_back((name, stream));
                drop(state);
                self.changed.notify_all();
            }
            Ok((Hello::Link { session, from, .. }, _, stream)) => {
                let key = (session, from);
                state.serial += 1;
                let serial = state.serial;
                state.links.insert(key, (serial, stream));
                self.changed.notify_all();
                // This thread sees to it that the link does not wait for ever.
                let until = Instant::now() + self.limits.connect;
                while state.links.get(&key).is_some_and(|(other, _)| *other == serial) {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() || self.stopping() {
                        state.links.remove(&key);
                        state.refuse(format!(
                            "{address}: session {session} of party {from} is not opened here"
                        ));
                        return;
                    }
                    state = wait(&self.changed, state, left);
                }
            }
        }
    }

    /// Handshake, hello and welcome.
    fn greet(
        &self,
        socket: TcpStream,
        address: SocketAddr,
    ) -> Result<(Hello, PeerName, TlsStream), NetError> {
        let deadline = Instant::now() + self.limits.handshake;
        let (mut stream, name) = TlsStream::accept(socket, &self.identity(), address.to_string(), deadline)?;
        let mut bytes = [0; HELLO_LEN];
        stream.read_exact(&mut bytes)?;
        let result = frame::parse_hello(&bytes).and_then(|hello| self.admit(&hello, &name).map(|()| hello));
        let verdict = match &result {
            Ok(_) => Verdict::Welcome,
            Err(NetError::Version(_)) => Verdict::Version,
            Err(NetError::Identity(_)) => Verdict::Identity,
            Err(NetError::Limit(_)) => Verdict::Busy,
            Err(_) => Verdict::Garbage,
        };
        let silence_ms = u32::try_from(self.limits.idle_timeout.as_millis()).unwrap_or(u32::MAX);
        stream.write(&Welcome { verdict, silence_ms }.encode(), &[])?;
        if result.is_err() {
            let _ = stream.close();
        }
        Ok((result?, name, stream))
    }

    /// Whether what a hello wants is something that `name` may have.
    fn admit(&self, hello: &Hello, name: &PeerName) -> Result<(), NetError> {
        let state = lock(&self.state);
        match *hello {
            Hello::Client if state.clients.len() >= MAX_CLIENTS => {
                Err(NetError::Limit("too many clients are waiting".into()))
            }
            Hello::Client => Ok(()),
            Hello::Link { session, from, to } => {
                if *name != PeerName::Party(from) {
                    return Err(NetError::Identity(format!("{name} claims to be party {from}")));
                }
                if to != self.me || from >= self.parties {
                    return Err(NetError::Identity(format!(
                        "a link from party {from} to party {to} came to party {} of {}; check the addresses there",
                        self.me, self.parties
                    )));
                }
                if state.links.len() >= MAX_WAITING || state.links.contains_key(&(session, from)) {
                    return Err(NetError::Limit(format!("too many links of party {from} are waiting")));
                }
                Ok(())
            }
        }
    }
}
