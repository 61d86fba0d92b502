//! Tests against peers that break the rules, played by hand on raw connections.

mod door;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::connect::connect;
use crate::frame::{self, CHUNK, FrameKind, HELLO_LEN, Header, Hello, Verdict, Welcome};
use crate::tls::TlsStream;
use crate::trust::Roots;
use crate::{
    AbortKind, Config, Endpoint, Identity, Limits, NetError, NetProfile, Network, Payload, PeerName,
    SessionId, Stamp, certs,
};

const ID: SessionId = SessionId([9; 16]);

fn deployment() -> certs::Deployment {
    let request = certs::Request {
        parties: 3,
        clients: vec!["eve".into()],
        hosts: Vec::new(),
        days: 1,
        authority_days: 1,
        only: Vec::new(),
    };
    certs::issue(&request).unwrap()
}

fn limits() -> Limits {
    Limits {
        connect: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
        grace: Duration::from_millis(500),
        max_message: 1 << 20,
        inbox_soft: 2 << 20,
        inbox_hard: 4 << 20,
        ..Limits::default()
    }
}

fn endpoint(deployment: &certs::Deployment, me: usize, limits: Limits) -> Endpoint {
    let identity = deployment.identity(&PeerName::Party(me)).unwrap();
    let peers = vec![String::new(); 3];
    Endpoint::bind(Config { me, listen: "127.0.0.1:0".into(), peers, identity, limits }).unwrap()
}

/// Party 2, played by the test: its connections to parties 0 and 1, and theirs to it.
struct Fake {
    out: Vec<TlsStream>,
    _incoming: Vec<TlsStream>,
}

impl Fake {
    fn send(&mut self, to: usize, header: Header, body: &[u8]) {
        self.out[to].write(&header.encode(), body).unwrap();
    }
}

fn data(tag: u64, length: u64) -> Header {
    Header { kind: FrameKind::Data, tag, stamp: Stamp::default(), length }
}

/// Parties 0 and 1, and a fake party 2.
fn session(limits: Limits) -> (Vec<Network>, Fake) {
    let deployment = deployment();
    let endpoints = [endpoint(&deployment, 0, limits.clone()), endpoint(&deployment, 1, limits)];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut addresses: Vec<String> = endpoints.iter().map(|one| one.local_addr().to_string()).collect();
    addresses.push(listener.local_addr().unwrap().to_string());
    let identity = deployment.identity(&PeerName::Party(2)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    thread::scope(|scope| {
        let opening: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                endpoint.set_peers(addresses.clone()).unwrap();
                scope.spawn(|| endpoint.open_session(ID, &NetProfile::loopback()).unwrap())
            })
            .collect();
        let accept = || {
            let (socket, address) = listener.accept().unwrap();
            let (mut stream, _) =
                TlsStream::accept(socket, &identity, address.to_string(), deadline).unwrap();
            stream.read_exact(&mut [0; HELLO_LEN]).unwrap();
            let welcome = Welcome { verdict: Verdict::Welcome, silence_ms: 20_000 };
            stream.write(&welcome.encode(), &[]).unwrap();
            stream
        };
        let incoming = vec![accept(), accept()];
        let out = (0..2)
            .map(|to| {
                let hello = Hello::Link { session: ID, from: 2, to };
                connect(&addresses[to], &identity, &PeerName::Party(to), &hello, deadline).unwrap().0
            })
            .collect();
        let nets = opening.into_iter().map(|thread| thread.join().unwrap()).collect();
        (nets, Fake { out, _incoming: incoming })
    })
}

/// What parties 0 and 1 report, who wait for a message of party 2 that never comes; it has to be
/// the same.
fn outcome(nets: &[Network]) -> NetError {
    let waiting: Vec<_> = nets
        .iter()
        .map(|net| {
            let net = net.clone();
            thread::spawn(move || net.recv(2, u64::MAX, "fc1/open").unwrap_err())
        })
        .collect();
    let errors: Vec<NetError> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(errors[0], errors[1], "all parties report the same");
    assert_eq!(nets[0].send(1, 77, Stamp::default(), Payload::default()), Err(errors[0].clone()));
    errors[0].clone()
}

fn expect(error: &NetError, kind: AbortKind, text: &str) {
    let abort = error.abort().unwrap_or_else(|| panic!("{error}"));
    assert_eq!((abort.kind, abort.culprit), (kind, Some(2)), "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn a_fake_peer_that_behaves_is_heard() {
    let (nets, mut fake) = session(limits());
    let long: Vec<u8> = (0..CHUNK + 5).map(|i| i as u8).collect();
    fake.send(0, data(5, long.len() as u64), &long[..CHUNK]);
    fake.send(0, Header::plain(FrameKind::KeepAlive, 0), &[]);
    fake.send(0, Header::plain(FrameKind::More, 5), &long[CHUNK..]);
    fake.send(0, data(6, 0), &[]);
    assert_eq!(nets[0].recv(2, 6, "x").unwrap().payload.len(), 0);
    assert_eq!(nets[0].recv(2, 5, "x").unwrap().payload.as_bytes(), long);
    // Whole messages between the pieces of another one are there before it.
    fake.send(0, data(7, long.len() as u64), &long[..CHUNK]);
    fake.send(0, data(8, 3), &[1, 2, 3]);
    fake.send(0, Header::plain(FrameKind::KeepAlive, 0), &[]);
    fake.send(0, data(9, long.len() as u64), &long[..CHUNK]);
    fake.send(0, Header::plain(FrameKind::More, 5), &long[CHUNK..]);
    assert_eq!(nets[0].recv(2, 8, "x").unwrap().payload.as_bytes(), [1, 2, 3]);
    assert_eq!(nets[0].recv(2, 9, "x").unwrap().payload.as_bytes(), long);
    fake.send(0, Header::plain(FrameKind::More, 5), &long[CHUNK..]);
    assert_eq!(nets[0].recv(2, 7, "x").unwrap().payload.as_bytes(), long);
}

#[test]
fn garbage_frames_end_the_session_everywhere() {
    let unknown = {
        let mut bytes = data(1, 0).encode();
        bytes[0] = 99;
        bytes
    };
    let long = |tag: u64| [&data(tag, CHUNK as u64 + 9).encode()[..], &vec![0; CHUNK]].concat();
    let more = |bytes: usize| {
        let header = Header::plain(FrameKind::More, bytes as u64).encode();
        [&header[..], &vec![0; bytes]].concat()
    };
    let cases: [(&str, Vec<u8>); 9] = [
        ("unknown kind 99", unknown.to_vec()),
        ("did not begin", Header::plain(FrameKind::More, 0).encode().to_vec()),
        ("length", Header::plain(FrameKind::Bye, 1).encode().to_vec()),
        ("abort", [&Header::plain(FrameKind::Abort, 4).encode()[..], &[1, 0, 200, 0]].concat()),
        (
            "no party of the session",
            [&Header::plain(FrameKind::Abort, 4).encode()[..], &[1, 0, 9, 0]].concat(),
        ),
        ("twice", [data(3, 0).encode(), data(3, 0).encode()].concat()),
        ("wrong pieces", [long(1), more(8)].concat()),
        ("wrong pieces", [long(1), long(2), data(3, 0).encode().to_vec()].concat()),
        ("twice", [long(1), data(1, 0).encode().to_vec(), more(9)].concat()),
    ];
    for (text, bytes) in cases {
        let (nets, mut fake) = session(limits());
        fake.out[0].write(&bytes, &[]).unwrap();
        expect(&outcome(&nets), AbortKind::Garbage, text);
    }
}

#[test]
fn tampered_records_end_the_session_everywhere() {
    // Application data of 32 bytes that does not decrypt, a record of an unknown kind, and an alert
    // in the clear.
    let forged = [&[23, 3, 3, 0, 32][..], &[7; 32]].concat();
    for bytes in [&forged[..], &[99, 3, 3, 0, 1, 0], &[21, 3, 3, 0, 2, 2, 40]] {
        let (nets, fake) = session(limits());
        let mut socket = fake.out[1].socket().unwrap();
        socket.write_all(bytes).unwrap();
        expect(&outcome(&nets), AbortKind::Garbage, "party 2 sent malformed data");
    }
}

#[test]
fn a_failed_connection_stays_failed() {
    let deployment = deployment();
    let endpoint = endpoint(&deployment, 0, limits());
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let address = endpoint.local_addr().to_string();
    let deadline = Instant::now() + Duration::from_secs(20);
    let (mut stream, _) = connect(&address, &eve, &PeerName::Party(0), &Hello::Client, deadline).unwrap();
    let (_, mut channel) = endpoint.accept_client().unwrap();
    stream
        .socket()
        .unwrap()
        .write_all(&[23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20])
        .unwrap();
    let error = channel.recv(100).unwrap_err();
    assert!(matches!(error, NetError::Garbage(_)), "{error}");
    assert_eq!(channel.recv(100).unwrap_err(), error);
    assert_eq!(channel.send(b"more").unwrap_err(), error);
    assert!(stream.read_exact(&mut [0]).is_err(), "the other side is told");
}

#[test]
fn a_tag_that_was_delivered_may_not_come_again() {
    let (nets, mut fake) = session(limits());
    fake.send(1, data(3, 0), &[]);
    nets[1].recv(2, 3, "x").unwrap();
    fake.send(1, data(3, 0), &[]);
    expect(&outcome(&nets), AbortKind::Garbage, "twice");
}

#[test]
fn a_lying_length_is_refused_before_anything_is_allocated() {
    for length in [(1 << 20) + 1, u64::MAX] {
        let (nets, mut fake) = session(limits());
        fake.send(0, data(1, length), &[]);
        expect(&outcome(&nets), AbortKind::Limit, "at most 1048576 are allowed");
    }
}

#[test]
fn unwanted_messages_are_bounded() {
    let (nets, mut fake) = session(limits());
    // Somebody waits, so the link is not paused, and the hard limit counts.
    let waiting = thread::spawn({
        let nets = nets.clone();
        move || outcome(&nets)
    });
    for tag in 0..1_000 {
        let body = vec![0; CHUNK];
        if fake.out[1].write(&data(tag, CHUNK as u64).encode(), &body).is_err() {
            break;
        }
    }
    expect(&waiting.join().unwrap(), AbortKind::Limit, "4194304 bytes ahead");
}

#[test]
fn many_empty_messages_are_bounded_too() {
    let (nets, mut fake) = session(limits());
    let waiting = thread::spawn({
        let nets = nets.clone();
        move || outcome(&nets)
    });
    let flood: Vec<u8> = (0..100_000u64).flat_map(|tag| data(tag, 0).encode()).collect();
    let _ = fake.out[0].write(&flood, &[]);
    expect(&waiting.join().unwrap(), AbortKind::Limit, "ahead");
}

#[test]
fn a_peer_that_goes_away_is_named() {
    let (nets, fake) = session(limits());
    drop(fake);
    expect(&outcome(&nets), AbortKind::Left, "party 2 left the session (connection closed)");
}

#[test]
fn a_peer_that_goes_away_in_the_middle_of_a_message_is_named() {
    let (nets, mut fake) = session(limits());
    fake.send(0, data(1, 1000), &[0; 10]);
    drop(fake);
    expect(&outcome(&nets), AbortKind::Left, "party 2 left the session (connection closed)");
}

#[test]
fn a_silent_peer_is_noticed_in_time() {
    let idle_timeout = Duration::from_secs(1);
    let start = Instant::now();
    let (nets, _fake) = session(Limits { idle_timeout, ..limits() });
    let error = outcome(&nets);
    expect(&error, AbortKind::Stalled, "party 2 was silent for 1 s");
    assert!(start.elapsed() < Duration::from_secs(15), "long before anything else would have ended this");
}

#[test]
fn a_slow_peer_that_shows_signs_of_life_is_waited_for() {
    let idle_timeout = Duration::from_secs(1);
    let (nets, mut fake) = session(Limits { idle_timeout, ..limits() });
    let alive = thread::spawn(move || {
        for _ in 0..60 {
            for to in 0..2 {
                fake.send(to, Header::plain(FrameKind::KeepAlive, 0), &[]);
            }
            thread::sleep(Duration::from_millis(50));
        }
        fake.send(0, data(1, 0), &[]);
        fake
    });
    // Three times the idle timeout; parties 0 and 1 have nothing to say either, and keep each other
    // alive.
    nets[0].recv(2, 1, "slow").unwrap();
    nets[1].flush().unwrap();
    drop(alive.join().unwrap());
}

#[test]
fn a_peer_that_reads_nothing_cannot_hold_the_session() {
    // Nothing is read from the fake's incoming connections; the writer fills the socket and blocks.
    let (nets, mut fake) =
        session(Limits { idle_timeout: Duration::from_secs(1), queue: 1 << 20, ..limits() });
    let sender = nets[0].clone();
    let sending = thread::spawn(move || {
        (0..).find_map(|tag| sender.send(2, tag, Stamp::default(), Payload::zeroed(1 << 20)).err()).unwrap()
    });
    fake.send(0, Header::plain(FrameKind::KeepAlive, 0), &[]);
    let error = outcome(&nets);
    expect(&error, AbortKind::Stalled, "party 2 was silent");
    assert_eq!(sending.join().unwrap(), error);
}

#[test]
fn a_peer_that_lives_but_reads_nothing_cannot_hold_anybody() {
    let step = Duration::from_millis(600);
    let (nets, mut fake) = session(Limits { step, queue: 1 << 20, ..limits() });
    let sender = nets[0].clone();
    let sending = thread::spawn(move || {
        (0..).find_map(|tag| sender.send(2, tag, Stamp::default(), Payload::zeroed(1 << 20)).err()).unwrap()
    });
    let error = loop {
        if sending.is_finished() {
            break sending.join().unwrap();
        }
        for to in 0..2 {
            let _ = fake.out[to].write(&Header::plain(FrameKind::KeepAlive, 0).encode(), &[]);
        }
        thread::sleep(Duration::from_millis(20));
    };
    expect(&error, AbortKind::Timeout, "party 0 could not send to party 2 for 0.6 s");
    assert_eq!(outcome(&nets), error);
}

#[test]
fn leaving_does_not_wait_for_ever() {
    let step = Duration::from_millis(600);
    let (mut nets, mut fake) = session(Limits { step, queue: 64 << 20, ..limits() });
    let zero = nets.remove(0);
    for tag in 0..64 {
        zero.send(2, tag, Stamp::default(), Payload::zeroed(1 << 20)).unwrap();
    }
    let leaving = thread::spawn(move || zero.close());
    while !leaving.is_finished() {
        let _ = fake.out[0].write(&Header::plain(FrameKind::KeepAlive, 0).encode(), &[]);
        thread::sleep(Duration::from_millis(20));
    }
    leaving.join().unwrap();
}

#[test]
fn a_reason_from_a_peer_is_everybodys_reason() {
    let (nets, mut fake) = session(limits());
    let abort = crate::Abort::new(AbortKind::Failed, Some(2), 2, "party 2 gave up: no model");
    let body = frame::encode_abort(&abort);
    fake.send(1, Header::plain(FrameKind::Abort, body.len() as u64), &body);
    assert_eq!(outcome(&nets), NetError::Aborted(abort));
}

#[test]
fn a_finished_peer_is_not_waited_for() {
    let (nets, mut fake) = session(limits());
    for to in 0..2 {
        fake.send(to, data(1, 0), &[]);
        fake.send(to, Header::plain(FrameKind::Bye, 0), &[]);
    }
    drop(fake);
    nets[0].recv(2, 1, "x").unwrap();
    // Still nothing wrong: parties 0 and 1 may go on without it.
    thread::sleep(Duration::from_millis(100));
    nets[0].send(1, 5, Stamp::default(), Payload::default()).unwrap();
    nets[1].recv(0, 5, "x").unwrap();
    expect(&outcome(&nets), AbortKind::Ended, "party 2 finished while party");
}

#[test]
fn keys_are_renewed_on_long_connections() {
    use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
    use rustls::{SupportedCipherSuite, Tls13CipherSuite};
    // As the real suite, but its keys are worn out after 20 records instead of 2^24.
    let SupportedCipherSuite::Tls13(real) = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let common = CipherSuiteCommon { confidentiality_limit: 20, ..real.common };
    let suite: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite { common, ..*real }));
    let provider = CryptoProvider { cipher_suites: vec![suite.into()], ..crate::identity::provider() };
    let deployment = deployment();
    let identity = |party: usize| {
        let certs::Leaf { certificate, key, .. } = &deployment.pairs[party];
        Identity::of(Roots::of_everybody(&deployment.ca), certificate, key, "", provider.clone()).unwrap()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (sender, receiver) = (identity(1), identity(0));
    let sending = thread::spawn(move || {
        let socket = TcpStream::connect(address).unwrap();
        let mut stream = TlsStream::connect(socket, &sender, &PeerName::Party(0), deadline).unwrap();
        for i in 0..400u32 {
            stream.write(&i.to_le_bytes(), &vec![i as u8; (i as usize * 997) % 100_000]).unwrap();
        }
        stream.close().unwrap();
    });
    let (socket, _) = listener.accept().unwrap();
    let (mut stream, name) = TlsStream::accept(socket, &receiver, "test".into(), deadline).unwrap();
    assert_eq!(name, PeerName::Party(1));
    for i in 0..400u32 {
        let mut head = [0; 4];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(u32::from_le_bytes(head), i);
        let mut body = vec![0; (i as usize * 997) % 100_000];
        stream.read_exact(&mut body).unwrap();
        assert!(body.iter().all(|byte| *byte == i as u8));
    }
    assert!(matches!(stream.read_exact(&mut [0]), Err(NetError::Closed(_))));
    sending.join().unwrap();
}
