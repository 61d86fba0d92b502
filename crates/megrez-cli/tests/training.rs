//! `megrez train` on parties that are processes, against the same steps in the clear.

use crate::common::Folder;
use crate::jobs::convolution;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Command;

fn digits(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(name);
    path.to_str().unwrap().to_owned()
}

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("megrez-training-{}-{name}", std::process::id()))
}

fn megrez(arguments: &[&str]) -> (bool, Json) {
    let output = Command::new(env!("CARGO_BIN_EXE_megrez")).arg("--json").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.success(), json)
}

/// net-b (a convolution, dense layers) for two epochs of four steps: weights stay with the parties
/// from step to step.
#[test]
fn training_on_shares_follows_training_in_the_clear() {
    let (inputs, labels) = (digits("test_images.npy"), digits("test_labels.npy"));
    let common = [
        "train",
        "--model",
        "net-b",
        "--inputs",
        &inputs,
        "--labels",
        &labels,
        "--batch",
        "90",
        "--epochs",
        "2",
        "--rate",
        "2^-6",
        "--momentum",
        "0.5",
        "--weight-decay",
        "2^-6",
        "--halve-every",
        "1",
        "--test-inputs",
        &inputs,
        "--test-labels",
        &labels,
    ];
    let (clear, shares) = (folder("clear"), folder("shares"));
    let run = |more: &[&str]| {
        let (done, report) = megrez(&[&common[..], more].concat());
        assert!(done, "{report}");
        report
    };
    let plain = run(&["--plain", "--weights-to", clear.to_str().unwrap()]);
    let private = run(&["--protocol", "mizar", "--weights-to", shares.to_str().unwrap()]);
    let losses = |report: &Json| -> Vec<f64> {
        report["epochs"].as_array().unwrap().iter().map(|e| e["loss"].as_f64().unwrap()).collect()
    };
    let (want, got) = (losses(&plain), losses(&private));
    assert_eq!(want.len(), 2);
    assert!(want[1] < want[0], "{want:?}");
    for (want, got) in want.iter().zip(&got) {
        assert!((want - got).abs() < 0.01, "{got} instead of {want}");
    }
    let accuracy = |report: &Json| report["accuracy"].as_f64().unwrap();
    assert!(accuracy(&private) > accuracy(&plain) - 0.015, "{private} {plain}");
    let load = |folder: &Path| megrez_graph::npy::load(&folder.join("fc2.weight.npy")).unwrap();
    let (want, got) = (load(&clear), load(&shares));
    let off = want.data.iter().zip(&got.data).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(want.shape == got.shape && off < 5e-3, "weights are off by {off}");
    assert!(private["cost"]["phases"]["online"]["rounds"].as_u64().unwrap() > 10);
    for folder in [clear, shares] {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Each class against all others: by their sigmoids, and by their distance from a border.
#[test]
fn losses_of_yes_and_no_train_as_in_the_clear() {
    let (inputs, labels) = (digits("test_images.npy"), digits("test_labels.npy"));
    let folder = Folder::new();
    let [network, weights] = [convolution(&folder), folder.path("weights")];
    let [network, weights] = [network.display(), weights.display()];
    for loss in ["binary-cross-entropy", "hinge"] {
        let run = |more: &str| {
            let line = format!(
                "train --model {network} --loss {loss} --inputs {inputs} --labels {labels} --batch 30 --epochs 8 --rate 2^-5 \
                 --test-inputs {inputs} --test-labels {labels} --weights-to {weights} {more}"
            );
            let (done, report) = megrez(&line.split_whitespace().collect::<Vec<_>>());
            assert!(done, "{report}");
            report
        };
        let of = |report: &Json| {
            let first = report["epochs"][0]["loss"].as_f64().unwrap();
            (first, report["accuracy"].as_f64().unwrap())
        };
        let ((want, right), (got, also)) = (of(&run("--plain")), of(&run("--protocol mizar")));
        assert!((want - got).abs() < 0.02, "{loss}: {got} instead of {want}");
        assert!(right > 0.7 && also > right - 0.05, "{loss}: {also} and {right}");
    }
}

#[test]
fn a_step_is_measured() {
    let (done, report) =
        megrez(&["bench", "train", "net-a", "--batch", "4", "--steps", "1", "--parties", "thread"]);
    assert!(done && report["verified"] == true && report["training"] == true, "{report}");
    let rounds = |part: &str| report["parts"][part]["online_rounds"].as_u64().unwrap();
    assert!(rounds("backward") > 0 && rounds("update") > 0);
    assert_eq!(report["loss"].as_array().unwrap().len(), 1);
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let (inputs, labels) = (digits("test_images.npy"), digits("test_labels.npy"));
    let refused = |more: &[&str]| {
        let common = ["train", "--inputs", &inputs, "--labels", &labels, "--parties", "thread"];
        let (done, report) = megrez(&[&common[..], more].concat());
        assert!(!done);
        report["error"].as_str().unwrap().to_owned()
    };
    assert!(refused(&["--model", "net-b", "--batch", "500"]).contains("fewer rows"));
    assert!(refused(&["--model", "net-a"]).contains("the model takes rows"));
    assert!(refused(&["--model", "net-b"]).contains("--parties process"));
    assert!(refused(&["--model", "net-b", "--only", "fc7"]).contains("fc7"));
}
