//! A session over TLS: for each peer one connection that this side dialled and writes, with its
//! writer thread, and one that the peer dialled and this side reads, with its reader thread.

mod handle;
mod read;
mod start;
mod write;

pub(crate) use start::{PeerLinks, start};

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use crate::error::{Abort, AbortKind, NetError};
use crate::failure::{Failure, lock, wait};
use crate::inbox::Inbox;
use crate::limits::Limits;
use crate::payload::Payload;
use crate::shaper::Shaper;
use crate::transport::{Class, Counter, SessionId, Stamp};

struct Session {
    id: SessionId,
    me: usize,
    parties: usize,
    /// Whether a link leads to another machine, or is slowed down as if it did.
    far: bool,
    limits: Limits,
    failure: Failure,
    /// Held from casting or hearing a vote until it is queued, so that the first vote that a peer
    /// gets from here is this party's own.
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
    /// Gets whoever reads or writes this connection out of it, and lets go of it, so that the
    /// socket is gone when they are.
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
    now: Queue,
    behind: Queue,
    /// A message is being written.
    busy: bool,
    /// Reasons to pass on, before all else.
    votes: Vec<Abort>,
    /// No more messages will come.
    leaving: bool,
    /// The writer has ended.
    done: bool,
}

/// The messages of one class.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Outgoing>,
    /// Payload bytes that wait and that are being written.
    bytes: u64,
}

impl OutState {
    fn of(&mut self, class: Class) -> &mut Queue {
        match class {
            Class::Now => &mut self.now,
            Class::Behind => &mut self.behind,
        }
    }

    /// What goes now, although a message of the second class is there, whose next piece would leave
    /// at `leaves` (if the link is slowed down: only what had been sent by then goes before it).
    fn urgent(&mut self, leaves: Option<Instant>) -> Option<Outgoing> {
        let first = self.now.waiting.front()?;
        leaves.is_none_or(|leaves| first.at <= leaves).then(|| self.now.waiting.pop_front())?
    }

    fn next(&mut self, shaper: Option<&Shaper>) -> Option<Outgoing> {
        let leaves = self.behind.waiting.front().zip(shaper).map(|(message, link)| link.leaves(message.at));
        self.urgent(leaves).or_else(|| self.behind.waiting.pop_front())
    }

    fn empty(&self) -> bool {
        self.now.waiting.is_empty() && self.behind.waiting.is_empty()
    }
}

struct Outgoing {
    class: Class,
    tag: u64,
    stamp: Stamp,
    payload: Payload,
    at: Instant,
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
            // Threads may be blocked in reads and writes that only the end of the socket gets them
            // out of.
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
}

/// The reason when a connection is gone, the same from wherever it is noticed.
fn left(index: usize) -> String {
    format!("party {index} left the session (connection closed)")
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({} at party {})", self.id, self.me)
    }
}
