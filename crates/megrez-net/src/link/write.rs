//! The thread that writes a connection: messages in order, those of later runs behind and between
//! the others, signs of life, and votes before all else.

use super::{OUT, Outgoing, Peer, Session, left};
use crate::error::AbortKind;
use crate::failure::{lock, wait};
use crate::frame::{self, CHUNK, FrameKind, Header};
use crate::shaper::{Shaper, wait_until};
use crate::tls::TlsStream;
use crate::transport::Class;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Why a writer stopped in the middle.
enum Stop {
    Failed,
    Broken,
}

impl Session {
    pub(super) fn write(
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
        (state.now, state.behind) = Default::default();
        drop(state);
        peer.outbox.drained.notify_all();
    }

    /// The peer does not read any more. What it has sent may say why, so the reader gets to speak
    /// first.
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
                if let Some(next) = state.next(shaper.as_ref()) {
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
                if timeout.timed_out() && state.empty() && !state.leaving {
                    break None;
                }
            };
            drop(state);
            let Some(message) = next else {
                self.put(peer, out, &Header::plain(FrameKind::KeepAlive, 0), &[])?;
                continue;
            };
            self.write_message(peer, out, &message, keep_alive, shaper.as_mut())?;
            Self::written(peer, &message, false);
        }
    }

    /// A message is on its way, and there is room for another one.
    fn written(peer: &Peer, message: &Outgoing, busy: bool) {
        let mut state = lock(&peer.outbox.state);
        state.busy = busy;
        state.of(message.class).bytes -= message.payload.len() as u64;
        drop(state);
        peer.outbox.drained.notify_all();
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
            // A frame goes out in the shaper's pieces: the receiver sees a trickle, as on a slow
            // line.
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
            let urgent = |shaper: Option<&Shaper>| {
                let leaves = shaper.map(|link| link.leaves(message.at));
                lock(&peer.outbox.state).urgent(leaves)
            };
            while let Some(urgent) =
                (message.class == Class::Behind).then(|| urgent(shaper.as_deref())).flatten()
            {
                self.write_message(peer, out, &urgent, keep_alive, shaper.as_deref_mut())?;
                Self::written(peer, &urgent, true);
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
}
