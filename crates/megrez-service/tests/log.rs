//! What parties log and write down of their clients' requests: whole lines, with what an operator
//! looks for, and no number of anybody's; and what their policies let clients ask for.

use megrez_device::AnyDevice;
use megrez_net::{Config, Endpoint, Identity, NetProfile, PeerName, certs, dial};
use megrez_plan::{Input, Op, Plan};
use megrez_service::client::{Cluster, RunOptions};
use megrez_service::log::{Format, Level, Log, LogConfig};
use megrez_service::party::{Capacity, Models, Policy, Service, Settings, limits};
use megrez_service::wire::{self, Ahead, Assist, Reply, Request, Source, fresh_name};
use megrez_service::{ErrorKind, Result, audit::verify};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const X: u64 = 123_456_789_012_345;
const W: u64 = 987_654_321_098_765;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines, once there is one with these words.
    fn with(&self, words: &str) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.text().contains(words) {
            assert!(Instant::now() < deadline, "no `{words}`: {}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// x · w on two elements, everything Alice's.
fn product(ring: u32) -> Plan {
    let mut plan = Plan::new(ring);
    let [x, w] = ["x", "w"].map(|name| plan.input(name, "alice", [2].into(), 0));
    let y = plan.step("product", Op::Mul, &[x, w]).unwrap();
    plan.output("y", "alice", y);
    plan
}

/// Three parties as a service, in threads.
struct Three {
    endpoints: Vec<Arc<Endpoint>>,
    services: Vec<Arc<Service>>,
    running: Vec<JoinHandle<Result<()>>>,
    addresses: Vec<String>,
    alice: Identity,
    /// Party 1's own.
    party: Identity,
    folder: PathBuf,
    logs: [Lines; 3],
}

impl Three {
    /// `policies`: the text of each party's `policy.toml`, if it has one.
    fn start(name: &str, policies: [Option<&str>; 3]) -> Three {
        let clients = vec!["alice".to_owned()];
        let request =
            certs::Request { parties: 3, clients, hosts: vec![], days: 1, authority_days: 1, only: vec![] };
        let deployment = certs::issue(&request).unwrap();
        let endpoint = |me| {
            let config = Config {
                me,
                listen: "127.0.0.1:0".into(),
                peers: vec![String::new(); 3],
                identity: deployment.identity(&PeerName::party(me).unwrap()).unwrap(),
                limits: limits(Duration::from_secs(5)),
            };
            Arc::new(Endpoint::bind(config).unwrap())
        };
        let endpoints: Vec<Arc<Endpoint>> = (0..3).map(endpoint).collect();
        let addresses: Vec<String> = endpoints.iter().map(|e| e.local_addr().to_string()).collect();
        let folder = std::env::temp_dir().join(format!("megrez-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let logs = [(); 3].map(|()| Lines::default());
        let (mut services, mut running) = (vec![], vec![]);
        for (me, (endpoint, text)) in endpoints.iter().zip(policies).enumerate() {
            endpoint.set_peers(addresses.clone()).unwrap();
            let rights = text.map(|text| {
                let path = folder.join(format!("policy{me}.toml"));
                std::fs::write(&path, text).unwrap();
                path
            });
            let policy = Policy {
                replicas: vec![],
                weights: megrez_weights::Folder::at(folder.join("weights")),
                data: folder.join(format!("data{me}")),
                models: Models::of(&folder.join(format!("data{me}"))),
                settings: Settings {
                    capacity: Capacity { max_sessions: 4, ..Capacity::default() },
                    max_elements: 1000,
                    allow_shaping: false,
                    allow_insecure: false,
                },
                audit: Some(folder.join(format!("audit{me}.jsonl"))),
                traces: None,
                rights,
                guarantees: |_, _| None,
            };
            let service = Service::new(Arc::clone(endpoint), policy, AnyDevice::default()).unwrap();
            services.push(Arc::clone(&service));
            let config = LogConfig { level: Level::Info, format: Format::Json };
            let log = Log::new(me, config, logs[me].clone());
            running.push(std::thread::spawn(move || service.run(log)));
        }
        let alice = deployment.identity(&PeerName::client("alice").unwrap()).unwrap();
        let party = deployment.identity(&PeerName::party(1).unwrap()).unwrap();
        Three { endpoints, services, running, addresses, alice, party, folder, logs }
    }

    /// Alice runs a plan.
    fn run(&self, options: &RunOptions, plan: &Plan) -> Result<Vec<Vec<Vec<u64>>>> {
        let mut cluster = Cluster::connect(&self.addresses, &self.alice, Duration::from_secs(10)).unwrap();
        let source = Source::Plan(plan.to_bytes());
        let words = |_: u32, input: &Input| Ok(vec![if input.name == "x" { X } else { W }; 2]);
        cluster.run(plan, source, options, &|_| true, &words, &|_| {}).map(|done| done.outputs)
    }

    /// The lines of a party's audit log, after it was gone through.
    fn audit(&self, party: usize) -> Vec<Value> {
        let path = self.folder.join(format!("audit{party}.jsonl"));
        verify(&path, None).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn stop(self) {
        self.endpoints.iter().for_each(|endpoint| endpoint.stop());
        self.running.into_iter().for_each(|service| service.join().unwrap().unwrap());
        let _ = std::fs::remove_dir_all(self.folder);
    }
}

#[test]
fn parties_log_who_asked_and_how_it_ended_and_no_number_of_theirs() {
    let three = Three::start("log", [None; 3]);
    let (run, logs) = (|options: RunOptions, plan: &Plan| three.run(&options, plan), &three.logs);
    let outputs = run(RunOptions::new("mizar"), &product(64)).unwrap();
    let y = X.wrapping_mul(W);
    assert_eq!(outputs[0][0], [y; 2]);
    // Refused before there is a session; and failed within one.
    run(RunOptions::new("clear"), &product(64)).unwrap_err();
    let absent = RunOptions { material: Ahead::Batch(fresh_name().unwrap()), ..RunOptions::new("mizar") };
    run(absent, &product(64)).unwrap_err();

    let fields = [
        "schema", "time", "level", "party", "event", "client", "request", "session", "protocol", "kind",
        "step", "seconds", "message",
    ];
    let said = ["connected", "the session begins", "done"];
    let mut sessions = vec![];
    for (party, log) in logs.iter().enumerate() {
        let events = log.with("\"failed\"");
        for event in &events {
            let mut names = event.as_object().unwrap().keys();
            assert!(names.all(|name| fields.contains(&name.as_str())), "{event}");
            assert_eq!((&event["schema"], &event["party"]), (&"megrez.log/1".into(), &party.into()));
            let time = event["time"].as_str().unwrap();
            assert!(time.len() == "2026-01-01T00:00:00.000Z".len() && time.ends_with('Z'), "{event}");
            // What is not a failure is said in words that no number has a part in.
            if event.get("kind").is_none() && event["event"] != "listening" {
                assert!(said.contains(&event["message"].as_str().unwrap()), "{event}");
            }
        }
        let of = |kind: &str| {
            let found = events.iter().find(|e| e["event"] == kind);
            found.unwrap_or_else(|| panic!("no {kind}: {}", log.text()))
        };
        assert_eq!(events[0]["event"], "listening");
        assert_eq!([&of("connection")["client"], &of("connection")["level"]], ["alice", "info"]);
        let (accepted, ended, refused, failed) = (of("accepted"), of("ended"), of("refused"), of("failed"));
        for event in [accepted, ended] {
            let what = ["level", "client", "request", "protocol"].map(|name| event[name].as_str().unwrap());
            assert_eq!(what, ["info", "alice", "run", "mizar"], "{event}");
        }
        assert!(ended["seconds"].as_f64().unwrap() > 0.0, "{ended}");
        assert_eq!(accepted["session"], ended["session"]);
        sessions.push(ended["session"].as_str().unwrap().to_owned());
        assert_eq!([&refused["kind"], &refused["level"]], ["not-permitted", "warn"], "{refused}");
        assert_eq!(refused["protocol"], "clear");
        assert!(failed["message"].as_str().unwrap().contains("material"), "{failed}");
        assert!(failed["session"] != ended["session"] && failed["kind"].is_string(), "{failed}");

        let text = log.text();
        for number in [X, W, y] {
            let bytes = number.to_le_bytes().map(|b| format!("{b:02x}")).concat();
            for form in [number.to_string(), format!("{number:x}"), bytes] {
                assert!(!text.contains(&form), "{form} is in the log: {text}");
            }
        }
    }
    assert!(sessions[0].len() == 32 && sessions.iter().all(|s| *s == sessions[0]), "{sessions:?}");

    for party in 0..3 {
        let lines = three.audit(party);
        let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(events, ["started", "began", "ended", "refused", "began", "failed"]);
        let (began, failed) = (&lines[1], &lines[5]);
        assert_eq!([&began["client"], &began["request"], &began["protocol"]], ["alice", "run", "mizar"]);
        assert_eq!(began["session"], sessions[0].as_str());
        let plan = product(64).hash().map(|b| format!("{b:02x}")).concat();
        assert_eq!((&began["subject"]["plans"][0], &began["subject"]["runs"]), (&plan.into(), &1.into()));
        assert!(failed["reason"].as_str().unwrap().contains("material"), "{failed}");
        assert!(failed["subject"]["material"].is_string(), "{failed}");
        let text = lines.iter().map(Value::to_string).collect::<String>();
        assert!([X, W, y].iter().all(|number| !text.contains(&number.to_string())), "{text}");
    }
    three.stop();
}

/// A policy is a party's own: what one refuses ends at all of them, at once, and nothing runs.
#[test]
fn one_party_s_policy_is_enough_to_refuse() {
    let open = "[client.alice]\nrights = [\"run-plans\"]\n";
    let closed = "[client.alice]\nrights = [\"run-models\"]\n";
    for refusing in 0..3 {
        let mut policies = [Some(open), None, Some(open)];
        policies[refusing] = Some(closed);
        let three = Three::start(&format!("policy{refusing}"), policies);
        let mizar = RunOptions::new("mizar");
        let since = Instant::now();
        let refused = three.run(&mizar, &product(64)).unwrap_err();
        assert!(refused.to_string().contains("does not let `alice` run plans of its own"), "{refused}");
        assert!(since.elapsed() < Duration::from_secs(10), "the others waited: {:?}", since.elapsed());
        let refusals = three.logs[refusing].with("\"refused\"");
        let refusal = refusals.iter().find(|event| event["event"] == "refused").unwrap();
        assert_eq!(refusal["kind"], "not-permitted");
        assert!(three.audit(refusing).iter().any(|line| line["event"] == "refused"));
        // Read anew, as on SIGHUP; a file that is wrong changes nothing.
        let path = three.folder.join(format!("policy{refusing}.toml"));
        std::fs::write(&path, "rights").unwrap();
        assert!(three.services[refusing].read_rights().is_err());
        three.run(&mizar, &product(64)).unwrap_err();
        std::fs::write(&path, open).unwrap();
        three.services[refusing].read_rights().unwrap();
        assert_eq!(three.run(&mizar, &product(64)).unwrap()[0][0], [X.wrapping_mul(W); 2]);
        three.stop();
    }
}

/// Shards come from a machine of the same party: from no client, and from no other party.
#[test]
fn a_party_deals_with_shards_for_its_own_replicas_only() {
    let three = Three::start("shards", [None; 3]);
    for identity in [&three.alice, &three.party] {
        let (me, patience) = (PeerName::party(0).unwrap(), Duration::from_secs(10));
        let mut channel = dial(&three.addresses[0], identity, &me, patience).unwrap();
        let assist = Assist {
            session: fresh_name().unwrap(),
            protocol: "mizar".into(),
            plan: product(64).to_bytes(),
            net: (&NetProfile::loopback()).into(),
            within_s: 1,
        };
        wire::send(&mut channel, &Request::Assist(assist)).unwrap();
        let Reply::Failed(failure) = wire::recv(&mut channel, 1 << 16).unwrap() else {
            panic!("{} is not refused", identity.name());
        };
        assert_eq!(failure.kind, ErrorKind::NotPermitted);
        assert!(failure.reason.contains("its own replicas only"), "{}", failure.reason);
    }
    three.stop();
}
