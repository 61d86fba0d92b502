//! A deployment as on three hosts: certificates, configuration files and three services, used
//! through the command.

use crate::common::{Deployment, cli, example, run_small};
use megrez::ErrorKind;
use megrez_graph::{Tensor, npy};
use megrez_net::{Identity, PeerName};
use megrez_service::approval::Grant;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The first `n` test images, and their labels.
pub fn images(deployment: &Deployment, n: usize) -> (PathBuf, Vec<usize>) {
    let all = npy::load(&example("test_images.npy")).unwrap();
    let labels = npy::load(&example("test_labels.npy")).unwrap();
    let path = deployment.folder.path(&format!("images{n}.npy"));
    npy::save(&path, &Tensor::new([n, 1, 28, 28], all.data[..n * 784].to_vec())).unwrap();
    (path, labels.data[..n].iter().map(|&l| l as usize).collect())
}

/// The classes that a megrez.infer/1 report predicts.
fn classes(report: &serde_json::Value) -> Vec<usize> {
    let width = report["shape"][1].as_u64().unwrap() as usize;
    let logits: Vec<f64> = report["output"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let best = |row: &[f64]| (0..width).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    logits.chunks(width).map(best).collect()
}

#[test]
fn a_stored_model_serves_those_whom_its_owner_allows() {
    let deployment = Deployment::start("");
    let doctor = deployment.cli("alice", "--json doctor", &[]).json("megrez.doctor/1");
    assert_eq!(doctor["problems"].as_array().unwrap().len(), 0, "{doctor}");
    assert_eq!(doctor["parties"].as_array().unwrap().len(), 3);

    let lenet = example("lenet.onnx");
    let upload = "--json upload-model --model {} --name digits --batch 1,3 --allow alice";
    let uploaded = deployment.cli("bob", upload, &[&lenet]).json("megrez.upload/1");
    assert_eq!(uploaded["model"], "digits");
    deployment.cli("bob", upload, &[&lenet]).refused(&["a model `digits` is stored already"]);

    let (three, labels) = images(&deployment, 3);
    let infer = "--json infer --model-name digits --input {}";
    for client in ["alice", "bob"] {
        let report = deployment.cli(client, infer, &[&three]).json("megrez.infer/1");
        assert_eq!(classes(&report), labels, "{client}");
        assert_eq!(report["protocol"], "mizar");
    }
    // A stranger cannot tell a model that is not for him from one that is not there.
    deployment
        .cli("mallory", infer, &[&three])
        .refused(&["there is no model `digits` that `mallory` may use"]);
    deployment
        .cli("mallory", "infer --model-name other --input {}", &[&three])
        .refused(&["there is no model `other` that `mallory` may use"]);
    let two = images(&deployment, 2).0;
    deployment.cli("alice", infer, &[&two]).refused(&["approved batches of 1, 3"]);
    deployment
        .cli("alice", "infer --model-name ../../secret --input {}", &[&three])
        .refused(&["lower-case letters"]);

    // Material is made ahead, is used once, and is refused the second time.
    for made in [2, 0] {
        let offline = deployment.cli("alice", "--json offline --model-name digits --batch 3 --keep 2", &[]);
        let report = offline.json("megrez.offline/1");
        assert_eq!((&report["stock"], report["made"].as_array().unwrap().len()), (&2.into(), made));
    }
    assert_eq!(deployment.cli("alice", "offline --model-name digits --every 5", &[]).code, Some(2));
    let offline = deployment.cli("alice", "--json offline --model-name digits --batch 3", &[]);
    let material = offline.json("megrez.offline/1")["material"].as_str().unwrap().to_owned();
    let with_material = format!("{infer} --material {material}");
    let report = deployment.cli("alice", &with_material, &[&three]).json("megrez.infer/1");
    assert_eq!(classes(&report), labels);
    assert!(report["cost"]["phases"].get("offline").is_none(), "nothing is left to do offline");
    deployment.cli("alice", &with_material, &[&three]).refused(&["material"]);
    // Who names none takes from the stock, while there is any.
    for offline in [false, false, true] {
        let report = deployment.cli("alice", infer, &[&three]).json("megrez.infer/1");
        assert_eq!(classes(&report), labels);
        assert_eq!(report["cost"]["phases"].get("offline").is_some(), offline);
    }
    let (one, label) = images(&deployment, 1);
    deployment.cli("alice", &with_material, &[&one]).refused(&["material"]);
    deployment.cli("alice", &format!("{infer} --material 12"), &[&one]).refused(&["32 hexadecimal digits"]);

    // A client's own model and data, without anything stored; several runs.
    let own = deployment.cli("alice", "--json infer --model {} --input {} --batch 2", &[&lenet, &three]);
    let own = own.json("megrez.infer/1");
    assert_eq!(classes(&own), labels);
    assert_eq!(own["range"], "proven");
    let report = deployment.cli("alice", infer, &[&one]).json("megrez.infer/1");
    assert_eq!(classes(&report), label);
}

#[test]
fn a_damaged_file_of_a_model_is_named_with_its_party_and_leftovers_are_swept() {
    let mut deployment = Deployment::start("");
    let upload = "upload-model --model {} --name digits --batch 1 --allow alice";
    deployment.cli("bob", upload, &[&example("lenet.onnx")]).ok();
    let models = deployment.folder.path("data1").join("models");
    let path = models.join("digits.model");
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    let (one, label) = images(&deployment, 1);
    let infer = "--json infer --model-name digits --input {}";
    deployment.cli("alice", infer, &[&one]).refused(&[
        "party 1",
        "digits.model",
        "upload the model again under another name",
    ]);

    // The right file again; and what a crash in the middle of an upload leaves.
    std::fs::write(&path, whole).unwrap();
    let half = models.join("other.model.new");
    std::fs::write(&half, "half").unwrap();
    deployment.kill(1);
    deployment.restart(1);
    deployment.wait_for_log(1, "other.model.new");
    assert!(!half.exists());
    let report = deployment.cli("alice", infer, &[&one]).json("megrez.infer/1");
    assert_eq!(classes(&report), label);
}

#[test]
fn what_is_stored_is_told_let_to_others_and_removed() {
    let deployment = Deployment::start("");
    let stored = |client: &str| {
        let told = deployment.cli(client, "--json stored", &[]).json("megrez.stored/1");
        told["stored"].as_array().unwrap().clone()
    };
    let upload = "upload-model --model {} --name digits --batch 1,3 --allow alice";
    deployment.cli("bob", upload, &[&example("lenet.onnx")]).ok();
    let offline = deployment.cli("alice", "--json offline --model-name digits --batch 3", &[]);
    let material = offline.json("megrez.offline/1")["material"].as_str().unwrap().to_owned();

    let [model] = &stored("bob")[..] else { panic!("{:?}", stored("bob")) };
    assert_eq!((&model["name"], &model["kind"]), (&"digits".into(), &"model".into()));
    assert_eq!(model["allow"], serde_json::json!(["alice"]));
    assert_eq!((&model["parties"], &model["whole"]), (&serde_json::json!([0, 1, 2]), &true.into()));
    let [model, made] = &stored("alice")[..] else { panic!("{:?}", stored("alice")) };
    assert_eq!((&model["owner"], &model["batches"]), (&"bob".into(), &serde_json::json!([1, 3])));
    assert_eq!(model["allow"], serde_json::json!([]), "only the owner is told");
    assert_eq!((&made["name"], &made["kind"]), (&material.as_str().into(), &"material".into()));
    assert!(made["bytes"].as_u64().unwrap() > 1000);
    assert!(stored("mallory").is_empty());
    assert!(deployment.cli("mallory", "stored", &[]).ok().contains("nothing that `mallory`"));

    // Material is its client's, for as long as it is not used up.
    let discard = format!("remove --material {material}");
    for client in ["bob", "mallory"] {
        deployment.cli(client, &discard, &[]).refused(&["no such material"]);
    }
    std::fs::remove_file(deployment.folder.path(&format!("data2/material/{material}.material"))).unwrap();
    let told = deployment.cli("alice", "stored", &[]).ok();
    assert!(told.contains("NOT WHOLE: at parties 0, 1 only"), "{told}");
    deployment.cli("alice", &discard, &[]).ok();
    deployment.cli("alice", &discard, &[]).refused(&["no such material"]);
    assert_eq!(stored("alice").len(), 1);

    // Others may run it; whether it is there a stranger is not told.
    let (one, label) = images(&deployment, 1);
    let infer = "--json infer --model-name digits --input {}";
    for (client, change) in [("alice", "allow digits mallory"), ("alice", "remove digits")] {
        deployment.cli(client, change, &[]).refused(&["`digits` is `bob`'s"]);
    }
    for change in ["allow digits mallory", "remove digits"] {
        deployment.cli("mallory", change, &[]).refused(&["there is no model `digits`"]);
    }
    deployment.cli("bob", "allow digits user", &[]).refused(&["`user` stands for"]);
    deployment.cli("bob", "allow digits party1", &[]).refused(&["cannot be a client's name"]);
    assert_eq!(deployment.cli("bob", "allow digits", &[]).code, Some(2));
    deployment.cli("bob", "allow digits mallory", &[]).ok();
    let report = deployment.cli("mallory", infer, &[&one]).json("megrez.infer/1");
    assert_eq!(classes(&report), label);
    deployment.cli("alice", infer, &[&one]).refused(&["no model `digits`"]);
    deployment.cli("bob", "allow digits --nobody", &[]).ok();
    deployment.cli("mallory", infer, &[&one]).refused(&["no model `digits`"]);
    let report = deployment.cli("bob", infer, &[&one]).json("megrez.infer/1");
    assert_eq!(classes(&report), label);

    // Half of it, and damaged at that, goes as well.
    let file = |party: usize| deployment.folder.path(&format!("data{party}")).join("models/digits.model");
    std::fs::remove_file(file(0)).unwrap();
    let mut damaged = std::fs::read(file(1)).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(file(1), damaged).unwrap();
    assert_eq!(stored("bob")[0]["whole"], false);
    let again = "upload-model --model {} --name digits --batch 1 --allow alice";
    deployment.cli("bob", again, &[&example("lenet.onnx")]).refused(&["stored already", "remove it first"]);
    deployment.cli("bob", "remove digits", &[]).ok();
    deployment.cli("bob", "remove digits", &[]).refused(&["there is no model `digits`"]);
    assert!((0..3).all(|party| !file(party).exists()));
    // The name is free again; a file that does not say whose it is, is its operator's.
    deployment.cli("bob", again, &[&example("lenet.onnx")]).ok();
    std::fs::write(file(2), "no model").unwrap();
    deployment.cli("bob", "remove digits", &[]).refused(&["party 2", "operator has to remove it"]);
    // What was done is in the audit log, soon after its client has heard of it.
    let audit = || std::fs::read_to_string(deployment.folder.path("data0").join("audit.jsonl")).unwrap();
    for request in ["allow", "remove"] {
        let line = format!(r#""event":"ended","client":"bob","request":"{request}""#);
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while !audit().contains(&line) {
            assert!(std::time::Instant::now() < until, "{line} is not in {}", audit());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // Nobody makes lines that the log cannot be read for.
    let mut mallory = deployment.connect("mallory");
    let many: Vec<Grant> = (0..100_000).map(|i| Grant::unlimited(&format!("client-{i}"))).collect();
    mallory.allow("nothing", &many, None).unwrap_err();
    let log = deployment.folder.path("data0").join("audit.jsonl");
    cli("audit verify {}", &[&log]).ok();
}

#[test]
fn material_that_nobody_uses_expires() {
    let mut deployment = Deployment::start("[capacity]\nmaterial_days = 2");
    let upload = "upload-model --model {} --name digits --batch 1";
    deployment.cli("bob", upload, &[&example("lenet.onnx")]).ok();
    let make = || {
        let made = deployment.cli("bob", "--json offline --model-name digits", &[]);
        made.json("megrez.offline/1")["material"].as_str().unwrap().to_owned()
    };
    let old: Vec<String> = (0..2).map(|_| make()).collect();
    let file = |party: usize, name: &str| {
        deployment.folder.path(&format!("data{party}")).join(format!("material/{name}.material"))
    };
    let three_days = Duration::from_secs(3 * 24 * 3600);
    let age = |party: usize, name: &str| {
        let file = std::fs::File::options().write(true).open(file(party, name)).unwrap();
        file.set_modified(SystemTime::now() - three_days).unwrap();
    };
    (0..3).for_each(|party| age(party, &old[0]));
    let young = make();
    assert!((0..3).all(|party| !file(party, &old[0]).exists()));
    assert!((0..3).all(|party| file(party, &old[1]).exists() && file(party, &young).exists()));
    age(1, &old[1]);
    let (expired, kept) = (file(1, &old[1]), file(1, &young));
    deployment.kill(1);
    deployment.restart(1);
    deployment.wait_for_log(1, "removed material that nobody has used");
    assert!(!expired.exists() && kept.exists());
}

#[test]
fn a_party_that_dies_is_named_and_one_that_comes_back_serves_again() {
    let mut deployment = Deployment::start("");
    run_small(&mut deployment.connect("alice"), 10, 2, &|_| {}).unwrap();
    let mut waiting = deployment.connect("alice");
    deployment.kill(2);
    let error = run_small(&mut waiting, 10, 1, &|_| {}).unwrap_err().to_string();
    assert!(error.contains("party 2"), "{error}");
    let (image, _) = images(&deployment, 1);
    deployment
        .cli("alice", "infer --model {} --input {}", &[&example("lenet.onnx"), &image])
        .refused(&["party 2", &deployment.addresses()[2]]);
    let doctor = deployment.cli("alice", "doctor", &[]);
    assert_eq!(doctor.code, Some(1), "{doctor:?}");
    assert!(doctor.out.contains("problem: party 2"), "{doctor:?}");

    deployment.restart(2);
    run_small(&mut deployment.connect("alice"), 10, 2, &|_| {}).unwrap();
    deployment.cli("alice", "doctor", &[]).ok();
}

#[test]
fn a_party_refuses_what_its_configuration_does_not_allow() {
    let deployment = Deployment::start("max_sessions = 1\nmax_elements = 1000");
    let lenet = example("lenet.onnx");
    let (image, _) = images(&deployment, 1);
    let files: [&Path; 2] = [&lenet, &image];
    deployment
        .cli("alice", "infer --model {} --input {} --protocol clear", &files)
        .refused(&["`clear` does not protect the data", "--insecure"]);
    deployment
        .cli("alice", "infer --model {} --input {} --protocol clear --insecure", &files)
        .refused(&["`clear` does not protect the data", "party allows it"]);
    deployment.cli("alice", "infer --model {} --input {} --net wan", &files).refused(&["does not shape"]);
    deployment
        .cli("alice", "infer --model {} --input {} --protocol nonsense", &files)
        .refused(&["there is no protocol `nonsense`"]);
    deployment
        .cli("alice", "infer --model {} --input {}", &files)
        .refused(&["this party takes at most 1000", "max_elements"]);

    // While one session runs, the next waits, as long as its client likes to; then it is its turn.
    let mut first = deployment.connect("alice");
    let mut second = Some(deployment.connect("bob"));
    let second = std::sync::Mutex::new(second.take());
    run_small(&mut first, 10, 3, &|run| {
        if let (0, Some(mut second)) = (run, second.lock().unwrap().take()) {
            second.set_timeout(Some(Duration::from_secs(1)));
            let error = run_small(&mut second, 10, 1, &|_| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
    })
    .unwrap();
    run_small(&mut deployment.connect("bob"), 10, 1, &|_| {}).unwrap();
}

#[test]
fn clients_of_another_authority_are_refused() {
    let deployment = Deployment::start("");
    let other = deployment.folder.path("other");
    cli("certs --folder {}", &[&other]).ok();
    let (lenet, (image, _)) = (example("lenet.onnx"), images(&deployment, 1));
    let (cluster, certs) = (deployment.cluster_file(), deployment.certs());
    cli("infer --model {} --input {} --cluster {} --certs {}", &[&lenet, &image, &cluster, &other])
        .refused(&["party 0", "identity check failed"]);
    let doctor = cli("doctor --cluster {} --certs {}", &[&cluster, &other]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.out.contains("problem: party 0"), "{doctor:?}");
    deployment.wait_for_log(0, "refused a connection");

    // No such client; a client that is added later; a party's certificate is no client's.
    deployment.cli("carol", "infer --model {} --input {}", &[&lenet, &image]).refused(&["carol"]);
    cli("certs --folder {} --add-client carol", &[&certs]).ok();
    run_small(&mut deployment.connect("carol"), 3, 1, &|_| {}).unwrap();
    let party = Identity::load(&certs, &PeerName::party(1).unwrap()).unwrap();
    let error = megrez::Cluster::connect(deployment.addresses(), &party, std::time::Duration::from_secs(10));
    assert!(error.is_err());
    // Certificates are never overwritten.
    cli("certs --folder {}", &[&certs]).refused(&["ca.pem"]);
}

#[test]
fn services_refuse_to_start_on_mistakes() {
    let deployment = Deployment::start("");
    let folder = &deployment.folder;
    let good = std::fs::read_to_string(folder.path("party0.toml")).unwrap();
    let bad = [
        (good.replace("party = 0", "party = 3"), "parties are numbered 0 to 2"),
        (good.replace("party = 0", "party = \"zero\""), "party"),
        (good.replace("certs = \"certs\"", "certs = \"elsewhere\""), "elsewhere"),
        (good.replace("\"cluster.toml\"", "\"missing.toml\""), "missing.toml"),
        (good.replace("listen", "lissten"), "lissten"),
        (good.clone(), "nothing else uses the port"),
        (format!("{good}\nsilence = ["), "bad.toml"),
        (String::from_utf8_lossy(&[0xff; 40]).into_owned(), "bad.toml"),
    ];
    for (text, word) in bad {
        let path = folder.file("bad.toml", text);
        cli("party --config {}", &[&path]).refused(&[word]);
    }
    let path = folder.file("binary.toml", [0xff, 0xfe, 0]);
    cli("party --config {}", &[&path]).refused(&["binary.toml"]);
}
