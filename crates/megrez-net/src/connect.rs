//! Connecting to a party: the address is dialled, both identities are proven, and the hello says
//! what the connection is for. Links and channels begin here.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::error::NetError;
use crate::frame::{self, HELLO_LEN, Hello, Verdict};
use crate::identity::Identity;
use crate::names::PeerName;
use crate::tls::TlsStream;

/// Longest single attempt to connect.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(5);

/// Connects, proves both identities, and says what the connection is for.
pub(crate) fn connect(
    address: &str,
    identity: &Identity,
    name: &PeerName,
    hello: &Hello,
    deadline: Instant,
) -> Result<(TlsStream, Duration), NetError> {
    let io = |error: std::io::Error| NetError::Io(format!("{address}: {error}"));
    let mut last = NetError::Config(format!("'{address}' has no address; write host:port"));
    let candidates = address.to_socket_addrs().map_err(io)?;
    for candidate in candidates {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&candidate, left.min(ATTEMPT)) {
            Ok(socket) => return introduce(socket, address, identity, name, hello, deadline),
            Err(error) => last = io(error),
        }
    }
    Err(last)
}

fn introduce(
    socket: TcpStream,
    address: &str,
    identity: &Identity,
    name: &PeerName,
    hello: &Hello,
    deadline: Instant,
) -> Result<(TlsStream, Duration), NetError> {
    let mut stream = TlsStream::connect(socket, identity, name, deadline)?;
    stream.set_peer(format!("{name} at {address}"));
    stream.write(&hello.encode(), &[])?;
    let mut bytes = [0; HELLO_LEN];
    stream.read_exact(&mut bytes)?;
    let peer = stream.peer();
    let welcome = frame::parse_welcome(&bytes).map_err(|e| match e {
        NetError::Version(what) => NetError::Version(format!("{peer}: {what}")),
        other => other,
    })?;
    match welcome.verdict {
        Verdict::Welcome => Ok((stream, Duration::from_millis(u64::from(welcome.silence_ms)))),
        Verdict::Version => Err(NetError::Version(format!(
            "{peer} speaks another version of the wire protocol than {}; run the same release everywhere",
            frame::VERSION
        ))),
        Verdict::Identity => Err(NetError::Identity(format!(
            "{peer} does not accept {} in this role; check certificates, party numbers and addresses on both sides",
            identity.name()
        ))),
        Verdict::Busy => Err(NetError::Limit(format!("{peer} has too many connections; try again later"))),
        Verdict::Garbage => {
            Err(NetError::Garbage(format!("{peer} did not understand the hello of this side")))
        }
    }
}
