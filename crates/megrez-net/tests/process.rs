//! A party in a process of its own that is killed, or stopped, in the middle of a session.

#![cfg(unix)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use megrez_net::{
    AbortKind, Config, Endpoint, Identity, Limits, NetError, NetProfile, Network, Payload, PeerName,
    SessionId, Stamp, certs,
};

const FOLDER: &str = "MEGREZ_NET_TEST_FOLDER";
const ID: SessionId = SessionId([3; 16]);

fn endpoint(folder: &Path, me: usize) -> Endpoint {
    let identity = Identity::load(folder, &PeerName::Party(me)).unwrap();
    let limits = Limits { idle_timeout: Duration::from_secs(2), ..Limits::default() };
    Endpoint::bind(Config {
        me,
        listen: "127.0.0.1:0".into(),
        peers: vec![String::new(); 3],
        identity,
        limits,
    })
    .unwrap()
}

/// Party 2; runs only when a test below starts it as a process.
#[test]
#[ignore = "started by other tests"]
fn party_two() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let endpoint = endpoint(Path::new(&folder), 2);
    println!("\nlistening {}", endpoint.local_addr());
    let peers = std::io::stdin().lines().next().unwrap().unwrap();
    endpoint.set_peers(peers.split(' ').map(str::to_owned).collect()).unwrap();
    let net = endpoint.open_session(ID, &NetProfile::loopback()).unwrap();
    for to in 0..2 {
        net.send(to, 1, Stamp::default(), Payload::from_bytes(b"ready")).unwrap();
    }
    println!("\nreason {}", net.recv(0, u64::MAX, "for ever").unwrap_err());
}

/// The child and its files, gone on drop.
struct Party {
    process: Child,
    folder: PathBuf,
    reason: Receiver<String>,
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Parties 0 and 1 here, party 2 in a process; all are ready and wait.
fn session(name: &str) -> (Vec<Network>, Party) {
    let folder = std::env::temp_dir().join(format!("megrez-net-{}-{name}", std::process::id()));
    let request = certs::Request {
        parties: 3,
        clients: Vec::new(),
        hosts: Vec::new(),
        days: 1,
        authority_days: 1,
        only: Vec::new(),
    };
    certs::generate(&folder, &request).unwrap();
    let endpoints = [endpoint(&folder, 0), endpoint(&folder, 1)];
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "party_two", "--nocapture"])
        .env(FOLDER, &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (reasons, reason) = channel();
    let mut party = Party { process, folder, reason };
    let mut lines = BufReader::new(party.process.stdout.take().unwrap()).lines();
    let address = lines
        .find_map(|line| line.unwrap().strip_prefix("listening ").map(str::to_owned))
        .expect("party 2 says where it listens");
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(reason) = line.strip_prefix("reason ") {
                let _ = reasons.send(reason.to_owned());
            }
        }
    });
    let mut peers: Vec<String> = endpoints.iter().map(|one| one.local_addr().to_string()).collect();
    peers.push(address);
    writeln!(party.process.stdin.as_mut().unwrap(), "{}", peers.join(" ")).unwrap();
    let nets = thread::scope(|scope| {
        let opening: Vec<_> = endpoints
            .iter()
            .map(|endpoint| {
                endpoint.set_peers(peers.clone()).unwrap();
                scope.spawn(|| endpoint.open_session(ID, &NetProfile::loopback()).unwrap())
            })
            .collect();
        opening.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for net in &nets {
        assert_eq!(net.recv(2, 1, "ready").unwrap().payload.as_bytes(), b"ready");
    }
    (nets, party)
}

/// What parties 0 and 1 report; one waits for party 2, the other for the first.
fn outcome(nets: &[Network]) -> NetError {
    thread::scope(|scope| {
        let one = scope.spawn(|| nets[1].recv(0, 5, "relu1").unwrap_err());
        let error = nets[0].recv(2, 5, "conv1/open").unwrap_err();
        assert_eq!(one.join().unwrap(), error);
        error
    })
}

#[test]
fn a_killed_party_is_named_by_all() {
    let (nets, mut party) = session("kill");
    party.process.kill().unwrap();
    let error = outcome(&nets);
    let abort = error.abort().unwrap();
    assert_eq!((abort.kind, abort.culprit), (AbortKind::Left, Some(2)), "{error}");
    assert!(error.to_string().contains("party 2 left the session (connection closed)"), "{error}");
}

#[test]
fn a_stopped_party_is_named_by_all() {
    let (nets, party) = session("stop");
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &party.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    };
    signal("-STOP");
    let error = outcome(&nets);
    let abort = error.abort().unwrap();
    assert_eq!((abort.kind, abort.culprit), (AbortKind::Stalled, Some(2)), "{error}");
    assert!(error.to_string().contains("party 2 was silent for 2 s"), "{error}");
    // When it goes on, it learns what has happened, and tells the same story.
    signal("-CONT");
    let reason = party.reason.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(reason, error.to_string());
}
