//! What parties log of their clients' requests: whole lines, with what an operator looks for, and no number of anybody's.

use megrez_device::AnyDevice;
use megrez_net::{Config, Endpoint, PeerName, certs};
use megrez_plan::{Input, Op, Plan};
use megrez_service::client::{Cluster, RunOptions};
use megrez_service::log::{Format, Level, Log, LogConfig};
use megrez_service::party::{Capacity, Policy, Service, limits};
use megrez_service::wire::{Source, fresh_name};
use serde_json::Value;
use std::io::Write;
use std::sync::{Arc, Mutex};
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

#[test]
fn parties_log_who_asked_and_how_it_ended_and_no_number_of_theirs() {
    let clients = vec!["alice".to_owned()];
    let deployment =
        certs::issue(&certs::Request { parties: 3, clients, hosts: vec![], days: 1, authority_days: 1 })
            .unwrap();
    let endpoints: Vec<_> = (0..3)
        .map(|me| {
            let config = Config {
                me,
                listen: "127.0.0.1:0".into(),
                peers: vec![String::new(); 3],
                identity: deployment.identity(&PeerName::party(me).unwrap()).unwrap(),
                limits: limits(Duration::from_secs(5)),
            };
            Arc::new(Endpoint::bind(config).unwrap())
        })
        .collect();
    let addresses: Vec<String> = endpoints.iter().map(|e| e.local_addr().to_string()).collect();
    let folder = std::env::temp_dir().join(format!("megrez-log-{}", std::process::id()));
    let logs = [(); 3].map(|()| Lines::default());
    let mut services = vec![];
    for (me, endpoint) in endpoints.iter().enumerate() {
        endpoint.set_peers(addresses.clone()).unwrap();
        let policy = Policy {
            data: folder.join(format!("data{me}")),
            allow_shaping: false,
            allow_insecure: false,
            capacity: Capacity { max_sessions: 4, ..Capacity::default() },
            max_elements: 1000,
        };
        let service = Service::new(Arc::clone(endpoint), policy, AnyDevice::default());
        let log = Log::new(me, LogConfig { level: Level::Info, format: Format::Json }, logs[me].clone());
        services.push(std::thread::spawn(move || service.run(log)));
    }
    let alice = deployment.identity(&PeerName::client("alice").unwrap()).unwrap();
    let run = |options: RunOptions, plan: &Plan| {
        let mut cluster = Cluster::connect(&addresses, &alice, Duration::from_secs(10)).unwrap();
        let source = Source::Plan(plan.to_bytes());
        let words = |_: u32, input: &Input| Ok(vec![if input.name == "x" { X } else { W }; 2]);
        cluster.run(plan, source, &options, &|_| true, &words, &|_| {}).map(|done| done.outputs)
    };
    let outputs = run(RunOptions::new("mizar"), &product(64)).unwrap();
    let y = X.wrapping_mul(W);
    assert_eq!(outputs[0][0], [y; 2]);
    // Refused before there is a session; and failed within one.
    run(RunOptions::new("clear"), &product(64)).unwrap_err();
    let absent = RunOptions { material: Some(fresh_name().unwrap()), ..RunOptions::new("mizar") };
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

    endpoints.iter().for_each(|endpoint| endpoint.stop());
    services.into_iter().for_each(|service| service.join().unwrap().unwrap());
    let _ = std::fs::remove_dir_all(folder);
}
