//! Sessions and channels over TLS between endpoints of this process.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use megrez_net::{
    AbortKind, Class, ClockKind, Config, Endpoint, Limits, NetError, NetProfile, Network, Payload, PeerName,
    SessionId, Stamp, certs, dial,
};

const LONG: Duration = Duration::from_secs(30);

fn deployment(parties: usize) -> certs::Deployment {
    let clients = vec!["alice".to_owned()];
    certs::issue(&certs::Request {
        parties,
        clients,
        hosts: Vec::new(),
        days: 1,
        authority_days: 1,
        only: Vec::new(),
    })
    .unwrap()
}

fn endpoints(deployment: &certs::Deployment, parties: usize, limits: &Limits) -> Vec<Endpoint> {
    let endpoints: Vec<Endpoint> = (0..parties)
        .map(|me| {
            let identity = deployment.identity(&PeerName::Party(me)).unwrap();
            let (listen, peers) = ("127.0.0.1:0".to_owned(), vec![String::new(); parties]);
            Endpoint::bind(Config { me, listen, peers, identity, limits: limits.clone() }).unwrap()
        })
        .collect();
    let addresses: Vec<String> = endpoints.iter().map(|one| one.local_addr().to_string()).collect();
    endpoints.iter().for_each(|endpoint| endpoint.set_peers(addresses.clone()).unwrap());
    endpoints
}

fn open(endpoints: &[Endpoint], id: u8, profile: &NetProfile) -> Vec<Network> {
    thread::scope(|scope| {
        let opening: Vec<_> = endpoints
            .iter()
            .map(|endpoint| scope.spawn(move || endpoint.open_session(SessionId([id; 16]), profile).unwrap()))
            .collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn session(parties: usize, profile: &NetProfile) -> Vec<Network> {
    let deployment = deployment(parties);
    open(&endpoints(&deployment, parties, &Limits::default()), 1, profile)
}

fn stamp(round: u32) -> Stamp {
    Stamp { round, time_ns: u64::from(round) * 1000 }
}

/// Bytes that depend on everything that could be mixed up.
fn pattern(from: usize, to: usize, tag: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + from * 7 + to * 13 + tag as usize * 3) as u8).collect()
}

#[test]
fn three_parties_exchange_messages_of_all_sizes() {
    let nets = session(3, &NetProfile::loopback());
    let sizes = [0, 1, 7, 8, 16_351, 16_352, 16_353, 262_143, 262_144, 262_145, 5_000_003];
    let parties: Vec<_> = nets
        .iter()
        .map(|net| {
            let net = net.clone();
            thread::spawn(move || {
                let me = net.me();
                assert_eq!((net.parties(), net.clock()), (3, ClockKind::Real));
                for to in (0..3).filter(|to| *to != me) {
                    for (tag, len) in sizes.iter().enumerate() {
                        let payload = Payload::from_bytes(&pattern(me, to, tag as u64, *len));
                        net.send(to, tag as u64, stamp(tag as u32), payload).unwrap();
                    }
                }
                // Backwards, in two lanes.
                let lanes: Vec<_> = (0..3)
                    .filter(|from| *from != me)
                    .map(|from| {
                        let net = net.clone();
                        thread::spawn(move || {
                            for (tag, len) in sizes.iter().enumerate().rev() {
                                let message = net.recv(from, tag as u64, "test").unwrap();
                                assert_eq!(message.stamp, stamp(tag as u32));
                                let expected = pattern(from, me, tag as u64, *len);
                                assert!(
                                    message.payload.as_bytes() == expected,
                                    "{from} to {me}: {len} bytes"
                                );
                            }
                        })
                    })
                    .collect();
                lanes.into_iter().for_each(|lane| lane.join().unwrap());
            })
        })
        .collect();
    parties.into_iter().for_each(|party| party.join().unwrap());
    let total: usize = sizes.iter().sum();
    for net in &nets {
        net.flush().unwrap();
        let wire = net.wire();
        assert_eq!(wire.len(), 2);
        for count in wire {
            for traffic in [count.sent, count.received] {
                assert_eq!(traffic.messages, sizes.len() as u64);
                assert_eq!(traffic.payload_bytes, total as u64);
                let overhead = traffic.wire_bytes as f64 / total as f64 - 1.0;
                assert!((0.001..0.01).contains(&overhead), "framing and TLS cost {overhead}");
            }
        }
    }
}

#[test]
fn messages_for_later_runs_give_way_and_all_arrive() {
    // 1 MB/s: what lies behind takes four seconds.
    let slow = NetProfile::new("slow", 20.0, 8.0).unwrap();
    for profile in [NetProfile::loopback(), slow] {
        let nets = session(2, &profile);
        assert_eq!(nets[0].far(), !profile.is_unshaped());
        let start = Instant::now();
        let late: Vec<Vec<u8>> = (0..4).map(|tag| pattern(0, 1, tag, 1_000_000 + tag as usize)).collect();
        for (tag, bytes) in late.iter().enumerate() {
            let payload = Payload::from_bytes(bytes);
            nets[0].send_as(Class::Behind, 1, tag as u64, stamp(1), payload).unwrap();
        }
        for tag in 10..15 {
            nets[0].send(1, tag, stamp(2), Payload::from_bytes(&pattern(0, 1, tag, 100))).unwrap();
            let message = nets[1].recv(0, tag, "x").unwrap();
            assert_eq!(message.payload.as_bytes(), pattern(0, 1, tag, 100));
        }
        let received = nets[1].wire()[0].received.payload_bytes;
        assert!(profile.is_unshaped() || received < 2_000_000, "{received} bytes came before");
        for (tag, bytes) in late.iter().enumerate() {
            assert_eq!(nets[1].recv(0, tag as u64, "x").unwrap().payload.as_bytes(), *bytes);
        }
        let took = start.elapsed();
        println!("{}: {took:?}", profile.name);
        assert!(profile.is_unshaped() || took >= Duration::from_secs(4), "{took:?}");
        nets[0].flush().unwrap();
        assert_eq!(nets[0].wire()[0].sent.messages, 9);
    }
}

#[test]
fn what_was_sent_before_closing_arrives() {
    let mut nets = session(2, &NetProfile::loopback());
    let zero = nets.remove(0);
    for tag in 0..20 {
        zero.send(1, tag, stamp(0), Payload::zeroed(1 << 20)).unwrap();
    }
    zero.close();
    for tag in 0..20 {
        assert_eq!(nets[0].recv(0, tag, "x").unwrap().payload.len(), 1 << 20);
    }
    let error = nets[0].recv(0, 99, "fc3/open").unwrap_err();
    assert_eq!(error.abort().unwrap().kind, AbortKind::Ended, "{error}");
}

#[test]
fn back_pressure_holds_the_sender_and_lets_go() {
    let deployment = deployment(2);
    let limits = Limits {
        queue: 1 << 20,
        inbox_soft: 4 << 20,
        inbox_hard: 8 << 20,
        max_message: 1 << 20,
        ..Limits::default()
    };
    let nets = open(&endpoints(&deployment, 2, &limits), 1, &NetProfile::loopback());
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let sender = nets[0].clone();
    let counter = Arc::clone(&sent);
    let sending = thread::spawn(move || {
        for tag in 0..100 {
            sender.send(1, tag, stamp(0), Payload::zeroed(1 << 20)).unwrap();
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    thread::sleep(Duration::from_millis(300));
    let ahead = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(ahead < 60, "queue, sockets and inbox hold some MiB, not {ahead}");
    for tag in 0..100 {
        nets[1].recv(0, tag, "x").unwrap();
    }
    sending.join().unwrap();
}

#[test]
fn one_session_fails_and_another_goes_on() {
    let deployment = deployment(3);
    let endpoints = endpoints(&deployment, 3, &Limits::default());
    let doomed = open(&endpoints, 1, &NetProfile::loopback());
    let healthy = open(&endpoints, 2, &NetProfile::loopback());
    let waiting = {
        let net = doomed[2].clone();
        thread::spawn(move || net.recv(1, 5, "conv1").unwrap_err())
    };
    let reason = doomed[0].fail("the model file is missing");
    assert_eq!(waiting.join().unwrap(), reason);
    assert_eq!(doomed[1].recv(0, 1, "x").unwrap_err(), reason);
    assert_eq!(doomed[1].flush().unwrap_err(), reason);
    assert!(reason.to_string().contains("party 0 gave up: the model file is missing"), "{reason}");
    let others = |me: usize| (0..3).filter(move |other| *other != me);
    for net in &healthy {
        for to in others(net.me()) {
            net.send(to, 1, stamp(1), Payload::from_pod(&[net.me() as u64])).unwrap();
        }
    }
    for net in &healthy {
        for from in others(net.me()) {
            assert_eq!(net.recv(from, 1, "x").unwrap().payload.words(), [from as u64]);
        }
    }
    // The name is free again once all its handles are gone.
    drop(doomed);
    let free = |endpoint: &Endpoint| {
        let deadline = Instant::now() + LONG;
        loop {
            match endpoint.open_session(SessionId([1; 16]), &NetProfile::loopback()) {
                Err(NetError::Config(_)) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_millis(10))
                }
                other => break other.unwrap(),
            }
        }
    };
    assert!(matches!(
        endpoints[0].open_session(SessionId([2; 16]), &NetProfile::loopback()),
        Err(NetError::Config(text)) if text.contains("is open already")
    ));
    thread::scope(|scope| endpoints.iter().for_each(|endpoint| drop(scope.spawn(move || free(endpoint)))));
}

#[test]
fn failures_at_the_same_moment_have_one_reason() {
    let deployment = deployment(3);
    let endpoints = endpoints(&deployment, 3, &Limits { grace: LONG, ..Limits::default() });
    for id in 0..100 {
        let nets = open(&endpoints, id, &NetProfile::loopback());
        let failing: Vec<_> = nets
            .into_iter()
            .map(|net| thread::spawn(move || net.fail(&format!("reason {}", net.me()))))
            .collect();
        let reasons: Vec<NetError> = failing.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(reasons.iter().all(|reason| *reason == reasons[0]), "{reasons:?}");
    }
}

#[test]
fn a_step_that_takes_too_long_is_named() {
    let deployment = deployment(3);
    let limits = Limits { step: Duration::from_millis(300), ..Limits::default() };
    let nets = open(&endpoints(&deployment, 3, &limits), 1, &NetProfile::loopback());
    let error = nets[1].recv(2, 4, "pool2/compare").unwrap_err();
    assert_eq!(error.abort().unwrap().kind, AbortKind::Timeout);
    assert!(error.to_string().contains("party 1 waited 0.3 s for 'pool2/compare' from party 2"), "{error}");
    assert_eq!(nets[0].recv(1, 1, "x").unwrap_err(), error);
    assert_eq!(nets[2].recv(1, 1, "x").unwrap_err(), error);
}

#[test]
fn a_missing_party_is_named() {
    let deployment = deployment(3);
    let limits = Limits { connect: Duration::from_millis(600), ..Limits::default() };
    let mut endpoints = endpoints(&deployment, 3, &limits);
    let id = SessionId([5; 16]);
    thread::scope(|scope| {
        let one = scope.spawn(|| endpoints[1].open_session(id, &NetProfile::loopback()));
        let error = endpoints[0].open_session(id, &NetProfile::loopback()).unwrap_err();
        assert!(
            matches!(&error, NetError::Timeout(text) if text.contains("party 2 can be reached")),
            "{error}"
        );
        assert!(one.join().unwrap().is_err());
    });
    let gone = endpoints.pop().unwrap();
    let address = gone.local_addr().to_string();
    drop(gone);
    let error = endpoints[0].open_session(id, &NetProfile::loopback()).unwrap_err();
    let NetError::Timeout(text) = &error else { panic!("{error}") };
    assert!(text.contains(&format!("party 2 at {address} could not be reached")), "{error}");
}

#[test]
fn parties_of_another_deployment_are_refused_at_once() {
    let (ours, theirs) = (deployment(2), deployment(2));
    let limits = Limits { connect: LONG, ..Limits::default() };
    let zero = endpoints(&ours, 2, &limits).remove(0);
    let one = endpoints(&theirs, 2, &limits).remove(1);
    let addresses = vec![zero.local_addr().to_string(), one.local_addr().to_string()];
    zero.set_peers(addresses.clone()).unwrap();
    let start = Instant::now();
    let error = zero.open_session(SessionId([1; 16]), &NetProfile::loopback()).unwrap_err();
    assert!(matches!(&error, NetError::Identity(text) if text.contains("party1")), "{error}");
    assert!(start.elapsed() < LONG / 2, "without trying until the time-out");
    // A party that answers at another party's address is refused too.
    let swapped = endpoints(&ours, 2, &limits);
    let mut wrong = addresses;
    wrong[1] = swapped[0].local_addr().to_string();
    zero.set_peers(wrong).unwrap();
    let error = zero.open_session(SessionId([2; 16]), &NetProfile::loopback()).unwrap_err();
    assert!(matches!(&error, NetError::Identity(_)), "{error}");
}

#[test]
fn an_endpoint_checks_its_configuration() {
    let deployment = deployment(2);
    let identity = deployment.identity(&PeerName::Party(1)).unwrap();
    let config = |me, parties| Config {
        me,
        listen: "127.0.0.1:0".into(),
        peers: vec![String::new(); parties],
        identity: identity.clone(),
        limits: Limits::default(),
    };
    for bad in [
        config(0, 2),
        config(1, 1),
        config(1, 65),
        Config { limits: Limits { inbox_hard: 5, ..Limits::default() }, ..config(1, 2) },
    ] {
        assert!(matches!(Endpoint::bind(bad), Err(NetError::Config(_))));
    }
    let taken = Endpoint::bind(config(1, 2)).unwrap();
    let listen = taken.local_addr().to_string();
    let error = Endpoint::bind(Config { listen: listen.clone(), ..config(1, 2) }).unwrap_err();
    assert!(matches!(&error, NetError::Io(text) if text.contains(&listen)), "{error}");
    assert!(matches!(taken.set_peers(vec![]), Err(NetError::Config(_))));
}

#[test]
fn a_shaped_link_takes_the_time_of_its_profile() {
    // 80 Mbit/s: 10 bytes a microsecond; 20 ms there and back.
    let profile = NetProfile::new("test", 20.0, 80.0).unwrap();
    let nets = session(2, &profile);
    let start = Instant::now();
    nets[0].send(1, 1, stamp(0), Payload::zeroed(2_000_000)).unwrap();
    nets[0].send(1, 2, stamp(0), Payload::zeroed(1_000_000)).unwrap();
    nets[1].recv(0, 1, "x").unwrap();
    let first = start.elapsed();
    nets[1].recv(0, 2, "x").unwrap();
    let both = start.elapsed();
    assert!(first >= Duration::from_millis(210) && both >= Duration::from_millis(310), "{first:?} {both:?}");
    assert!(both < Duration::from_millis(3100), "{both:?}");
    // Delays do not add up while the line is idle: many small messages share one delay.
    let start = Instant::now();
    for tag in 10..110 {
        nets[1].send(0, tag, stamp(0), Payload::zeroed(8)).unwrap();
    }
    for tag in 10..110 {
        nets[0].recv(1, tag, "x").unwrap();
    }
    let many = start.elapsed();
    assert!(many >= Duration::from_millis(10) && many < Duration::from_millis(700), "{many:?}");
}

#[test]
fn clients_make_requests() {
    let deployment = deployment(2);
    let endpoint = Arc::new(endpoints(&deployment, 2, &Limits::default()).remove(0));
    let address = endpoint.local_addr().to_string();
    let server = {
        let endpoint = Arc::clone(&endpoint);
        thread::spawn(move || {
            let (name, mut channel) = endpoint.accept_client().unwrap();
            assert_eq!((&name, channel.peer()), (&PeerName::client("alice").unwrap(), &name));
            loop {
                match channel.recv(100 << 20) {
                    Ok(request) => {
                        channel.keep_alive().unwrap();
                        channel.send(request.as_bytes()).unwrap();
                    }
                    Err(error) => return (error, name),
                }
            }
        })
    };
    let alice = deployment.identity(&PeerName::client("alice").unwrap()).unwrap();
    let mut channel = dial(&address, &alice, &PeerName::Party(0), LONG).unwrap();
    for len in [0, 1, 262_144, 262_145, 40 << 20] {
        let request = pattern(0, 1, 2, len);
        channel.send(&request).unwrap();
        assert!(channel.recv(len as u64).unwrap().as_bytes() == request, "{len} bytes");
    }
    channel.close().unwrap();
    let (error, _) = server.join().unwrap();
    assert!(
        matches!(&error, NetError::Closed(text) if text.contains("client:alice has finished")),
        "{error}"
    );

    // A party can be a client too; limits and time-outs hold.
    let one = deployment.identity(&PeerName::Party(1)).unwrap();
    let mut channel = dial(&address, &one, &PeerName::Party(0), LONG).unwrap();
    let (name, mut other) = endpoint.accept_client_within(LONG).unwrap().unwrap();
    assert_eq!(name, PeerName::Party(1));
    channel.set_timeout(Duration::from_millis(50)).unwrap();
    assert!(matches!(channel.recv(10), Err(NetError::Timeout(text)) if text.contains("party0")));
    other.send(&[0; 11]).unwrap();
    assert!(matches!(channel.recv(10), Err(NetError::Limit(_))));
    drop(channel);
    assert!(matches!(other.recv(10), Err(NetError::Closed(_))));
    assert!(matches!(dial(&address, &one, &PeerName::Party(1), LONG), Err(NetError::Identity(_))));
    assert_eq!(endpoint.accept_client_within(Duration::ZERO).unwrap().map(|(name, _)| name), None);
    endpoint.stop();
    assert!(matches!(endpoint.accept_client(), Err(NetError::Closed(_))));
}

#[test]
fn a_client_of_another_deployment_is_refused() {
    let (ours, theirs) = (deployment(2), deployment(2));
    let endpoint = endpoints(&ours, 2, &Limits::default()).remove(0);
    let address = endpoint.local_addr().to_string();
    // Trusts this deployment, but shows a certificate of the other one.
    let pair = theirs.pairs.iter().find(|pair| pair.name == PeerName::client("alice").unwrap()).unwrap();
    assert!(megrez_net::Identity::from_pem(&ours.ca, &pair.certificate, &pair.key).is_err(), "caught early");
    let alice = theirs.identity(&pair.name).unwrap();
    let error = dial(&address, &alice, &PeerName::Party(0), LONG).unwrap_err();
    assert!(matches!(error, NetError::Identity(_)), "{error}");
}
