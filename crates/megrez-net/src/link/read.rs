//! The thread that reads a connection into the inbox, as far as there is room.

use super::{IN, OUT, Peer, Session, left};
use crate::error::{AbortKind, NetError};
use crate::failure::lock;
use crate::frame::{self, CHUNK, FrameKind, HEADER_LEN, Header};
use crate::inbox::Refusal;
use crate::payload::Payload;
use crate::tls::TlsStream;
use crate::transport::Message;
use std::sync::Arc;

impl Session {
    pub(super) fn read(self: &Arc<Self>, index: usize, mut incoming: TlsStream) {
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
            // Nothing from this peer matters any more, but the writer must not wait for it for
            // ever.
            peer.hang_up(OUT);
        }
        if self.failure.tripped() || lock(&peer.outbox.state).leaving {
            // Expected: all connections end when the session does.
            peer.inbox.end();
            return;
        }
        let seconds = self.limits.idle_timeout.as_secs_f64();
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
                FrameKind::Data => self.read_message(peer, incoming, &header, false)?,
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

    /// A message, the rest of its pieces, and the messages between these. `inside` another one
    /// there are none.
    fn read_message(
        self: &Arc<Self>,
        peer: &Peer,
        incoming: &mut TlsStream,
        header: &Header,
        inside: bool,
    ) -> Result<(), NetError> {
        let Header { tag, stamp, length, .. } = *header;
        let max = self.limits.max_message;
        let total = usize::try_from(length).ok().filter(|_| length <= max).ok_or_else(|| {
            NetError::Limit(format!("a message of {length} bytes where at most {max} are allowed"))
        })?;
        if peer.inbox.knows(tag) {
            return Err(NetError::Garbage(format!("the message {tag:#018x} twice")));
        }
        // Nobody here wants it when this party has left or the session has failed, but the link
        // goes on, because what comes after it may say why.
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
        // Memory is taken as bytes come in: a length alone costs the peer nothing, so it gets
        // nothing.
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
            let mut header = self.next_header(peer, incoming)?;
            // One that does not wait for this one; inside it there is no third.
            while header.kind == FrameKind::Data && !inside {
                self.read_message(peer, incoming, &header, true)?;
                header = self.next_header(peer, incoming)?;
            }
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
