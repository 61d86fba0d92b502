//! Public weights: every party reads them in its own folder, and only the data is secret.

use crate::common::{Deployment, Folder, MEGREZ, Ran, assert_no_panic, example};
use crate::deployment::images;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `megrez …` of a user whose public weights are in `weights`.
fn with_weights(weights: &Path, line: &str, more: &[(&str, &Path)]) -> Ran {
    let mut command = Command::new(MEGREZ);
    command.env("MEGREZ_WEIGHTS", weights).args(line.split(' '));
    for (name, path) in more {
        command.arg(name).arg(path);
    }
    let done = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: done.status.code(), out: text(done.stdout), err: text(done.stderr) };
    assert_no_panic(&ran.err);
    ran
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "weights"));
    found.sort();
    found
}

#[test]
fn a_private_prompt_is_continued_by_an_open_model() {
    let folder = Folder::new();
    let weights = folder.path("weights");
    for (width, protocol) in [("public-int8", "mizar"), ("public", "mizar"), ("public-int8", "alkaid")] {
        let line = format!(
            "generate --model llama-tiny --weights {width} --protocol {protocol} --range assume --activations fine --tokens 3 \
             --json --prompt 17"
        );
        let report = with_weights(&weights, &line, &[]).json("megrez.generate/1");
        assert_eq!(report["same"], true, "{width}, {protocol}: {report}");
        assert_eq!(report["online_seconds"].as_array().map(Vec::len), Some(3));
    }
    // A table, which is the same for both widths, and eleven matrices.
    assert_eq!(files(&weights).len(), 1 + 2 * 11);
    let line = "generate --model llama-7b --range assume --tokens 1 --prompt 17";
    let refused = with_weights(&weights, line, &[]);
    assert!(refused.code == Some(2) && refused.err.contains("--weights public-int8"), "{}", refused.err);
}

#[test]
fn parties_take_public_weights_from_their_own_folders() {
    let deployment = Deployment::start("weights = \"public\"");
    let (mine, theirs) = (deployment.folder.path("mine"), deployment.folder.path("public"));
    let (three, labels) = images(&deployment, 3);
    let (cluster, certs, model) = (deployment.cluster_file(), deployment.certs(), example("lenet.onnx"));
    let connection = [("--cluster", &*cluster), ("--certs", &*certs)];
    let infer = |line: &str, more: &[(&str, &Path)]| {
        let more = [&connection[..], &[("--input", &*three)], more].concat();
        with_weights(&mine, &format!("--json infer --client alice {line}"), &more)
    };
    let public = || infer("--weights public-int8", &[("--model", &*model)]);

    // What all of them lack is named, and nothing has run.
    let refused = public();
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    let names: Vec<String> =
        files(&mine).iter().map(|f| f.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 2, "two layers are matrices");
    assert!(names.iter().all(|name| refused.err.contains(name)), "{}", refused.err);
    assert!(refused.err.contains("copy it"), "{}", refused.err);

    std::fs::create_dir(&theirs).unwrap();
    for file in files(&mine) {
        std::fs::copy(&file, theirs.join(file.file_name().unwrap())).unwrap();
    }
    // Of one that is damaged, too.
    let any = files(&theirs).remove(0);
    let whole = std::fs::read(&any).unwrap();
    std::fs::write(&any, [&whole[..whole.len() - 1], &[whole[whole.len() - 1] ^ 1]].concat()).unwrap();
    let refused = public();
    assert!(refused.code == Some(2) && refused.err.contains("is damaged"), "{}", refused.err);
    std::fs::write(&any, whole).unwrap();

    let report = public().json("megrez.infer/1");
    let output: Vec<f64> = report["output"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let best = |row: &[f64]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    assert_eq!(output.chunks(10).map(best).collect::<Vec<_>>(), labels);

    // A stored model is its plan: users give and learn what they would of a secret one.
    let line = "--json upload-model --client bob --name open --batch 3 --allow alice --weights public-int8";
    with_weights(&mine, line, &[&connection[..], &[("--model", &*model)]].concat()).json("megrez.upload/1");
    let stored = infer("--model-name open", &[]).json("megrez.infer/1");
    let near = |(a, b): (&serde_json::Value, &f64)| (a.as_f64().unwrap() - b).abs() < 1e-2;
    assert!(stored["output"].as_array().unwrap().iter().zip(&output).all(near), "{stored}");
}

#[test]
fn drawn_weights_that_are_damaged_are_drawn_again() {
    let folder = Folder::new();
    let weights = folder.path("weights");
    let line = "generate --model llama-tiny --weights public --range assume --tokens 1 --json --prompt 17";
    with_weights(&weights, line, &[]).json("megrez.generate/1");
    let any = files(&weights).remove(3);
    let mut bytes = std::fs::read(&any).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 16;
    std::fs::write(&any, &bytes).unwrap();
    with_weights(&weights, line, &[]).json("megrez.generate/1");
    assert_ne!(std::fs::read(&any).unwrap(), bytes);
}
