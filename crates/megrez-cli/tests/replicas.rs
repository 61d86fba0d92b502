//! A party of several processes: two triples whose parties share their models, used as one cluster.

use crate::common::{Deployment, HANG, example, run_small, signal};
use crate::deployment::images;
use crate::jobs::{part, store, train};
use megrez::{Cluster, ErrorKind};
use std::time::{Duration, Instant};

const KEY: &str = "models_key = \"models.key\"";

fn deployment() -> Deployment {
    let made = |folder: &crate::common::Folder| {
        let key = folder.file("models.key", "c3".repeat(32));
        std::fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    };
    Deployment::start_replicas(2, KEY, &made)
}

/// Where `connect_any` goes: the number of a replica.
fn goes(deployment: &Deployment, client: &str) -> megrez::Result<(usize, Cluster)> {
    Cluster::connect_any(&deployment.triples(), &deployment.identity(client), Duration::from_secs(10))
}

#[test]
fn replicas_serve_the_models_that_one_of_them_was_given() {
    let deployment = deployment();
    let lenet = example("lenet.onnx");
    deployment.cli("bob", "upload-model --model {} --name digits --allow alice --replica 1", &[&lenet]).ok();
    let (image, _) = images(&deployment, 1);
    let infer = |client: &str, replica: usize| {
        deployment.cli(
            client,
            &format!("--json infer --model-name digits --input {{}} --replica {replica}"),
            &[&image],
        )
    };
    let of = |replica: usize| infer("alice", replica).json("megrez.infer/1")["shape"].clone();
    assert_eq!(of(0), of(1));
    // It lies there once for each party, and nobody reads in it who has not the key.
    for party in 0..3 {
        let file = deployment.folder.path(&format!("models{party}")).join("digits.model");
        let bytes = std::fs::read(file).unwrap();
        assert!(!bytes.windows(5).any(|part| part == b"alice"));
        assert!(!deployment.folder.path(&format!("data{party}/models")).exists());
    }
    // What was said to one replica holds at the other.
    deployment.cli("bob", "allow digits mallory --replica 0", &[]).ok();
    infer("mallory", 1).json("megrez.infer/1");
    infer("alice", 0).refused(&["there is no model `digits` that `alice` may use"]);
    deployment.cli("bob", "remove digits --replica 1", &[]).ok();
    infer("mallory", 0).refused(&["there is no model"]);
    deployment.cli("bob", "stored --replica 2", &[]).refused(&["no replica 2"]);
}

#[test]
fn a_stock_is_kept_at_each_replica() {
    let deployment = deployment();
    deployment.cli("alice", "upload-model --model {} --name digits", &[&example("lenet.onnx")]).ok();
    let told = deployment.cli("alice", "--json offline --model-name digits --keep 2", &[]).ok();
    let lines: Vec<serde_json::Value> =
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (replica, line) in lines.iter().enumerate() {
        assert_eq!((&line["replica"], &line["stock"]), (&replica.into(), &2.into()));
    }
    assert_eq!(lines.len(), 2);
    let files = |party: usize| {
        std::fs::read_dir(deployment.folder.path(&format!("data{party}/material"))).unwrap().count()
    };
    assert!((0..6).all(|party| files(party) == 2));
    let (image, _) = images(&deployment, 1);
    let infer = "--json infer --model-name digits --input {} --replica 1";
    deployment.cli("alice", infer, &[&image]).json("megrez.infer/1");
    assert_eq!([files(0), files(3), files(5)], [2, 1, 1]);
    // Material that is named lies at the first replica, unless the caller says another.
    let made = deployment.cli("alice", "--json offline --model-name digits", &[]).json("megrez.offline/1");
    let named = format!(
        "--json infer --model-name digits --input {{}} --material {}",
        made["material"].as_str().unwrap()
    );
    deployment.cli("alice", &format!("{named} --replica 1"), &[&image]).refused(&["used up"]);
    deployment.cli("alice", &named, &[&image]).json("megrez.infer/1");
}

#[test]
fn clients_go_where_less_is_to_do_and_where_parties_live() {
    let mut deployment = deployment();
    let doctor = deployment.cli("alice", "--json doctor", &[]).json("megrez.doctor/1");
    assert_eq!(doctor["parties"].as_array().unwrap().len(), 6, "{doctor}");
    // Idle replicas are chosen by chance: one of them 40 times in a row has a chance of 2^-39.
    let mut seen = [0; 2];
    (0..40).for_each(|_| seen[goes(&deployment, "alice").unwrap().0] += 1);
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
    // Replica 0 runs a session that takes until its client goes on.
    let mut busy = deployment.connect("alice");
    let (begun, hears) = std::sync::mpsc::channel();
    let (go_on, waits) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let held = scope.spawn(move || {
            let wait = |run: u32| {
                if run == 0 {
                    begun.send(()).unwrap();
                    waits.recv_timeout(HANG).unwrap();
                }
            };
            run_small(&mut busy, 10, 2, &wait).unwrap();
        });
        hears.recv_timeout(HANG).unwrap();
        let went: Vec<usize> = (0..10).map(|_| goes(&deployment, "bob").unwrap().0).collect();
        go_on.send(()).unwrap();
        held.join().unwrap();
        assert_eq!(went, [1; 10], "replica 0 has something to do");
    });
    // One of its parties is gone, whichever: clients find the other replica.
    deployment.kill(2);
    for _ in 0..6 {
        let (replica, mut cluster) = goes(&deployment, "alice").unwrap();
        run_small(&mut cluster, 10, 1, &|_| {}).unwrap();
        assert_eq!(replica, 1);
    }
    deployment.kill(4);
    let error = goes(&deployment, "alice").map(|(replica, _)| replica).unwrap_err();
    assert!(error.to_string().contains("none of 2 replicas"), "{error}");
    // A replica that drains is the last choice.
    deployment.restart(2);
    deployment.restart(4);
    signal("-TERM", deployment.process_id(3));
    let end = Instant::now() + HANG;
    while goes(&deployment, "alice").is_ok_and(|(replica, _)| replica == 1) {
        assert!(Instant::now() < end);
    }
    assert_eq!(deployment.exit_code(3), Some(0));
}

#[test]
fn a_party_with_replicas_shares_its_models_or_does_not_start() {
    let deployment = Deployment::start_replicas(2, "", &|_| {});
    let party = std::fs::read_to_string(deployment.folder.path("party3.toml")).unwrap();
    let alone = party.replace("models = \"models0\"\n", "");
    let file = deployment.folder.file("alone.toml", &alone);
    crate::common::cli("party --config {}", &[&file]).refused(&["share its models", "`models`"]);
    let other = party.replace("replica = 1", "replica = 2");
    let file = deployment.folder.file("other.toml", &other);
    crate::common::cli("party --config {}", &[&file]).refused(&["no replica 2"]);
    let (_, mut cluster) = goes(&deployment, "alice").unwrap();
    assert!(matches!(cluster.remove("nothing").map_err(|e| e.kind()), Err(ErrorKind::NotPermitted)));
}

/// How often clients and this party's replicas have asked a party for something.
fn asked(deployment: &Deployment, party: usize, what: &str) -> usize {
    let path = deployment.folder.path(&format!("data{party}/audit.jsonl"));
    let lines = std::fs::read_to_string(path).unwrap();
    let began = |line: &&str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["event"] == "began" && line["request"] == what
    };
    lines.lines().filter(began).count()
}

/// A step's rows in shards: two triples deal with them at the same time, one alone does the same,
/// and both learn what a step on all rows at once learns.
#[test]
fn replicas_deal_with_the_shards_of_a_step() {
    let deployment = Deployment::start_replicas(2, "allow_shaping = true", &|_| {});
    store(&deployment, "alice", "digits", &part(&deployment, "a", 0, 128), "");
    // A step has all rows: in whichever order they come, its gradients are the same.
    let train = train(&deployment.folder, 6);
    let train = train.replace("--batch 30 --rate 2^-4", "--batch 128 --rate 2^-3 --momentum 0.5");
    let losses = |more: &str| -> Vec<f64> {
        let report =
            deployment.cli("alice", &format!("{train} --data digits {more}"), &[]).json("megrez.train-job/1");
        assert_eq!(report["state"], "done", "{report}");
        report["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect()
    };
    let close = |a: &[f64], b: &[f64]| {
        assert_eq!((a.len(), b.len()), (6, 6));
        assert!(a[5] < 0.95 * a[0], "{a:?}");
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 5e-3), "{a:?} {b:?}");
    };
    let whole = losses("--keep whole --run-batch 30");
    close(&losses("--shards 2 --keep halves --run-batch 30"), &whole);
    assert!((3..6).all(|party| asked(&deployment, party, "assist") == 1));
    assert!((0..3).all(|party| asked(&deployment, party, "assist") == 0));
    // Material ahead of values, where links are slow; more shards than machines; a party of the
    // other triple is gone.
    let slow = "--net 5ms,1gbps";
    close(&losses(&format!("--shards 2 {slow}")), &whole);
    close(&losses("--shards 4"), &whole);
    assert!((3..6).all(|party| asked(&deployment, party, "assist") == 3));
    signal("-KILL", deployment.process_id(4));
    close(&losses("--shards 2"), &whole);
    deployment
        .cli("alice", &format!("{train} --data digits --shards 7"), &[])
        .refused(&["7 shards of one size"]);
    deployment
        .cli("alice", "train --model net-a --data digits --shards 2 --epsilon 4", &[])
        .refused(&["not bounded where rows come in shards"]);
}
