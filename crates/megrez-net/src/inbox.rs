//! What one peer has sent and nobody has asked for yet, sorted by tag.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::failure::{lock, wait};
use crate::shaper::wait_until;
use crate::transport::Message;

/// Book-keeping per message that counts against the limits in addition to its payload, so that
/// floods of empty messages are bounded too.
const OVERHEAD: u64 = 128;

/// Bounds on what waits in one inbox, in bytes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Room {
    /// Above this the sender has to wait, unless somebody here waits for a message that has yet to
    /// come.
    pub soft: u64,
    /// Above this the session fails.
    pub hard: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Over the hard limit.
    Full,
    /// A tag came twice.
    Duplicate,
    /// The session has failed, or the inbox is closed.
    Stopped,
    /// No room within the given time.
    Timeout,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// Did not come in time.
    Timeout,
    /// The peer has finished; it will not come.
    Ended,
    /// The session has failed.
    Stopped,
    /// The same tag was asked for before.
    Twice,
}

pub(crate) struct Inbox {
    room: Room,
    state: Mutex<State>,
    /// Something arrived, or the session failed.
    arrived: Condvar,
    /// Something was taken, or somebody started to wait.
    taken: Condvar,
}

#[derive(Default)]
struct State {
    ready: HashMap<u64, (Message, Option<Instant>)>,
    /// Tags taken so far. Grows by what this party asks for, never by what the peer sends.
    done: HashSet<u64>,
    bytes: u64,
    /// Who waits for what: (tag, name of the step).
    waiting: Vec<(u64, String)>,
    ended: bool,
}

impl State {
    /// Whether somebody waits for a message that has yet to come; whose message is here just has
    /// not run yet.
    fn starving(&self) -> bool {
        self.waiting.iter().any(|(tag, _)| !self.ready.contains_key(tag))
    }
}

impl Inbox {
    pub fn new(room: Room) -> Self {
        Self { room, state: Mutex::default(), arrived: Condvar::new(), taken: Condvar::new() }
    }

    /// Makes room for a message of `len` bytes; waits while there is none.
    pub fn admit(&self, len: u64, limit: Duration, stopped: impl Fn() -> bool) -> Result<(), Refusal> {
        let cost = len.saturating_add(OVERHEAD);
        let mut until = None;
        let mut state = lock(&self.state);
        loop {
            if stopped() {
                return Err(Refusal::Stopped);
            }
            let total = state.bytes.saturating_add(cost);
            let starving = state.starving();
            if total > self.room.hard && (cost > self.room.hard || starving) {
                return Err(Refusal::Full);
            }
            // A lane that waits for a message still to come could wait for ever if the link stood
            // still.
            if total <= self.room.soft || state.bytes == 0 || (starving && total <= self.room.hard) {
                state.bytes = total;
                return Ok(());
            }
            let until = *until.get_or_insert_with(|| Instant::now() + limit);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Refusal::Timeout);
            }
            state = wait(&self.taken, state, left);
        }
    }

    /// Whether `tag` came before; asked before the bytes of a message are read.
    pub fn knows(&self, tag: u64) -> bool {
        let state = lock(&self.state);
        state.ready.contains_key(&tag) || state.done.contains(&tag)
    }

    /// Delivers an admitted message, visible from `at` on.
    pub fn push(&self, tag: u64, message: Message, at: Option<Instant>) -> Result<(), Refusal> {
        let mut state = lock(&self.state);
        if state.done.contains(&tag) || state.ready.contains_key(&tag) {
            return Err(Refusal::Duplicate);
        }
        state.ready.insert(tag, (message, at));
        drop(state);
        self.arrived.notify_all();
        Ok(())
    }

    /// Takes the message with `tag`; waits for it for at most `limit`.
    pub fn take(
        &self,
        tag: u64,
        what: &str,
        limit: Duration,
        stopped: impl Fn() -> bool,
    ) -> Result<Message, Nothing> {
        let mut until = None;
        let mut state = lock(&self.state);
        if state.done.contains(&tag) || state.waiting.iter().any(|(other, _)| *other == tag) {
            return Err(Nothing::Twice);
        }
        let mut listed = false;
        let result = loop {
            if stopped() {
                break Err(Nothing::Stopped);
            }
            if let Some((message, at)) = state.ready.remove(&tag) {
                state.bytes -= message.payload.len() as u64 + OVERHEAD;
                state.done.insert(tag);
                break Ok((message, at));
            }
            if state.ended {
                break Err(Nothing::Ended);
            }
            let until = *until.get_or_insert_with(|| Instant::now() + limit);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Nothing::Timeout);
            }
            if !listed {
                listed = true;
                state.waiting.push((tag, what.to_owned()));
                self.taken.notify_all();
            }
            state = wait(&self.arrived, state, left);
        };
        if listed {
            state.waiting.retain(|(other, _)| *other != tag);
        }
        drop(state);
        self.taken.notify_all();
        let (message, at) = result?;
        if let Some(at) = at {
            wait_until(at);
        }
        Ok(message)
    }

    /// The step that has been waiting for the longest.
    pub fn waiting_for(&self) -> Option<String> {
        lock(&self.state).waiting.first().map(|(_, what)| what.clone())
    }

    /// The peer has finished: what is here can still be taken.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.arrived.notify_all();
    }

    /// Whether the peer has finished.
    pub fn ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// Makes everybody who waits look again.
    pub fn wake(&self) {
        drop(lock(&self.state));
        self.arrived.notify_all();
        self.taken.notify_all();
    }
}
