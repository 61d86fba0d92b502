//! Programs of several clients at parties of this process: clients that misbehave end their own
//! run, and nothing hangs.

use megrez_device::{AnyDevice, DeviceChoice};
use megrez_float::programs::tape::Entry;
use megrez_net::certs::{self, Deployment};
use megrez_net::{Channel, Config, Endpoint, Limits, PeerName, dial};
use megrez_service::client::{Cluster, Joint};
use megrez_service::log::Log;
use megrez_service::party::{Capacity, Models, Policy, Service, Settings, limits};
use megrez_service::wire::{self, Join, Opening, Program, Reply, Request};
use megrez_service::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What takes longer hangs.
const HANG: Duration = Duration::from_secs(60);

/// Parties in threads of this process, and who may talk to them.
struct Parties {
    deployment: Deployment,
    addresses: Vec<String>,
    endpoints: Vec<Arc<Endpoint>>,
}

impl Parties {
    fn start(count: usize) -> Self {
        Self::with(count, "", Capacity { sessions_per_client: 2, ..Capacity::default() })
    }

    /// In folders of their own.
    fn with(count: usize, name: &str, capacity: Capacity) -> Self {
        let request = certs::Request {
            parties: count,
            clients: ["alice", "bob", "mallory"].map(str::to_owned).into(),
            hosts: vec![],
            days: 2,
            authority_days: 2,
            only: vec![],
        };
        let deployment = certs::issue(&request).unwrap();
        let bind = |me| {
            let identity = deployment.identity(&PeerName::party(me).unwrap()).unwrap();
            let limits = Limits { connect: Duration::from_secs(3), ..limits(Duration::from_secs(10)) };
            let (listen, peers) = ("127.0.0.1:0".into(), vec![String::new(); count]);
            Arc::new(Endpoint::bind(Config { me, listen, peers, identity, limits }).unwrap())
        };
        let endpoints: Vec<Arc<Endpoint>> = (0..count).map(bind).collect();
        let addresses: Vec<String> = endpoints.iter().map(|e| e.local_addr().to_string()).collect();
        for (me, endpoint) in endpoints.iter().enumerate() {
            endpoint.set_peers(addresses.clone()).unwrap();
            let data = data(count, name, me);
            let policy = Policy {
                replicas: vec![],
                weights: megrez_weights::Folder::at(data.join("weights")),
                data: data.clone(),
                models: Models::of(&data),
                settings: Settings {
                    capacity: capacity.clone(),
                    max_elements: 1000,
                    allow_shaping: false,
                    allow_insecure: false,
                },
                audit: (!name.is_empty()).then(|| data.join("audit.jsonl")),
                traces: None,
                rights: None,
                guarantees: |_, _| None,
            };
            let device: AnyDevice = "cpu".parse::<DeviceChoice>().unwrap().open().unwrap();
            let service = Service::new(Arc::clone(endpoint), policy, device).unwrap();
            std::thread::spawn(move || service.run(Log::of_child(me)));
        }
        Parties { deployment, addresses, endpoints }
    }

    fn connect(&self, client: &str) -> Cluster {
        let identity = self.deployment.identity(&PeerName::client(client).unwrap()).unwrap();
        Cluster::connect(&self.addresses, &identity, HANG).unwrap()
    }

    /// Asks one party, and leaves the rest to the test.
    fn ask(&self, client: &str, party: usize, name: &str, program: &Program) -> Channel {
        self.ask_for(client, party, name, program, [7; 16])
    }

    /// As [`ask`](Self::ask), as the client's part `session`.
    fn ask_for(
        &self,
        client: &str,
        party: usize,
        name: &str,
        program: &Program,
        session: [u8; 16],
    ) -> Channel {
        let identity = self.deployment.identity(&PeerName::client(client).unwrap()).unwrap();
        let mut channel =
            dial(&self.addresses[party], &identity, &PeerName::party(party).unwrap(), HANG).unwrap();
        let join = Join {
            session,
            protocol: "secfloat".into(),
            name: name.into(),
            program: postcard::to_allocvec(program).unwrap(),
            seconds: 10,
        };
        wire::send(&mut channel, &Request::Join(join)).unwrap();
        channel
    }
}

impl Drop for Parties {
    fn drop(&mut self) {
        self.endpoints.iter().for_each(|endpoint| endpoint.stop());
    }
}

/// The folder of a party.
fn data(count: usize, name: &str, me: usize) -> PathBuf {
    std::env::temp_dir().join(format!("megrez-joint-{}-{count}{name}-{me}", std::process::id()))
}

/// The lines of an audit log about an event.
fn audited(log: &Path, event: &str) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line["event"] == event && line["request"] == "join").collect()
}

fn answer(channel: &mut Channel) -> Reply {
    channel.set_timeout(HANG).unwrap();
    wire::recv(channel, wire::MAX_REPLY).unwrap()
}

/// The kind and the reason of a refusal.
fn refusal(channel: &mut Channel) -> (ErrorKind, String) {
    match answer(channel) {
        Reply::Failed(failure) => (failure.kind, failure.reason),
        other => panic!("{other:?}"),
    }
}

/// x·y·factor of two clients' numbers, for both.
fn program(clients: [&str; 2], factor: f32) -> Program {
    let apply = |of: &[u64]| Entry::Apply { op: "mul".into(), of: of.to_vec() };
    Program {
        clients: clients.map(str::to_owned).into(),
        tape: vec![
            Entry::Input { owner: 0, lanes: 2 },
            Entry::Input { owner: 1, lanes: 2 },
            Entry::Public(vec![factor.to_bits(); 2]),
            apply(&[0, 1]),
            apply(&[3, 2]),
        ],
        outputs: vec![Opening { value: 4, to: vec![0, 1] }],
        group: 4,
        threads: 1,
    }
}

fn join(
    parties: &Parties,
    client: &str,
    protocol: &str,
    name: &str,
    program: &Program,
) -> Result<Vec<Vec<f32>>> {
    let place = program.clients.iter().position(|c| c == client).unwrap();
    join_by(parties.connect(client), place, protocol, name, program)
}

/// As [`join`], over connections that are there.
fn join_by(
    mut client: Cluster,
    place: usize,
    protocol: &str,
    name: &str,
    program: &Program,
) -> Result<Vec<Vec<f32>>> {
    let numbers = HashMap::from([(place, [vec![3.0, -0.5], vec![0.25, 8.0]][place].clone())]);
    let joint = Joint { protocol, name, program, patience: Duration::from_secs(20) };
    client.join(joint, &numbers).map(|(opened, _)| opened)
}

/// Alice and bob get what their program says.
fn works(parties: &Parties, protocol: &str, name: &str) {
    let program = program(["alice", "bob"], 2.0);
    std::thread::scope(|scope| {
        let both = ["alice", "bob"];
        let both = both.map(|client| scope.spawn(|| join(parties, client, protocol, name, &program)));
        for one in both {
            assert_eq!(one.join().unwrap().unwrap(), [[1.5, -8.0]]);
        }
    });
}

#[test]
fn two_clients_with_a_dealer() {
    works(&Parties::start(3), "mizar-float", "dealt");
}

#[test]
fn strangers_cannot_disturb_a_program() {
    let parties = Parties::start(2);
    let ours = program(["alice", "bob"], 2.0);
    let (kind, reason) = refusal(&mut parties.ask("mallory", 0, "study", &ours));
    assert_eq!(kind, ErrorKind::NotPermitted, "{reason}");
    // Under the same name, with another program, that names one of us: it waits in a room of its
    // own.
    let theirs = program(["alice", "mallory"], 7.0);
    let mut stranger = parties.ask("mallory", 0, "study", &theirs);
    // Programs that wait are counted.
    let _second = parties.ask("mallory", 0, "second", &theirs);
    std::thread::sleep(Duration::from_millis(300));
    let (kind, reason) = refusal(&mut parties.ask("mallory", 0, "third", &theirs));
    assert_eq!(kind, ErrorKind::Busy, "{reason}");
    let (_, reason) = refusal(&mut parties.ask("mallory", 0, &"n".repeat(65), &theirs));
    assert!(reason.contains("at most 64 bytes"), "{reason}");
    let wide = Program { tape: vec![Entry::Public(vec![0; 2000])], ..theirs.clone() };
    let (kind, reason) = refusal(&mut parties.ask("mallory", 1, "wide", &wide));
    assert!(kind == ErrorKind::Unsupported && reason.contains("more than 1000 numbers"), "{reason}");
    works(&parties, "secfloat", "study");
    // Nobody of that name comes.
    let (kind, reason) = refusal(&mut stranger);
    assert!(kind == ErrorKind::TimedOut && reason.contains("`alice` have not come"), "{reason}");
}

#[test]
fn who_comes_twice_or_with_another_program_is_told() {
    let parties = Parties::start(2);
    let ours = program(["alice", "bob"], 2.0);
    let mut first = parties.ask("alice", 0, "study", &ours);
    std::thread::sleep(Duration::from_millis(300));
    let (_, reason) = refusal(&mut parties.ask("alice", 0, "study", &ours));
    assert!(reason.contains("`alice` takes part in `study` already"), "{reason}");
    let mut other = parties.ask("bob", 0, "study", &program(["alice", "bob"], 3.0));
    for channel in [&mut first, &mut other] {
        let (kind, reason) = refusal(channel);
        assert!(kind == ErrorKind::Invalid && reason.contains("another program"), "{reason}");
    }
    works(&parties, "secfloat", "study");
}

#[test]
fn parties_that_were_asked_for_different_programs_do_not_meet() {
    let parties = Parties::start(2);
    let programs = [program(["alice", "bob"], 2.0), program(["alice", "bob"], 3.0)];
    let ask = |client| [0, 1].map(|party| parties.ask(client, party, "study", &programs[party]));
    let mut channels = [ask("alice"), ask("bob")];
    let begun = Instant::now();
    for client in &mut channels {
        let (kind, reason) = refusal(&mut client[0]);
        assert!(kind != ErrorKind::Internal, "{reason}");
    }
    assert!(begun.elapsed() < HANG / 2);
    // No share was asked for; party 1 gives up with its clients.
    drop(channels);
    works(&parties, "secfloat", "study");
}

#[test]
fn a_client_that_goes_or_sends_nonsense_ends_the_run() {
    let parties = Parties::start(2);
    let ours = program(["alice", "bob"], 2.0);
    for (i, nonsense) in
        [None, Some(vec![]), Some(vec![0; 9]), Some(vec![0; 1 << 20])].into_iter().enumerate()
    {
        let name = format!("study-{i}");
        std::thread::scope(|scope| {
            let alice = scope.spawn(|| join(&parties, "alice", "secfloat", &name, &ours));
            let mut bob = [0, 1].map(|party| parties.ask_for("bob", party, &name, &ours, [i as u8; 16]));
            for channel in &mut bob {
                assert!(matches!(answer(channel), Reply::Begun));
                if let Some(bytes) = &nonsense {
                    let _ = channel.send(bytes);
                }
            }
            drop(bob);
            let error: Error = alice.join().unwrap().unwrap_err();
            assert!(error.kind() != ErrorKind::Internal, "{i}: {error}");
        });
    }
    works(&parties, "secfloat", "study-0");
}

/// A program of one client begins at once, and waits for party 0, which nobody has asked.
#[test]
fn programs_that_wait_for_their_turn_count_as_well() {
    let parties = Parties::start(2);
    let mut alone = program(["mallory", "bob"], 2.0);
    alone.clients.truncate(1);
    alone.tape[1] = Entry::Input { owner: 0, lanes: 2 };
    alone.outputs[0].to = vec![0];
    let _waiting: Vec<Channel> =
        ["first", "second"].map(|name| parties.ask("mallory", 1, name, &alone)).into();
    std::thread::sleep(Duration::from_millis(300));
    let (kind, reason) = refusal(&mut parties.ask("mallory", 1, "third", &alone));
    assert_eq!(kind, ErrorKind::Busy, "{reason}");
    works(&parties, "secfloat", "study");
}

#[test]
fn who_comes_again_after_its_connection_broke_takes_its_place() {
    let parties = Parties::start(2);
    let ours = program(["alice", "bob"], 2.0);
    for _ in 0..3 {
        let broken = [0, 1].map(|party| parties.ask("alice", party, "study", &ours));
        std::thread::sleep(Duration::from_millis(50));
        drop(broken);
    }
    works(&parties, "secfloat", "study");
}

/// What a client did between its requests is no silence of the parties, which take longer to answer
/// than a client looks once.
#[test]
fn a_client_may_rest_between_its_requests() {
    let parties = Parties::start(2);
    let ours = program(["alice", "bob"], 2.0);
    let patience = Duration::from_secs(2);
    let mut rested = parties.connect("alice");
    rested.set_patience(patience);
    std::thread::sleep(patience + Duration::from_millis(100));
    std::thread::scope(|scope| {
        let alice = scope.spawn(|| join_by(rested, 0, "secfloat", "rested", &ours));
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(join(&parties, "bob", "secfloat", "rested", &ours).unwrap(), [[1.5, -8.0]]);
        assert_eq!(alice.join().unwrap().unwrap(), [[1.5, -8.0]]);
    });
}

#[test]
fn signs_of_life_do_not_hold_a_program() {
    let capacity = Capacity { client_seconds: 3, ..Capacity::default() };
    let parties = Parties::with(2, "-silent", capacity);
    let ours = program(["alice", "bob"], 2.0);
    std::thread::scope(|scope| {
        let alice = scope.spawn(|| join(&parties, "alice", "secfloat", "study", &ours));
        let mut bob = [0, 1].map(|party| parties.ask("bob", party, "study", &ours));
        for channel in &mut bob {
            assert!(matches!(answer(channel), Reply::Begun));
        }
        let begun = Instant::now();
        while !alice.is_finished() && begun.elapsed() < HANG {
            bob.iter_mut().for_each(|channel| drop(channel.keep_alive()));
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(begun.elapsed() < HANG / 2, "{:?}", begun.elapsed());
        let error = alice.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("not here in time"), "{error}");
    });
}

#[test]
fn the_audit_names_who_took_part_in_what_and_only_what_began() {
    let parties = Parties::with(2, "-audit", Capacity::default());
    let logs = [0, 1].map(|me| data(2, "-audit", me).join("audit.jsonl"));
    // Parties that were asked for different programs never agree: bob's never began.
    let programs = [program(["alice", "bob"], 2.0), program(["alice", "bob"], 3.0)];
    let ask = |client| [0, 1].map(|party| parties.ask(client, party, "other", &programs[party]));
    let mut channels = [ask("alice"), ask("bob")];
    channels.iter_mut().for_each(|client| drop(refusal(&mut client[0])));
    drop(channels);
    works(&parties, "secfloat", "study");
    for log in &logs {
        let mut began = audited(log, "began");
        assert!(began.iter().all(|line| line["client"] == "alice" || line["subject"]["name"] == "study"));
        began.retain(|line| line["subject"]["name"] == "study");
        let mut clients: Vec<&str> = began.iter().map(|line| line["client"].as_str().unwrap()).collect();
        clients.sort_unstable();
        assert_eq!(clients, ["alice", "bob"]);
        for line in &began {
            assert_eq!(line["subject"]["clients"], serde_json::json!(["alice", "bob"]));
            assert_eq!(line["session"], began[0]["session"]);
        }
    }
    let session = |log| audited(log, "began").last().unwrap()["session"].clone();
    assert_eq!(session(&logs[0]), session(&logs[1]));
}
