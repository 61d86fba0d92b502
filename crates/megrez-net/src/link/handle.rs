//! A party's handle on a session over TLS.

use super::{OUT, Outgoing, Session};
use crate::error::{Abort, AbortKind, NetError};
use crate::failure::{lock, wait};
use crate::inbox::Nothing;
use crate::payload::Payload;
use crate::transport::{Class, Message, Stamp, Transport, WireCount, asked_twice};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One party's end of a session over TLS.
pub(super) struct Link(pub(super) Arc<Session>);

impl Transport for Link {
    fn send(
        &self,
        to: usize,
        tag: u64,
        stamp: Stamp,
        class: Class,
        payload: Payload,
    ) -> Result<(), NetError> {
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
            let queue = state.of(class);
            if queue.bytes == 0 || queue.bytes + bytes <= session.limits.queue {
                break;
            }
            // The reader of the reverse link notices when the peer is gone; a peer that is there
            // may yet not read.
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
        state.of(class).bytes += bytes;
        peer.sent.message(bytes);
        // A wait for room counts as computing, so that back-pressure does not also look like a slow
        // line.
        let at = if at.elapsed() > Duration::from_millis(1) { Instant::now() } else { at };
        state.of(class).waiting.push_back(Outgoing { class, tag, stamp, payload, at });
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
            while !state.done && (state.busy || !state.empty()) && !self.0.failure.tripped() {
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

    fn far(&self) -> bool {
        self.0.far
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
