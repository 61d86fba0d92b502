//! Sessions inside one process: virtual time, demultiplexing, back-pressure, failures.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use megrez_net::{AbortKind, ClockKind, NetError, NetProfile, Network, Payload, Stamp};

const LONG: Duration = Duration::from_secs(60);

fn session(parties: usize, profile: &str) -> Vec<Network> {
    Network::in_memory(parties, &profile.parse().unwrap(), ClockKind::Virtual, LONG)
}

fn at(time_ns: u64) -> Stamp {
    Stamp { round: 1, time_ns }
}

fn arrival(net: &Network, from: usize, tag: u64) -> u64 {
    net.recv(from, tag, "test").unwrap().stamp.time_ns
}

#[test]
fn virtual_time_is_exact() {
    let nets = session(3, "lan");
    // 1 Gbit/s: 8 ns a byte; 1 ms delay.
    nets[0].send(1, 1, at(0), Payload::zeroed(1000)).unwrap();
    nets[0].send(1, 2, at(0), Payload::zeroed(1000)).unwrap();
    nets[0].send(1, 3, at(500_000), Payload::zeroed(1)).unwrap();
    nets[0].send(2, 1, at(0), Payload::zeroed(125)).unwrap();
    nets[1].send(0, 1, at(100), Payload::zeroed(0)).unwrap();
    assert_eq!(arrival(&nets[1], 0, 1), 1_008_000);
    assert_eq!(arrival(&nets[1], 0, 2), 1_016_000, "queues behind the first");
    assert_eq!(arrival(&nets[1], 0, 3), 1_500_008, "finds the link idle");
    assert_eq!(arrival(&nets[2], 0, 1), 1_001_000, "each link has its own rate");
    assert_eq!(arrival(&nets[0], 1, 1), 1_000_100, "and each direction");
    let wan = session(2, "wan");
    wan[1].send(0, 7, at(3), Payload::zeroed(20_000_000)).unwrap();
    assert_eq!(arrival(&wan[0], 1, 7), 3 + 1_000_000_000 + 25_000_000);
}

#[test]
fn virtual_time_is_deterministic_and_does_not_wait() {
    let run = || {
        let nets = session(3, "wan");
        let start = Instant::now();
        let workers: Vec<_> = nets
            .into_iter()
            .map(|net| {
                thread::spawn(move || {
                    let mut now = Stamp::default();
                    for step in 0..100u64 {
                        for to in (0..3).filter(|to| *to != net.me()) {
                            let len = (step * 31 + to as u64 * 7) as usize;
                            net.send(to, step, now, Payload::zeroed(len)).unwrap();
                        }
                        for from in (0..3).filter(|from| *from != net.me()) {
                            let stamp = net.recv(from, step, "loop").unwrap().stamp;
                            now.time_ns = now.time_ns.max(stamp.time_ns);
                            now.round = now.round.max(stamp.round + 1);
                        }
                    }
                    now
                })
            })
            .collect();
        let ends: Vec<Stamp> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(start.elapsed() < Duration::from_secs(2), "2.5 s of virtual time cost no real time");
        ends
    };
    let first = run();
    assert!(first.iter().all(|end| end.round == 100 && end.time_ns > 2_500_000_000));
    assert_eq!(first, run());
}

#[test]
fn messages_are_found_by_tag_from_several_threads() {
    let nets = session(2, "loopback");
    let sender = nets[0].clone();
    let lanes: Vec<_> = (0..4u64)
        .map(|lane| {
            let net = nets[1].clone();
            thread::spawn(move || {
                for i in (0..50u64).rev() {
                    let tag = lane * 1000 + i;
                    let message = net.recv(0, tag, "lane").unwrap();
                    assert_eq!(message.payload.words(), [tag]);
                    assert_eq!(message.stamp.round, i as u32);
                }
            })
        })
        .collect();
    for i in 0..50u64 {
        for lane in 0..4u64 {
            let tag = lane * 1000 + i;
            let stamp = Stamp { round: i as u32, time_ns: 0 };
            sender.send(1, tag, stamp, Payload::from_words(vec![tag])).unwrap();
        }
    }
    lanes.into_iter().for_each(|lane| lane.join().unwrap());
    let wire = nets[1].wire();
    assert_eq!((wire.len(), wire[0].peer), (1, 0));
    assert_eq!((wire[0].received.messages, wire[0].received.payload_bytes), (200, 1600));
    assert_eq!(nets[0].wire()[0].sent, wire[0].received);
    assert_eq!(wire[0].sent.messages, 0);
}

#[test]
fn a_sender_far_ahead_waits() {
    let nets = session(2, "loopback");
    let (done, finished) = mpsc::channel();
    let sender = nets[0].clone();
    let worker = thread::spawn(move || {
        // Untouched zero pages cost nothing: 5 times 256 MiB against 1 GiB of room.
        for tag in 0..5 {
            sender.send(1, tag, Stamp::default(), Payload::zeroed(256 << 20)).unwrap();
            done.send(tag).unwrap();
        }
    });
    for tag in 0..3 {
        assert_eq!(finished.recv_timeout(LONG), Ok(tag));
    }
    assert!(finished.recv_timeout(Duration::from_millis(100)).is_err(), "the fourth has no room");
    nets[1].recv(0, 0, "big").unwrap();
    assert_eq!(finished.recv_timeout(LONG), Ok(3));
    // A receiver that waits for something still to come opens the gate, or both would wait for
    // ever.
    nets[1].recv(0, 4, "big").unwrap();
    worker.join().unwrap();
}

#[test]
fn real_clock_delays_deliveries() {
    let profile = NetProfile::new("slow", 20.0, 8.0).unwrap();
    let nets = Network::in_memory(2, &profile, ClockKind::Real, LONG);
    let start = Instant::now();
    nets[0].send(1, 1, at(5), Payload::zeroed(10_000)).unwrap();
    nets[0].send(1, 2, at(5), Payload::zeroed(10_000)).unwrap();
    assert_eq!(nets[1].recv(0, 2, "second").unwrap().stamp, at(5));
    assert!(start.elapsed() >= Duration::from_millis(30), "two times 10 ms of bits and 10 ms of delay");
}

#[test]
fn failures_reach_everybody_with_the_same_reason() {
    let nets = session(3, "lan");
    let waiter = {
        let net = nets[2].clone();
        thread::spawn(move || net.recv(1, 5, "conv1/relu").unwrap_err())
    };
    let reason = nets[0].fail("the plan has no step 7\u{1b}");
    let NetError::Aborted(abort) = &reason else { panic!("{reason:?}") };
    assert_eq!((abort.kind, abort.origin), (AbortKind::Failed, 0));
    assert!(abort.reason.contains("the plan has no step 7") && !abort.reason.contains('\u{1b}'));
    assert_eq!(waiter.join().unwrap(), reason);
    assert_eq!(nets[1].send(0, 1, at(0), Payload::default()).unwrap_err(), reason);
    assert_eq!(nets[1].recv(0, 1, "x").unwrap_err(), reason);
    assert_eq!(nets[1].fail("later"), reason);
    assert_eq!(nets[0].flush().unwrap_err(), reason);
}

#[test]
fn a_time_out_names_the_step_and_both_parties() {
    let nets = Network::in_memory(3, &NetProfile::loopback(), ClockKind::Virtual, Duration::from_millis(50));
    let error = nets[1].recv(2, 9, "fc2/open").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("party 1 waited") && text.contains("'fc2/open' from party 2"), "{text}");
    assert_eq!(nets[0].recv(1, 1, "x").unwrap_err(), error);
    assert_eq!(error.abort().unwrap().kind, AbortKind::Timeout);
}

#[test]
fn misuse_is_named() {
    let nets = session(2, "lan");
    for peer in [0, 2, 99] {
        assert!(matches!(nets[0].send(peer, 1, at(0), Payload::default()), Err(NetError::Config(_))));
        assert!(matches!(nets[0].recv(peer, 1, "x"), Err(NetError::Config(_))));
    }
    nets[0].send(1, 1, at(0), Payload::default()).unwrap();
    nets[1].recv(0, 1, "x").unwrap();
    assert!(matches!(nets[1].recv(0, 1, "x"), Err(NetError::Config(_))), "asked for twice");
    let error = nets[0].send(1, 1, at(0), Payload::default()).unwrap_err();
    assert_eq!(error.abort().unwrap().kind, AbortKind::Garbage, "sent twice");
    assert_eq!(nets[1].recv(0, 2, "x").unwrap_err(), error);
}

#[test]
fn leaving_delivers_what_was_sent_and_nothing_else() {
    let mut nets = session(2, "lan");
    let gone = nets.remove(0);
    gone.send(1, 1, at(0), Payload::from_bytes(b"last words")).unwrap();
    let clone = gone.clone();
    gone.close();
    assert!(matches!(clone.send(1, 2, at(0), Payload::default()), Err(NetError::Closed(_))));
    assert_eq!(nets[0].recv(0, 1, "x").unwrap().payload.as_bytes(), b"last words");
    let error = nets[0].recv(0, 2, "fc1/open").unwrap_err();
    assert!(error.to_string().contains("party 0 finished while party 1 waited for 'fc1/open'"), "{error}");
}

#[test]
fn a_panic_ends_the_session() {
    let mut nets = session(2, "lan");
    let net = nets.remove(0);
    let outcome = thread::spawn(move || {
        let _held = net;
        panic!("expected by the test");
    })
    .join();
    assert!(outcome.is_err());
    let error = nets[0].recv(0, 2, "x").unwrap_err();
    assert!(error.to_string().contains("party 0 panicked"), "{error}");
}

#[test]
fn a_session_has_as_many_parties_as_its_protocol_takes() {
    let mut nets = session(5, "loopback");
    for (me, net) in nets.iter_mut().enumerate() {
        (0..5).filter(|&to| to != me).for_each(|to| {
            net.send(to, 7, Stamp::default(), Payload::from_pod(&[me as u64])).unwrap();
        });
    }
    for (me, net) in nets.iter().enumerate() {
        for from in (0..5).filter(|&from| from != me) {
            let message = net.recv(from, 7, "hello").unwrap();
            assert_eq!(message.payload.as_pod::<u64>().unwrap(), [from as u64]);
        }
    }
}
