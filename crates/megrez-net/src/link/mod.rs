//! A session over TLS: for each peer one connection that this side dialled and writes, with its writer thread,
//! and one that the peer dialled and this side reads, with its reader thread.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Abort, AbortKind, NetError};
use crate::failure::{Failure, lock, wait};
use crate::frame::{self, CHUNK, FrameKind, HEADER_LEN, Header};
use crate::inbox::{Inbox, Nothing, Refusal, Room};
use crate::limits::Limits;
use crate::network::Network;
use crate::payload::Payload;
use crate::profile::NetProfile;
use crate::shaper::{Shaper, wait_until};
use crate::tls::TlsStream;
use crate::transport::{ClockKind, Counter, Message, SessionId, Stamp, Transport, WireCount, asked_twice};

/// Two verified connections with one peer.
pub(crate) struct Pair {
    pub peer: usize,
    /// Written by this side.
    pub out: TlsStream,
    /// Silence after which the peer takes this side for dead.
    pub peer_silence: Duration,
    /// Read by this side.
    pub incoming: TlsStream,
}

struct Session {
    id: SessionId,
    me: usize,
    parties: usize,
    limits: Limits,
    failure: Failure,
    /// Held from casting or hearing a vote until it is queued, so that the first vote that a peer gets from here is
    /// this party's own.
    order: Mutex<()>,
    /// By party; none for this one.
    peers: Vec<Option<Peer>>,
    /// Keeps the session's name reserved at the endpoint.
    _name: Box<dyn Send + Sync>,
}

struct Peer {
    index: usize,
    inbox: Inbox,
    outbox: Outbox,
    sent: Counter,
    received: Counter,
    /// Of the connection that is written, and of the one that is read: to end them from outside.
    sockets: Mutex<[Option<TcpStream>; 2]>,
    /// Bytes of payload after which the shaper lets go of a piece.
    chunk: usize,
}

const OUT: usize = 0;
const IN: usize = 1;

impl Peer {
    /// Gets whoever reads or writes this connection out of it, and lets go of it, so that the socket is gone when
    /// they are.
    fn hang_up(&self, which: usize) {
        if let Some(socket) = lock(&self.sockets)[which].take() {
            // Fails when the connection is closed already, which is what is wanted.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Lets go of a connection that has come to its end.
    fn forget(&self, which: usize) {
        lock(&self.sockets)[which] = None;
    }
}

#[derive(Default)]
struct Outbox {
    state: Mutex<OutState>,
    /// There is something to write.
    filled: Condvar,
    /// Something has been written.
    drained: Condvar,
}

#[derive(Default)]
struct OutState {
    queue: VecDeque<Outgoing>,
    /// Payload bytes in the queue and being written.
    bytes: u64,
    /// A message is being written.
    busy: bool,
    /// Reasons to pass on, before all else.
    votes: Vec<Abort>,
    /// No more messages will come.
    leaving: bool,
    /// The writer has ended.
    done: bool,
}

struct Outgoing {
    tag: u64,
    stamp: Stamp,
    payload: Payload,
    at: Instant,
}

/// Why a writer stopped in the middle.
enum Stop {
    Failed,
    Broken,
}

/// Starts the threads of a session and returns this party's handle on it.
pub(crate) fn start(
    id: SessionId,
    me: usize,
    parties: usize,
    profile: &NetProfile,
    limits: &Limits,
    pairs: Vec<Pair>,
    name: Box<dyn Send + Sync>,
) -> Result<Network, NetError> {
    let room = Room { soft: limits.inbox_soft, hard: limits.inbox_hard };
    // A piece takes at most some 20 ms, so that silence never comes from the shaper.
    let per_piece = 20_000_000.0 / (profile.transmit_ns(1 << 20).max(1) as f64 / f64::from(1 << 20));
    let chunk = if profile.is_unshaped() { CHUNK } else { (per_piece as usize).clamp(64, CHUNK) };
    let mut expected = vec![false; parties];
    let mut peers: Vec<Option<Peer>> = (0..parties).map(|_| None).collect();
    let mut streams = Vec::new();
    for mut pair in pairs {
        let Pair { peer, .. } = pair;
        pair.out.established(None)?;
        pair.out.set_write_timeout(None)?;
        pair.incoming.established(Some(limits.silence))?;
        expected[peer] = true;
        peers[peer] = Some(Peer {
            index: peer,
            inbox: Inbox::new(room),
            outbox: Outbox::default(),
            sent: Counter::default(),
            received: Counter::default(),
            sockets: Mutex::new([Some(pair.out.socket()?), Some(pair.incoming.socket()?)]),
            chunk,
        });
        streams.push(pair);
    }
    let failure = Failure::new(expected, limits.grace);
    let session = Arc::new(Session {
        id,
        me,
        parties,
        limits: limits.clone(),
        failure,
        order: Mutex::new(()),
        peers,
        _name: name,
    });
    let thread = |what: &str, peer: usize| thread::Builder::new().name(format!("megrez-{what}-{peer}"));
    let spawned = |error| NetError::Io(format!("cannot start a thread: {error}"));
    for Pair { peer, out, peer_silence, incoming } in streams {
        // Four signs of life in the time after which the peer would give up.
        let keep_alive = (peer_silence / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let shaper = Shaper::new(profile);
        let writer = Arc::clone(&session);
        thread("send", peer).spawn(move || writer.write(peer, out, keep_alive, shaper)).map_err(spawned)?;
        let reader = Arc::clone(&session);
        thread("recv", peer).spawn(move || reader.read(peer, incoming)).map_err(spawned)?;
    }
    Ok(Network::new(me, parties, ClockKind::Real, Box::new(Link(session))))
}

impl Session {
    fn peer(&self, index: usize) -> Result<&Peer, NetError> {
        self.peers
            .get(index)
            .and_then(Option::as_ref)
            .ok_or_else(|| NetError::Config(format!("there is no link to party {index}")))
    }

    fn others(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().flatten()
    }

    fn aborted(&self) -> NetError {
        self.failure
            .settle()
            .unwrap_or_else(|| NetError::Closed(format!("party {} has closed its handle", self.me)))
    }

    /// This party noticed a failure; waits until all have agreed on the reason.
    fn trip(self: &Arc<Self>, kind: AbortKind, culprit: usize, reason: &str) -> NetError {
        self.trip_with(Abort::new(kind, Some(culprit), self.me, reason));
        self.aborted()
    }

    fn trip_with(self: &Arc<Self>, abort: Abort) {
        let _order = lock(&self.order);
        if let Some(vote) = self.failure.notice(abort) {
            self.spread(&vote, true);
        }
    }

    /// Party `from` passed on a reason.
    fn hear(self: &Arc<Self>, from: usize, abort: Abort) {
        let _order = lock(&self.order);
        let first = !self.failure.tripped();
        if let Some(vote) = self.failure.hear(from, abort) {
            self.spread(&vote, first);
        }
    }

    fn spread(self: &Arc<Self>, vote: &Abort, first: bool) {
        for peer in self.others() {
            let mut state = lock(&peer.outbox.state);
            if state.done {
                self.failure.gone(peer.index);
            }
            state.votes.push(vote.clone());
            drop(state);
            peer.outbox.filled.notify_all();
            peer.outbox.drained.notify_all();
            peer.inbox.wake();
        }
        if first {
            // Threads may be blocked in reads and writes that only the end of the socket gets them out of.
            let session = Arc::clone(self);
            let reaper = thread::Builder::new().name("megrez-end".into());
            if reaper.spawn(move || session.reap()).is_err() {
                self.reap();
            }
        }
    }

    /// Ends all connections once the reason is settled and passed on.
    fn reap(&self) {
        self.failure.settle();
        let until = Instant::now() + self.limits.grace;
        for peer in self.others() {
            let mut state = lock(&peer.outbox.state);
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if state.done || left.is_zero() {
                    break;
                }
                state = wait(&peer.outbox.drained, state, left);
            }
        }
        for peer in self.others() {
            peer.hang_up(OUT);
            peer.hang_up(IN);
        }
    }

    fn write(
        self: &Arc<Self>,
        index: usize,
        mut out: TlsStream,
        keep_alive: Duration,
        shaper: Option<Shaper>,
    ) {
        let Ok(peer) = self.peer(index) else { return };
        let result = self.write_all(peer, &mut out, keep_alive, shaper);
        if matches!(result, Err(Stop::Failed)) {
            self.write_votes(peer, &mut out);
        }
        if !matches!(result, Err(Stop::Broken)) {
            let _ = out.close();
        }
        peer.sent.wire(std::mem::take(&mut out.bytes_out));
        drop(out);
        peer.forget(OUT);
        if matches!(result, Err(Stop::Broken)) {
            self.lost(peer);
        }
        let mut state = lock(&peer.outbox.state);
        state.done = true;
        state.busy = false;
        state.bytes = 0;
        state.queue.clear();
        drop(state);
        peer.outbox.drained.notify_all();
    }

    /// The peer does not read any more. What it has sent may say why, so the reader gets to speak first.
    fn lost(self: &Arc<Self>, peer: &Peer) {
        let until = Instant::now() + self.limits.grace;
        while !self.failure.tripped() && !peer.inbox.ended() {
            if Instant::now() >= until {
                self.trip(AbortKind::Left, peer.index, &left(peer.index));
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn write_all(
        &self,
        peer: &Peer,
        out: &mut TlsStream,
        keep_alive: Duration,
        mut shaper: Option<Shaper>,
    ) -> Result<(), Stop> {
        out.bytes_out = 0;
        loop {
            let mut state = lock(&peer.outbox.state);
            let next = loop {
                if self.failure.tripped() {
                    return Err(Stop::Failed);
                }
                if let Some(next) = state.queue.pop_front() {
                    state.busy = true;
                    break Some(next);
                }
                if state.leaving {
                    drop(state);
                    return self.put(peer, out, &Header::plain(FrameKind::Bye, 0), &[]);
                }
                let (guard, timeout) = peer
                    .outbox
                    .filled
                    .wait_timeout(state, keep_alive)
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                state = guard;
                if timeout.timed_out() && state.queue.is_empty() && !state.leaving {
                    break None;
                }
            };
            drop(state);
            let Some(message) = next else {
                self.put(peer, out, &Header::plain(FrameKind::KeepAlive, 0), &[])?;
                continue;
            };
            self.write_message(peer, out, &message, keep_alive, shaper.as_mut())?;
            let mut state = lock(&peer.outbox.state);
            state.busy = false;
            state.bytes -= message.payload.len() as u64;
            drop(state);
            peer.outbox.drained.notify_all();
        }
    }

    fn write_message(
        &self,
        peer: &Peer,
        out: &mut TlsStream,
        message: &Outgoing,
        keep_alive: Duration,
        mut shaper: Option<&mut Shaper>,
    ) -> Result<(), Stop> {
        let bytes = message.payload.as_bytes();
        let mut header = Header {
            kind: FrameKind::Data,
            tag: message.tag,
            stamp: message.stamp,
            length: bytes.len() as u64,
        };
        let mut at = 0;
        loop {
            let piece = &bytes[at..bytes.len().min(at + CHUNK)];
            // A frame goes out in the shaper's pieces: the receiver sees a trickle, as on a slow line.
            let mut sent = 0;
            let mut head = &header.encode()[..];
            loop {
                let part = &piece[sent..piece.len().min(sent + peer.chunk)];
                if let Some(shaper) = shaper.as_deref_mut() {
                    let release = shaper.schedule(message.at, (head.len() + part.len()) as u64);
                    self.hold(peer, out, release, keep_alive, sent == 0)?;
                }
                self.put_raw(peer, out, head, part)?;
                head = &[];
                sent += part.len();
                if sent == piece.len() {
                    break;
                }
            }
            at += piece.len();
            if at == bytes.len() {
                return Ok(());
            }
            if self.failure.tripped() {
                return Err(Stop::Failed);
            }
            header = Header::plain(FrameKind::More, (bytes.len() - at).min(CHUNK) as u64);
        }
    }

    /// Waits until `release`, with signs of life where a frame may begin.
    fn hold(
        &self,
        peer: &Peer,
        out: &mut TlsStream,
        release: Instant,
        keep_alive: Duration,
        between: bool,
    ) -> Result<(), Stop> {
        loop {
            let left = release.saturating_duration_since(Instant::now());
            if left <= keep_alive {
                wait_until(release);
                return Ok(());
            }
            thread::sleep(keep_alive);
            if between {
                if self.failure.tripped() {
                    return Err(Stop::Failed);
                }
                self.put(peer, out, &Header::plain(FrameKind::KeepAlive, 0), &[])?;
            }
        }
    }

    fn put(&self, peer: &Peer, out: &mut TlsStream, header: &Header, body: &[u8]) -> Result<(), Stop> {
        self.put_raw(peer, out, &header.encode(), body)
    }

    fn put_raw(&self, peer: &Peer, out: &mut TlsStream, head: &[u8], body: &[u8]) -> Result<(), Stop> {
        let result = out.write(head, body).map_err(|_| Stop::Broken);
        peer.sent.wire(std::mem::take(&mut out.bytes_out));
        result
    }

    /// Passes reasons on until all parties have settled on one.
    fn write_votes(&self, peer: &Peer, out: &mut TlsStream) {
        // A peer that does not read cannot hold this thread for long.
        let _ = out.set_write_timeout(Some(self.limits.grace));
        loop {
            let settled = self.failure.settled();
            let votes = std::mem::take(&mut lock(&peer.outbox.state).votes);
            for vote in &votes {
                let body = frame::encode_abort(vote);
                let header = Header::plain(FrameKind::Abort, body.len() as u64);
                if self.put(peer, out, &header, &body).is_err() {
                    return;
                }
            }
            if settled {
                return;
            }
            let state = lock(&peer.outbox.state);
            if state.votes.is_empty() {
                drop(wait(&peer.outbox.filled, state, Duration::from_millis(5)));
            }
        }
    }

    fn read(self: &Arc<Self>, index: usize, mut incoming: TlsStream) {
        let Ok(peer) = self.peer(index) else { return };
        incoming.bytes_in = 0;
        let result = self.read_all(peer, &mut incoming);
        peer.received.wire(std::mem::take(&mut incoming.bytes_in));
        drop(incoming);
        peer.forget(IN);
        self.failure.gone(index);
        let Err(error) = result else {
            peer.inbox.end();
            return;
        };
        if lock(&peer.outbox.state).leaving {
            // Nothing from this peer matters any more, but the writer must not wait for it for ever.
            peer.hang_up(OUT);
        }
        if self.failure.tripped() || lock(&peer.outbox.state).leaving {
            // Expected: all connections end when the session does.
            peer.inbox.end();
            return;
        }
        let seconds = self.limits.silence.as_secs_f64();
        let me = self.me;
        match error {
            NetError::Timeout(_) => {
                let waiting = peer.inbox.waiting_for();
                let waiting =
                    waiting.map_or_else(String::new, |what| format!(" while party {me} waited for '{what}'"));
                let text = format!("party {index} was silent for {seconds} s{waiting}");
                self.trip(AbortKind::Stalled, index, &text)
            }
            NetError::Limit(what) => {
                self.trip(AbortKind::Limit, index, &format!("party {index} sent {what}"))
            }
            NetError::Garbage(what) | NetError::Identity(what) => {
                self.trip(AbortKind::Garbage, index, &format!("party {index} sent malformed data: {what}"))
            }
            _ => self.trip(AbortKind::Left, index, &left(index)),
        };
    }

    /// Reads frames until the peer has said all it will say.
    fn read_all(self: &Arc<Self>, peer: &Peer, incoming: &mut TlsStream) -> Result<(), NetError> {
        loop {
            let header = self.next_header(peer, incoming)?;
            match header.kind {
                FrameKind::Data => self.read_message(peer, incoming, &header)?,
                FrameKind::Bye => return Ok(()),
                _ => return Err(NetError::Garbage("a piece of a message that did not begin".into())),
            }
        }
    }

    /// The next header that is not about the session itself.
    fn next_header(self: &Arc<Self>, peer: &Peer, incoming: &mut TlsStream) -> Result<Header, NetError> {
        loop {
            let mut bytes = [0; HEADER_LEN];
            incoming.read_exact(&mut bytes)?;
            let header = frame::parse_header(&bytes)?;
            match header.kind {
                FrameKind::KeepAlive => {}
                FrameKind::Abort => {
                    let mut body = vec![0; header.length as usize];
                    incoming.read_exact(&mut body)?;
                    let abort = frame::parse_abort(&body)?;
                    let inside = |party: usize| party < self.parties;
                    if !inside(abort.origin) || !abort.culprit.is_none_or(inside) {
                        return Err(NetError::Garbage("a reason that names no party of the session".into()));
                    }
                    self.hear(peer.index, abort);
                }
                _ => return Ok(header),
            }
            peer.received.wire(std::mem::take(&mut incoming.bytes_in));
        }
    }

    fn read_message(
        self: &Arc<Self>,
        peer: &Peer,
        incoming: &mut TlsStream,
        header: &Header,
    ) -> Result<(), NetError> {
        let Header { tag, stamp, length, .. } = *header;
        let max = self.limits.max_message;
        let total = usize::try_from(length).ok().filter(|_| length <= max).ok_or_else(|| {
            NetError::Limit(format!("a message of {length} bytes where at most {max} are allowed"))
        })?;
        if peer.inbox.knows(tag) {
            return Err(NetError::Garbage(format!("the message {tag:#018x} twice")));
        }
        // Nobody here wants it when this party has left or the session has failed, but the link goes on, because
        // what comes after it may say why.
        let unwanted = || self.failure.tripped() || lock(&peer.outbox.state).leaving;
        let keep = match peer.inbox.admit(length, self.limits.step, unwanted) {
            Ok(()) => true,
            Err(Refusal::Stopped) => false,
            Err(Refusal::Timeout) => {
                return Err(NetError::Limit(
                    "more than is taken here, and nothing was taken for the step limit".into(),
                ));
            }
            Err(Refusal::Full | Refusal::Duplicate) => {
                let hard = self.limits.inbox_hard;
                return Err(NetError::Limit(format!("more than {hard} bytes ahead of what is needed")));
            }
        };
        // Memory is taken as bytes come in: a length alone costs the peer nothing, so it gets nothing.
        let mut payload = Payload::with_capacity(if keep { total.min(4 << 20) } else { 0 });
        let mut left = total;
        let mut frame = left.min(CHUNK);
        loop {
            if keep {
                incoming.read_exact(payload.grow(frame, total))?;
            } else {
                incoming.read_exact(&mut vec![0; frame])?;
            }
            left -= frame;
            peer.received.wire(std::mem::take(&mut incoming.bytes_in));
            if left == 0 {
                break;
            }
            let header = self.next_header(peer, incoming)?;
            frame = left.min(CHUNK);
            if header.kind != FrameKind::More || header.length != frame as u64 {
                return Err(NetError::Garbage("a message in the wrong pieces".into()));
            }
        }
        if keep {
            peer.received.message(length);
            let message = Message { stamp, payload };
            peer.inbox
                .push(tag, message, None)
                .map_err(|_| NetError::Garbage(format!("the message {tag:#018x} twice")))?;
        }
        Ok(())
    }
}

/// The reason when a connection is gone, the same from wherever it is noticed.
fn left(index: usize) -> String {
    format!("party {index} left the session (connection closed)")
}

/// One party's end of a session over TLS.
struct Link(Arc<Session>);

impl Transport for Link {
    fn send(&self, to: usize, tag: u64, stamp: Stamp, payload: Payload) -> Result<(), NetError> {
        let session = &self.0;
        let peer = session.peer(to)?;
        let bytes = payload.len() as u64;
        if bytes > session.limits.max_message {
            return Err(NetError::Limit(format!(
                "party {} cannot send a message of {bytes} bytes: at most {} are allowed; use smaller batches",
                session.me, session.limits.max_message
            )));
        }
        let at = Instant::now();
        let mut state = lock(&peer.outbox.state);
        loop {
            if session.failure.tripped() {
                drop(state);
                return Err(session.aborted());
            }
            if state.leaving {
                let me = session.me;
                return Err(NetError::Closed(format!(
                    "party {me} has closed its handle and cannot send any more"
                )));
            }
            if state.done {
                // The peer has finished in order, and will not ask for this.
                return Ok(());
            }
            if state.bytes == 0 || state.bytes + bytes <= session.limits.queue {
                break;
            }
            // The reader of the reverse link notices when the peer is gone; a peer that is there may yet not read.
            let left = session.limits.step.saturating_sub(at.elapsed());
            if left.is_zero() {
                drop(state);
                let (me, seconds) = (session.me, session.limits.step.as_secs_f64());
                let text =
                    format!("party {me} could not send to party {to} for {seconds} s: it takes nothing");
                return Err(session.trip(AbortKind::Timeout, to, &text));
            }
            state = wait(&peer.outbox.drained, state, left.min(Duration::from_secs(1)));
        }
        state.bytes += bytes;
        peer.sent.message(bytes);
        // A wait for room counts as computing, so that back-pressure does not also look like a slow line.
        let at = if at.elapsed() > Duration::from_millis(1) { Instant::now() } else { at };
        state.queue.push_back(Outgoing { tag, stamp, payload, at });
        drop(state);
        peer.outbox.filled.notify_one();
        Ok(())
    }

    fn recv(&self, from: usize, tag: u64, what: &str) -> Result<Message, NetError> {
        let session = &self.0;
        let me = session.me;
        let peer = session.peer(from)?;
        let limit = session.limits.step;
        let over = || session.failure.tripped() || lock(&peer.outbox.state).leaving;
        peer.inbox.take(tag, what, limit, over).map_err(|nothing| match nothing {
            Nothing::Stopped => session.aborted(),
            Nothing::Timeout => {
                let seconds = limit.as_secs_f64();
                let text = format!("party {me} waited {seconds} s for '{what}' from party {from}");
                session.trip(AbortKind::Timeout, from, &text)
            }
            Nothing::Ended => {
                let text = format!("party {from} finished while party {me} waited for '{what}' from it");
                session.trip(AbortKind::Ended, from, &text)
            }
            Nothing::Twice => asked_twice(me, from, what),
        })
    }

    fn abort(&self, abort: Abort) -> NetError {
        self.0.trip_with(abort);
        self.0.aborted()
    }

    fn wire(&self) -> Vec<WireCount> {
        self.0
            .others()
            .map(|peer| WireCount {
                peer: peer.index,
                sent: peer.sent.read(),
                received: peer.received.read(),
            })
            .collect()
    }

    fn flush(&self) -> Result<(), NetError> {
        let until = Instant::now() + self.0.limits.step;
        for peer in self.0.others() {
            let mut state = lock(&peer.outbox.state);
            while !state.done && (state.busy || !state.queue.is_empty()) && !self.0.failure.tripped() {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    drop(state);
                    let (me, to, seconds) = (self.0.me, peer.index, self.0.limits.step.as_secs_f64());
                    let text =
                        format!("party {me} could not send to party {to} for {seconds} s: it takes nothing");
                    return Err(self.0.trip(AbortKind::Timeout, to, &text));
                }
                state = wait(&peer.outbox.drained, state, left.min(Duration::from_secs(1)));
            }
        }
        if self.0.failure.tripped() { Err(self.0.aborted()) } else { Ok(()) }
    }

    fn leave(&self) {
        for peer in self.0.others() {
            lock(&peer.outbox.state).leaving = true;
            peer.outbox.filled.notify_all();
            peer.inbox.wake();
        }
        // The process may end right after this, so what was sent has to be on its way.
        let until = Instant::now() + self.0.limits.step;
        for peer in self.0.others() {
            let mut state = lock(&peer.outbox.state);
            while !state.done {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    // The peer is alive but reads nothing; the end of the socket ends the writer.
                    peer.hang_up(OUT);
                    break;
                }
                state = wait(&peer.outbox.drained, state, left.min(Duration::from_secs(1)));
            }
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} at party {})", self.id, self.me)
    }
}
