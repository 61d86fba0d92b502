//! Measures links on this machine, both ends included, and prints JSON.
//!
//! `cargo run --release -p megrez-net --example link_bench`
//!
//! Throughput is payload from one party to another in one direction, in GB/s (10^9 bytes); latency is half of a
//! round trip of 8-byte messages, in microseconds.

use std::thread;
use std::time::{Duration, Instant};

use megrez_net::{
    ClockKind, Config, Endpoint, Limits, NetProfile, Network, Payload, PeerName, SessionId, Stamp, certs,
};

const PING_PONGS: u64 = 5_000;

fn main() {
    let profile = NetProfile::loopback();
    let sessions: [(&str, fn(u8) -> Vec<Network>); 2] = [
        ("memory", |_| {
            Network::in_memory(2, &NetProfile::loopback(), ClockKind::Real, Duration::from_secs(60))
        }),
        ("tls", tls),
    ];
    let mut results = Vec::new();
    for (index, (name, open)) in sessions.into_iter().enumerate() {
        for (run, (len, count)) in
            [(64 << 10, 8_000), (1 << 20, 1_000), (64 << 20, 24)].into_iter().enumerate()
        {
            let nets = open((index * 10 + run) as u8);
            let gbps = throughput(nets, len, count);
            results.push(
                serde_json::json!({ "link": name, "message_bytes": len, "gigabytes_per_s": round(gbps) }),
            );
        }
        let micros = latency(open((index * 10 + 9) as u8));
        results.push(serde_json::json!({ "link": name, "one_way_us": round(micros) }));
    }
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{}",
        serde_json::json!({ "bench": "link", "profile": profile.name, "cores": cores, "results": results })
    );
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Sends `count` messages of `len` bytes from party 0 to party 1, and one word back.
fn throughput(mut nets: Vec<Network>, len: usize, count: u64) -> f64 {
    let (one, zero) = (nets.remove(1), nets.remove(0));
    let start = Instant::now();
    let receiver = thread::spawn(move || {
        for tag in 0..count {
            let message = one.recv(0, tag, "bench").expect("receive");
            assert_eq!(message.payload.len(), len);
        }
        one.send(0, 0, Stamp::default(), Payload::zeroed(8)).expect("send");
        one.close();
    });
    for tag in 0..count {
        zero.send(1, tag, Stamp::default(), Payload::from_words(vec![tag; len / 8])).expect("send");
    }
    zero.recv(1, 0, "bench").expect("receive");
    let seconds = start.elapsed().as_secs_f64();
    zero.close();
    receiver.join().expect("receiver");
    count as f64 * len as f64 / seconds / 1e9
}

/// Half of the mean round trip, in microseconds.
fn latency(mut nets: Vec<Network>) -> f64 {
    let (one, zero) = (nets.remove(1), nets.remove(0));
    let echo = thread::spawn(move || {
        for tag in 0..PING_PONGS {
            let message = one.recv(0, tag, "bench").expect("receive");
            one.send(0, tag, Stamp::default(), message.payload).expect("send");
        }
        one.close();
    });
    let start = Instant::now();
    for tag in 0..PING_PONGS {
        zero.send(1, tag, Stamp::default(), Payload::zeroed(8)).expect("send");
        zero.recv(1, tag, "bench").expect("receive");
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / PING_PONGS as f64 / 2.0;
    zero.close();
    echo.join().expect("echo");
    micros
}

/// Two parties of a session over TLS on this machine.
fn tls(session: u8) -> Vec<Network> {
    let request = certs::Request { parties: 2, clients: Vec::new(), hosts: Vec::new(), days: 1 };
    let deployment = certs::issue(&request).expect("certificates");
    let endpoints: Vec<Endpoint> = (0..2)
        .map(|me| {
            let identity = deployment.identity(&PeerName::Party(me)).expect("identity");
            let (listen, peers) = ("127.0.0.1:0".to_owned(), vec![String::new(); 2]);
            Endpoint::bind(Config { me, listen, peers, identity, limits: Limits::default() })
                .expect("endpoint")
        })
        .collect();
    let addresses: Vec<String> = endpoints.iter().map(|endpoint| endpoint.local_addr().to_string()).collect();
    thread::scope(|scope| {
        let opening: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                endpoint.set_peers(addresses.clone()).expect("addresses");
                let id = SessionId([session; 16]);
                scope.spawn(move || endpoint.open_session(id, &NetProfile::loopback()).expect("session"))
            })
            .collect();
        opening.into_iter().map(|thread| thread.join().expect("opening")).collect()
    })
}
