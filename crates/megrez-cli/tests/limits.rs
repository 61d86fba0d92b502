//! A deployment under attack and under load: nothing of one client, or of nobody, keeps the others
//! out; and how a service ends, renews itself and is watched.

use crate::common::{Deployment, HANG, cli, example, run_small, signal, small_plan, small_words};
use megrez::ErrorKind;
use megrez_net::{Channel, Identity, NetError, PeerName, dial};
use megrez_plan::Input;
use megrez_service::wire::{self, Ahead, Net, Reply, Request, Run, Source};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn channel(deployment: &Deployment, client: &str, party: usize) -> Channel {
    let (address, identity) = (&deployment.addresses()[party], deployment.identity(client));
    dial(address, &identity, &PeerName::party(party).unwrap(), Duration::from_secs(20)).unwrap()
}

/// Asks all parties for a run and sends none of its data.
fn stall(deployment: &Deployment, client: &str) -> Vec<Channel> {
    let run = Run {
        session: wire::fresh_name().unwrap(),
        protocol: "mizar".into(),
        source: Source::Plan(small_plan(client, 10).to_bytes()),
        runs: 1,
        lasting: vec![],
        streamed: false,
        net: Net::from(&megrez_net::NetProfile::loopback()),
        material: Ahead::Nothing,
        insecure: false,
        within_s: None,
    };
    let mut channels: Vec<Channel> = (0..3).map(|party| channel(deployment, client, party)).collect();
    channels.iter_mut().for_each(|c| wire::send(c, &Request::Run(run.clone())).unwrap());
    channels
}

/// What a party says last before it hangs up.
fn last_reason(channel: &mut Channel) -> String {
    let end = Instant::now() + HANG;
    while Instant::now() < end {
        if let Reply::Failed(failure) = wire::recv(channel, wire::MAX_REPLY).unwrap() {
            return failure.reason;
        }
    }
    panic!("the party does not hang up");
}

#[test]
fn idle_connections_of_strangers_keep_nobody_out() {
    let deployment = Deployment::start("");
    let idle: Vec<TcpStream> =
        (0..900).map(|i| TcpStream::connect(&deployment.addresses()[i % 3]).unwrap()).collect();
    let start = Instant::now();
    run_small(&mut deployment.connect("alice"), 10, 2, &|_| {}).unwrap();
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    deployment.wait_for_log(0, "too many handshakes");
    drop(idle);
}

#[test]
fn stalled_sessions_of_one_client_leave_room_and_end() {
    let deployment =
        Deployment::start("max_sessions = 4\n[capacity]\nsessions_per_client = 2\nclient_seconds = 4");
    let mut stalled: Vec<_> = (0..16).map(|_| stall(&deployment, "mallory")).collect();
    deployment.wait_for_log(0, "the session begins");
    let start = Instant::now();
    run_small(&mut deployment.connect("alice"), 10, 2, &|_| {}).unwrap();
    assert!(start.elapsed() < Duration::from_secs(3), "alice waits for none of them: {:?}", start.elapsed());
    // The first two had their turn and were given up; then it is the next ones'.
    let silent = (0..3).map(|party| last_reason(&mut stalled[0][party])).collect::<Vec<_>>();
    assert!(silent.iter().all(|reason| reason.contains("silent for 4 s")), "{silent:?}");
    // Clients who go do not wait any longer.
    drop(stalled);
    run_small(&mut deployment.connect("mallory"), 10, 1, &|_| {}).unwrap();
}

#[test]
fn requests_beyond_the_places_wait_and_all_succeed() {
    let deployment = Deployment::start("max_sessions = 2\n[capacity]\nsessions_per_client = 1");
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for i in 0..24 {
            let (deployment, done) = (&deployment, &done);
            scope.spawn(move || {
                run_small(&mut deployment.connect(["alice", "bob"][i % 2]), 50, 2, &|_| {}).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(done.into_inner(), 24);
}

#[test]
fn a_full_queue_is_told_at_once_and_repeated_requests_get_through() {
    let deployment =
        Deployment::start("max_sessions = 1\n[capacity]\nmax_waiting = 0\nsessions_per_client = 1");
    let mut hasty = Some(deployment.connect("bob"));
    hasty.as_mut().unwrap().set_busy_patience(Duration::ZERO);
    let hasty = std::sync::Mutex::new(hasty);
    std::thread::scope(|scope| {
        run_small(&mut deployment.connect("alice"), 10, 3, &|run| {
            if let (0, Some(mut hasty)) = (run, hasty.lock().unwrap().take()) {
                let start = Instant::now();
                let error = run_small(&mut hasty, 10, 1, &|_| {}).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
                assert!(error.to_string().contains("try again in"), "{error}");
                assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
                // One with more patience comes again until it is done.
                let deployment = &deployment;
                scope.spawn(move || run_small(&mut deployment.connect("bob"), 10, 1, &|_| {}).unwrap());
            }
        })
        .unwrap();
    });
}

#[test]
fn large_requests_are_refused_by_their_length() {
    let deployment = Deployment::start("");
    let before = resident_mib(deployment.process_id(0));
    // Pages that nobody writes to take no memory here.
    let huge = vec![0; 1 << 30];
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut channel = channel(&deployment, "mallory", 0);
                let sent = channel.send(&huge);
                assert!(
                    sent.is_err()
                        || matches!(wire::recv::<Reply>(&mut channel, 1 << 20), Ok(Reply::Failed(_)))
                );
            });
        }
    });
    deployment.wait_for_log(0, "at most 67108864 are taken");
    let after = resident_mib(deployment.process_id(0));
    assert!(after < before + 100.0, "{before} MiB before, {after} MiB after");
    run_small(&mut deployment.connect("alice"), 10, 1, &|_| {}).unwrap();
}

#[test]
fn a_request_that_is_never_finished_ends_and_holds_up_nobody_else() {
    let deployment = Deployment::start("[capacity]\nmax_request_mib = 1\nclient_seconds = 3");
    let large = vec![0xff; 1 << 20];
    let answer = |client: &str| {
        let mut channel = channel(&deployment, client, 0);
        let _ = channel.send(&large);
        last_reason(&mut channel)
    };
    let hold_up = || {
        let mut mallory = channel(&deployment, "mallory", 0);
        let (mut pieces, mut seen) = (0, vec![]);
        let _ = mallory.send_and(&large, &mut || {
            pieces += 1;
            // The head of the request and half of its bytes are on the way, and the rest does not
            // come.
            if pieces == 2 {
                seen = ["mallory", "bob"].map(answer).to_vec();
                if seen[0].contains("as many large requests as it can") {
                    deployment.wait_for_log(0, "made no progress");
                }
            }
        });
        // Where the second request came to its end before the first had its room, there was no
        // test: the party hangs up on the first one.
        let tested = !seen[0].contains("does not know");
        while !tested && mallory.recv(1 << 20).is_ok() {}
        tested.then_some(seen)
    };
    let seen = (0..5).find_map(|_| hold_up()).expect("the first request comes first, once at least");
    assert!(seen[0].contains("as many large requests as it can"), "{seen:?}");
    assert!(seen[1].contains("does not know"), "bob's was taken in whole: {seen:?}");
    assert!(answer("mallory").contains("does not know"), "and there is room again");
}

fn resident_mib(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

#[test]
fn connections_of_one_client_are_bounded() {
    let deployment = Deployment::start("[capacity]\nmax_connections = 20\nconnections_per_client = 8");
    let mut channels: Vec<Channel> = (0..40).map(|_| channel(&deployment, "mallory", 1)).collect();
    // The idle ones that were first had to go.
    let gone = channels[0].recv(1 << 20).unwrap_err();
    assert!(matches!(gone, NetError::Closed(_)), "{gone}");
    let newest = channels.last_mut().unwrap();
    wire::send(newest, &Request::Info { version: wire::VERSION }).unwrap();
    assert!(matches!(wire::recv(newest, 1 << 20).unwrap(), Reply::Info(_)));
    run_small(&mut deployment.connect("alice"), 10, 1, &|_| {}).unwrap();
}

#[test]
fn a_party_that_is_asked_to_end_finishes_what_runs() {
    let mut deployment = Deployment::start("");
    let mut late = Some(deployment.connect("bob"));
    late.as_mut().unwrap().set_busy_patience(Duration::ZERO);
    let (process, late) = (deployment.process_id(1), std::sync::Mutex::new(late));
    let mut cluster = deployment.connect("alice");
    run_small(&mut cluster, 100, 30, &|run| {
        if run == 3
            && let Some(mut late) = late.lock().unwrap().take()
        {
            signal("-TERM", process);
            deployment.wait_for_log(1, "draining");
            let error = run_small(&mut late, 10, 1, &|_| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
            assert!(error.to_string().contains("about to end"), "{error}");
        }
    })
    .expect("what runs may finish");
    assert_eq!(deployment.exit_code(1), Some(0));
    assert!(deployment.log(1).contains("drained: no session runs"));
    deployment.restart(1);
    run_small(&mut deployment.connect("alice"), 10, 1, &|_| {}).unwrap();
}

#[test]
fn certificates_are_exchanged_while_a_party_runs() {
    let deployment = Deployment::start("");
    let key = deployment.certs().join("party2.key");
    let good = std::fs::read(&key).unwrap();
    std::fs::write(&key, "nonsense").unwrap();
    signal("-HUP", deployment.process_id(2));
    deployment.wait_for_log(2, "certificates stay as they were");
    run_small(&mut deployment.connect("alice"), 10, 1, &|_| {}).unwrap();
    std::fs::write(&key, good).unwrap();
    signal("-HUP", deployment.process_id(2));
    deployment.wait_for_log(2, "certificates are read anew; this party's has 36");
    run_small(&mut deployment.connect("alice"), 10, 1, &|_| {}).unwrap();
}

#[test]
fn limits_are_changed_while_a_party_runs() {
    let deployment = Deployment::start("max_elements = 20");
    let run = || run_small(&mut deployment.connect("alice"), 10, 1, &|_| {});
    let refused = run().unwrap_err();
    assert!(refused.to_string().contains("raise max_elements"), "{refused}");
    let change = |party: usize, from: &str, to: &str| {
        let path = deployment.folder.path(&format!("party{party}.toml"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
        signal("-HUP", deployment.process_id(party));
    };
    (0..3)
        .for_each(|party| change(party, "max_elements = 20", "max_elements = 2000\nadmin = \"127.0.0.1:0\""));
    for party in 0..3 {
        deployment.wait_for_log(party, "limits are read anew");
        deployment.wait_for_log(party, "changes of `admin` take effect when this party is started again");
    }
    run().unwrap();
    // What is of no use changes nothing.
    change(0, "max_elements = 2000", "max_elements = \"many\"");
    deployment.wait_for_log(0, "limits stay as they were");
    run().unwrap();
}

/// What an operator's address answers: the status line and everything behind it.
#[test]
fn a_revoked_client_is_out_at_once_and_a_renewed_one_in_again() {
    let deployment = Deployment::start("");
    let certs = deployment.certs();
    let mut mallory = channel(&deployment, "mallory", 1);
    wire::send(&mut mallory, &Request::Info { version: wire::VERSION }).unwrap();
    assert!(matches!(wire::recv(&mut mallory, 1 << 20).unwrap(), Reply::Info(_)));
    let old = deployment.identity("mallory");
    cli("certs --folder {} --revoke mallory", &[&certs]).ok();
    let shown = cli("certs --folder {} --show", &[&certs]);
    assert_eq!(shown.code, Some(1), "somebody needs a new one");
    assert!(shown.out.contains("revoked"), "{}", shown.out);
    (0..3).for_each(|party| signal("-HUP", deployment.process_id(party)));
    deployment.wait_for_log(1, "closed 1 connections of revoked ones");
    assert!(matches!(mallory.recv(1 << 20), Err(NetError::Closed(_))), "what was open is closed");
    deployment.wait_for_log(0, "certificates are read anew");
    let again = |identity: &Identity| -> Result<Reply, String> {
        let (address, party) = (&deployment.addresses()[0], PeerName::party(0).unwrap());
        let mut channel =
            dial(address, identity, &party, Duration::from_secs(20)).map_err(|e| e.to_string())?;
        wire::send(&mut channel, &Request::Info { version: wire::VERSION }).map_err(|e| e.to_string())?;
        wire::recv(&mut channel, 1 << 20).map_err(|e| e.to_string())
    };
    assert!(again(&old).is_err());
    run_small(&mut deployment.connect("alice"), 10, 1, &|_| {}).unwrap();
    cli("certs --folder {} --renew mallory,party2", &[&certs]).ok();
    let shown = cli("--json certs --folder {} --show", &[&certs]).json("megrez.certs-show/1");
    assert!(shown["certificates"].as_array().unwrap().iter().all(|c| c["needs_renewal"] == false), "{shown}");
    again(&deployment.identity("mallory")).unwrap();
    signal("-HUP", deployment.process_id(2));
    run_small(&mut deployment.connect("mallory"), 10, 1, &|_| {}).unwrap();
}

fn get(address: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(socket, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// As [`get`], by the name of a host.
fn get_at(address: &str, path: &str, host: &str) -> String {
    get(address, &format!("{path} HTTP/1.0\r\nHost: {host}\r\nIgnored:"))
}

#[test]
fn an_operator_has_a_page_to_look_at() {
    let deployment = Deployment::start("admin = \"127.0.0.1:0\"");
    deployment.wait_for_log(0, "/metrics are on");
    let log = deployment.log(0);
    let address = log.split("/metrics are on ").nth(1).unwrap().split_whitespace().next().unwrap();
    deployment
        .cli("bob", "upload-model --model {} --name digits --allow alice", &[&example("lenet.onnx")])
        .ok();
    deployment.cli("bob", "offline --model-name digits", &[]).ok();
    let _connected = deployment.connect("mallory");
    let page = get_at(address, "/console", address);
    assert!(page.starts_with("HTTP/1.0 200"), "{page}");
    for words in [
        "Content-Type: text/html",
        "default-src 'none'",
        "<title>Party 0 · megrez</title>",
        "<h1>Party 0 of 3</h1>",
        "✓ data folder can be written",
        "<td>mallory</td><td class=n>1</td>",
        "<td>upload</td><td class=n>1</td><td class=n>0</td>",
        "<td>digits</td><td>model</td><td>bob</td><td>alice</td><td>mizar</td>",
        "<h2>Randomness made ahead</h2><div class=wide><table>",
        "no job has begun here",
    ] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
    // Nothing runs in it, nothing is loaded, and nobody else's page can read it.
    for never in ["<script", "src=", "href=", "url(", "http://", "https://"] {
        assert!(!page.contains(never), "{never} is in\n{page}");
    }
    assert!(get_at(address, "/", "rebound.example:80").starts_with("HTTP/1.0 403"));
    assert!(get(address, "/console").starts_with("HTTP/1.0 403"), "no host");
    assert!(get_at(address, "/", "localhost:1").contains("<h1>Party 0"));
}

#[test]
fn an_operator_sees_health_and_counts() {
    let deployment = Deployment::start("admin = \"127.0.0.1:0\"");
    deployment.wait_for_log(0, "/metrics are on");
    let log = deployment.log(0);
    let address = log.split("/metrics are on ").nth(1).unwrap().split_whitespace().next().unwrap();
    run_small(&mut deployment.connect("alice"), 10, 2, &|_| {}).unwrap();
    let words = |_: u32, input: &Input| Ok(small_words(0, &input.name, 10));
    let clear = megrez::RunOptions::new("clear");
    let plan = small_plan("alice", 10);
    let source = Source::Plan(plan.to_bytes());
    let refused =
        deployment.connect("alice").run(&plan, source, &clear, &|_| true, &words, &|_| {}).map(|_| ());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotPermitted);
    assert!(get(address, "/livez").starts_with("HTTP/1.0 200"));
    assert!(get(address, "/readyz").contains("[+] admits requests: ok"));
    let metrics = get(address, "/metrics");
    for line in [
        "megrez_requests_total{kind=\"run\",outcome=\"done\"} 1",
        "megrez_requests_total{kind=\"run\",outcome=\"not-permitted\"} 1",
        "megrez_request_seconds_count{kind=\"run\"} 2",
        "megrez_sessions 0",
        "megrez_ready 1",
        "megrez_peer_sent_bytes_total{peer=\"1\"}",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("alice"), "no names");
    assert!(!metrics.contains("peer=\"0\""), "party 0 sends itself nothing");
    assert!(get(address, "/nothing").starts_with("HTTP/1.0 404"));
}

#[test]
fn the_parties_of_a_session_write_one_trace() {
    // All three write into one file here, which parties of different hosts cannot.
    let deployment = Deployment::start("[traces]\nfile = \"traces.jsonl\"");
    run_small(&mut deployment.connect("alice"), 10, 2, &|_| {}).unwrap();
    let words = |_: u32, input: &Input| Ok(small_words(0, &input.name, 10));
    let plan = small_plan("alice", 10);
    let clear = megrez::RunOptions::new("clear");
    let source = Source::Plan(plan.to_bytes());
    deployment
        .connect("alice")
        .run(&plan, source, &clear, &|_| true, &words, &|_| {})
        .map(|_| ())
        .unwrap_err();
    let until = Instant::now() + HANG;
    let lines = loop {
        let text = std::fs::read_to_string(deployment.folder.path("traces.jsonl")).unwrap();
        if text.lines().count() == 6 {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(!lines.contains("alice"), "no names");
    let mut traces = std::collections::BTreeMap::<String, Vec<serde_json::Value>>::new();
    let mut ids = std::collections::BTreeSet::new();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let spans = line["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        let time = |span: &serde_json::Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        for span in &spans {
            assert!(ids.insert(span["spanId"].to_string()), "twice one name");
            assert_eq!(span["traceId"], spans[0]["traceId"]);
            if let Some(parent) = spans.iter().find(|p| p["spanId"] == span["parentSpanId"]) {
                // Clocks are read a moment apart.
                let slack = 1_000_000;
                assert!(time(parent, "startTimeUnixNano") <= time(span, "startTimeUnixNano") + slack);
                assert!(time(span, "endTimeUnixNano") <= time(parent, "endTimeUnixNano") + slack);
            } else {
                assert_eq!(span["name"], "run");
            }
        }
        traces.entry(spans[0]["traceId"].to_string()).or_default().extend(spans);
    }
    assert_eq!(traces.len(), 2, "one for each session");
    for spans in traces.values() {
        let count = |name: &str| spans.iter().filter(|span| span["name"] == name).count();
        assert_eq!((count("run"), count("wait")), (3, 3));
        let failed = spans.iter().filter(|span| span["status"]["code"] == 2).count();
        // Two runs of two steps in each phase at three parties; or nothing at all.
        let done = [count("offline"), count("online"), count("mul1"), count("relu1")];
        assert!((failed, done) == (0, [6, 6, 12, 12]) || (failed, done) == (3, [0; 4]), "{failed} {done:?}");
    }
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let deployment = Deployment::start("");
    let folder = &deployment.folder;
    let good = std::fs::read_to_string(folder.path("party0.toml")).unwrap();
    let free = good.replace(&deployment.addresses()[0], "127.0.0.1:0");
    let path = folder.file("free.toml", &free);
    assert!(cli("party --check --config {}", &[&path]).ok().contains("party 0 can start"));
    folder.file("file", "not a folder");
    let path =
        folder.file("bad.toml", good.replace("\"data0\"", "\"file/data\"").replace("\"certs\"", "\"none\""));
    let checked = cli("party --check --config {}", &[&path]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    for problem in ["cannot listen on", "nothing can be kept there", "none"] {
        assert!(checked.out.contains(problem), "{problem} is not in {}", checked.out);
    }
}
