//! A party's place on the network: one listener, many sessions, and requests from clients.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::connect::{ATTEMPT, connect};
use crate::error::NetError;
use crate::failure::{lock, wait};
use crate::frame::{Hello, MAX_PARTIES};
use crate::handshakes::Handshakes;
use crate::identity::Identity;
use crate::limits::Limits;
use crate::link::{self, PeerLinks};
use crate::names::PeerName;
use crate::network::Network;
use crate::profile::NetProfile;
use crate::tls::TlsStream;
use crate::transport::SessionId;

/// Refused connections that are remembered, at most.
const MAX_REFUSALS: usize = 32;

/// Where and as whom a party takes part.
#[derive(Clone, Debug)]
pub struct Config {
    /// This party.
    pub me: usize,
    /// Address to listen on: `0.0.0.0:7700`, or port 0 for any free one.
    pub listen: String,
    /// `host:port` of all parties in order; the own entry is not used. May be set later with
    /// [`Endpoint::set_peers`], then only its length counts.
    pub peers: Vec<String>,
    /// The party's certificate and key.
    pub identity: Identity,
    /// Time-outs and bounds.
    pub limits: Limits,
}

/// A party's bound listener. Sessions and clients share it; it serves all of them at the same time.
///
/// Dropping it stops the listener; sessions that run go on.
pub struct Endpoint {
    shared: Arc<Inner>,
    address: SocketAddr,
    acceptor: Option<JoinHandle<()>>,
}

pub(crate) struct Inner {
    pub(crate) me: usize,
    pub(crate) parties: usize,
    /// Handshakes take it as it is when they begin.
    identity: Mutex<Arc<Identity>>,
    pub(crate) limits: Limits,
    peers: Mutex<Vec<String>>,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    stopping: AtomicBool,
}

#[derive(Default)]
pub(crate) struct State {
    /// Links that peers have dialled for sessions that this party has not opened yet; with a serial
    /// number.
    pub(crate) links: HashMap<(SessionId, usize), (u64, TlsStream)>,
    pub(crate) serial: u64,
    /// Sessions of this party that are being opened or run.
    sessions: HashSet<SessionId>,
    pub(crate) clients: VecDeque<(PeerName, TlsStream)>,
    /// Connections whose handshake is not done.
    pub(crate) handshakes: Handshakes,
    refusals: VecDeque<String>,
}

/// Keeps a session's name reserved.
struct NameGuard {
    shared: Arc<Inner>,
    id: SessionId,
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        lock(&self.shared.state).sessions.remove(&self.id);
    }
}

impl Endpoint {
    /// Binds the listener and begins to accept connections.
    ///
    /// # Errors
    /// [`NetError::Config`] when the configuration contradicts itself, [`NetError::Io`] when the
    /// address cannot be listened on.
    pub fn bind(config: Config) -> Result<Self, NetError> {
        let Config { me, listen, peers, identity, limits } = config;
        check(me, peers.len(), &identity, &limits)?;
        let io = |error: std::io::Error| {
            NetError::Io(format!(
                "party {me} cannot listen on {listen}: {error}; check that the address belongs to this host and \
                 that nothing else uses the port"
            ))
        };
        let listener = TcpListener::bind(&listen).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        let shared = Arc::new(Inner {
            me,
            parties: peers.len(),
            identity: Mutex::new(Arc::new(identity)),
            limits,
            peers: Mutex::new(peers),
            state: Mutex::default(),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("megrez-accept".into())
            .spawn(move || accepting.accept(&listener))
            .map_err(|error| NetError::Io(format!("cannot start a thread: {error}")))?;
        Ok(Self { shared, address, acceptor: Some(acceptor) })
    }

    /// The address that is listened on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Number of this party.
    #[must_use]
    pub fn me(&self) -> usize {
        self.shared.me
    }

    /// How long parties wait for each other to join a session.
    #[must_use]
    pub fn connect_limit(&self) -> Duration {
        self.shared.limits.connect
    }

    /// Bytes that one peer may send ahead of what this party has asked for.
    #[must_use]
    pub fn sent_ahead(&self) -> u64 {
        self.shared.limits.inbox_soft
    }

    /// Number of parties in the deployment.
    #[must_use]
    pub fn parties(&self) -> usize {
        self.shared.parties
    }

    /// Sets the `host:port` of all parties, for sessions opened from now on.
    ///
    /// # Errors
    /// [`NetError::Config`] when there are not as many as parties.
    pub fn set_peers(&self, peers: Vec<String>) -> Result<(), NetError> {
        if peers.len() != self.shared.parties {
            return Err(NetError::Config(format!(
                "{} addresses for {} parties; give one for each party, in order",
                peers.len(),
                self.shared.parties
            )));
        }
        *lock(&self.shared.peers) = peers;
        Ok(())
    }

    /// Who this party is, and whom it trusts.
    #[must_use]
    pub fn identity(&self) -> Arc<Identity> {
        self.shared.identity()
    }

    /// From now on, connections are made and taken with this identity; those that stand go on.
    ///
    /// # Errors
    /// [`NetError::Config`] when it is not this party's.
    pub fn set_identity(&self, identity: Identity) -> Result<(), NetError> {
        check_name(self.shared.me, &identity)?;
        *lock(&self.shared.identity) = Arc::new(identity);
        Ok(())
    }

    /// Waits for at most `time` until `peer` has dialled its link of session `id`, which shows that
    /// it opens the session, and says whether it has.
    ///
    /// # Errors
    /// [`NetError::Closed`] when the endpoint stops.
    pub fn announced(&self, id: SessionId, peer: usize, time: Duration) -> Result<bool, NetError> {
        let until = Instant::now() + time;
        let mut state = lock(&self.shared.state);
        loop {
            if self.shared.stopping() {
                return Err(NetError::Closed("the endpoint has stopped".into()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if state.links.contains_key(&(id, peer)) || left.is_zero() {
                return Ok(!left.is_zero());
            }
            state = wait(&self.shared.changed, state, left);
        }
    }

    /// Whether a session of this name is being opened or runs here.
    #[must_use]
    pub fn is_open(&self, id: SessionId) -> bool {
        lock(&self.shared.state).sessions.contains(&id)
    }

    /// Opens a session with all other parties, who have to do the same with the same `id` and
    /// number of parties within [`Limits::connect`]. What this party sends is slowed down to
    /// `profile`.
    ///
    /// # Errors
    /// [`NetError::Timeout`] when a peer does not come, [`NetError::Identity`] or
    /// [`NetError::Version`] when a peer is not who or what it should be, [`NetError::Config`] when
    /// the session is open here already.
    pub fn open_session(&self, id: SessionId, profile: &NetProfile) -> Result<Network, NetError> {
        profile.check()?;
        let shared = &self.shared;
        if !lock(&shared.state).sessions.insert(id) {
            return Err(NetError::Config(format!(
                "session {id} is open already; every session needs a new name"
            )));
        }
        let guard = NameGuard { shared: Arc::clone(shared), id };
        let deadline = Instant::now() + shared.limits.connect;
        let others: Vec<usize> = (0..shared.parties).filter(|peer| *peer != shared.me).collect();
        let cancel = AtomicBool::new(false);
        let dialled = thread::scope(|scope| {
            let dials: Vec<_> = others
                .iter()
                .map(|peer| {
                    let cancel = &cancel;
                    let dial = move || {
                        let result = shared.dial_link(id, *peer, deadline, cancel);
                        if result.is_err() {
                            cancel.store(true, Ordering::Release);
                        }
                        result
                    };
                    // A thread that cannot be had is an error of this session only.
                    thread::Builder::new().name("megrez-dial".into()).spawn_scoped(scope, dial)
                })
                .collect();
            dials
                .into_iter()
                .map(|dial| match dial {
                    Ok(dial) => {
                        dial.join().unwrap_or_else(|_| Err(NetError::Io("a dialling thread panicked".into())))
                    }
                    Err(error) => {
                        cancel.store(true, Ordering::Release);
                        Err(NetError::Io(format!("cannot start a thread: {error}")))
                    }
                })
                .collect::<Vec<_>>()
        });
        // A dial that was called off is not the reason.
        let mut streams = Vec::new();
        let mut called_off = None;
        for result in dialled {
            match result {
                Ok(stream) => streams.push(stream),
                Err(NetError::Closed(text)) => called_off = Some(NetError::Closed(text)),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = called_off {
            return Err(error);
        }
        let mut pairs = Vec::new();
        for (peer, (out, peer_idle_timeout)) in others.iter().zip(streams) {
            let incoming = shared.await_link(id, *peer, deadline)?;
            pairs.push(PeerLinks { peer: *peer, out, peer_idle_timeout, incoming });
        }
        link::start(id, shared.me, shared.parties, profile, &shared.limits, pairs, Box::new(guard))
    }

    /// Waits for the next connection of a client, and returns who it has proved to be.
    ///
    /// # Errors
    /// [`NetError::Closed`] when the endpoint stops.
    pub fn accept_client(&self) -> Result<(PeerName, Channel), NetError> {
        loop {
            if let Some(client) = self.accept_client_within(Duration::from_secs(3600))? {
                return Ok(client);
            }
        }
    }

    /// As [`accept_client`](Self::accept_client), but returns none after `time` without a client.
    ///
    /// # Errors
    /// [`NetError::Closed`] when the endpoint stops.
    pub fn accept_client_within(&self, time: Duration) -> Result<Option<(PeerName, Channel)>, NetError> {
        let until = Instant::now() + time;
        let mut state = lock(&self.shared.state);
        loop {
            if self.shared.stopping.load(Ordering::Acquire) {
                return Err(NetError::Closed("the endpoint has stopped".into()));
            }
            if let Some((name, stream)) = state.clients.pop_front() {
                drop(state);
                return Ok(Some((
                    name.clone(),
                    Channel::new(stream, name, self.shared.limits.idle_timeout)?,
                )));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            state = wait(&self.shared.changed, state, left);
        }
    }

    /// Why connections were refused since the last call, oldest first; the last 32 are remembered.
    #[must_use]
    pub fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared.state).refusals).into()
    }

    /// Stops accepting; waiting calls return [`NetError::Closed`]. Sessions that run go on.
    pub fn stop(&self) {
        if self.shared.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        // Waiters check the flag under the lock, so they see it or are woken.
        drop(lock(&self.shared.state));
        self.shared.changed.notify_all();
        // The acceptor sits in a blocking call; a connection gets it out.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop();
        if let Some(acceptor) = self.acceptor.take() {
            // It cannot panic; if it did there would be nothing left to stop.
            let _ = acceptor.join();
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint(party {} of {} at {})", self.shared.me, self.shared.parties, self.address)
    }
}

fn check(me: usize, parties: usize, identity: &Identity, limits: &Limits) -> Result<(), NetError> {
    let bad = |text: String| Err(NetError::Config(text));
    if !(2..=MAX_PARTIES).contains(&parties) || me >= parties {
        return bad(format!(
            "party {me} of {parties}: a deployment lists the addresses of 2 to {MAX_PARTIES} parties, in order"
        ));
    }
    check_name(me, identity)?;
    let times = [limits.connect, limits.handshake, limits.idle_timeout, limits.step, limits.grace];
    let range = Duration::from_millis(1)..=Duration::from_secs(30 * 86_400);
    if let Some(time) = times.iter().find(|time| !range.contains(*time)) {
        return bad(format!("a time-out of {time:?}; time-outs can be 1 ms to 30 days"));
    }
    if limits.inbox_hard < limits.max_message.saturating_add(1 << 10) || limits.inbox_hard < limits.inbox_soft
    {
        return bad(
            "the limit on undelivered bytes must be 1 KiB above the largest message, and not below the \
                    level at which a link is paused"
                .into(),
        );
    }
    Ok(())
}

fn check_name(me: usize, identity: &Identity) -> Result<(), NetError> {
    if *identity.name() == PeerName::Party(me) {
        return Ok(());
    }
    Err(NetError::Config(format!("party {me} was given the certificate of {}", identity.name())))
}

impl Inner {
    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Who this party is at present.
    pub(crate) fn identity(&self) -> Arc<Identity> {
        Arc::clone(&lock(&self.identity))
    }

    /// Takes the link that `peer` has dialled for session `id`.
    fn await_link(&self, id: SessionId, peer: usize, deadline: Instant) -> Result<TlsStream, NetError> {
        let mut state = lock(&self.state);
        loop {
            if let Some((_, stream)) = state.links.remove(&(id, peer)) {
                drop(state);
                self.changed.notify_all();
                return Ok(stream);
            }
            if self.stopping() {
                return Err(NetError::Closed("the endpoint has stopped".into()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let seconds = self.limits.connect.as_secs_f64();
                let me = self.me;
                return Err(NetError::Timeout(format!(
                    "party {peer} can be reached but did not join session {id} within {seconds} s; check that it \
                     runs the same job, and that the address of party {me} in its configuration is right"
                )));
            }
            state = wait(&self.changed, state, left);
        }
    }

    /// Dials `peer` until it answers. Returns the connection and the idle timeout that the peer
    /// tolerates.
    fn dial_link(
        &self,
        session: SessionId,
        peer: usize,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(TlsStream, Duration), NetError> {
        let address = lock(&self.peers).get(peer).cloned().unwrap_or_default();
        if address.is_empty() {
            return Err(NetError::Config(format!("party {} has no address of party {peer}", self.me)));
        }
        let hello = Hello::Link { session, from: self.me, to: peer };
        let name = PeerName::Party(peer);
        let mut pause = Duration::from_millis(20);
        loop {
            let attempt = deadline.min(Instant::now() + ATTEMPT.max(self.limits.handshake));
            let error = match connect(&address, &self.identity(), &name, &hello, attempt) {
                Err(
                    error @ (NetError::Io(_)
                    | NetError::Closed(_)
                    | NetError::Timeout(_)
                    | NetError::Limit(_)),
                ) => error,
                other => return other,
            };
            if cancel.load(Ordering::Acquire) || self.stopping() {
                return Err(NetError::Closed(format!("opening session {session} was called off")));
            }
            if Instant::now() + pause >= deadline {
                let seconds = self.limits.connect.as_secs_f64();
                return Err(NetError::Timeout(format!(
                    "party {peer} at {address} could not be reached within {seconds} s ({error}); start it, or \
                     correct its address or the firewall"
                )));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }
}

impl State {
    pub(crate) fn refuse(&mut self, text: String) {
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(crate::error::sanitise(&text, 600));
    }
}
