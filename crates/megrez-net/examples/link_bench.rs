//! Measures links on this machine, both ends included, and prints JSON.
//!
//! `cargo run --release -p megrez-net --example link_bench`
//!
//! Links without a profile first, then links that are shaped, with what the profile promises next
//! to them. Throughput is payload from one party to another in one direction, in GB/s (10^9 bytes);
//! latency is half of a round trip of 8-byte messages, in microseconds.

use std::thread;
use std::time::{Duration, Instant};

use megrez_net::{
    ClockKind, Config, Endpoint, Limits, NetProfile, Network, Payload, PeerName, SessionId, Stamp, certs,
};

fn main() {
    let sessions: [(&str, fn(u8) -> Vec<Network>); 2] = [
        ("memory", |_| {
            Network::in_memory(2, &NetProfile::loopback(), ClockKind::Real, Duration::from_secs(60))
        }),
        ("tls", |id| tls(id, &NetProfile::loopback())),
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
        let micros = latency(open((index * 10 + 9) as u8), 5_000);
        results.push(serde_json::json!({ "link": name, "one_way_us": round(micros) }));
    }
    for (index, (profile, len, count)) in
        [(NetProfile::lan(), 1 << 20, 64), (NetProfile::wan(), 1 << 20, 16)].into_iter().enumerate()
    {
        let bytes = len as u64 * count;
        let gbps = throughput(tls(100 + index as u8, &profile), len, count);
        // The first message waits for the delay once, the word at the end once more.
        let model = bytes as f64 / (profile.transmit_ns(bytes) + 2 * profile.delay_ns()) as f64;
        let micros = latency(tls(110 + index as u8, &profile), 20);
        results.push(serde_json::json!({
            "link": format!("tls {profile}"), "message_bytes": len,
            "gigabytes_per_s": round(gbps), "model_gigabytes_per_s": round(model),
            "one_way_us": round(micros), "model_one_way_us": profile.delay_ns() as f64 / 1e3,
        }));
    }
    let cores = thread::available_parallelism().map_or(0, usize::from);
    println!("{}", serde_json::json!({ "bench": "link", "cores": cores, "results": results }));
}

/// Four digits after the point.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
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
fn latency(mut nets: Vec<Network>, count: u64) -> f64 {
    let (one, zero) = (nets.remove(1), nets.remove(0));
    let echo = thread::spawn(move || {
        for tag in 0..count {
            let message = one.recv(0, tag, "bench").expect("receive");
            one.send(0, tag, Stamp::default(), message.payload).expect("send");
        }
        one.close();
    });
    let start = Instant::now();
    for tag in 0..count {
        zero.send(1, tag, Stamp::default(), Payload::zeroed(8)).expect("send");
        zero.recv(1, tag, "bench").expect("receive");
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / count as f64 / 2.0;
    zero.close();
    echo.join().expect("echo");
    micros
}

/// Two parties of a session over TLS on this machine.
fn tls(session: u8, profile: &NetProfile) -> Vec<Network> {
    let request = certs::Request {
        parties: 2,
        clients: Vec::new(),
        hosts: Vec::new(),
        days: 1,
        authority_days: 1,
        only: Vec::new(),
    };
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
                scope.spawn(move || endpoint.open_session(id, profile).expect("session"))
            })
            .collect();
        opening.into_iter().map(|thread| thread.join().expect("opening")).collect()
    })
}
