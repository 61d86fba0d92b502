//! Embedded parties: real processes that are killed, stopped, and asked for what they must refuse.

use crate::common::{HANG, options, parties, run_small, signal, small_plan, small_words};
use megrez::{Cluster, ErrorKind};
use megrez_net::{Channel, Identity, NetProfile, PeerName, certs, dial};
use megrez_plan::{Input, Plan};
use megrez_service::wire::{self, Ahead, Net, Reply, Request, Run, Source};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

/// Parties 0 … 2 without `gone` still answer.
fn assert_alive(parties: &megrez::Parties, identity: &Identity, gone: Option<usize>) {
    for (party, address) in parties.addresses().iter().enumerate().filter(|(i, _)| Some(*i) != gone) {
        let mut one = Cluster::connect_one(party, address, identity, Duration::from_secs(10)).unwrap();
        assert_eq!(one.info().unwrap()[0].party, party);
    }
}

#[test]
fn results_are_right_in_every_run_and_for_every_client() {
    let parties = parties();
    let mut cluster = parties.connect().unwrap();
    run_small(&mut cluster, 100, 3, &|_| {}).unwrap();
    run_small(&mut cluster, 1, 1, &|_| {}).unwrap();
    run_small(&mut parties.connect().unwrap(), 7, 2, &|_| {}).unwrap();
}

#[test]
fn a_killed_party_is_named_and_the_others_survive() {
    for victim in 0..3 {
        let parties = parties();
        let mut cluster = parties.connect().unwrap();
        let victim_id = parties.process_ids()[victim];
        let kill = |run: u32| {
            if run == 2 {
                signal("-KILL", victim_id);
            }
        };
        let error = run_small(&mut cluster, 1000, 1_000_000, &kill).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
        let error = error.to_string();
        assert!(
            error.contains(&format!("party {victim}")) || error.contains(&format!("party{victim}")),
            "{error}"
        );
        assert_alive(&parties, parties.identity(), Some(victim));
        let error = run_small(&mut cluster, 1, 1, &|_| {}).unwrap_err().to_string();
        assert!(error.contains("connect anew"), "{error}");
        let error = parties.connect().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(&format!("party {victim}")), "{error}");
    }
}

#[test]
fn a_party_that_dies_between_requests_is_named_by_the_next() {
    let parties = parties();
    let mut cluster = parties.connect().unwrap();
    run_small(&mut cluster, 10, 1, &|_| {}).unwrap();
    signal("-KILL", parties.process_ids()[1]);
    let error = run_small(&mut cluster, 10, 1, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("party 1") || error.contains("party1"), "{error}");
    assert_alive(&parties, parties.identity(), Some(1));
}

#[test]
fn a_stopped_party_is_named_and_comes_back() {
    // Party 0 is the one whose answers the client reads first.
    for victim in [0, 1] {
        let parties = parties();
        let mut cluster = parties.connect().unwrap();
        cluster.set_patience(Duration::from_secs(10));
        let victim_id = parties.process_ids()[victim];
        let stop = |run: u32| {
            if run == 1 {
                signal("-STOP", victim_id);
            }
        };
        let error = run_small(&mut cluster, 1000, 1_000_000, &stop).unwrap_err().to_string();
        assert!(error.contains(&format!("party {victim} was silent for 2 s")), "{error}");
        signal("-CONT", victim_id);
        assert_alive(&parties, parties.identity(), None);
        run_small(&mut parties.connect().unwrap(), 10, 1, &|_| {}).unwrap();
    }
}

#[test]
fn one_failing_session_leaves_the_others_alone() {
    let parties = parties();
    std::thread::scope(|scope| {
        for client in 0..4 {
            let mut cluster = parties.connect().unwrap();
            scope.spawn(move || {
                if client > 0 {
                    return run_small(&mut cluster, 500, 20, &|_| {}).unwrap();
                }
                // This client gives up after some runs, in the middle of its own request.
                let plan = small_plan(cluster.name(), 500);
                let words = |run: u32, input: &Input| match run {
                    5 => Err(megrez_session::Error::Refused("changed my mind".into())),
                    _ => Ok(small_words(run, &input.name, 500)),
                };
                let source = Source::Plan(plan.to_bytes());
                let result = cluster.run(&plan, source, &options(20), &|_| true, &words, &|_| {});
                let error = result.map(|_| ()).unwrap_err().to_string();
                assert!(error.contains("changed my mind"), "{error}");
            });
        }
    });
    assert_alive(&parties, parties.identity(), None);
}

#[test]
fn somebody_elses_inputs_and_outputs_are_refused() {
    let parties = parties();
    let plans: [(Plan, &str); 2] = [
        {
            let mut plan = small_plan("local", 4);
            plan.inputs[1].owner = "bob".into();
            (plan, "input `w` belongs to `bob`")
        },
        {
            let mut plan = small_plan("local", 4);
            plan.outputs[0].recipient = "bob".into();
            (plan, "output `y` goes to `bob`")
        },
    ];
    for (plan, reason) in plans {
        let mut cluster = parties.connect().unwrap();
        let words = |run: u32, input: &Input| Ok(small_words(run, &input.name, 4));
        let source = Source::Plan(plan.to_bytes());
        let error =
            cluster.run(&plan, source, &options(1), &|_| true, &words, &|_| {}).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    run_small(&mut parties.connect().unwrap(), 4, 1, &|_| {}).unwrap();
}

#[test]
fn strangers_and_impostors_are_refused() {
    let parties = parties();
    let request = certs::Request {
        parties: 3,
        clients: vec!["local".into()],
        hosts: vec![],
        days: 1,
        authority_days: 1,
        only: vec![],
    };
    let other = certs::issue(&request).unwrap();
    let stranger = other.identity(&PeerName::client("local").unwrap()).unwrap();
    let connect = |identity: &Identity| {
        let error = Cluster::connect(parties.addresses(), identity, Duration::from_secs(10));
        error.map(|_| ()).unwrap_err().to_string()
    };
    let error = connect(&stranger);
    assert!(error.contains("party 0") && error.contains("identity check failed"), "{error}");
    // Addresses in the wrong order: party 1 answers where party 0 is expected.
    let mut swapped = parties.addresses().to_vec();
    swapped.swap(0, 1);
    let error =
        Cluster::connect(&swapped, parties.identity(), Duration::from_secs(10)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("party1"), "{error}");
    assert_alive(&parties, parties.identity(), None);
}

fn channels(parties: &megrez::Parties) -> Vec<Channel> {
    let dial_one = |(i, address): (usize, &String)| {
        dial(address, parties.identity(), &PeerName::party(i).unwrap(), Duration::from_secs(10)).unwrap()
    };
    parties.addresses().iter().enumerate().map(dial_one).collect()
}

fn request(plan: &Plan, session: [u8; 16], runs: u32) -> Run {
    Run {
        session,
        protocol: "mizar".into(),
        source: Source::Plan(plan.to_bytes()),
        runs,
        lasting: vec![],
        streamed: false,
        net: Net::from(&NetProfile::loopback()),
        material: Ahead::Nothing,
        insecure: false,
        within_s: None,
    }
}

/// The reason with which a party fails; within the time that nothing here takes.
fn reason(channel: &mut Channel) -> String {
    channel.set_timeout(HANG).unwrap();
    loop {
        match wire::recv(channel, wire::MAX_REPLY).unwrap() {
            Reply::Failed(failure) => return failure.reason,
            Reply::MaskKey(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn parties_that_are_asked_different_things_all_say_so() {
    let parties = parties();
    let plans = [small_plan("local", 4), small_plan("local", 5)];
    let session = wire::fresh_name().unwrap();
    let mut different_plans = channels(&parties);
    for (i, channel) in different_plans.iter_mut().enumerate() {
        wire::send(channel, &Request::Run(request(&plans[usize::from(i == 2)], session, 1))).unwrap();
    }
    let session = wire::fresh_name().unwrap();
    let mut different_runs = channels(&parties);
    for (i, channel) in different_runs.iter_mut().enumerate() {
        wire::send(channel, &Request::Run(request(&plans[0], session, 1 + i as u32))).unwrap();
    }
    for channels in [&mut different_plans, &mut different_runs] {
        let reasons: Vec<String> = channels.iter_mut().map(reason).collect();
        assert!(reasons.iter().all(|r| *r == reasons[0]), "{reasons:?}");
        assert!(reasons[0].contains("were given different request"), "{reasons:?}");
    }
    assert_alive(&parties, parties.identity(), None);
}

#[test]
fn a_session_that_the_others_never_hear_of_times_out() {
    let parties = parties();
    let mut channels = channels(&parties);
    let session = wire::fresh_name().unwrap();
    wire::send(&mut channels[0], &Request::Run(request(&small_plan("local", 4), session, 1))).unwrap();
    let reason = reason(&mut channels[0]);
    assert!(reason.contains("time-out") && reason.contains("party"), "{reason}");
    run_small(&mut parties.connect().unwrap(), 4, 1, &|_| {}).unwrap();
}

#[test]
fn a_name_of_a_session_is_used_by_one_session_at_a_time() {
    let parties = parties();
    let session = wire::fresh_name().unwrap();
    let run = Request::Run(request(&small_plan("local", 4), session, 1));
    let mut first = channels(&parties);
    first.iter_mut().for_each(|c| wire::send(c, &run).unwrap());
    // The first session waits for its inputs now.
    for channel in &mut first {
        assert!(matches!(wire::recv(channel, wire::MAX_REPLY).unwrap(), Reply::MaskKey(_)));
    }
    let mut second = channels(&parties);
    second.iter_mut().for_each(|c| wire::send(c, &run).unwrap());
    for channel in &mut second {
        let reason = reason(channel);
        assert!(reason.contains("is open already"), "{reason}");
    }
}

#[test]
fn garbage_is_refused_and_harms_nobody() {
    let parties = parties();
    let mut running = parties.connect().unwrap();
    let (started, go) = mpsc::channel();
    std::thread::scope(|scope| {
        let run = scope.spawn(move || {
            run_small(&mut running, 200, 60, &|run| {
                if run == 0 {
                    started.send(()).unwrap();
                }
            })
        });
        go.recv().unwrap();
        // After a valid hello, no request at all.
        for mut channel in channels(&parties) {
            channel.send(&[0xff; 300]).unwrap();
            let reason = reason(&mut channel);
            assert!(reason.contains("use one version"), "{reason}");
        }
        // A request whose plan is no plan, and one whose plan is cut off.
        let bytes = small_plan("local", 4).to_bytes();
        for bytes in [vec![7; 100], bytes[..bytes.len() / 2].to_vec(), vec![]] {
            let mut channel = channels(&parties).remove(0);
            let mut run = request(&small_plan("local", 4), wire::fresh_name().unwrap(), 1);
            run.source = Source::Plan(bytes);
            wire::send(&mut channel, &Request::Run(run)).unwrap();
            assert!(!reason(&mut channel).is_empty());
        }
        // Bytes that are no TLS, at every party; the connection is closed.
        for address in parties.addresses() {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(HANG)).unwrap();
            let _ = stream.write_all(&[0x5a; 4096]);
            let _ = stream.read_to_end(&mut vec![]);
        }
        run.join().unwrap().unwrap();
    });
}

#[test]
fn another_version_is_told_so() {
    let parties = parties();
    let mut channel = channels(&parties).remove(0);
    wire::send(&mut channel, &Request::Info { version: wire::VERSION + 1 }).unwrap();
    assert!(reason(&mut channel).contains("install one release everywhere"));
}
