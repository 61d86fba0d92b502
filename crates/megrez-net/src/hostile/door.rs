//! Those who come to a party's address: strangers, impostors, clients who stop in the middle.

use super::{ID, data, deployment, endpoint, limits};
use crate::connect::connect;
use crate::frame::{self, HEADER_LEN, HELLO_LEN, Hello, Verdict, Welcome};
use crate::tls::TlsStream;
use crate::{Endpoint, Identity, Limits, NetError, Patience, PeerName, certs};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The answer of party 0 to a hello of somebody.
fn greet(identity: &Identity, hello: &[u8; HELLO_LEN]) -> (Verdict, Vec<String>) {
    let deployment = DEPLOYMENT.with(std::rc::Rc::clone);
    let endpoint = endpoint(&deployment, 0, limits());
    let socket = TcpStream::connect(endpoint.local_addr()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut stream = TlsStream::connect(socket, identity, &PeerName::Party(0), deadline).unwrap();
    stream.write(hello, &[]).unwrap();
    let mut bytes = [0; HELLO_LEN];
    stream.read_exact(&mut bytes).unwrap();
    (frame::parse_welcome(&bytes).unwrap().verdict, refusals(&endpoint))
}

thread_local! {
    static DEPLOYMENT: std::rc::Rc<certs::Deployment> = std::rc::Rc::new(deployment());
}

/// Waits for refusals, a little while.
fn refusals(endpoint: &Endpoint) -> Vec<String> {
    for _ in 0..400 {
        let refusals = endpoint.take_refusals();
        if !refusals.is_empty() {
            return refusals;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Vec::new()
}

#[test]
fn nobody_can_claim_to_be_somebody_else() {
    let deployment = DEPLOYMENT.with(std::rc::Rc::clone);
    let one = deployment.identity(&PeerName::Party(1)).unwrap();
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let link = |from, to| Hello::Link { session: ID, from, to }.encode();
    for (who, hello, text) in [
        (&one, link(2, 0), "party1 claims to be party 2"),
        (&eve, link(2, 0), "client:eve claims to be party 2"),
        (&one, link(1, 2), "came to party 0"),
    ] {
        let (verdict, refusals) = greet(who, &hello);
        assert_eq!(verdict, Verdict::Identity);
        assert!(refusals[0].contains(text), "{refusals:?}");
    }
}

#[test]
fn other_versions_and_nonsense_are_told_apart() {
    let deployment = DEPLOYMENT.with(std::rc::Rc::clone);
    let one = deployment.identity(&PeerName::Party(1)).unwrap();
    let mut other = Hello::Client.encode();
    other[4] = 77;
    let (verdict, refusals) = greet(&one, &other);
    assert_eq!(verdict, Verdict::Version);
    assert!(refusals[0].contains("version 77"), "{refusals:?}");
    let (verdict, refusals) = greet(&one, b"GET / HTTP/1.1\r\nHost: megrez\r\n\r\n");
    assert_eq!(verdict, Verdict::Garbage);
    assert!(refusals[0].contains("MGRZ"), "{refusals:?}");
}

#[test]
fn who_calls_another_version_is_told_both() {
    let deployment = DEPLOYMENT.with(std::rc::Rc::clone);
    let zero = deployment.identity(&PeerName::Party(0)).unwrap();
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let deadline = Instant::now() + Duration::from_secs(20);
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let (mut stream, _) = TlsStream::accept(socket, &zero, "test".into(), deadline).unwrap();
        stream.read_exact(&mut [0; HELLO_LEN]).unwrap();
        let mut welcome = Welcome { verdict: Verdict::Version, silence_ms: 0 }.encode();
        welcome[4] = 77;
        stream.write(&welcome, &[]).unwrap();
    });
    let error = connect(&address, &eve, &PeerName::Party(0), &Hello::Client, deadline).err().unwrap();
    server.join().unwrap();
    let text = error.to_string();
    assert!(matches!(error, NetError::Version(_)), "{text}");
    for words in ["party0 at", "version 77", &format!("version {}", frame::VERSION), "the same release"] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_client_s_certificate_does_not_make_a_server() {
    let deployment = DEPLOYMENT.with(std::rc::Rc::clone);
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let one = deployment.identity(&PeerName::Party(1)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let deadline = Instant::now() + Duration::from_secs(20);
    let server = thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        TlsStream::accept(socket, &eve, "test".into(), deadline).err()
    });
    let name = PeerName::client("eve").unwrap();
    let error = connect(&address, &one, &name, &Hello::Client, deadline).err().unwrap();
    assert!(matches!(error, NetError::Identity(_)), "{error}");
    assert!(matches!(server.join().unwrap(), Some(NetError::Identity(_))), "and the server is told");
}

#[test]
fn plain_tcp_is_refused() {
    let endpoint = endpoint(&deployment(), 0, limits());
    let mut socket = TcpStream::connect(endpoint.local_addr()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: megrez\r\n\r\n").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(answer.len() < 32, "an alert and the end");
    let refusals = refusals(&endpoint);
    assert!(refusals[0].contains("no TLS"), "{refusals:?}");
}

#[test]
fn slow_handshakes_are_cut_off_and_bounded() {
    let handshake = Duration::from_millis(400);
    let endpoint = endpoint(&deployment(), 0, Limits { handshake, pending: 2, ..limits() });
    let connect = || TcpStream::connect(endpoint.local_addr()).unwrap();
    let mut slow = [connect(), connect()];
    // The first bytes of a TLS record, then one byte at a time: the time-out is for the whole
    // handshake.
    for socket in &mut slow {
        socket.write_all(&[22, 3, 1, 2, 0]).unwrap();
    }
    thread::sleep(Duration::from_millis(50));
    // A third takes the place of the oldest.
    let mut third = connect();
    third.write_all(&[22, 3, 1, 2, 0]).unwrap();
    slow[0].set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(slow[0].read(&mut [0; 1]), Ok(0) | Err(_)), "closed at once");
    assert!(refusals(&endpoint)[0].contains("too many handshakes"));
    slow[0] = third;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) && slow[0].write_all(&[0]).is_ok() {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(start.elapsed() < Duration::from_secs(10), "cut off although bytes kept coming");
    assert!(refusals(&endpoint).iter().any(|r| r.contains("time-out")));
}

#[test]
fn idle_connections_keep_nobody_out() {
    let deployment = deployment();
    let endpoint = endpoint(&deployment, 0, limits());
    let address = endpoint.local_addr();
    // Far more than there is room for, from the address that the honest one has as well.
    let idle: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(address).unwrap()).collect();
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let start = Instant::now();
    let mut channel =
        crate::dial(&address.to_string(), &eve, &PeerName::Party(0), Duration::from_secs(20)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "an honest client waits for nobody");
    channel.send(b"hello").unwrap();
    let (name, mut served) = endpoint.accept_client().unwrap();
    assert_eq!((name, served.recv(5).unwrap().as_bytes()), (PeerName::client("eve").unwrap(), &b"hello"[..]));
    drop(idle);
}

/// How long a served client may take to ask for something.
const WAIT: Duration = Duration::from_secs(20);

#[test]
fn a_message_that_trickles_ends_by_its_size() {
    let deployment = deployment();
    let endpoint = endpoint(&deployment, 0, limits());
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let address = endpoint.local_addr().to_string();
    // All of it would take two minutes, and nothing is ever silent.
    for at_once in [2, HEADER_LEN + 10] {
        let until = Instant::now() + WAIT;
        let (mut stream, _) = connect(&address, &eve, &PeerName::Party(0), &Hello::Client, until).unwrap();
        let (_, mut served) = endpoint.accept_client().unwrap();
        let patience =
            Patience { idle_timeout: Duration::from_millis(300), writing: WAIT, slowest: Some(1000) };
        served.set_patience(patience).unwrap();
        let trickle = thread::spawn(move || {
            let mut bytes = data(0, 1000).encode().to_vec();
            bytes.extend([0; 1000]);
            let (begin, rest) = bytes.split_at(at_once);
            stream.write(begin, &[]).unwrap();
            for byte in rest {
                thread::sleep(Duration::from_millis(120));
                if stream.write(&[*byte], &[]).is_err() {
                    return;
                }
            }
        });
        let start = Instant::now();
        let received = served.recv_admitted(5000, WAIT, Ok::<_, NetError>);
        assert!(matches!(received, Err(NetError::Timeout(_))), "{received:?}");
        assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
        drop(served);
        trickle.join().unwrap();
    }
    // Whoever asks for nothing is told so after its own time.
    let _idle = crate::dial(&address, &eve, &PeerName::Party(0), WAIT).unwrap();
    let (_, mut served) = endpoint.accept_client().unwrap();
    let received = served.recv_admitted(9, Duration::from_millis(50), Ok::<_, NetError>);
    assert!(matches!(received, Err(NetError::Timeout(what)) if what.contains("asked for nothing")));
}

#[test]
fn a_message_is_refused_by_its_length_before_it_is_taken_in() {
    let deployment = deployment();
    let endpoint = endpoint(&deployment, 0, limits());
    let eve = deployment.identity(&PeerName::client("eve").unwrap()).unwrap();
    let address = endpoint.local_addr().to_string();
    let mut channel = crate::dial(&address, &eve, &PeerName::Party(0), Duration::from_secs(20)).unwrap();
    let (_, mut served) = endpoint.accept_client().unwrap();
    assert!(served.recv_within(9, Duration::from_millis(20)).unwrap().is_none(), "nothing has come");
    let silent = served.silent();
    channel.keep_alive().unwrap();
    assert!(
        served.recv_within(9, Duration::from_millis(5)).unwrap().is_none(),
        "a sign of life is no message"
    );
    assert!(served.silent() < silent, "but it was heard");
    std::thread::sleep(silent);
    served.set_timeout(WAIT).unwrap();
    assert!(served.silent() < silent, "whose patience begins anew has not waited yet");
    channel.send(b"123").unwrap();
    let (payload, length) = served.recv_admitted(9, WAIT, Ok::<_, NetError>).unwrap();
    assert_eq!((payload.as_bytes(), length), (&b"123"[..], 3));
    channel.send(b"4567").unwrap();
    let refuse = |length| Err::<(), _>(NetError::Limit(format!("not {length}")));
    assert_eq!(served.recv_admitted(9, WAIT, refuse).err(), Some(NetError::Limit("not 4".into())));
}

#[test]
fn links_of_sessions_that_nobody_opens_are_dropped() {
    let deployment = deployment();
    let connect_time = Duration::from_millis(200);
    let endpoint = endpoint(&deployment, 0, Limits { connect: connect_time, ..limits() });
    let one = deployment.identity(&PeerName::Party(1)).unwrap();
    let hello = Hello::Link { session: ID, from: 1, to: 0 };
    let address = endpoint.local_addr().to_string();
    let deadline = Instant::now() + Duration::from_secs(20);
    let dial = || connect(&address, &one, &PeerName::Party(0), &hello, deadline);
    let (mut stream, idle_timeout) = dial().unwrap();
    assert_eq!(idle_timeout, limits().idle_timeout);
    assert!(matches!(dial(), Err(NetError::Limit(_))), "the same link twice");
    assert!(matches!(stream.read_exact(&mut [0; 1]), Err(NetError::Closed(_))));
    let mut seen = String::new();
    while !(seen.contains("too many links") && seen.contains("is not opened here")) {
        let more = refusals(&endpoint);
        assert!(!more.is_empty(), "only {seen}");
        seen.extend(more);
    }
}
