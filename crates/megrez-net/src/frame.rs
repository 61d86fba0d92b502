//! The bytes on a connection: a hello, a welcome, then frames. Pure functions from and to bytes.
//!
//! Everything is little endian. The dialling side sends a [`Hello`], the accepting side answers
//! with a [`Welcome`], both [`HELLO_LEN`] bytes that begin with `MGRZ` and the version, in every
//! version. Then come frames, each with a header of [`HEADER_LEN`] bytes:
//!
//! ```text
//! offset  0     1..4   4..8   8..16  16..24   24..32
//!         kind  zero   round  tag    time_ns  length
//! ```
//!
//! A message longer than [`CHUNK`] bytes is one `Data` frame, whose length is that of the whole
//! message and which carries the first chunk, followed by `More` frames that carry one chunk each.
//! Other kinds of frame may stand between the chunks of a message, and whole other messages too,
//! which do not wait for it; between the chunks of one of these no third message may begin.

use crate::error::{Abort, AbortKind, MAX_REASON, NetError};
use crate::transport::{SessionId, Stamp};

/// First bytes of every connection.
pub const MAGIC: [u8; 4] = *b"MGRZ";
/// Version of everything that parties and clients say to each other, from the hello to the
/// service's requests; both sides must speak the same. It is raised with every change of any
/// message.
pub const VERSION: u16 = 25;
/// Length of a frame header in bytes.
pub const HEADER_LEN: usize = 32;
/// Length of a hello and of a welcome in bytes.
pub const HELLO_LEN: usize = 32;
/// Most payload bytes in one frame.
pub const CHUNK: usize = 64 << 10;
/// Most parties that frames and names have room for. How many a session has is a matter of its
/// protocol, and of the addresses that its endpoints are given.
pub const MAX_PARTIES: usize = 64;
/// Longest body of an abort frame in bytes.
pub const MAX_ABORT: usize = 4 + MAX_REASON;

/// What a frame is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Begins a message.
    Data = 1,
    /// Continues a message.
    More = 2,
    /// Says that the sender is alive.
    KeepAlive = 3,
    /// Carries the reason why the session ends.
    Abort = 4,
    /// The sender has said all it will say.
    Bye = 5,
}

/// The header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: FrameKind,
    /// Name of the message; zero unless `kind` is `Data`.
    pub tag: u64,
    /// The sender's clocks; zero unless `kind` is `Data`.
    pub stamp: Stamp,
    /// Bytes of the whole message (`Data`), or of this frame's body.
    pub length: u64,
}

impl Header {
    /// A header without a message.
    #[must_use]
    pub fn plain(kind: FrameKind, length: u64) -> Self {
        Self { kind, tag: 0, stamp: Stamp::default(), length }
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.stamp.round.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.stamp.time_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }
}

/// Reads the header of a frame from the first [`HEADER_LEN`] bytes of `bytes`.
///
/// The length of a `Data` frame is checked by the caller, against its own limit.
///
/// # Errors
/// [`NetError::Garbage`] when there are too few bytes, or they are no header that this version
/// writes.
pub fn parse_header(bytes: &[u8]) -> Result<Header, NetError> {
    let garbage = |what: &str| Err(NetError::Garbage(format!("a frame header with {what}")));
    let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
        return garbage("too few bytes");
    };
    let kind = match bytes[0] {
        1 => FrameKind::Data,
        2 => FrameKind::More,
        3 => FrameKind::KeepAlive,
        4 => FrameKind::Abort,
        5 => FrameKind::Bye,
        other => return garbage(&format!("the unknown kind {other}")),
    };
    let header = Header {
        kind,
        stamp: Stamp { round: u32_at(bytes, 4), time_ns: u64_at(bytes, 16) },
        tag: u64_at(bytes, 8),
        length: u64_at(bytes, 24),
    };
    let max = match kind {
        FrameKind::Data => u64::MAX,
        FrameKind::More => CHUNK as u64,
        FrameKind::Abort => MAX_ABORT as u64,
        FrameKind::KeepAlive | FrameKind::Bye => 0,
    };
    if header.length > max {
        return garbage(&format!("the length {} where at most {max} is allowed", header.length));
    }
    let plain = kind == FrameKind::Data || (header.tag == 0 && header.stamp == Stamp::default());
    if bytes[1..4] != [0; 3] || !plain {
        return garbage("set bits in unused fields");
    }
    Ok(header)
}

fn u32_at(bytes: &[u8; 32], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8; 32], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// What a connection is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// One direction of a link of a session.
    Link {
        /// The session.
        session: SessionId,
        /// The party that dials and sends.
        from: usize,
        /// The party that accepts and receives.
        to: usize,
    },
    /// Requests and responses.
    Client,
}

impl Hello {
    /// The hello as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        match self {
            Self::Link { session, from, to } => {
                bytes[6] = 1;
                bytes[7] = *from as u8;
                bytes[8] = *to as u8;
                bytes[16..].copy_from_slice(&session.0);
            }
            Self::Client => bytes[6] = 2,
        }
        bytes
    }
}

/// Reads a hello from the first [`HELLO_LEN`] bytes of `bytes`.
///
/// # Errors
/// [`NetError::Version`] when the other side speaks another version, [`NetError::Garbage`] when it
/// does not speak this protocol.
pub fn parse_hello(bytes: &[u8]) -> Result<Hello, NetError> {
    let bytes = opening(bytes, "hello")?;
    let garbage = |what: &str| Err(NetError::Garbage(format!("a hello with {what}")));
    match bytes[6] {
        1 => {
            let (from, to) = (usize::from(bytes[7]), usize::from(bytes[8]));
            if from >= MAX_PARTIES || to >= MAX_PARTIES || from == to {
                return garbage(&format!("a link from party {from} to party {to}"));
            }
            if bytes[9..16] != [0; 7] {
                return garbage("set bits in unused fields");
            }
            Ok(Hello::Link { session: SessionId(std::array::from_fn(|i| bytes[16 + i])), from, to })
        }
        2 if bytes[7..] == [0; HELLO_LEN - 7] => Ok(Hello::Client),
        2 => garbage("set bits in unused fields"),
        other => garbage(&format!("the unknown kind {other}")),
    }
}

/// How the accepting side answers a hello.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Go on.
    Welcome = 0,
    /// Another version.
    Version = 1,
    /// The certificate's name and the hello disagree, or the hello is for another party.
    Identity = 2,
    /// Too many connections, or the same link twice.
    Busy = 3,
    /// The hello made no sense.
    Garbage = 4,
}

/// The answer to a hello.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Whether the connection may be used.
    pub verdict: Verdict,
    /// Silence in milliseconds after which the accepting side takes the dialling side for dead.
    pub silence_ms: u32,
}

impl Welcome {
    /// The welcome as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut bytes = [0; HELLO_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = self.verdict as u8;
        bytes[8..12].copy_from_slice(&self.silence_ms.to_le_bytes());
        bytes
    }
}

/// Reads a welcome from the first [`HELLO_LEN`] bytes of `bytes`.
///
/// # Errors
/// As [`parse_hello`].
pub fn parse_welcome(bytes: &[u8]) -> Result<Welcome, NetError> {
    let bytes = opening(bytes, "welcome")?;
    let verdict = match bytes[6] {
        0 => Verdict::Welcome,
        1 => Verdict::Version,
        2 => Verdict::Identity,
        3 => Verdict::Busy,
        4 => Verdict::Garbage,
        other => return Err(NetError::Garbage(format!("a welcome with the unknown verdict {other}"))),
    };
    if bytes[7] != 0 || bytes[12..] != [0; 20] {
        return Err(NetError::Garbage("a welcome with set bits in unused fields".into()));
    }
    Ok(Welcome { verdict, silence_ms: u32_at(bytes, 8) })
}

/// Checks the magic and the version.
fn opening<'a>(bytes: &'a [u8], what: &str) -> Result<&'a [u8; HELLO_LEN], NetError> {
    let bytes = bytes
        .first_chunk::<HELLO_LEN>()
        .ok_or_else(|| NetError::Garbage(format!("a {what} with too few bytes")))?;
    if bytes[..4] != MAGIC {
        return Err(NetError::Garbage(format!(
            "a {what} that does not begin with MGRZ; is this a megrez port?"
        )));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if version != VERSION {
        return Err(NetError::Version(format!(
            "the other side speaks version {version} of the wire protocol, this side version {VERSION}; run the \
             same release of megrez everywhere"
        )));
    }
    Ok(bytes)
}

/// The body of an abort frame.
#[must_use]
pub fn encode_abort(abort: &Abort) -> Vec<u8> {
    let culprit = abort.culprit.map_or(u8::MAX, |party| party as u8);
    let mut bytes = vec![abort.kind as u8, culprit, abort.origin as u8, 0];
    bytes.extend_from_slice(crate::error::sanitise(&abort.reason, MAX_REASON).as_bytes());
    bytes
}

/// Reads the body of an abort frame. The text comes back sanitised, fit to print.
///
/// # Errors
/// [`NetError::Garbage`] when the bytes are no abort.
pub fn parse_abort(bytes: &[u8]) -> Result<Abort, NetError> {
    let garbage = || NetError::Garbage("an abort frame that makes no sense".into());
    let (head, text) = bytes.split_first_chunk::<4>().ok_or_else(garbage)?;
    let [kind, culprit, origin, 0] = *head else { return Err(garbage()) };
    let kind = AbortKind::from_wire(kind).ok_or_else(garbage)?;
    let culprit = (culprit != u8::MAX).then_some(usize::from(culprit));
    let origin = usize::from(origin);
    if origin >= MAX_PARTIES || culprit.is_some_and(|party| party >= MAX_PARTIES) || text.len() > MAX_REASON {
        return Err(garbage());
    }
    let text = std::str::from_utf8(text).map_err(|_| garbage())?;
    let abort = Abort::new(kind, culprit, origin, text);
    // Parties compare reasons byte by byte, so a text that comes out different here would split
    // them.
    if abort.reason == text { Ok(abort) } else { Err(garbage()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hellos_say_what_is_wrong() {
        let hello = Hello::Link { session: SessionId([7; 16]), from: 0, to: 2 };
        let good = hello.encode();
        assert_eq!(parse_hello(&good).unwrap(), hello);
        assert_eq!(parse_hello(&Hello::Client.encode()).unwrap(), Hello::Client);
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            parse_hello(&bytes).unwrap_err()
        };
        assert!(matches!(with(0, b'G'), NetError::Garbage(_)));
        assert!(matches!(with(4, 9), NetError::Version(text) if text.contains("version 9")));
        assert!(matches!(with(6, 3), NetError::Garbage(_)));
        assert!(matches!(with(7, 2), NetError::Garbage(_)), "from itself");
        assert!(matches!(with(8, 64), NetError::Garbage(_)), "no such party");
        assert!(matches!(with(12, 1), NetError::Garbage(_)));
        assert!(matches!(parse_hello(&good[..31]), Err(NetError::Garbage(_))));
    }

    #[test]
    fn the_wire_does_not_change_unnoticed() {
        let header = Header {
            kind: FrameKind::Data,
            tag: 0x1122_3344_5566_7788,
            stamp: Stamp { round: 0x0A0B_0C0D, time_ns: 1 },
            length: 258,
        };
        let expected: [u8; 32] = [
            1, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 0, 0, 0,
            0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(header.encode(), expected);
        let welcome = Welcome { verdict: Verdict::Busy, silence_ms: 30_000 };
        assert_eq!(welcome.encode()[..12], [b'M', b'G', b'R', b'Z', 25, 0, 3, 0, 0x30, 0x75, 0, 0]);
        assert_eq!(parse_welcome(&welcome.encode()).unwrap(), welcome);
    }

    #[test]
    fn lengths_of_small_frames_are_bounded() {
        for (kind, max) in [
            (FrameKind::More, CHUNK),
            (FrameKind::Abort, MAX_ABORT),
            (FrameKind::KeepAlive, 0),
            (FrameKind::Bye, 0),
        ] {
            let max = max as u64;
            assert!(parse_header(&Header::plain(kind, max).encode()).is_ok());
            assert!(parse_header(&Header::plain(kind, max + 1).encode()).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_header_is_refused_or_comes_back_the_same(bytes: [u8; HEADER_LEN], kind in 0u8..7) {
            let mut bytes = bytes;
            bytes[0] = kind;
            bytes[1..4].fill(0);
            if let Ok(header) = parse_header(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn any_hello_is_refused_or_comes_back_the_same(bytes: [u8; HELLO_LEN], small: bool) {
            let mut bytes = bytes;
            bytes[..6].copy_from_slice(&Hello::Client.encode()[..6]);
            if small {
                bytes[6] &= 3;
                bytes[7] &= 3;
                bytes[8] &= 3;
                bytes[9..16].fill(0);
            }
            if let Ok(hello) = parse_hello(&bytes) {
                prop_assert_eq!(hello.encode(), bytes);
            }
            if let Ok(welcome) = parse_welcome(&bytes) {
                prop_assert_eq!(welcome.encode(), bytes);
            }
        }

        #[test]
        fn aborts_come_back_the_same(kind in 1u8..8, culprit in 0usize..4, origin in 0usize..3, text: String) {
            let kind = AbortKind::from_wire(kind).unwrap();
            let abort = Abort::new(kind, (culprit < 3).then_some(culprit), origin, &text);
            prop_assert_eq!(parse_abort(&encode_abort(&abort)).unwrap(), abort);
        }

        #[test]
        fn no_abort_bytes_panic(bytes: Vec<u8>) {
            if let Ok(abort) = parse_abort(&bytes) {
                prop_assert_eq!(encode_abort(&abort), bytes);
            }
        }
    }
}
