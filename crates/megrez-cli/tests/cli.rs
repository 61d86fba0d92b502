//! The command: what it refuses, in one message and with exit code 2, and what it prints for
//! programs.

use crate::common::{Folder, Ran, assert_no_panic, cli, example, megrez};
use megrez_graph::{Tensor, npy};
use std::path::Path;

fn infer(model: &Path, input: &Path) -> Ran {
    cli("infer --parties thread --model {} --input {}", &[model, input])
}

#[test]
fn malformed_models_are_refused() {
    let folder = Folder::new();
    let image = folder.path("image.npy");
    npy::save(&image, &Tensor::new([1, 1, 28, 28], vec![0.5; 784])).unwrap();
    let good = std::fs::read(example("lenet.onnx")).unwrap();
    let models: [(&str, Vec<u8>); 6] = [
        ("empty.onnx", vec![]),
        ("text.onnx", b"this is no model at all".to_vec()),
        ("cut.onnx", good[..good.len() / 2].to_vec()),
        ("short.onnx", good[..100].to_vec()),
        ("ones.onnx", vec![0xff; 5000]),
        ("nested.onnx", [0x3a, 0x80, 0x80, 0x80, 0x80, 0x08].repeat(400)),
    ];
    for (name, bytes) in models {
        infer(&folder.file(name, bytes), &image).refused(&["model"]);
    }
    infer(&folder.path("missing.onnx"), &image).refused(&["missing.onnx"]);
    infer(&folder.path(""), &image).refused(&["directory"]);
}

#[test]
fn malformed_data_is_refused() {
    let folder = Folder::new();
    let lenet = example("lenet.onnx");
    let good = std::fs::read(example("test_images.npy")).unwrap();
    let arrays: [(&str, Vec<u8>); 5] = [
        ("empty.npy", vec![]),
        ("text.npy", b"1 2 3".to_vec()),
        ("cut.npy", good[..good.len() - 1].to_vec()),
        ("header.npy", good[..60].to_vec()),
        ("huge.npy", {
            let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }\n";
            [b"\x93NUMPY\x01\x00".as_slice(), &(header.len() as u16).to_le_bytes(), header.as_bytes()]
                .concat()
        }),
    ];
    for (name, bytes) in arrays {
        infer(&lenet, &folder.file(name, bytes)).refused(&[name]);
    }
    let save = |name: &str, tensor: Tensor| {
        let path = folder.path(name);
        npy::save(&path, &tensor).unwrap();
        path
    };
    let shape = save("shape.npy", Tensor::new([1, 1, 27, 28], vec![0.5; 27 * 28]));
    infer(&lenet, &shape).refused(&["shape"]);
    let none = save("none.npy", Tensor::new([0, 1, 28, 28], vec![]));
    infer(&lenet, &none).refused(&["empty"]);
    for (name, value) in [("large.npy", 1.5), ("nan.npy", f32::NAN), ("infinite.npy", f32::NEG_INFINITY)] {
        let mut data = vec![0.5; 784];
        data[77] = value;
        let path = save(name, Tensor::new([1, 1, 28, 28], data));
        let word = if value.is_nan() { "no number" } else { "--input-range" };
        infer(&lenet, &path).refused(&["`input`", "element [0, 0, 2, 21]", word]);
    }
}

/// 360 images at once would take a party 1.5 GB.
#[test]
fn data_is_cut_into_runs_that_parties_can_hold() {
    let (lenet, images) = (example("lenet.onnx"), example("test_images.npy"));
    let foretold = |batch: &str| {
        let line = format!("infer --json --dry-run --model {{}} --input {{}} {batch}");
        cli(&line, &[&lenet, &images]).json("megrez.forecast/1")
    };
    let (cut, whole) = (foretold(""), foretold("--batch 360"));
    let held = |foretold: &serde_json::Value| foretold["memory_bytes"].as_u64().unwrap();
    assert_eq!((&cut["runs"], &whole["runs"]), (&3.into(), &1.into()));
    assert!(held(&cut) <= 768 << 20 && held(&whole) > 768 << 20, "{cut} {whole}");
    assert_eq!(foretold("--batch 60")["runs"], 6);
    // In the clear nobody holds anything, and no protocol has to have the steps.
    let line = "infer --json --mode clear --protocol bicoptor --insecure --model {} --input {}";
    assert_eq!(cli(line, &[&lenet, &images]).json("megrez.infer/1")["batch"], 360);
}

#[test]
fn malformed_configurations_are_refused() {
    let folder = Folder::new();
    let certs = folder.path("certs");
    cli("certs --folder {}", &[&certs]).ok();
    let (lenet, images) = (example("lenet.onnx"), example("test_images.npy"));
    let clusters = [
        ("parties = [", "cluster.toml"),
        ("parties = []", "2 or 3"),
        ("parties = [\"a:1\", \"b\", \"c:3\"]", "host:port"),
        ("parties = [\"a:1\", \"b:2\", \"c:3\"]\nextra = 1", "extra"),
        ("", "parties"),
        ("parties = 3", "parties"),
    ];
    for (text, word) in clusters {
        let path = folder.file("cluster.toml", text);
        cli("infer --model {} --input {} --cluster {} --certs {}", &[&lenet, &images, &path, &certs])
            .refused(&["cluster.toml", word]);
        cli("doctor --cluster {} --certs {}", &[&path, &certs]).refused(&["cluster.toml"]);
    }
    cli("party --config {}", &[&folder.path("nowhere.toml")]).refused(&["nowhere.toml"]);
    // Nobody listens there: the party and its address are named.
    let path = folder.file("cluster.toml", "parties = [\"127.0.0.1:1\", \"127.0.0.1:2\", \"127.0.0.1:3\"]");
    cli("infer --model {} --input {} --cluster {} --certs {}", &[&lenet, &images, &path, &certs])
        .refused(&["party 0", "127.0.0.1:1"]);
}

#[test]
fn impossible_options_are_refused() {
    let folder = Folder::new();
    let (lenet, images) = (example("lenet.onnx"), example("test_images.npy"));
    let lines = [
        ("--ring 24", "32, 40, 48 or 64 bits"),
        ("--frac 63", "frac"),
        ("--protocol none", "there is no protocol `none`"),
        ("--protocol clear", "--insecure"),
        ("--list bits --widths 3,3", "widths go with digits"),
        ("--list digits --widths 3,3", "digit"),
        ("--declared nowhere.toml", "nowhere.toml"),
        ("--declared {}", "no range is declared"),
        ("--bits 1", "bit"),
        ("--batch 0", "at least 1"),
        ("--input-range nan", "range"),
        // A ring of 32 bits cannot hold what inputs of this size may become.
        ("--ring 32 --frac 12 --input-range 100", "range"),
    ];
    let declared = folder.file("declared.json", "{ \"conv1\": [-100, 100] }");
    for (option, word) in lines {
        cli(
            &format!("infer --parties thread --model {{}} --input {{}} {option}"),
            &[&lenet, &images, &declared],
        )
        .refused(&[word]);
    }
    for op in
        ["bench op nothing", "bench model nothing", "bench op relu --batch 0", "bench op relu --repeat 0"]
    {
        cli(&format!("{op} --parties thread"), &[]).refused(&[]);
    }
    cli("infer --model {} --input {} --protocol clear --insecure", &[&lenet, &images])
        .refused(&["--parties thread"]);
    cli("demo --parties thread --folder {}", &[&folder.path("")]).refused(&["test_images.npy"]);
    cli("demo --parties thread --images 0 --folder {}", &[&example("")]).refused(&["at least one image"]);
    // Without a folder the command has its own digits.
    cli("demo --parties thread --images 0", &[]).refused(&["at least one image"]);
    for (option, word) in [
        ("--list squares", "the list is bits, digits or tree"),
        ("--form 9r", "the form of ReLU is"),
        ("--range maybe", "prove"),
    ] {
        let ran = cli(&format!("infer --model {{}} --input {{}} {option}"), &[&lenet, &images]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.contains(word), "{ran:?}");
    }
    // Mistakes in the command itself are explained by the parser, with the same exit code.
    for line in ["", "infer", "nonsense", "infer --net 3parsecs", "bench op relu --batch many"] {
        let ran = megrez(line.split(' ').filter(|w| !w.is_empty()));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_no_panic(&ran.err);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_reason_to_panic() {
    for arguments in [["protocols", "--json"], ["--json", "doctor"]] {
        let mut child = std::process::Command::new(crate::common::MEGREZ)
            .args(arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_no_panic(&String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn errors_for_programs_are_one_object() {
    let ran = cli("--json infer --model nowhere.onnx --input nowhere.npy", &[]);
    assert_eq!(ran.code, Some(2));
    let error: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(error["schema"], "megrez.error/1");
    assert!(error["error"].as_str().unwrap().contains("nowhere.onnx"));
    assert_eq!(error["kind"], "invalid");
    let ran = cli(
        "--json infer --parties thread --protocol clear --model {} --input {}",
        &[&example("lenet.onnx"), &example("test_images.npy")],
    );
    let error: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(error["kind"], "not-permitted");
}

#[test]
fn reports_for_programs_keep_their_schemas() {
    let demo = "--json demo --images 4 --batch 4 --folder {}";
    let report = cli(demo, &[&example("")]).json("megrez.demo/1");
    assert_eq!(report["agree"], 4, "{report}");
    for key in ["accuracy_private", "accuracy_plain", "max_abs_error"] {
        assert!(report[key].is_f64(), "{key}: {report}");
    }
    for phase in ["offline", "online"] {
        let cost = &report["cost"]["phases"][phase];
        for key in ["seconds", "busy_seconds", "rounds", "sent_bytes"] {
            assert!(!cost[key].is_null(), "{phase}/{key}: {report}");
        }
    }

    for list in ["digits", "tree"] {
        let check =
            format!("--json check --parties thread --batch 1 --list {list} --model {{}} --input {{}}");
        let ran = cli(&check, &[&example("lenet.onnx"), &example("test_images.npy")]);
        let report = ran.json("megrez.check/1");
        let layers = report["layers"].as_array().unwrap();
        assert!(!layers.is_empty());
        for layer in layers {
            assert!(layer["max_error"].as_f64().unwrap() < 0.01, "{list}: {layer}");
            assert_eq!(layer["outside"], 0, "{list}: {layer}");
        }
    }

    let bench = "--json bench op relu --batch 73920 --repeat 2";
    let report = cli(bench, &[]).json("megrez.bench/1");
    assert_eq!(report["verified"], true);
    assert_eq!(report["bits_per_element"], report["formula_bits_per_element"], "{report}");
    assert_eq!(report["parties"], "process");
    // What was measured by a tree is said to be.
    let bench = "--json bench model lenet --range assume --fit --list tree --parties thread --repeat 1";
    let report = cli(bench, &[]).json("megrez.bench/1");
    assert_eq!((&report["verified"], &report["options"]["list"]), (&true.into(), &"tree".into()), "{report}");
    assert!(report["options"]["bits"].as_array().is_some_and(|bits| bits.len() > 1), "{report}");

    let proximity = cli("--json example proximity --tests 8", &[]).json("megrez.proximity/1");
    assert_eq!((&proximity["verified"], &proximity["agree"]), (&true.into(), &8.into()), "{proximity}");

    let protocols = cli("--json protocols", &[]).json("megrez.protocols/1");
    assert!(protocols["protocols"].as_array().unwrap().len() >= 2);
    let operators = cli("--json operators", &[]).json("megrez.operators/1");
    assert!(operators["operators"].as_array().unwrap().iter().any(|op| op == "Conv"));
    cli("--json doctor", &[]).json("megrez.doctor/1");
}

#[test]
fn a_plan_is_shown_to_be_masked_or_the_message_that_is_not_is_named() {
    let report = cli("--json check --masks lenet --range assume --protocol aby3", &[]).json("megrez.masks/1");
    assert_eq!(report["masked"].as_bool(), Some(true));
    assert!(report["messages"].as_u64() > Some(100) && report["views"].as_u64() > Some(10));
    let leaks = cli("check --masks lenet --range assume --protocol aegis", &[]);
    assert_eq!(leaks.code, Some(1));
    assert!(leaks.out.contains("P2") && leaks.out.contains("list"), "{}", leaks.out);
    cli("check --masks lenet --protocol secfloat", &[]).refused(&["secfloat", "three parties"]);
    cli("check --masks lenet --protocol clear --insecure", &[]).refused(&["clear", "three parties"]);
}

#[test]
fn every_flipped_bit_of_what_parties_keep_is_refused() {
    for protocol in ["mizar", "alkaid"] {
        let command = format!("--json check --faults net-b --range assume --protocol {protocol}");
        let report = cli(&command, &[]).json("megrez.faults/1");
        assert_eq!(report["noticed"], true);
        for part in ["inputs", "outputs", "material"] {
            assert!(report[part]["flips"].as_u64().unwrap() >= 3 * 64, "{report}");
            assert_eq!(report[part]["missed"], 0, "{report}");
        }
    }
    cli("check --faults net-b --protocol secfloat", &[]).refused(&["secfloat", "float32"]);
}
