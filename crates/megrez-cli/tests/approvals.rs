//! What owners approve, in signed words: how far a model is used, what jobs on their rows have to
//! keep to, and until when.

use crate::common::{Deployment, cli, example, signal};
use crate::deployment::images;
use crate::jobs::{part, store, train};
use megrez::ErrorKind;
use megrez::train::Consent;
use megrez_net::{Identity, PeerName, dial};
use megrez_service::approval::{Approval, Grant, Usage, now_s};
use megrez_service::wire::{self, Reply, Request};
use std::time::Duration;

const INFER: &str = "--json infer --model-name digits --input {} --batch";

fn infer(deployment: &Deployment, client: &str, batch: usize) -> crate::common::Ran {
    let (rows, _) = images(deployment, batch);
    deployment.cli(client, &format!("{INFER} {batch}"), &[&rows])
}

#[test]
fn a_model_is_used_as_far_as_its_owner_says() {
    let mut deployment = Deployment::start("");
    let upload = "upload-model --model {} --name digits --batch 1,3";
    deployment.cli("bob", upload, &[&example("lenet.onnx")]).ok();
    infer(&deployment, "alice", 1).refused(&["there is no model `digits`"]);
    let allowed = deployment.cli("bob", "--json allow digits alice --runs 3 --rows 5 --days 9", &[]);
    let allowed = allowed.json("megrez.allow/1");
    assert_eq!((&allowed["limits"][0]["runs"], &allowed["limits"][0]["rows"]), (&3.into(), &5.into()));
    infer(&deployment, "alice", 3).ok();
    infer(&deployment, "alice", 1).ok();
    // A party that has forgotten does not decide alone, and none forgets by a restart.
    signal("-TERM", deployment.process_id(1));
    assert_eq!(deployment.exit_code(1), Some(0));
    // It was ended while it counted.
    std::fs::write(deployment.folder.path("data1/uses/digits/alice.uses.new"), b"half").unwrap();
    deployment.restart(1);
    infer(&deployment, "alice", 3).refused(&["`bob` lets `alice` have 5 rows", "4 are used, 3 more"]);
    infer(&deployment, "alice", 1).ok();
    infer(&deployment, "alice", 1).refused(&["`bob` lets `alice` have", "are used, 1 more"]);
    std::fs::remove_file(deployment.folder.path("data2/uses/digits/alice.uses")).unwrap();
    infer(&deployment, "alice", 1).refused(&["`bob` lets `alice` have"]);
    infer(&deployment, "bob", 3).ok();
    let told = deployment.cli("alice", "stored", &[]).ok();
    assert!(told.contains("`alice` for 3 runs and 5 rows and until 20"), "{told}");
    // Another client beside her, and what she has used is still used up.
    deployment.cli("bob", "allow digits mallory --also --runs 1", &[]).ok();
    infer(&deployment, "mallory", 1).ok();
    infer(&deployment, "mallory", 1).refused(&["`bob` lets `mallory` have 1 runs"]);
    infer(&deployment, "alice", 1).refused(&["`bob` lets `alice` have", "are used, 1 more"]);
    // A new word begins anew; one whose time is over is none.
    deployment.cli("bob", "allow digits alice --runs 1", &[]).ok();
    infer(&deployment, "alice", 1).ok();
    infer(&deployment, "alice", 1).refused(&["1 are used"]);
    infer(&deployment, "mallory", 1).refused(&["there is no model `digits`"]);
    let mut bob = deployment.connect("bob");
    let until = |until_s| [Grant { until_s: Some(until_s), ..Grant::unlimited("alice") }];
    bob.allow("digits", &until(now_s() + 600), None).unwrap();
    infer(&deployment, "alice", 1).ok();
    bob.allow("digits", &until(now_s()), None).unwrap();
    infer(&deployment, "alice", 1).refused(&["lets `alice` use `digits` until 20", "that is over"]);
    // What is removed leaves no counts behind.
    deployment.cli("bob", "remove digits", &[]).ok();
    assert!((0..3).all(|party| !deployment.folder.path(&format!("data{party}/uses/digits")).exists()));
}

/// Two parties would run it, and a third cannot: that is no use of the model.
#[test]
fn what_one_party_refuses_is_not_used() {
    let deployment = Deployment::start("");
    deployment.cli("bob", "upload-model --model {} --name digits --batch 1", &[&example("lenet.onnx")]).ok();
    deployment.cli("bob", "allow digits alice --runs 1", &[]).ok();
    let file = deployment.folder.path("data2/models/digits.model");
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&file, damaged).unwrap();
    infer(&deployment, "alice", 1).refused(&["digits.model", "is damaged"]);
    let checked = cli("party --check --config {}", &[&deployment.folder.path("party2.toml")]);
    assert_eq!(checked.code, Some(2), "{checked:?}");
    let told = checked.out.lines().find(|line| line.contains("digits.model"));
    assert!(told.is_some_and(|line| line.contains("is damaged")), "{}", checked.out);
    std::fs::write(&file, whole).unwrap();
    let checked = cli("party --check --config {}", &[&deployment.folder.path("party2.toml")]);
    assert!(checked.out.contains("stored_models: 1") && !checked.out.contains("digits"), "{}", checked.out);
    infer(&deployment, "alice", 1).ok();
    infer(&deployment, "alice", 1).refused(&["`bob` lets `alice` have 1 runs", "1 are used, 1 more"]);
}

/// Sends one request to one party as a client, and hears what it says.
fn ask(deployment: &Deployment, client: &str, request: &Request) -> Reply {
    let (address, identity) = (&deployment.addresses()[1], deployment.identity(client));
    let mut channel = dial(address, &identity, &PeerName::Party(1), Duration::from_secs(20)).unwrap();
    wire::send(&mut channel, request).unwrap();
    wire::recv(&mut channel, 1 << 20).unwrap()
}

#[test]
fn what_is_not_signed_by_its_owner_is_not_approved() {
    let deployment = Deployment::start("");
    let upload = "upload-model --model {} --name digits --batch 1";
    deployment.cli("bob", upload, &[&example("lenet.onnx")]).ok();
    let mut bob = deployment.connect("bob");
    let held = bob.holdings().unwrap().remove(0);
    let plan = bob.describe("digits", 1).unwrap().plan.plan;
    let usage = Usage {
        model: "digits".into(),
        upload: held.made,
        plans: vec![megrez_service::audit::Subject::plan(&plan, false)],
        allow: vec![Grant::unlimited("mallory")],
        rules: None,
        given_s: now_s(),
    };
    let sign =
        |usage: &Usage, client: &str| Approval::Usage(usage).sign(&deployment.identity(client)).unwrap();
    let refused = |client: &str, usage: Usage, signature: Vec<u8>, what: &str| {
        let Reply::Failed(failure) = ask(&deployment, client, &Request::Allow { usage, signature }) else {
            panic!("{what} is not refused")
        };
        assert_eq!(failure.kind, ErrorKind::NotPermitted, "{}", failure.reason);
        assert!(failure.reason.contains(what), "{what}: {}", failure.reason);
    };
    refused("bob", usage.clone(), vec![], "signature is not acceptable");
    refused("bob", usage.clone(), sign(&usage, "mallory"), "signed by client:mallory");
    let more = Usage { allow: vec![], ..usage.clone() };
    refused("bob", more.clone(), sign(&usage, "bob"), "BadSignature");
    refused("mallory", usage.clone(), sign(&usage, "bob"), "no model `digits`");
    let other = Usage { upload: [1; 16], ..usage.clone() };
    refused("bob", other.clone(), sign(&other, "bob"), "another upload of `digits`");
    let other = Usage { plans: vec![], ..usage.clone() };
    refused("bob", other.clone(), sign(&other, "bob"), "or other plans");
    // A word on a job is none on a model.
    let consent = Consent { job: [7; 32], of: vec!["digits".into()], withdrawn: false, until_s: None };
    let of_job = Approval::Job(&consent).sign(&deployment.identity("bob")).unwrap();
    refused("bob", usage.clone(), of_job.clone(), "BadSignature");
    let signature = sign(&usage, "bob");
    let Reply::Failed(failure) = ask(&deployment, "bob", &Request::Consent { consent, signature }) else {
        panic!("a word on a model is one on a job")
    };
    assert!(failure.reason.contains("BadSignature"), "{}", failure.reason);
    // The very same, signed, is taken; an earlier word is then too late.
    let signature = sign(&usage, "bob");
    assert!(matches!(
        ask(&deployment, "bob", &Request::Allow { usage: usage.clone(), signature }),
        Reply::Done
    ));
    let earlier = Usage { given_s: usage.given_s - 1, ..more };
    refused("bob", earlier.clone(), sign(&earlier, "bob"), "has said something else since");
    // Otherwise it could say nothing else until then.
    let ahead = Usage { given_s: now_s() + 3600, ..usage.clone() };
    refused("bob", ahead.clone(), sign(&ahead, "bob"), "set the clock that is wrong");
    let audit = std::fs::read_to_string(deployment.folder.path("data1/audit.jsonl")).unwrap();
    assert!(audit.contains(r#""event":"refused","client":"mallory","request":"allow""#), "{audit}");
    let stranger = Identity::load(&deployment.certs(), &PeerName::Party(0)).unwrap();
    let signature = Approval::Usage(&usage).sign(&stranger).unwrap();
    refused("bob", usage, signature, "signed by party0");
    // What one party has heard alone can be said again, and otherwise.
    deployment.cli("bob", "stored", &[]).ok();
    deployment.cli("bob", "allow digits alice", &[]).ok();
    infer(&deployment, "alice", 1).ok();
    infer(&deployment, "mallory", 1).refused(&["there is no model `digits`"]);
}

#[test]
fn jobs_keep_to_the_rules_of_whose_rows_they_are() {
    let deployment = Deployment::start("");
    store(&deployment, "alice", "clinic-a", &part(&deployment, "a", 0, 60), "");
    store(&deployment, "bob", "clinic-b", &part(&deployment, "b", 60, 120), "");
    let rules = "least_rows = 120\nmost_epochs = 2\nlosses_to = [\"alice\"]\nmodels_to = [\"alice\"]\n";
    let rules = deployment.folder.file("rules.toml", rules);
    let allow = "--json allow clinic-b alice --rules {}";
    let told = deployment.cli("bob", allow, &[&rules]).json("megrez.allow/1");
    assert_eq!(told["rules"]["most_epochs"], 2);
    // Rules stay for whom it lets ask besides.
    let told = deployment.cli("bob", "--json allow clinic-b mallory --also", &[]).json("megrez.allow/1");
    assert_eq!(told["rules"]["most_epochs"], 2);
    deployment.cli("bob", "allow clinic-b alice --runs 3", &[]).refused(&["rows are not run"]);
    let job = deployment.folder.path("job");
    let propose = |epochs: usize, more: &str| {
        let train = train(&deployment.folder, epochs);
        let keep = "--keep digits --run-batch 30";
        let line = format!("{train} --data clinic-a,clinic-b {keep} {more} --propose {{}}");
        deployment.cli("alice", &line, &[&job])
    };
    // Nobody is asked about what breaks them.
    let breaks = "breaks the rules of `bob` for the rows `clinic-b`";
    propose(1, "--allow mallory").refused(&[breaks, "`mallory` may run"]);
    propose(3, "").refused(&[breaks, "3 epochs"]);
    propose(1, "").ok();
    deployment.cli("bob", "--json approve --job {} --of clinic-b --days 7", &[&job]).json("megrez.approve/1");
    // Whoever has approved, a party looks again: rules may have changed.
    let strict = deployment.folder.file("strict.toml", "least_rows = 500\n");
    deployment.cli("bob", allow, &[&strict]).ok();
    let begin = "--json train --job {}";
    let refused = ["breaks the rules of `bob`", "has 120 rows, and at least 500", "opened to `alice`"];
    deployment.cli("alice", begin, &[&job]).refused(&refused);
    deployment.cli("bob", "approve --job {} --of clinic-b", &[&job]).refused(&refused);
    deployment.cli("bob", allow, &[&rules]).ok();
    // An approval whose time is over is none.
    let mut bob = deployment.connect("bob");
    let hash = megrez::train::Job::from_bytes(&std::fs::read(&job).unwrap()).unwrap().hash();
    let consent = |until_s| Consent {
        job: hash,
        of: vec!["clinic-b".into()],
        withdrawn: false,
        until_s: Some(until_s),
    };
    bob.consent(&consent(now_s())).unwrap();
    deployment.cli("alice", begin, &[&job]).refused(&["`bob` has approved the job", "that is over"]);
    bob.consent(&consent(now_s() + 600)).unwrap();
    let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    assert_eq!(report["state"], "done", "{report}");
}
