//! A TLS connection over a blocking socket, without the copies and small reads of a general-purpose
//! stream.

mod blame;
mod outgoing;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::Error as TlsError;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use crate::error::NetError;
use crate::identity::Identity;
use crate::names::{PeerName, certified_name, server_name};
use crate::trust::CertificateId;
use blame::tls_error;
use outgoing::Outgoing;

/// Size of the buffers of a connection that carries messages: some records for each system call.
const BUFFER: usize = 256 << 10;
/// A handshake message may be this large before the connection is given up.
const MAX_HANDSHAKE: usize = 128 << 10;
/// Most plaintext in one TLS record.
const RECORD: usize = 16 << 10;
/// A record is longer than its plaintext by at most this much.
const RECORD_OVERHEAD: usize = 64;

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// A connection whose handshake is done, both sides' certificates verified.
pub(crate) struct TlsStream {
    socket: TcpStream,
    /// For messages: who is on the other side, as far as known.
    peer: String,
    side: Side,
    /// Bytes from the socket that TLS has not consumed: `incoming[start..end]`.
    incoming: Vec<u8>,
    start: usize,
    end: usize,
    /// Decrypted bytes that nobody has read: `plain[plain_start..]`.
    plain: Vec<u8>,
    plain_start: usize,
    /// Encrypted bytes that go to the socket next.
    outgoing: Outgoing,
    /// The first record of a write, put together from header and body.
    staging: Vec<u8>,
    /// The other side's certificate, as far as known.
    certificate: Option<CertificateId>,
    /// Every read must be over by then.
    deadline: Option<Instant>,
    /// A read without a byte takes so long at most.
    idle_timeout: Option<Duration>,
    /// The first error of the TLS library, which must not be called again after one.
    failed: Option<NetError>,
    /// Bytes read from and written to the socket.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// What one round with the TLS library came to.
enum Step {
    /// Decrypted bytes are there.
    Plain,
    /// Something was put into `outgoing`, more may follow.
    Encoded,
    /// `outgoing` has to be written.
    Transmit,
    /// More bytes are needed from the socket.
    Blocked,
    /// Application data may be written; more bytes are needed to read any.
    Ready,
    /// The other side has closed.
    Closed,
}

/// What to do as soon as application data may be written.
enum Wish<'a> {
    Nothing,
    Data(&'a [u8]),
    CloseNotify,
}

fn handle<D>(
    status: UnbufferedStatus<'_, '_, D>,
    write: Wish<'_>,
    sink: &mut impl FnMut(&[u8]),
    outgoing: &mut Outgoing,
) -> (usize, Result<Step, TlsError>) {
    let mut discard = status.discard;
    let step = match status.state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    sink(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Plain),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => outgoing
            .append(|space| {
                data.encode(space).map_err(|error| match error {
                    EncodeError::InsufficientSize(size) => Some(size.required_size),
                    EncodeError::AlreadyEncoded => None,
                })
            })
            .map(|()| Step::Encoded),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Transmit)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            let size = |error| match error {
                EncryptError::InsufficientSize(size) => Some(size.required_size),
                EncryptError::EncryptExhausted => None,
            };
            match write {
                Wish::Nothing => Ok(()),
                Wish::Data(data) => outgoing.append(|space| traffic.encrypt(data, space).map_err(size)),
                Wish::CloseNotify => outgoing.append(|space| traffic.queue_close_notify(space).map_err(size)),
            }
            .map(|()| Step::Ready)
        }
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        // Early data is never allowed, and future states are not known.
        Ok(_) => Err(TlsError::General("unexpected TLS state".into())),
    };
    (discard, step)
}

impl TlsStream {
    /// Handshake of the dialling side, which expects `name` on the other side.
    pub fn connect(
        socket: TcpStream,
        identity: &Identity,
        name: &PeerName,
        deadline: Instant,
    ) -> Result<Self, NetError> {
        let side = UnbufferedClientConnection::new(Arc::clone(&identity.client), server_name(name)?)
            .map_err(|error| tls_error(&name.to_string(), &error))?;
        Self::handshake(socket, Side::Client(side), name.to_string(), deadline)
    }

    /// Handshake of the accepting side. Returns who the other side has proved to be.
    pub fn accept(
        socket: TcpStream,
        identity: &Identity,
        peer: String,
        deadline: Instant,
    ) -> Result<(Self, PeerName), NetError> {
        let side = UnbufferedServerConnection::new(Arc::clone(&identity.server))
            .map_err(|error| tls_error(&peer, &error))?;
        let mut stream = Self::handshake(socket, Side::Server(side), peer, deadline)?;
        let Side::Server(side) = &stream.side else {
            return Err(NetError::Identity("no server connection".into()));
        };
        let leaf = side.peer_certificates().and_then(<[_]>::first);
        let leaf = leaf.ok_or_else(|| NetError::Identity(format!("{} sent no certificate", stream.peer)))?;
        let name = certified_name(leaf)?;
        stream.certificate = Some(CertificateId::of(leaf)?);
        stream.peer = format!("{name} ({})", stream.peer);
        Ok((stream, name))
    }

    fn handshake(socket: TcpStream, side: Side, peer: String, deadline: Instant) -> Result<Self, NetError> {
        socket.set_nodelay(true).map_err(|error| NetError::io("socket option", &error))?;
        let mut stream = Self {
            socket,
            peer,
            side,
            incoming: vec![0; 20 << 10],
            start: 0,
            end: 0,
            plain: Vec::new(),
            plain_start: 0,
            outgoing: Outgoing::default(),
            staging: Vec::new(),
            certificate: None,
            deadline: Some(deadline),
            idle_timeout: None,
            failed: None,
            bytes_in: 0,
            bytes_out: 0,
        };
        stream.set_write_timeout(Some(deadline.saturating_duration_since(Instant::now())))?;
        loop {
            match stream.step(Wish::Nothing, None)?.0 {
                Step::Encoded => {}
                Step::Transmit => stream.flush()?,
                Step::Blocked => stream.fill()?,
                Step::Ready => {
                    stream.flush()?;
                    return Ok(stream);
                }
                // The other side may be done first and have sent data behind its last handshake
                // message.
                Step::Plain => {}
                Step::Closed => return Err(stream.closed()),
            }
        }
    }

    /// After this, reads have no deadline; each may take `idle_timeout` at most without a byte.
    /// Buffers get the size that carrying messages wants.
    pub fn established(&mut self, idle_timeout: Option<Duration>) -> Result<(), NetError> {
        self.incoming.resize(self.incoming.len().max(BUFFER), 0);
        self.idle_timeout = idle_timeout.map(|time| time.max(Duration::from_millis(1)));
        self.deadline = None;
        self.set_read_timeout(self.idle_timeout)
    }

    /// Every read must be over by then, however steadily bytes come in.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<(), NetError> {
        // Under a deadline each read sets the time that it has; what it has set is taken back after
        // the last.
        match (std::mem::replace(&mut self.deadline, deadline), deadline) {
            (Some(_), None) => self.set_read_timeout(self.idle_timeout),
            _ => Ok(()),
        }
    }

    fn set_read_timeout(&self, time: Option<Duration>) -> Result<(), NetError> {
        self.socket.set_read_timeout(time).map_err(|error| NetError::io("socket option", &error))
    }

    pub fn set_write_timeout(&mut self, time: Option<Duration>) -> Result<(), NetError> {
        let time = time.map(|time| time.max(Duration::from_millis(1)));
        self.socket.set_write_timeout(time).map_err(|error| NetError::io("socket option", &error))
    }

    /// The certificate of who has connected.
    pub fn certificate(&self) -> Option<&CertificateId> {
        self.certificate.as_ref()
    }

    pub fn peer(&self) -> &str {
        &self.peer
    }

    pub fn set_peer(&mut self, peer: String) {
        self.peer = peer;
    }

    /// Whether the other side is known to have gone; reads nothing and does not wait.
    pub fn hung_up(&self) -> bool {
        if self.socket.set_nonblocking(true).is_err() {
            return true;
        }
        let peeked = self.socket.peek(&mut [0]);
        let restored = self.socket.set_nonblocking(false);
        match peeked {
            Ok(bytes) => bytes == 0 || restored.is_err(),
            Err(error) => error.kind() != ErrorKind::WouldBlock || restored.is_err(),
        }
    }

    /// Waits for at most `time` until there is something to read, an end included.
    pub fn readable(&self, time: Duration) -> Result<bool, NetError> {
        if self.plain_start < self.plain.len() || self.start < self.end {
            return Ok(true);
        }
        let since = Instant::now();
        let peeked = loop {
            let left = time.saturating_sub(since.elapsed());
            self.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.peek(&mut [0]) {
                // Linux ends the wait when the process is stopped and continued: that is no silence
                // of the other side.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                peeked => break peeked,
            }
        };
        self.set_read_timeout(self.idle_timeout)?;
        // A broken connection is readable: reading says what is wrong with it.
        let waits = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        Ok(!peeked.is_err_and(|error| waits(error.kind())))
    }

    /// A second handle on the socket, to shut it down from elsewhere.
    pub fn socket(&self) -> Result<TcpStream, NetError> {
        self.socket.try_clone().map_err(|error| NetError::io("socket", &error))
    }

    /// Fills `buffer`. An error of kind [`NetError::Timeout`] means that the other side was silent
    /// for too long, [`NetError::Closed`] that it has gone.
    pub fn read_exact(&mut self, mut buffer: &mut [u8]) -> Result<(), NetError> {
        while !buffer.is_empty() {
            let ready = &self.plain[self.plain_start..];
            if !ready.is_empty() {
                let len = ready.len().min(buffer.len());
                buffer[..len].copy_from_slice(&ready[..len]);
                self.plain_start += len;
                buffer = &mut buffer[len..];
                continue;
            }
            self.plain.clear();
            self.plain_start = 0;
            let (step, read) = self.step(Wish::Nothing, Some(buffer))?;
            match step {
                Step::Plain => buffer = &mut buffer[read..],
                Step::Encoded => {}
                Step::Transmit => self.flush()?,
                Step::Blocked | Step::Ready => self.fill()?,
                Step::Closed => return Err(self.closed()),
            }
        }
        Ok(())
    }

    /// Writes `head` and then `body`; all of it has been handed to the socket when this returns.
    pub fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), NetError> {
        let first = body.len().min(RECORD.saturating_sub(head.len()));
        let mut staging = std::mem::take(&mut self.staging);
        staging.clear();
        staging.extend_from_slice(head);
        staging.extend_from_slice(&body[..first]);
        let records = 1 + body.len().div_ceil(RECORD);
        self.outgoing.reserve(head.len() + body.len() + records * RECORD_OVERHEAD);
        let result = self.encrypt(&staging).and_then(|()| self.encrypt(&body[first..]));
        self.staging = staging;
        result?;
        self.flush()
    }

    /// Says goodbye on the TLS level and closes the sending direction.
    pub fn close(&mut self) -> Result<(), NetError> {
        for _ in 0..16 {
            if matches!(self.step(Wish::CloseNotify, None)?.0, Step::Ready) {
                break;
            }
        }
        self.flush()?;
        self.socket.shutdown(Shutdown::Write).map_err(|error| NetError::io(&self.peer, &error))
    }

    fn encrypt(&mut self, mut data: &[u8]) -> Result<(), NetError> {
        while !data.is_empty() {
            let piece = &data[..data.len().min(BUFFER)];
            match self.step(Wish::Data(piece), None)?.0 {
                Step::Ready => data = &data[piece.len()..],
                Step::Encoded | Step::Plain => {}
                Step::Transmit => self.flush()?,
                Step::Blocked => self.fill()?,
                Step::Closed => return Err(self.closed()),
            }
        }
        Ok(())
    }

    /// One round with the TLS library. Decrypted bytes go to `target` as far as they fit (the count
    /// comes back), the rest to `plain`.
    fn step(&mut self, write: Wish<'_>, target: Option<&mut [u8]>) -> Result<(Step, usize), NetError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let target = target.unwrap_or_default();
        let mut read = 0;
        let plain = &mut self.plain;
        let mut sink = |bytes: &[u8]| {
            let len = bytes.len().min(target.len() - read);
            target[read..read + len].copy_from_slice(&bytes[..len]);
            read += len;
            plain.extend_from_slice(&bytes[len..]);
        };
        let incoming = &mut self.incoming[self.start..self.end];
        let (discard, step) = match &mut self.side {
            Side::Client(side) => {
                handle(side.process_tls_records(incoming), write, &mut sink, &mut self.outgoing)
            }
            Side::Server(side) => {
                handle(side.process_tls_records(incoming), write, &mut sink, &mut self.outgoing)
            }
        };
        self.start = (self.start + discard).min(self.end);
        match step {
            Ok(step) => Ok((step, read)),
            Err(error) => {
                let error = tls_error(&self.peer, &error);
                self.failed = Some(error.clone());
                self.send_alert();
                Err(error)
            }
        }
    }

    /// After an error the TLS library may have an alert for the other side, so that it too knows
    /// why.
    fn send_alert(&mut self) {
        loop {
            // Another round without anything to encode would look at the incoming bytes again, and
            // the library insists that it sends one alert only.
            let more = match &self.side {
                Side::Client(side) => side.wants_write(),
                Side::Server(side) => side.wants_write(),
            };
            if !more {
                break;
            }
            let incoming = &mut self.incoming[self.start..self.end];
            let mut sink = |_: &[u8]| {};
            let outgoing = &mut self.outgoing;
            let (discard, step) = match &mut self.side {
                Side::Client(side) => {
                    handle(side.process_tls_records(incoming), Wish::Nothing, &mut sink, outgoing)
                }
                Side::Server(side) => {
                    handle(side.process_tls_records(incoming), Wish::Nothing, &mut sink, outgoing)
                }
            };
            self.start = (self.start + discard).min(self.end);
            if !matches!(step, Ok(Step::Encoded)) {
                break;
            }
        }
        let _ = self.flush();
        // Bytes that nobody reads would turn the close into a reset, which may overtake the alert.
        let _ = self.socket.shutdown(Shutdown::Write);
        let _ = self.socket.set_read_timeout(Some(Duration::from_millis(50)));
        let _ = self.socket.read(&mut [0; 4096]);
    }

    fn flush(&mut self) -> Result<(), NetError> {
        let ready = &self.outgoing.bytes[..std::mem::take(&mut self.outgoing.end)];
        self.bytes_out += ready.len() as u64;
        self.socket.write_all(ready).map_err(|error| NetError::io(&self.peer, &error))
    }

    /// Reads from the socket what it has, at least one byte.
    fn fill(&mut self) -> Result<(), NetError> {
        self.incoming.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.incoming.len() {
            if self.end >= MAX_HANDSHAKE {
                return Err(NetError::Garbage(format!("{} sent an endless TLS message", self.peer)));
            }
            self.incoming.resize(self.end * 2, 0);
        }
        loop {
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(NetError::Timeout(self.peer.clone()));
                }
                self.set_read_timeout(Some(
                    self.idle_timeout.map_or(left, |idle_timeout| idle_timeout.min(left)),
                ))?;
            }
            match self.socket.read(&mut self.incoming[self.end..]) {
                Ok(0) => return Err(self.closed()),
                Ok(len) => {
                    self.end += len;
                    self.bytes_in += len as u64;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(NetError::io(&self.peer, &error)),
            }
        }
    }

    fn closed(&self) -> NetError {
        NetError::Closed(self.peer.clone())
    }
}
