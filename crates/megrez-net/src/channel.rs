//! Requests and responses between a client and a party.

use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::connect::connect;
use crate::error::NetError;
use crate::frame::{self, CHUNK, FrameKind, HEADER_LEN, Header, Hello};
use crate::identity::Identity;
use crate::names::PeerName;
use crate::payload::Payload;
use crate::tls::TlsStream;
use crate::transport::Stamp;
use crate::trust::CertificateId;

/// A connection between a client and a party that carries messages of any size in both directions.
///
/// Both sides have proved who they are. After an error other than [`NetError::Config`] and
/// [`NetError::Limit`] from [`send`](Self::send) the channel is of no more use.
pub struct Channel {
    stream: TlsStream,
    peer: PeerName,
    patience: Patience,
    /// When the other side last showed that it is alive.
    heard: Instant,
}

/// How long one side of a channel bears with the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// A read without a byte takes so long at most.
    pub idle_timeout: Duration,
    /// A write that makes no progress takes so long at most.
    pub writing: Duration,
    /// Bytes a second: a message takes no longer than `idle_timeout` and what its bytes take at
    /// this rate. Without one, a message may trickle for as long as it is never silent.
    pub slowest: Option<u64>,
}

impl Patience {
    /// The same for reads and writes, and no rate.
    #[must_use]
    pub fn of(time: Duration) -> Self {
        Patience { idle_timeout: time, writing: time, slowest: None }
    }

    /// When a message of so many bytes that begins now must be there.
    fn deadline(&self, bytes: u64) -> Option<Instant> {
        let seconds = bytes as f64 / self.slowest? as f64;
        Instant::now().checked_add(self.idle_timeout + Duration::try_from_secs_f64(seconds).ok()?)
    }
}

/// Connects to the party `expect` at `address` (`host:port`). `timeout` bounds the connecting, and
/// then how long nothing may come.
///
/// # Errors
/// [`NetError::Io`], [`NetError::Timeout`] or [`NetError::Closed`] when the address does not
/// answer, [`NetError::Identity`] when another than `expect` answers or this side is not accepted,
/// [`NetError::Version`] when the party runs another version, [`NetError::Limit`] when it is busy.
pub fn dial(
    address: &str,
    identity: &Identity,
    expect: &PeerName,
    timeout: Duration,
) -> Result<Channel, NetError> {
    let (stream, _) = connect(address, identity, expect, &Hello::Client, Instant::now() + timeout)?;
    Channel::new(stream, expect.clone(), timeout)
}

/// Ends a channel from outside, whoever waits on it.
pub struct HangUp(Option<TcpStream>);

impl HangUp {
    /// Of no channel.
    #[must_use]
    pub fn none() -> Self {
        HangUp(None)
    }

    /// Closes the connection.
    pub fn hang_up(&self) {
        if let Some(socket) = &self.0 {
            // Fails when the connection is closed already, which is what is wanted.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Channel {
    pub(crate) fn new(
        mut stream: TlsStream,
        peer: PeerName,
        idle_timeout: Duration,
    ) -> Result<Self, NetError> {
        let patience = Patience::of(idle_timeout);
        stream.established(Some(patience.idle_timeout))?;
        stream.set_write_timeout(Some(patience.writing))?;
        Ok(Self { stream, peer, patience, heard: Instant::now() })
    }

    /// Who is on the other side, as proved by its certificate.
    #[must_use]
    pub fn peer(&self) -> &PeerName {
        &self.peer
    }

    /// The certificate that has proved it, to the side that was called.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateId> {
        self.stream.certificate()
    }

    /// Whether the other side is known to have gone. A connection that is not may be broken all the
    /// same.
    #[must_use]
    pub fn hung_up(&self) -> bool {
        self.stream.hung_up()
    }

    /// Waits for at most `time` until [`recv`](Self::recv) has something to begin with.
    ///
    /// # Errors
    /// [`NetError::Io`] when the operating system refuses.
    pub fn readable(&self, time: Duration) -> Result<bool, NetError> {
        self.stream.readable(time)
    }

    /// From now on, a read or write that makes no progress for `time` fails.
    ///
    /// # Errors
    /// [`NetError::Io`] when the operating system refuses.
    pub fn set_timeout(&mut self, time: Duration) -> Result<(), NetError> {
        self.set_patience(Patience::of(time))
    }

    /// From now on, whoever tries this patience fails: what nobody waited for until now was no
    /// silence.
    ///
    /// # Errors
    /// [`NetError::Io`] when the operating system refuses.
    pub fn set_patience(&mut self, patience: Patience) -> Result<(), NetError> {
        self.patience = patience;
        self.heard = Instant::now();
        self.stream.established(Some(patience.idle_timeout))?;
        self.stream.set_write_timeout(Some(patience.writing))
    }

    /// Sends one message; it has been handed to the operating system when this returns.
    ///
    /// # Errors
    /// [`NetError::Timeout`] or [`NetError::Closed`] when the other side does not take it.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), NetError> {
        self.send_and(bytes, &mut || {})
    }

    /// As [`send`](Self::send), and calls `meanwhile` between the pieces of a long message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_and(&mut self, bytes: &[u8], meanwhile: &mut dyn FnMut()) -> Result<(), NetError> {
        let (tag, stamp) = (0, Stamp::default());
        let mut header = Header { kind: FrameKind::Data, tag, stamp, length: bytes.len() as u64 };
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(CHUNK));
            self.stream.write(&header.encode(), piece).map_err(|error| self.explain(error, "sending to"))?;
            rest = after;
            if rest.is_empty() {
                return Ok(());
            }
            meanwhile();
            header = Header::plain(FrameKind::More, rest.len().min(CHUNK) as u64);
        }
    }

    /// Tells the other side that the answer takes longer: its time-out begins anew.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn keep_alive(&mut self) -> Result<(), NetError> {
        let header = Header::plain(FrameKind::KeepAlive, 0).encode();
        self.stream.write(&header, &[]).map_err(|error| self.explain(error, "sending to"))
    }

    /// A way to end this channel while somebody waits on it.
    ///
    /// # Errors
    /// [`NetError::Io`] when the operating system refuses.
    pub fn hang_up_handle(&self) -> Result<HangUp, NetError> {
        Ok(HangUp(Some(self.stream.socket()?)))
    }

    /// For how long nothing has come from the other side, not even a sign of life, as far as this
    /// side has looked, since [`set_patience`](Self::set_patience).
    #[must_use]
    pub fn silent(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Waits for the next message, which may have at most `max` bytes. Memory is taken as bytes
    /// come in.
    ///
    /// # Errors
    /// [`NetError::Closed`] when the other side has finished, [`NetError::Timeout`] when it is
    /// silent, [`NetError::Limit`] when the message is larger, [`NetError::Garbage`] when the bytes
    /// make no sense.
    pub fn recv(&mut self, max: u64) -> Result<Payload, NetError> {
        let length = self.announced()?;
        self.message(length, max)
    }

    /// As [`recv`](Self::recv), but returns none if no message begins within `time`. Signs of life
    /// do not end the waiting.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_within(&mut self, max: u64, time: Duration) -> Result<Option<Payload>, NetError> {
        match self.begins_within(time)? {
            Some(length) => self.message(length, max).map(Some),
            None => Ok(None),
        }
    }

    /// As [`recv`](Self::recv) of a message that begins within `time`; before anything of it is
    /// taken in, `admit` hears how many bytes it has. What it returns comes back with the message.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and those of `admit`.
    pub fn recv_admitted<T, E: From<NetError>>(
        &mut self,
        max: u64,
        time: Duration,
        admit: impl FnOnce(u64) -> Result<T, E>,
    ) -> Result<(Payload, T), E> {
        let Some(length) = self.begins_within(time)? else {
            let what = format!("{} asked for nothing for {} s", self.peer, time.as_secs());
            return Err(NetError::Timeout(what).into());
        };
        self.fits(length, max)?;
        let admitted = admit(length)?;
        Ok((self.message(length, max)?, admitted))
    }

    /// Waits for the head of a message: how many bytes it announces.
    fn announced(&mut self) -> Result<u64, NetError> {
        loop {
            if let Some(length) = self.head()? {
                return Ok(length);
            }
        }
    }

    fn begins_within(&mut self, time: Duration) -> Result<Option<u64>, NetError> {
        let until = Instant::now() + time;
        loop {
            if !self.stream.readable(until.saturating_duration_since(Instant::now()))? {
                return Ok(None);
            }
            if let Some(length) = self.head()? {
                return Ok(Some(length));
            }
        }
    }

    /// The next head: the length of a message, or none for a sign of life.
    fn head(&mut self) -> Result<Option<u64>, NetError> {
        let header = self.header()?;
        match header.kind {
            FrameKind::KeepAlive => Ok(None),
            FrameKind::Data if header.tag != 0 || header.stamp != Stamp::default() => {
                Err(self.garbage("a session's message on a client's channel"))
            }
            FrameKind::Data => Ok(Some(header.length)),
            FrameKind::Bye => Err(NetError::Closed(format!("{} has finished", self.peer))),
            _ => Err(self.garbage("a frame out of place")),
        }
    }

    fn fits(&self, length: u64, max: u64) -> Result<usize, NetError> {
        usize::try_from(length).ok().filter(|_| length <= max).ok_or_else(|| {
            NetError::Limit(format!(
                "{} sent a message of {length} bytes; at most {max} are taken here",
                self.peer
            ))
        })
    }

    /// The body of a message whose head has come.
    fn message(&mut self, length: u64, max: u64) -> Result<Payload, NetError> {
        let total = self.fits(length, max)?;
        self.stream.set_deadline(self.patience.deadline(length))?;
        let result = self.pieces(total);
        self.stream.set_deadline(None)?;
        result
    }

    fn pieces(&mut self, total: usize) -> Result<Payload, NetError> {
        let mut payload = Payload::with_capacity(total.min(4 << 20));
        let mut left = total;
        loop {
            let frame = left.min(CHUNK);
            let result = self.stream.read_exact(payload.grow(frame, total));
            result.map_err(|error| self.explain(error, "receiving from"))?;
            self.heard = Instant::now();
            left -= frame;
            if left == 0 {
                return Ok(payload);
            }
            let header = self.frame_header()?;
            if header.kind != FrameKind::More || header.length != left.min(CHUNK) as u64 {
                return Err(self.garbage("a message in the wrong pieces"));
            }
        }
    }

    /// Says that this side has finished.
    ///
    /// # Errors
    /// As [`send`](Self::send); of no interest to most callers.
    pub fn close(mut self) -> Result<(), NetError> {
        let header = Header::plain(FrameKind::Bye, 0).encode();
        self.stream.write(&header, &[]).map_err(|error| self.explain(error, "sending to"))?;
        // The other side may have hung up as soon as it saw that.
        let _ = self.stream.close();
        Ok(())
    }

    /// The header of a message or a sign of life, which is no message.
    fn header(&mut self) -> Result<Header, NetError> {
        self.stream.set_deadline(self.patience.deadline(0))?;
        let header = self.frame_header();
        self.stream.set_deadline(None)?;
        header
    }

    fn frame_header(&mut self) -> Result<Header, NetError> {
        let mut bytes = [0; HEADER_LEN];
        self.stream.read_exact(&mut bytes).map_err(|error| self.explain(error, "receiving from"))?;
        self.heard = Instant::now();
        frame::parse_header(&bytes)
    }

    fn garbage(&self, what: &str) -> NetError {
        NetError::Garbage(format!("{} sent {what}", self.peer))
    }

    /// Adds what this side was doing.
    fn explain(&self, error: NetError, doing: &str) -> NetError {
        let peer = &self.peer;
        match error {
            NetError::Timeout(_) => {
                NetError::Timeout(format!("{doing} {peer} made no progress; is it overloaded?"))
            }
            NetError::Closed(_) => NetError::Closed(format!("{doing} {peer} broke off; look at its log")),
            other => other,
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel(to {})", self.peer)
    }
}
