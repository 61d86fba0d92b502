//! Training as a job of the parties: stored rows, their owners' approval, kept models, stopping and
//! resuming.

use crate::common::onnx::{Message, int, ints, model, node, tensor, value};
use crate::common::{Deployment, Folder, HANG, example};
use megrez::train::{Bound, Job, Opening, Validation, of_job};
use megrez_graph::{Tensor, npy};
use megrez_plan::{KEPT, Plan};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Rows `from..to` of the digits, and their labels, as files.
pub fn part(deployment: &Deployment, name: &str, from: usize, to: usize) -> [PathBuf; 2] {
    let images = npy::load(&example("test_images.npy")).unwrap();
    let labels = npy::load(&example("test_labels.npy")).unwrap();
    let [x, y] = ["x", "y"].map(|what| deployment.folder.path(&format!("{name}-{what}.npy")));
    let pixels = images.data[from * 784..to * 784].to_vec();
    npy::save(&x, &Tensor::new([to - from, 1, 28, 28], pixels)).unwrap();
    npy::save(&y, &Tensor::new([to - from], labels.data[from..to].to_vec())).unwrap();
    [x, y]
}

/// Stores rows of a client; `more` are further options.
pub fn store(deployment: &Deployment, client: &str, name: &str, files: &[PathBuf; 2], more: &str) {
    let line = format!("--json upload-data --name {name} --inputs {{}} --labels {{}} --classes 10 {more}");
    deployment.cli(client, &line, &[&files[0], &files[1]]).json("megrez.upload-data/1");
}

fn losses(report: &Json) -> Vec<f64> {
    report["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect()
}

/// How often a stored model is right on the first rows.
fn right(deployment: &Deployment, client: &str, model: &str, rows: usize) -> usize {
    let [x, _] = part(deployment, "test", 0, rows);
    right_of(deployment, client, model, &x, rows)
}

/// As [`right`], of rows in a file.
fn right_of(deployment: &Deployment, client: &str, model: &str, x: &Path, rows: usize) -> usize {
    let [_, y] = part(deployment, "test", 0, rows);
    let line = format!("--json infer --model-name {model} --input {{}} --batch 30");
    let report = deployment.cli(client, &line, &[x]).json("megrez.infer/1");
    let labels = npy::load(&y).unwrap();
    let logits: Vec<f64> = report["output"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let best = |row: &[f64]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    logits.chunks(10).zip(&labels.data).filter(|(row, label)| best(row) == **label as usize).count()
}

/// A layer's weights, uniform and as large as such a layer's are to begin with.
fn weights(name: &str, shape: &[i64]) -> Message {
    let fan = shape[1..].iter().product::<i64>() as f32;
    let mut state = shape.iter().fold(1u64, |state, n| state * 31 + *n as u64);
    let mut drawn = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * (6.0 / fan).sqrt()
    };
    let count = shape.iter().product();
    tensor(name, shape, &(0..count).map(|_: i64| drawn()).collect::<Vec<f32>>())
}

/// Two layers after what `before` makes `of` numbers, in a file: a fraction of the weights of the
/// networks that are built in, which learn the digits no better.
fn network(folder: &Folder, input: (&str, &[i64]), before: (&[Message], &[Message]), of: i64) -> PathBuf {
    let (width, turned) = (32, [int("transB", 1)]);
    let dense = |layer: &str, inputs: [&str; 2], output: &str| {
        let [weight, bias] = ["weight", "bias"].map(|what| format!("{layer}.{what}"));
        node(layer, "Gemm", &[inputs[0], &weight, &bias], &[output], &turned)
    };
    let nodes = [
        dense("fc1", ["flat", "fc1"], "hidden"),
        node("relu", "Relu", &["hidden"], &["active"], &[]),
        dense("fc2", ["active", "fc2"], "y"),
    ];
    let tensors = [
        weights("fc1.weight", &[width, of]),
        tensor("fc1.bias", &[width], &vec![0.0; width as usize]),
        weights("fc2.weight", &[10, width]),
        tensor("fc2.bias", &[10], &[0.0; 10]),
    ];
    let (nodes, tensors) = ([before.0, &nodes].concat(), [before.1, &tensors].concat());
    let written = model(17, &nodes, &tensors, &[value(input.0, input.1)], &[value("y", &[0, 10])]);
    folder.file(&format!("network-of-{}.onnx", input.0), written)
}

/// A convolution and two layers, on images.
pub fn convolution(folder: &Folder) -> PathBuf {
    let steps = [ints("kernel_shape", &[7, 7]), ints("strides", &[4, 4])];
    let nodes = [
        node("conv", "Conv", &["x", "conv.weight"], &["channels"], &steps),
        node("relu0", "Relu", &["channels"], &["on"], &[]),
        node("flatten", "Flatten", &["on"], &["flat"], &[]),
    ];
    let filters = [weights("conv.weight", &[4, 1, 7, 7])];
    network(folder, ("x", &[0, 1, 28, 28]), (&nodes, &filters), 4 * 36)
}

/// Two layers, on rows.
fn dense(folder: &Folder) -> PathBuf {
    network(folder, ("flat", &[0, 784]), (&[], &[]), 784)
}

/// Training on images, which goes on after these words.
pub fn train(folder: &Folder, epochs: usize) -> String {
    let network = convolution(folder);
    format!("--json train --model {} --batch 30 --rate 2^-4 --epochs {epochs}", network.display())
}

#[test]
fn two_owners_train_a_model_that_nobody_holds() {
    let deployment = Deployment::start("");
    store(&deployment, "alice", "clinic-a", &part(&deployment, "a", 0, 180), "");
    store(&deployment, "bob", "clinic-b", &part(&deployment, "b", 180, 360), "--allow alice");
    let job = deployment.folder.path("job");
    // So long that chance does not decide how many digits are told apart in the end.
    let longer = train(&deployment.folder, 12);
    let propose = format!(
        "{longer} --data clinic-a,clinic-b --keep digits --allow mallory --run-batch 30 --propose {{}}"
    );
    // Who is not allowed to ask does not learn that there are such rows.
    deployment.cli("mallory", &propose, &[&job]).refused(&["there is no model `clinic-a`"]);
    let proposed = deployment.cli("alice", &propose, &[&job]).json("megrez.propose/1");
    let says = proposed["says"].to_string();
    for words in [
        "180 rows `clinic-b`",
        "OPENED to `alice` after every epoch",
        "`alice`, `mallory` may run",
        "12 epochs of 12 steps",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
    // Without bob's word nothing runs, at any party.
    let begin = "--json train --job {}";
    deployment.cli("alice", begin, &[&job]).refused(&["`bob`", "has not approved the job"]);
    // An approval is of the job's every bit.
    let approve = "--json approve --job {} --of clinic-b";
    let bytes = std::fs::read(&job).unwrap();
    deployment.cli("bob", approve, &[&job]).json("megrez.approve/1");
    let mut other = bytes.clone();
    // The name of the client who may run the kept model.
    let at = bytes.windows(7).rposition(|part| part == b"mallory").unwrap();
    other[at + 6] = b'i';
    let altered = deployment.folder.file("altered", &other);
    deployment.cli("alice", begin, &[&altered]).refused(&["`bob`", "has not approved the job"]);
    // Nobody but its client begins it; an approval that is taken back is none.
    deployment.cli("mallory", begin, &[&job]).refused(&["the job is `alice`'s to begin"]);
    deployment.cli("bob", &format!("{approve} --withdraw"), &[&job]).ok();
    deployment.cli("alice", begin, &[&job]).refused(&["`bob`", "has not approved the job"]);
    deployment.cli("bob", approve, &[&job]).ok();
    deployment.cli("mallory", approve, &[&job]).refused(&["there is no model `clinic-b`"]);

    let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    assert_eq!((report["state"].as_str(), report["epoch"].as_u64()), (Some("done"), Some(12)), "{report}");
    let losses = losses(&report);
    assert!(losses.len() == 12 && losses[5] < 0.8 * losses[0] && losses[0] < 2.4, "{losses:?}");
    for client in ["alice", "mallory"] {
        let right = right(&deployment, client, "digits", 60);
        assert!(right > 40, "{right} of 60");
    }
    deployment
        .cli(
            "bob",
            "infer --model-name digits --input {} --batch 30",
            &[&part(&deployment, "test", 0, 30)[0]],
        )
        .refused(&["there is no model `digits`"]);
    // A job is done once.
    let again = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    assert_eq!(again["losses"], report["losses"]);
    // Bob sees how it stands, and no loss.
    let seen = deployment.cli("bob", "--json jobs", &[]).json("megrez.jobs/1");
    assert_eq!(seen["jobs"][0]["state"], "done");
    let id = report["job"].as_str().unwrap();
    let seen = deployment.cli("bob", &format!("--json jobs --job {id}"), &[]).json("megrez.jobs/1");
    assert_eq!(losses_of(&seen["jobs"][0]), 0);
    deployment.cli("mallory", &format!("jobs --job {id}"), &[]).refused(&["no job"]);

    // What was trained on bob's rows is not trained further without him, not even on alice's own.
    let train = train(&deployment.folder, 6);
    let further = format!("{train} --data clinic-a --start digits --keep more --run-batch 30");
    deployment.cli("alice", &further, &[]).refused(&["`bob`, who has a say in `digits`, has not approved"]);
    let further = format!("{further} --propose {{}}");
    deployment.cli("alice", &further, &[&job]).ok();
    deployment.cli("bob", "approve --job {} --of digits", &[&job]).ok();
    let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    let first = report["losses"][0].as_f64().unwrap();
    assert!(first < 0.9 * losses[0], "it begins where the other ended: {first} after {losses:?}");
    // Rows are run by nobody, and removed by their owner.
    let x = &part(&deployment, "test", 0, 30)[0];
    deployment.cli("alice", "infer --model-name clinic-a --input {}", &[x]).refused(&["is no model"]);
    deployment.cli("alice", "remove clinic-b", &[]).refused(&["`clinic-b` is `bob`'s"]);
    deployment.cli("bob", "remove clinic-b", &[]).ok();
    deployment.cli("alice", &propose, &[&job]).refused(&["no model `clinic-b`"]);
}

/// Columns of the first rows of the digits, as a file of rows without further structure.
fn columns(deployment: &Deployment, name: &str, rows: usize, from: usize, to: usize) -> PathBuf {
    let images = npy::load(&example("test_images.npy")).unwrap();
    let path = deployment.folder.path(&format!("{name}.npy"));
    let of = |row: usize| images.data[row * 784 + from..row * 784 + to].to_vec();
    npy::save(&path, &Tensor::new([rows, to - from], (0..rows).flat_map(of).collect())).unwrap();
    path
}

#[test]
fn owners_of_different_columns_and_of_the_labels_train_on_the_same_rows() {
    let deployment = Deployment::start("");
    let rows = 180;
    let left = columns(&deployment, "left", rows, 0, 300);
    let right_half = columns(&deployment, "right", rows, 300, 784);
    let labels = &part(&deployment, "all", 0, rows)[1];
    let list = |order: &dyn Fn(usize) -> usize| {
        (0..rows).map(|row| format!("patient {}\n", order(row))).collect::<String>()
    };
    let ids = deployment.folder.file("ids", list(&|row| row * row).as_bytes());
    let others = deployment.folder.file("others", list(&|row| rows - row).as_bytes());
    let key = deployment.folder.file("key", b"between us\n");
    let upload = |client: &str, name: &str, what: &str, files: &[&PathBuf]| {
        let line = format!("--json upload-data --name {name} --allow alice {what}");
        let all: Vec<&Path> = files.iter().map(|file| file.as_path()).collect();
        deployment.cli(client, &line, &all)
    };
    let with_ids = "--inputs {} --ids {} --ids-key {}";
    upload("alice", "left", with_ids, &[&left, &ids, &key]).ok();
    let said = upload("bob", "right", with_ids, &[&right_half, &ids, &key]).json("megrez.upload-data/1");
    assert_eq!(said["rows"], rows);
    upload("mallory", "labels", "--labels {} --classes 10 --ids {} --ids-key {}", &[labels, &ids, &key]).ok();
    // The same rows by another order, without a key, and without identifiers at all.
    upload("bob", "shuffled", with_ids, &[&right_half, &others, &key]).ok();
    upload("bob", "keyless", "--inputs {} --ids {}", &[&right_half, &ids]).ok();
    upload("bob", "unnamed", "--inputs {}", &[&right_half]).ok();
    // What does not go together is noticed before anything is shared.
    let short = deployment.folder.file("short", b"a\nb\n");
    upload("bob", "short", "--inputs {} --ids {}", &[&right_half, &short])
        .refused(&["180 rows have 2 identifiers"]);
    let empty = deployment.folder.file("empty", b"\n");
    upload("bob", "open", with_ids, &[&right_half, &ids, &empty]).refused(&["--ids-key is an empty file"]);
    let twice = deployment.folder.file("twice", "same\n".repeat(rows).as_bytes());
    upload("bob", "twice", "--inputs {} --ids {}", &[&right_half, &twice])
        .refused(&["the identifier of row 1 is that of an earlier row, too"]);

    let job = deployment.folder.path("job");
    let network = dense(&deployment.folder).display().to_string();
    let propose = |data: &str| {
        let train = format!("--json train --model {network} --batch 30 --rate 2^-4 --epochs 8");
        let line = format!("{train} --data {data} --keep digits --run-batch 30 --propose {{}}");
        deployment.cli("alice", &line, &[&job])
    };
    let begin = "--json train --job {}";
    let approve = |client: &str, of: &str| {
        deployment.cli(client, &format!("--json approve --job {{}} --of {of}"), &[&job]).ok();
    };
    let wrong = [
        ("left+shuffled+labels", "shuffled", "whose rows are others, or in another order"),
        ("left+keyless+labels", "keyless", "whose rows are others, or in another order"),
        ("left+unnamed+labels", "unnamed", "upload them with --ids"),
        ("left+labels", "labels", "of [784] numbers from `left+labels`"),
        ("right+left", "right", "rows `rows.y` of [10] numbers from `right+left`"),
    ];
    for (data, of_bob, why) in wrong {
        propose(data).json("megrez.propose/1");
        let owner = if of_bob == "labels" { "mallory" } else { "bob" };
        approve(owner, of_bob);
        if owner == "bob" && data.ends_with("labels") {
            approve("mallory", "labels");
        }
        deployment.cli("alice", begin, &[&job]).refused(&[why]);
    }

    // A job of another kind is not begun to find out that it says nothing.
    deployment.cli("alice", "predict --job {}", &[&job]).refused(&["opens no predictions"]);

    let proposed = propose("left+right+labels").json("megrez.propose/1");
    let says = proposed["says"].to_string();
    assert!(
        says.contains("180 rows `left`, with the columns of the same rows in `right`, `labels`"),
        "{says}"
    );
    approve("bob", "right");
    deployment.cli("alice", begin, &[&job]).refused(&["`mallory`", "has not approved the job"]);
    approve("mallory", "labels");
    let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    let losses = losses(&report);
    assert!(losses.len() == 8 && losses[5] < 0.8 * losses[0], "{losses:?}");
    // The model reads whole rows, in the order in which the columns were named.
    let whole = columns(&deployment, "whole", 60, 0, 784);
    let right = right_of(&deployment, "alice", "digits", &whole, 60);
    assert!(right > 40, "{right} of 60");

    // What it says of the same rows as they are stored: nobody has them whole, and all who have a
    // say in rows or model are asked.
    let said = deployment.folder.path("said.npy");
    let propose =
        format!("--json predict --model-name digits --model {network} --data left+right --propose {{}}");
    let proposed = deployment.cli("alice", &propose, &[&job]).json("megrez.propose/1");
    let says = proposed["says"].to_string();
    assert!(says.contains("OPENED to `alice` at the end: `predicted`, 1800 numbers"), "{says}");
    let predict = "--json predict --job {} --output {}";
    deployment.cli("alice", predict, &[&job, &said]).refused(&["`bob`", "has not approved the job"]);
    approve("bob", "right,digits");
    deployment.cli("alice", predict, &[&job, &said]).refused(&["`mallory`, who has a say in `digits`"]);
    approve("mallory", "digits");
    let report = deployment.cli("alice", predict, &[&job, &said]).json("megrez.predict/1");
    assert_eq!(report["shape"], serde_json::json!([rows, 10]));
    let (said, labels) = (npy::load(&said).unwrap(), npy::load(labels).unwrap());
    let best = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let first = said.data.chunks(10).zip(&labels.data).take(60);
    let again = first.filter(|(row, label)| best(row) == **label as usize).count();
    assert!(again.abs_diff(right) <= 1, "{again} of 60, and {right} before");
    // Nobody else asks a model that is the client's, whatever rows it has.
    let other = deployment.folder.path("other");
    deployment.cli("bob", &propose.replace("left+right", "right"), &[&other]).ok();
    deployment.cli("bob", "predict --job {}", &[&other]).refused(&["there is no model `digits`"]);
}

/// An owner reads in the plans themselves what a job's weights may tell of a row; losses, which no
/// noise covers, are opened to nobody unless somebody asks for them.
#[test]
fn a_private_job_says_what_its_plans_guarantee() {
    let deployment = Deployment::start("");
    let flat = |name: &str, rows: usize| {
        let [x, y] = part(&deployment, name, 0, rows);
        npy::save(&x, &npy::load(&x).unwrap().reshape([rows, 784])).unwrap();
        [x, y]
    };
    store(&deployment, "bob", "clinic", &flat("b", 240), "--allow alice");
    let job = deployment.folder.path("job");
    let train = "--json train --batch 120 --epochs 3 --rate 2^-1 --data clinic --epsilon 6 --delta 1e-5";
    let says = |more: &str| {
        let line = format!("{train} {more} --propose {{}}");
        let proposed = deployment.cli("alice", &line, &[&job]).json("megrez.propose/1");
        proposed["says"].to_string()
    };
    let dense = &format!("--model {} --keep private --run-batch 30", dense(&deployment.folder).display());
    let all = says(&format!("{dense} --losses-to alice"));
    assert!(all.contains("OPENED to `alice` after every epoch") && all.contains("and not of what"), "{all}");
    let all = says(dense);
    assert!(all.contains("PRIVATE by the plans") && all.contains("ε = 6.00 at δ = 1e-5"), "{all}");
    // The same model and options are the same plan: noise has no part in how it is laid out.
    let plan = |all: &str| all.split_once("a step is the plan ").unwrap().1[..64].to_owned();
    assert_eq!(plan(&all), plan(&says(dense)));
    assert!(!all.contains("OPENED to `") && all.contains("(ε, δ) = (6, 1e-5)"), "{all}");
    deployment.cli("bob", "approve --job {} --of clinic", &[&job]).ok();
    let report = deployment.cli("alice", "--json train --job {}", &[&job]).json("megrez.train-job/1");
    assert_eq!((report["state"].as_str(), losses_of(&report)), (Some("done"), 0), "{report}");
    assert!(report["privacy"]["epsilon"].as_f64().is_some_and(|e| e > 5.9 && e <= 6.0001), "{report}");
    let right = right_of(&deployment, "alice", "private", &flat("asked", 60)[0], 60);
    assert!(right > 0, "it answers, better than never");
    // Read from the plans, and from what is opened and kept beside them.
    let made = Job::from_bytes(&std::fs::read(&job).unwrap()).unwrap();
    assert!(of_job(&made).is_some_and(|of| of.rho > 0.5 && of.rho < 1.0 && of.range >= 1.0));
    let loss = |every_epoch| {
        let (state, recipient) = ("loss.so-far".to_owned(), "alice".to_owned());
        Job { opened: vec![Opening { state, recipient, every_epoch }], ..made.clone() }
    };
    assert_eq!((of_job(&loss(true)), of_job(&loss(false))), (of_job(&made), None));
    let mut keeps_losses = made.clone();
    let plan = &mut keeps_losses.keep.as_mut().unwrap().plans[0].plan;
    let mut other = Plan::from_bytes(plan).unwrap();
    other.inputs[0].name = "loss.so-far".into();
    *plan = other.to_bytes();
    assert_eq!(of_job(&keeps_losses), None);
    let bounds_losses = Bound { state: "loss.so-far".into(), below: 20 };
    assert_eq!(of_job(&Job { bounds: vec![bounds_losses], ..made.clone() }), None);
    // What is counted on other rows says no more of these than the weights do, unless it reads
    // more.
    let counts = |name: &str| {
        let mut plan = Plan::new(64);
        let read = plan.input(name, KEPT, [1].into(), 16);
        plan.input("so-far", KEPT, [1].into(), 16);
        plan.output("so-far", KEPT, read);
        let opening = Opening { state: "so-far".into(), recipient: "alice".into(), every_epoch: true };
        let validation = Some(Validation { data: made.data.clone(), plan: plan.to_bytes() });
        Job { validation, opened: vec![opening], ..made.clone() }
    };
    assert_eq!(
        [counts("w.fc1.weight"), counts("loss.so-far")].map(|job| of_job(&job)),
        [of_job(&made), None]
    );
    let mut twice = made.clone();
    twice.stages.push(twice.stages[0].clone());
    assert_eq!(of_job(&twice).unwrap().rho, 2.0 * of_job(&made).unwrap().rho);
    // Convolutions have the same.
    let network = convolution(&deployment.folder);
    let line = format!("{train} --model {} --keep images --propose {{}}", network.display());
    let proposed = deployment.cli("alice", &line, &[&job]).json("megrez.propose/1");
    assert!(proposed["says"].to_string().contains("PRIVATE by the plans"), "{proposed}");
    // Rules may ask for a guarantee: a job is refused before anybody is asked, and by the parties
    // whoever has approved it.
    let rule = |most: &str| {
        let rules =
            deployment.folder.file("rules.toml", format!("most_epsilon = {most}\nmodels_to = [\"alice\"]\n"));
        deployment.cli("bob", "allow clinic alice --rules {}", &[&rules]).ok();
    };
    rule("6.01");
    says(&dense.replace("private", "again"));
    deployment.cli("bob", "approve --job {} --of clinic", &[&job]).ok();
    rule("5.9");
    let refused = "its plans guarantee ε = 6.00, and ε of at most 5.9 at δ = 1e-5 is asked for";
    deployment.cli("alice", "--json train --job {}", &[&job]).refused(&[refused]);
    let propose = |train: &str| deployment.cli("alice", &format!("{train} {dense} --propose {{}}"), &[&job]);
    propose(train).refused(&[refused]);
    propose(train.split_once(" --epsilon").unwrap().0).refused(&["guarantee no privacy of rows"]);
    rule("6.01");
    deployment.cli("alice", "--json train --job {}", &[&job]).json("megrez.train-job/1");
}

fn losses_of(report: &Json) -> usize {
    report["losses"].as_array().map_or(0, Vec::len)
}

#[test]
fn held_out_rows_are_counted_on_and_nothing_is_learnt_from_them() {
    let deployment = Deployment::start("");
    store(&deployment, "bob", "held-out", &part(&deployment, "test", 0, 60), "--allow alice");
    let [x, y] = part(&deployment, "rows", 60, 360);
    let job = deployment.folder.path("job");
    // So long that the order of rows, which is drawn, does not decide how many are told apart.
    let longer = train(&deployment.folder, 12);
    let long =
        format!("{longer} --inputs {{}} --labels {{}} --validation held-out --keep digits --run-batch 30");
    let propose = format!("{long} --propose {{}}");
    let proposed = deployment.cli("alice", &propose, &[&x, &y, &job]).json("megrez.propose/1");
    let says = proposed["says"].to_string();
    for words in [
        "counts on the 60 rows `held-out`, and learns nothing from them: 1 batches of 60, by the plan",
        "OPENED to `alice` after every epoch: `correct.so-far`, 1 numbers",
        "OPENED to the parties after every epoch: whether the sums of squares are all within bounds, `w.",
        "WARNING: `held-out` has 60 rows",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
    // Who is asked about rows is asked about these.
    let begin = "--json train --job {}";
    deployment.cli("alice", begin, &[&job]).refused(&["`bob`, who has a say in `held-out`"]);
    deployment.cli("bob", "approve --job {} --of held-out", &[&job]).ok();
    let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    let counted = report["accuracies"].as_array().unwrap();
    assert!(counted.len() == 12 && report["validation_losses"].as_array().unwrap().is_empty(), "{report}");
    // What the parties have counted is what the model that they keep is right about: but for a row
    // between two digits, which roundings decide.
    let [first, last] = [0, 11].map(|epoch| (counted[epoch].as_f64().unwrap() * 60.0).round() as usize);
    let says = right(&deployment, "alice", "digits", 60);
    assert!(
        last.abs_diff(says) <= 1 && last > 35 && last > first,
        "{first}, {last} of 60 counted, {says} right"
    );
    // Nothing of bob's is in the model, which is trained further without him.
    let train = train(&deployment.folder, 6);
    let further = format!("{train} --inputs {{}} --labels {{}} --start digits --keep more");
    deployment.cli("alice", &further, &[&x, &y]).ok();

    // Rows of this client are held out as files; targets have a loss.
    let mean = train.replace("--rate 2^-4 --epochs 6", "--loss mse --rate 2^-7 --epochs 2 --keep squares");
    let own = format!("{mean} --inputs {{}} --labels {{}} --test-inputs {{}} --test-labels {{}}");
    let [test_x, test_y] = part(&deployment, "test", 0, 60);
    for labels in [&y, &test_y] {
        let classes = npy::load(labels).unwrap().data;
        let one = |class: f32| (0..10).map(move |k| if k == class as usize { 1.0 } else { 0.0 });
        let targets = classes.iter().flat_map(|&class| one(class)).collect();
        npy::save(labels, &Tensor::new([classes.len(), 10], targets)).unwrap();
    }
    let report = deployment.cli("alice", &own, &[&x, &y, &test_x, &test_y]).json("megrez.train-job/1");
    let losses = report["validation_losses"].as_array().unwrap();
    assert!(losses.len() == 2 && report["accuracies"].as_array().unwrap().is_empty(), "{report}");
    // Of 60 rows in one batch; the clear gives that of the 300.
    let [held_out, learnt] = [&losses[1], &report["losses"][1]].map(|loss| loss.as_f64().unwrap());
    assert!((held_out - learnt).abs() < 0.3 * learnt && learnt < 1.0, "{held_out} beside {learnt}");
    // Nothing is left of what was stored for it: the proposed job's rows stay.
    let stored = deployment.cli("alice", "--json stored", &[]).json("megrez.stored/1").to_string();
    assert_eq!(stored.matches("rows-").count(), 1, "{stored}");
    // Other protocols count and compare by other steps.
    for protocol in ["aby3", "alkaid"] {
        let line = format!("{train} --protocol {protocol} --inputs {{}} --labels {{}} --keep {protocol}")
            + " --test-inputs {} --test-labels {} --run-batch 30";
        let report = deployment.cli("alice", &line, &[&x, &y, &test_x, &test_y]).json("megrez.train-job/1");
        let counted = report["accuracies"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() * 60.0);
        let counted: Vec<usize> = counted.map(|count| count.round() as usize).collect();
        let says = right(&deployment, "alice", protocol, 60);
        assert!(
            counted.len() == 6 && counted[5].abs_diff(says) <= 1,
            "{protocol}: {counted:?}, {says} right"
        );
    }
}

#[test]
fn a_job_whose_weights_leave_their_bounds_ends_there() {
    let deployment = Deployment::start("");
    let [x, y] = part(&deployment, "rows", 60, 360);
    let job = deployment.folder.path("job");
    let train = train(&deployment.folder, 2);
    let begin = "--json train --job {}";
    for protocol in ["mizar", "aby3", "alkaid"] {
        let line = format!(
            "{train} --inputs {{}} --labels {{}} --protocol {protocol} --keep {protocol} --propose {{}}"
        );
        deployment.cli("alice", &line, &[&x, &y, &job]).json("megrez.propose/1");
        // Nearer bounds than the weights to begin with keep to are left in the first epoch.
        let made = Job::from_bytes(&std::fs::read(&job).unwrap()).unwrap();
        let mut near = made.clone();
        near.bounds.iter_mut().for_each(|bound| bound.below = 0);
        let near = deployment.folder.file("near", near.to_bytes());
        let failed = deployment.cli("alice", begin, &[&near]);
        assert!(failed.out.contains("\"out-of-range\""), "as itself, and not as a lost peer: {}", failed.out);
        failed.refused(&["after epoch 1 weights are beyond the job's bounds", "nothing was sealed before"]);
        let stored = deployment.cli("alice", "--json stored", &[]).json("megrez.stored/1").to_string();
        assert!(!stored.contains(&format!("\"{protocol}\",\"owner\"")), "nothing is kept of it: {stored}");
        // Its own bounds it keeps to; and one that names none is not looked at.
        let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
        assert_eq!(report["state"], "done", "{report}");
    }
    let jobs = deployment.cli("alice", "--json jobs", &[]).json("megrez.jobs/1").to_string();
    assert_eq!(jobs.matches("\"failed\"").count(), 3, "{jobs}");
    let line = format!("{train} --unguarded --inputs {{}} --labels {{}} --keep other --propose {{}}");
    let proposed = deployment.cli("alice", &line, &[&x, &y, &job]).json("megrez.propose/1").to_string();
    assert!(!proposed.contains("to the parties"), "{proposed}");
}

#[test]
fn one_owner_keeps_what_was_trained() {
    let deployment = Deployment::start("");
    let [x, y] = part(&deployment, "a", 0, 360);
    // So long that the order of rows, which is drawn, does not decide how many are told apart.
    let longer = train(&deployment.folder, 12);
    let line = format!("{longer} --inputs {{}} --labels {{}} --keep digits --run-batch 30");
    let report = deployment.cli("alice", &line, &[&x, &y]).json("megrez.train-job/1");
    assert_eq!(report["state"], "done");
    assert!(right(&deployment, "alice", "digits", 60) > 40);
    // Only the model is left of it.
    let models: Vec<_> = std::fs::read_dir(deployment.folder.path("data0").join("models"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(models, ["digits.model"]);
    // Links are shaped for a job as for a run: not by these parties.
    let shaped = format!("{} --net lan", line.replace("--keep digits", "--keep other"));
    deployment.cli("alice", &shaped, &[&x, &y]).refused(&["allow_shaping"]);
    // Damaged data is refused before a party hears of it.
    let mut bad = npy::load(&x).unwrap();
    bad.data[784] = f32::NAN;
    let nan = deployment.folder.path("nan.npy");
    npy::save(&nan, &bad).unwrap();
    let store = "upload-data --name bad --inputs {} --labels {} --classes 10";
    deployment.cli("alice", store, &[&nan, &y]).refused(&["row 1", "not finite"]);
    deployment
        .cli("alice", "upload-data --name bad --inputs {} --labels {} --classes 9", &[&x, &y])
        .refused(&["no class"]);
    deployment
        .cli("alice", "upload-data --name bad --inputs {} --labels {}", &[&x, &y])
        .refused(&["--classes"]);
}

/// Four steps take tens of rounds each, and a round no less than half of a round-trip time.
#[test]
fn a_job_runs_over_the_links_that_its_client_asks_for() {
    let deployment = Deployment::start("allow_shaping = true");
    store(&deployment, "alice", "rows", &part(&deployment, "a", 0, 60), "");
    let job = deployment.folder.path("job");
    let train = train(&deployment.folder, 2);
    let line = format!("{train} --halve-every 1 --data rows --keep digits --propose {{}}");
    let proposed = deployment.cli("alice", &line, &[&job]).json("megrez.propose/1");
    // Each rate has a plan of its own, which an approval binds.
    let says = proposed["says"].to_string();
    assert!(says.contains("of epochs 1 to 1 is the plan") && says.contains("of epochs 2 to 2"), "{says}");
    let start = Instant::now();
    let report = deployment
        .cli("alice", "--json train --job {} --net 100ms,1gbps", &[&job])
        .json("megrez.train-job/1");
    assert_eq!(report["state"], "done", "{report}");
    assert!(start.elapsed() > 4 * 20 * Duration::from_millis(50), "{:?}", start.elapsed());
}

fn standing(deployment: &Deployment, id: &str) -> Json {
    let all = deployment.cli("alice", &format!("--json jobs --job {id}"), &[]).json("megrez.jobs/1");
    all["jobs"][0].clone()
}

fn until(deployment: &Deployment, id: &str, what: impl Fn(&Json) -> bool) -> Json {
    let deadline = Instant::now() + HANG;
    loop {
        let now = standing(deployment, id);
        if what(&now) {
            return now;
        }
        assert!(Instant::now() < deadline, "{now}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_job_outlives_its_client_a_stop_and_a_party() {
    let mut deployment = Deployment::start("");
    store(&deployment, "alice", "rows", &part(&deployment, "a", 0, 360), "");
    // So long that chance does not decide how many digits are told apart in the end.
    let train = train(&deployment.folder, 12);
    let line = format!("{train} --halve-every 5 --data rows --keep digits --run-batch 30 --detach");
    let report = deployment.cli("alice", &line, &[]).json("megrez.train-job/1");
    let id = report["job"].as_str().unwrap().to_owned();
    // Nobody is connected, and it goes on.
    until(&deployment, &id, |now| now["epoch"].as_u64() >= Some(1));
    deployment.cli("alice", &format!("stop {id}"), &[]).ok();
    let stopped = until(&deployment, &id, |now| now["state"] != "runs");
    assert_eq!(stopped["state"], "waits", "{stopped}");
    let before = losses(&stopped);
    assert_eq!(before.len() as u64, stopped["epoch"].as_u64().unwrap());

    deployment.cli("alice", &format!("resume {id} --detach"), &[]).ok();
    let epoch = stopped["epoch"].as_u64().unwrap();
    until(&deployment, &id, |now| now["epoch"].as_u64() > Some(epoch) && now["step"].as_u64() > Some(2));
    deployment.kill(1);
    deployment.wait_for_log(0, "party 1");
    deployment.restart(1);
    let waits = until(&deployment, &id, |now| now["state"] != "runs");
    assert_ne!(waits["state"], "done", "{waits}");
    // A party that has lost its checkpoints begins nothing again, and takes nobody else's away.
    let jobs = |party: usize| deployment.folder.path(&format!("data{party}")).join("jobs");
    let mut lost = vec![];
    for entry in std::fs::read_dir(jobs(2)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "part") {
            lost.push((path.clone(), std::fs::read(&path).unwrap()));
            std::fs::remove_file(path).unwrap();
        }
    }
    deployment.cli("alice", &format!("resume {id}"), &[]).refused(&["checkpoints up to epoch 0"]);
    assert!(newest(&jobs(0)).exists());
    lost.into_iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    // A checkpoint that was damaged is named, and not trained on.
    let part = newest(&deployment.folder.path("data1").join("jobs"));
    let whole = std::fs::read(&part).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    std::fs::write(&part, flipped).unwrap();
    deployment.cli("alice", &format!("resume {id}"), &[]).refused(&["part", "is damaged"]);
    std::fs::write(&part, whole).unwrap();
    let report = deployment.cli("alice", &format!("--json resume {id}"), &[]).json("megrez.train-job/1");
    assert_eq!(report["state"], "done", "{report}");
    let all = losses(&report);
    assert_eq!(all.len(), 12);
    assert_eq!(all[..before.len()], before[..], "what was done is not done again");
    assert!(all[11] < 0.5 * all[0], "{all:?}");
    assert!(right(&deployment, "alice", "digits", 60) > 50);
}

#[test]
fn an_approval_holds_at_every_party_for_the_very_rows_as_long_as_it_stands() {
    let deployment = Deployment::start("");
    let rows = part(&deployment, "b", 180, 360);
    store(&deployment, "alice", "clinic-a", &part(&deployment, "a", 0, 180), "");
    store(&deployment, "bob", "clinic-b", &rows, "--allow alice");
    let job = deployment.folder.path("job");
    let train = train(&deployment.folder, 5000);
    let propose = &format!("{train} --data clinic-a,clinic-b --keep digits --run-batch 30 --propose {{}}");
    deployment.cli("alice", propose, &[&job]).ok();
    let (begin, approve) = ("--json train --detach --job {}", "approve --job {} --of clinic-b");
    deployment.cli("bob", approve, &[&job]).ok();
    // One party that knows of no approval is enough.
    let consents = deployment.folder.path("data2").join("consents");
    let aside = deployment.folder.path("aside");
    std::fs::rename(&consents, &aside).unwrap();
    deployment.cli("alice", begin, &[&job]).refused(&["`bob`", "has not approved the job"]);
    std::fs::rename(&aside, &consents).unwrap();
    // Other rows under the old name are other rows.
    deployment.cli("bob", "remove clinic-b", &[]).ok();
    store(&deployment, "bob", "clinic-b", &rows, "--allow alice");
    deployment.cli("alice", begin, &[&job]).refused(&["`bob`", "has not approved the job"]);
    deployment.cli("bob", approve, &[&job]).ok();

    // Whoever begins it twice at once has it once.
    let both: Vec<_> = std::thread::scope(|scope| {
        let begin = || deployment.cli("alice", begin, &[&job]);
        let threads = [scope.spawn(begin), scope.spawn(begin)];
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (begun, refused): (Vec<_>, Vec<_>) = both.into_iter().partition(|ran| ran.code == Some(0));
    assert!(begun.len() == 1, "{begun:?} {refused:?}");
    refused.into_iter().for_each(|ran| ran.refused(&["runs already"]));
    let report: Json = serde_json::from_str(&begun[0].out).unwrap();
    let id = report["job"].as_str().unwrap();
    until(&deployment, id, |now| now["epoch"].as_u64() >= Some(1));

    // An approval that is taken back ends what runs, and nothing goes on without it.
    deployment.cli("bob", &format!("{approve} --withdraw"), &[&job]).ok();
    let stopped = until(&deployment, id, |now| now["state"] != "runs");
    assert_eq!(stopped["state"], "waits", "{stopped}");
    deployment.cli("alice", &format!("resume {id}"), &[]).refused(&["`bob`", "has not approved the job"]);
    deployment.cli("bob", approve, &[&job]).ok();
    deployment.cli("alice", &format!("resume {id} --detach"), &[]).ok();
    until(&deployment, id, |now| now["epoch"].as_u64() > stopped["epoch"].as_u64());
    deployment.cli("bob", &format!("stop {id}"), &[]).ok();
    until(&deployment, id, |now| now["state"] == "waits");
}

/// Each party ends at several places of a step; `MEGREZ_KILLS` says how often.
#[test]
fn a_job_survives_any_party_at_any_point_of_a_step() {
    let kills = std::env::var("MEGREZ_KILLS").map_or(3, |n| n.parse().unwrap());
    let mut deployment = Deployment::start("");
    store(&deployment, "alice", "rows", &part(&deployment, "a", 0, 360), "");
    let train = train(&deployment.folder, 1000);
    let line = format!("{train} --data rows --keep digits --run-batch 30 --detach");
    let report = deployment.cli("alice", &line, &[]).json("megrez.train-job/1");
    let id = report["job"].as_str().unwrap().to_owned();
    let mut before = vec![];
    for kill in 0..kills {
        // A step takes some 20 ms; an epoch more, with its seals.
        until(&deployment, &id, |now| now["epoch"].as_u64() > Some(before.len() as u64));
        std::thread::sleep(Duration::from_millis(7 * (kill as u64 / 3 % 5)));
        let party = kill % 3;
        deployment.kill(party);
        deployment.wait_for_log((party + 1) % 3, &format!("party {party}"));
        deployment.restart(party);
        let waits = until(&deployment, &id, |now| now["state"] != "runs");
        let after = losses(&waits);
        assert_eq!(after[..before.len()], before[..], "what was done is not done again");
        assert!(
            after.len() > before.len() && after.iter().all(|loss| (0.0..2.5).contains(loss)),
            "{after:?}"
        );
        before = after;
        deployment.cli("alice", &format!("resume {id} --detach"), &[]).ok();
    }
    let last = until(&deployment, &id, |now| now["epoch"].as_u64() > Some(before.len() as u64));
    let all = losses(&last);
    assert!(all[all.len() - 1] < all[0], "{all:?}");
    deployment.cli("alice", &format!("stop {id}"), &[]).ok();
    until(&deployment, &id, |now| now["state"] != "runs");
}

/// The last checkpoint of a party.
fn newest(folder: &Path) -> PathBuf {
    let epoch = |path: &PathBuf| path.with_extension("").extension()?.to_str()?.parse::<u32>().ok();
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "part")).max_by_key(epoch).unwrap()
}
