//! Boosted trees on rows of several owners, each of whom compares its own columns.

use crate::common::{Deployment, cli};
use megrez_graph::{Tensor, npy};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// Rows of four features from 0 to 1, of which two decide about the label together.
fn rows(seed: u64, count: usize) -> (Vec<[f32; 4]>, Vec<f32>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let rows: Vec<[f32; 4]> = (0..count).map(|_| [next(), next(), next(), next()]).collect();
    let label = |row: &[f32; 4]| f32::from(u8::from(row[0] + row[2] > 1.0));
    let labels = rows.iter().map(label).collect();
    (rows, labels)
}

struct Owners {
    deployment: Deployment,
}

impl Owners {
    fn file(&self, name: &str, shape: &[usize], data: Vec<f32>) -> PathBuf {
        let path = self.deployment.folder.path(name);
        npy::save(&path, &Tensor::new(shape.to_vec(), data)).unwrap();
        path
    }

    /// The answers to some columns of rows, as a file.
    fn answers(&self, name: &str, rows: &[[f32; 4]], columns: [usize; 2], bins: &str) -> PathBuf {
        let [from, to] = columns;
        let data = rows.iter().flat_map(|row| row[from..to].to_vec()).collect();
        let x = self.file(&format!("{name}-x.npy"), &[rows.len(), to - from], data);
        let thresholds = self.deployment.folder.path(&format!("thresholds{from}.npy"));
        let answers = self.deployment.folder.path(&format!("{name}-answers.npy"));
        let line = format!("--json indicators --inputs {{}} --thresholds {{}} --output {{}} {bins}");
        let report = cli(&line, &[&x, &thresholds, &answers]).json("megrez.indicators/1");
        assert_eq!(
            (report["rows"].as_u64(), report["thresholds"].as_u64()),
            (Some(rows.len() as u64), Some(14))
        );
        answers
    }

    fn upload(&self, client: &str, name: &str, what: &str, files: &[&Path]) {
        let line = format!("upload-data --name {name} --allow alice --input-range 0,1 {what}");
        self.deployment.cli(client, &line, files).ok();
    }
}

fn right(said: &[f32], labels: &[f32]) -> usize {
    said.iter().zip(labels).filter(|(score, label)| (**score > 0.0) == (**label > 0.5)).count()
}

#[test]
fn owners_of_different_columns_have_trees_grown() {
    let owners = Owners { deployment: Deployment::start("") };
    let deployment = &owners.deployment;
    let ((learnt, labels), (held_out, others)) = (rows(1, 300), rows(2, 80));
    let ids = |name: &str, count: usize| {
        let lines: String = (0..count).map(|row| format!("{name} {row}\n")).collect();
        deployment.folder.file(name, lines.as_bytes())
    };
    // Thresholds at quantiles of own rows for bob; over public bounds for mallory.
    for (name, rows, labels) in [("learnt", &learnt, &labels), ("held-out", &held_out, &others)] {
        let (ids, first) = (ids(name, rows.len()), name == "learnt");
        let bank = owners.answers(&format!("bank-{name}"), rows, [0, 2], if first { "--bins 8" } else { "" });
        let shop = if first { "--bins 8 --range 0,1" } else { "" };
        let shop = owners.answers(&format!("shop-{name}"), rows, [2, 4], shop);
        let y = owners.file(&format!("{name}-y.npy"), &[rows.len()], labels.clone());
        let columns = "--inputs {} --ids {}";
        owners.upload("bob", &format!("bank-{name}"), columns, &[&bank, &ids]);
        owners.upload("mallory", &format!("shop-{name}"), columns, &[&shop, &ids]);
        owners.upload("mallory", &format!("label-{name}"), "--labels {} --classes 1 --ids {}", &[&y, &ids]);
    }
    let job = deployment.folder.path("job");
    let sets = |name: &str| format!("bank-{name}+shop-{name}+label-{name}");
    let boost = format!(
        "--json boost --estimators 6 --depth 2 --rate 0.5 --data {} --validation {} --keep scores --run-batch 80",
        sets("learnt"),
        sets("held-out")
    );
    let proposed =
        deployment.cli("alice", &format!("{boost} --propose {{}}"), &[&job]).json("megrez.propose/1");
    let says = proposed["says"].to_string();
    for words in [
        "300 rows `bank-learnt`, with the columns of the same rows in `shop-learnt`, `label-learnt`",
        "counts on the 80 rows `bank-held-out`",
        "6 epochs of 1 steps on batches of 300",
        "6 trees of 2 levels, logistic, rate 0.5",
    ] {
        assert!(says.contains(words), "{words}: {says}");
    }
    let approve = |client: &str, of: &str| {
        deployment.cli(client, &format!("approve --job {{}} --of {of}"), &[&job]).ok();
    };
    let begin = "--json train --job {}";
    approve("bob", "bank-learnt,bank-held-out");
    deployment.cli("alice", begin, &[&job]).refused(&["`mallory`", "has not approved the job"]);
    approve("mallory", "shop-learnt,label-learnt,shop-held-out,label-held-out");
    let report = deployment.cli("alice", begin, &[&job]).json("megrez.train-job/1");
    let numbers =
        |what: &Json| what.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<_>>();
    let (losses, counted) = (numbers(&report["losses"]), numbers(&report["accuracies"]));
    assert!(losses.len() == 6 && losses[5] < 0.6 * losses[0], "{losses:?}");
    assert!(counted.len() == 6 && counted[5] > 0.85, "{counted:?}");

    // What the trees say of rows that are stored in columns: all who have a say are asked.
    let said = deployment.folder.path("said.npy");
    let propose =
        "--json predict --model-name scores --estimators 6 --depth 2 --data bank-held-out+shop-held-out";
    deployment.cli("alice", &format!("{propose} --propose {{}}"), &[&job]).json("megrez.propose/1");
    let predict = "--json predict --job {} --output {}";
    approve("bob", "bank-held-out,scores");
    deployment.cli("alice", predict, &[&job, &said]).refused(&["`mallory`"]);
    approve("mallory", "shop-held-out,scores");
    let report = deployment.cli("alice", predict, &[&job, &said]).json("megrez.predict/1");
    assert_eq!(report["shape"], serde_json::json!([80, 1]));
    let said = npy::load(&said).unwrap();
    let says = right(&said.data, &others);
    // But for a score next to 0, which roundings decide.
    let by_parties = (counted[5] * 80.0).round() as usize;
    assert!(by_parties.abs_diff(says) <= 1, "{by_parties} as the parties have counted, {says} here");

    // Who has whole rows asks the kept trees as any model.
    let [bank, shop] =
        ["bank", "shop"].map(|who| deployment.folder.path(&format!("{who}-held-out-answers.npy")));
    let [bank, shop] = [bank, shop].map(|path| npy::load(&path).unwrap());
    let (left, right_half) = (bank.data.chunks(14), shop.data.chunks(14));
    let whole = left.zip(right_half).flat_map(|(a, b)| [a, b].concat()).collect();
    let whole = owners.file("whole.npy", &[80, 28], whole);
    let infer = "--json infer --model-name scores --input {} --batch 80";
    let report = deployment.cli("alice", infer, &[&whole]).json("megrez.infer/1");
    let output = numbers(&report["output"]);
    assert!(output.iter().zip(&said.data).all(|(a, b)| (a - f64::from(*b)).abs() < 1e-2));
}

#[test]
fn rows_below_each_other_and_targets_have_trees_too() {
    let owners = Owners { deployment: Deployment::start("") };
    let deployment = &owners.deployment;
    for (client, name, seed) in [("alice", "one", 3), ("bob", "two", 4)] {
        let (rows, _) = rows(seed, 120);
        let flat = rows.iter().flat_map(|row| row.to_vec()).collect();
        let x = owners.file(&format!("{name}.npy"), &[120, 4], flat);
        let [thresholds, answers] = ["common.npy", "answers.npy"].map(|file| deployment.folder.path(file));
        let line = "indicators --inputs {} --thresholds {} --output {} --bins 6 --range 0,1";
        cli(line, &[&x, &thresholds, &answers]).ok();
        let targets = rows.iter().map(|row| row[0] - row[3]).collect();
        let y = owners.file(&format!("{name}-y.npy"), &[120, 1], targets);
        owners.upload(client, name, "--inputs {} --labels {}", &[&answers, &y]);
    }
    let job = deployment.folder.path("job");
    let boost = "--json boost --objective squares --estimators 5 --depth 3 --data one,two --keep trees";
    deployment.cli("alice", &format!("{boost} --propose {{}}"), &[&job]).json("megrez.propose/1");
    deployment.cli("bob", "approve --job {} --of two", &[&job]).ok();
    let report = deployment.cli("alice", "--json train --job {}", &[&job]).json("megrez.train-job/1");
    let losses = report["losses"].as_array().unwrap();
    let [first, last] = [0, 4].map(|i| losses[i].as_f64().unwrap());
    // Of the targets' own 0.083 = (1/12 + 1/12)/2.
    assert!((first - 0.083).abs() < 0.02 && last < 0.4 * first, "{losses:?}");
    // What cannot be grown on is said before anything is compiled.
    let refused = |more: &str, what: &str| {
        deployment.cli("alice", &format!("boost --keep no {more}"), &[]).refused(&[what]);
    };
    refused("--data one --depth 9", "levels");
    refused("--data one --penalty 0", "penalty");
    refused("--data one --validation nothing", "no model `nothing`");
    refused("", "--data");
}
