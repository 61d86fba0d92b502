//! What goes into a model and what comes out of it, by the command: by name, whole, of the right
//! shape, or refused with what to do.

use crate::common::onnx::{Message, float, int, ints, model, node, tensor, value};
use crate::common::{Folder, Ran, cli, example};
use megrez_graph::{Tensor, npy};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// 0, 1/32, 2/32, …
fn ramp(shape: &[usize]) -> Tensor {
    Tensor::new(shape.to_vec(), (0..shape.iter().product()).map(|i: usize| i as f32 / 32.0).collect())
}

fn save(folder: &Folder, name: &str, tensor: &Tensor) -> PathBuf {
    let path = folder.path(name);
    npy::save(&path, tensor).unwrap();
    path
}

/// An ONNX file of these nodes; inputs by shape, 0 for an open dimension.
fn onnx(
    folder: &Folder,
    nodes: &[Message],
    weights: &[Message],
    inputs: &[(&str, &[i64])],
    outputs: &[&str],
) -> PathBuf {
    let inputs: Vec<Message> = inputs.iter().map(|(name, dims)| value(name, dims)).collect();
    let outputs: Vec<Message> = outputs.iter().map(|name| value(name, &[])).collect();
    folder.file("model.onnx", model(17, nodes, weights, &inputs, &outputs))
}

/// Runs `megrez` in the clear; `{}` stand for the paths.
fn infer(rest: &str, paths: &[&Path]) -> Ran {
    cli(&format!("infer --parties thread --protocol clear --insecure --model {rest}"), paths)
}

fn report(rest: &str, paths: &[&Path]) -> Json {
    cli(&format!("--json infer --parties thread --protocol clear --insecure --model {rest}"), paths)
        .json("megrez.infer/1")
}

fn near(output: &Json, shape: &[usize], values: &[f32]) {
    assert_eq!(output["shape"], json!(shape), "{output}");
    let got: Vec<f64> = output["output"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert_eq!(got.len(), values.len());
    let far = got.iter().zip(values).position(|(g, w)| (g - f64::from(*w)).abs() > 1e-3);
    assert_eq!(far, None, "{got:?} {values:?}");
}

#[test]
fn every_input_has_its_own_file() {
    let folder = Folder::new();
    let nodes = [node("difference", "Sub", &["a", "b"], &["y"], &[])];
    let m = onnx(&folder, &nodes, &[], &[("a", &[0, 3]), ("b", &[0, 3])], &["y"]);
    let (a, b) =
        (save(&folder, "a.npy", &ramp(&[2, 3])), save(&folder, "b.npy", &Tensor::filled([2, 3], 0.25)));
    let listed = "2 inputs: `a` [N, 3], `b` [N, 3]";
    let y = report("{} --input b={} --input a={}", &[&m, &b, &a]);
    near(&y["outputs"][0], &[2, 3], &ramp(&[2, 3]).data.iter().map(|v| v - 0.25).collect::<Vec<_>>());
    assert_eq!((&y["batch"], &y["runs"], &y["shape"]), (&json!(2), &json!(1), &json!([2, 3])));
    assert_eq!(y["output"], y["outputs"][0]["output"]);

    infer("{} --input {}", &[&m, &a]).refused(&["--input NAME=", listed]);
    infer("{} --input a={}", &[&m, &a]).refused(&["no data for `b`", listed]);
    infer("{} --input a={} --input b={} --input c={}", &[&m, &a, &b, &b]).refused(&["no input `c`", listed]);
    infer("{} --input a={} --input a={}", &[&m, &a, &b]).refused(&["`a` is given twice", listed]);
    infer("{} --input a={} --input b={}", &[&m, &a, &folder.path("no.npy")]).refused(&["no.npy"]);
    let short = save(&folder, "short.npy", &ramp(&[1, 3]));
    infer("{} --input a={} --input b={} --batch 2", &[&m, &a, &short])
        .refused(&["first dimension", "`b` [2, 3]"]);

    let check = "--json check --parties thread --model {} --input a={} --input b={}";
    let checked = cli(check, &[&m, &a, &b]).json("megrez.check/1");
    assert_eq!((&checked["batch"], &checked["layers"][0]["layer"]), (&json!(2), &json!("difference")));
    cli("check --parties thread --model {} --input {}", &[&m, &a]).refused(&[listed]);
    let written = folder.path("calibration.json");
    cli("calibrate --model {} --data {} --output {}", &[&m, &a, &written]).refused(&["--data NAME=", listed]);
    cli("calibrate --model {} --data a={} --data b={} --output {}", &[&m, &a, &b, &written]).ok();
}

#[test]
fn outputs_are_whole_and_all_there() {
    let folder = Folder::new();
    let nodes = [
        node("turned", "Transpose", &["x"], &["t"], &[]),
        node("twice", "Add", &["x", "x"], &["d"], &[]),
        node("sum", "ReduceSum", &["x"], &["s"], &[int("keepdims", 0)]),
    ];
    let m = onnx(&folder, &nodes, &[], &[("x", &[3, 4])], &["t", "d", "s"]);
    let data = ramp(&[3, 4]);
    let x = save(&folder, "x.npy", &data);
    let turned: Vec<f32> = (0..12).map(|i| data.data[i % 3 * 4 + i / 3]).collect();
    let double: Vec<f32> = data.data.iter().map(|v| 2.0 * v).collect();
    let all = report("{} --input {}", &[&m, &x]);
    let names: Vec<&Json> = all["outputs"].as_array().unwrap().iter().map(|o| &o["name"]).collect();
    assert_eq!(names, ["t", "d", "s"]);
    near(&all["outputs"][0], &[4, 3], &turned);
    near(&all["outputs"][1], &[3, 4], &double);
    near(&all["outputs"][2], &[], &[data.data.iter().sum()]);
    near(&json!({ "shape": all["shape"], "output": all["output"] }), &[4, 3], &turned);

    let text = infer("{} --input {}", &[&m, &x]).ok();
    for part in ["t [4, 3]\n0.0000", "d [3, 4]\n", "s []\n2.062", "\ncost of one run of 3"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let (t, s) = (folder.path("t.npy"), folder.path("s.npy"));
    let some = report("{} --input {} --output t={} --output s={}", &[&m, &x, &t, &s]);
    assert_eq!((&some["output"], &some["outputs"][0]["output"]), (&json!(t), &json!(t)));
    assert!(some["outputs"][1]["output"].is_array());
    assert_eq!(
        (npy::load(&t).unwrap().shape.dims(), npy::load(&s).unwrap().shape.dims()),
        (&[4, 3][..], &[][..])
    );
    infer("{} --input {} --output {}", &[&m, &x, &t])
        .refused(&["--output NAME=", "3 outputs: `t`, `d`, `s`"]);
    infer("{} --input {} --output u={}", &[&m, &x, &t]).refused(&["no output `u`"]);
    infer("{} --input {} --output t={} --output s={}", &[&m, &x, &t, &t]).refused(&["t.npy", "two outputs"]);
    infer("{} --input {} --output t={}", &[&m, &x, &folder.path("no/t.npy")]).refused(&["no such folder"]);

    // Nothing is cut and nothing filled up where that would change numbers.
    for rows in [2, 5] {
        let other = save(&folder, "other.npy", &ramp(&[rows, 4]));
        infer("{} --input {}", &[&m, &other]).refused(&["output `t`", "input by input", "give exactly 3"]);
    }
}

#[test]
fn data_goes_in_batches_where_rows_are_apart() {
    let folder = Folder::new();
    let data = ramp(&[5, 4]);
    let x = save(&folder, "x.npy", &data);
    let apart = [
        node("mean", "ReduceMean", &["x"], &["m"], &[ints("axes", &[1])]),
        node("centred", "Sub", &["x", "m"], &["y"], &[]),
    ];
    let expected: Vec<f32> =
        data.data.chunks(4).flat_map(|r| r.iter().map(|v| v - r.iter().sum::<f32>() / 4.0)).collect();
    for batch in ["", "--batch 1", "--batch 2", "--batch 5", "--batch 7"] {
        let m = onnx(&folder, &apart, &[], &[("x", &[0, 4])], &["y"]);
        let y = report(&format!("{{}} --input {{}} {batch}"), &[&m, &x]);
        near(&y["outputs"][0], &[5, 4], &expected);
    }
    let fixed = onnx(&folder, &apart, &[], &[("x", &[2, 4])], &["y"]);
    let y = report("{} --input {}", &[&fixed, &x]);
    near(&y["outputs"][0], &[5, 4], &expected);
    assert_eq!((&y["batch"], &y["runs"]), (&json!(2), &json!(3)));
    infer("{} --input {} --batch 3", &[&fixed, &x]).refused(&["made for batches of 2, not of 3"]);

    // The mean of the batch: one input by itself gives another number, although it looks like a
    // row.
    let axes = [crate::common::onnx::int_tensor("axes", &[1], &[0])];
    let centred = [
        node("mean", "ReduceSum", &["x", "axes"], &["m"], &[]),
        node("centred", "Sub", &["x", "m"], &["y"], &[]),
    ];
    let m = onnx(&folder, &centred, &axes, &[("x", &[0, 4])], &["y"]);
    for (batch, remedy) in [(1, "--batch N"), (2, "--batch 5"), (7, "--batch 5")] {
        infer(&format!("{{}} --input {{}} --batch {batch}"), &[&m, &x]).refused(&["`y`", remedy]);
    }
    report("{} --input {}", &[&m, &x]);
}

#[test]
fn data_of_another_shape_is_refused_with_the_remedy() {
    let folder = Folder::new();
    let lenet = example("lenet.onnx");
    for (shape, remedy) in [
        (&[2, 28, 28, 1][..], "np.transpose(x, (0, 3, 1, 2))"),
        (&[1, 784], "x.reshape(-1, 1, 28, 28)"),
        (&[28, 28], "x.reshape(-1, 1, 28, 28)"),
        (&[2, 3, 28, 28], "3 channels"),
        (&[2, 1, 14, 56], "trained"),
    ] {
        let x = save(&folder, "x.npy", &Tensor::filled(shape.to_vec(), 0.5));
        infer("{} --input {}", &[&lenet, &x]).refused(&["`input`", "takes the shape [N, 1, 28, 28]", remedy]);
        cli("check --parties thread --model {} --input {}", &[&lenet, &x]).refused(&[remedy]);
        let written = folder.path("calibration.json");
        cli("calibrate --model {} --data {} --output {}", &[&lenet, &x, &written]).refused(&[remedy]);
    }
}

#[test]
fn open_dimensions_come_from_the_data_or_the_shape() {
    let folder = Folder::new();
    let nodes = [node("relu", "Relu", &["x"], &["y"], &[])];
    let m = onnx(&folder, &nodes, &[], &[("x", &[0, 0, 2])], &["y"]);
    let x = save(&folder, "x.npy", &ramp(&[2, 3, 2]));
    near(&report("{} --input {}", &[&m, &x])["outputs"][0], &[2, 3, 2], &ramp(&[2, 3, 2]).data);
    for shape in ["x=1,3,2", "2,3,2"] {
        let y = report(&format!("{{}} --input {{}} --shape {shape}"), &[&m, &x]);
        near(&y["outputs"][0], &[2, 3, 2], &ramp(&[2, 3, 2]).data);
    }
    infer("{} --input {} --shape 1,4,2", &[&m, &x]).refused(&["takes the shape [N, 4, 2]"]);
    infer("{} --input {} --shape z=1,3,2", &[&m, &x]).refused(&["no input `z`", "`x` [N, N, 2]"]);
    infer("{} --input {} --shape 1,3", &[&m, &x]).refused(&["3 dimensions"]);
    let images = onnx(&folder, &nodes, &[], &[("x", &[0, 3, 0, 0])], &["y"]);
    let last = save(&folder, "last.npy", &Tensor::filled([1, 5, 4, 3], 0.5));
    infer("{} --input {}", &[&images, &last]).refused(&["[N, 3, 5, 4]", "np.transpose(x, (0, 3, 1, 2))"]);
    let m = onnx(&folder, &nodes, &[], &[("x", &[0, 0, 2])], &["y"]);
    let flat = save(&folder, "flat.npy", &ramp(&[2, 2]));
    infer("{} --input {}", &[&m, &flat]).refused(&["dimension 1", "is open", "--shape x="]);
}

#[test]
fn an_input_may_be_a_constant() {
    let folder = Folder::new();
    let nodes = [node("scaled", "Mul", &["x", "gain"], &["y"], &[])];
    let m = onnx(&folder, &nodes, &[], &[("x", &[0, 3]), ("gain", &[3])], &["y"]);
    let x = save(&folder, "x.npy", &ramp(&[2, 3]));
    let gain = save(&folder, "gain.npy", &Tensor::new([3], vec![2.0, -1.0, 0.5]));
    let want: Vec<f32> =
        ramp(&[2, 3]).data.iter().zip([2.0, -1.0, 0.5].repeat(2)).map(|(a, b)| a * b).collect();
    near(&report("{} --input {} --constant gain=2,-1,0.5", &[&m, &x])["outputs"][0], &[2, 3], &want);
    near(&report("{} --input {} --constant gain={}", &[&m, &x, &gain])["outputs"][0], &[2, 3], &want);
    infer("{} --input {}", &[&m, &x]).refused(&["say whose it is"]);
    infer("{} --input {} --constant gain=loud", &[&m, &x]).refused(&["--constant gain=loud", "FILE.npy"]);
    infer("{} --input {} --constant loss=1", &[&m, &x]).refused(&["no input `loss`"]);
    infer("{} --input {} --constant gain=1,2", &[&m, &x]).refused(&["`gain`", "the shape [2]"]);
}

#[test]
fn training_and_numbers_that_are_none_are_refused() {
    let folder = Folder::new();
    let truth = crate::common::onnx::message().int(2, 9).text(8, "training").bytes(9, &[1]);
    let weights = [tensor("ratio", &[], &[0.5]), truth];
    let drop = [node("drop", "Dropout", &["x", "ratio", "training"], &["y"], &[])];
    let m = onnx(&folder, &drop, &weights, &[("x", &[0, 3])], &["y"]);
    let x = save(&folder, "x.npy", &ramp(&[2, 3]));
    infer("{} --input {}", &[&m, &x]).refused(&["`drop` (Dropout)", "training mode", "model.eval()"]);
    let scale = [node("leaky", "LeakyRelu", &["x"], &["y"], &[float("alpha", f32::NAN)])];
    let m = onnx(&folder, &scale, &[], &[("x", &[0, 3])], &["y"]);
    infer("{} --input {}", &[&m, &x]).refused(&["alpha"]);
    for bad in [f32::NAN, f32::INFINITY] {
        let nodes = [node("sum", "Add", &["x", "w"], &["y"], &[])];
        let m = onnx(&folder, &nodes, &[tensor("w", &[1], &[bad])], &[("x", &[0, 3])], &["y"]);
        infer("{} --input {}", &[&m, &x]).refused(&["`"]);
    }
}

#[test]
fn both_kinds_of_numbers_take_the_same_way() {
    let folder = Folder::new();
    let nodes = [
        node("difference", "Sub", &["a", "b"], &["y"], &[]),
        node("turned", "Transpose", &["y"], &["t"], &[]),
    ];
    let m = onnx(&folder, &nodes, &[], &[("a", &[0, 3]), ("b", &[0, 3])], &["y", "t"]);
    let (a, b) =
        (save(&folder, "a.npy", &ramp(&[2, 3])), save(&folder, "b.npy", &Tensor::filled([2, 3], 0.25)));
    let line = "--json infer --parties thread --model {} --input a={} --input b={} --protocol";
    let expected: Vec<f32> = ramp(&[2, 3]).data.iter().map(|v| v - 0.25).collect();
    let mut keys = vec![];
    for protocol in ["mizar", "secfloat"] {
        let report = cli(&format!("{line} {protocol}"), &[&m, &a, &b]).json("megrez.infer/1");
        near(&report["outputs"][0], &[2, 3], &expected);
        assert_eq!(report["outputs"][1]["shape"], json!([3, 2]));
        keys.push(report.as_object().unwrap().keys().cloned().collect::<Vec<_>>());
        cli(&format!("{line} {protocol} --batch 1"), &[&m, &a, &b]).refused_json(&["`t`", "--batch"]);
    }
    assert_eq!(keys[0], keys[1]);
    assert!(
        ["batch", "runs", "outputs", "range"].iter().all(|key| keys[0].iter().any(|k| k == key)),
        "{keys:?}"
    );

    // The library gives the same report.
    use megrez::{Backend, CompileRequest, ModelFile, RunOptions, infer};
    let file = ModelFile::open(&m).unwrap();
    let given = [format!("a={}", a.display()), format!("b={}", b.display())];
    let data = file.names().load("--input", &given).unwrap();
    let graph = file.graph(Some(&data), &[], None).unwrap();
    let mut parties = Backend::threads();
    let model = CompileRequest::default().compile(&graph, parties.client()).unwrap();
    let inference = infer(&mut parties, &model, &data, &RunOptions::new("mizar"), &|_| Ok(())).unwrap();
    let report = inference.json(&|_, output| json!(output.data));
    assert_eq!(keys[0], report.as_object().unwrap().keys().cloned().collect::<Vec<_>>());
    assert_eq!((&report["batch"], &report["runs"]), (&json!(2), &json!(1)));
}

/// What is damaged is refused, or is another model or other data, which run: nothing in between,
/// and no panic anywhere.
#[test]
fn damaged_models_and_data_are_refused_or_run() {
    use megrez::{Backend, CompileRequest, ModelFile, RunOptions, infer, infer_plain};
    use std::sync::atomic::{AtomicU32, Ordering};
    static PANICS: AtomicU32 = AtomicU32::new(0);

    let folder = Folder::new();
    let nodes = [
        node("turned", "Transpose", &["x"], &["t"], &[]),
        node("joined", "Concat", &["x", "w"], &["c"], &[int("axis", 1)]),
        node("relu", "Relu", &["c"], &["y"], &[]),
    ];
    let weights = [tensor("w", &[2, 2], &[0.5, -0.5, 0.25, 1.0])];
    let path = onnx(&folder, &nodes, &weights, &[("x", &[2, 3])], &["y", "t"]);
    let valid = [crate::common::onnx::sample(), std::fs::read(&path).unwrap()];
    let array = std::fs::read(save(&folder, "x.npy", &ramp(&[2, 3]))).unwrap();
    let options = RunOptions { insecure: true, ..RunOptions::new("clear") };
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(panic);
    }));
    let run = |model: &Path, input: &str| -> megrez::Result<()> {
        let file = ModelFile::open(model)?;
        let data = file.names().load("--input", &[input.to_owned()])?;
        let graph = file.graph(Some(&data), &[], None)?;
        if graph.values.iter().map(|v| v.shape.elements()).sum::<usize>() > 1 << 14 {
            return Ok(());
        }
        let mut backend = Backend::threads();
        let model = CompileRequest::default().compile(&graph, backend.client())?;
        let inference = infer(&mut backend, &model, &data, &options, &|_| Ok(()))?;
        let plain = infer_plain(&model, &data)?;
        for ((name, got), (same, want)) in inference.outputs.iter().zip(&plain) {
            assert_eq!((name, &got.shape), (same, &want.shape));
        }
        Ok(())
    };
    let (mut ran, mut refused) = (0, 0);
    let images = save(&folder, "images.npy", &Tensor::filled([2, 1, 4, 4], 0.25));
    let inputs = [images, folder.path("x.npy")];
    let mut number = 0;
    megrez_graph::faults::each(&valid, |bytes| {
        let input = inputs[number % 2].display().to_string();
        match run(&folder.file("damaged.onnx", bytes), &input) {
            Ok(()) => ran += 1,
            Err(_) => refused += 1,
        }
        number += 1;
    });
    megrez_graph::faults::each(&[array], |bytes| {
        let input = folder.file("damaged.npy", bytes).display().to_string();
        match run(&path, &input) {
            Ok(()) => ran += 1,
            Err(_) => refused += 1,
        }
    });
    assert_eq!(PANICS.load(Ordering::Relaxed), 0);
    assert!(ran > 0 && refused > ran / 10, "{ran} ran, {refused} were refused");
}

#[test]
fn a_page_shows_a_run_without_its_numbers() {
    let folder = Folder::new();
    let nodes =
        [node("twice", "Add", &["x", "x"], &["y"], &[]), node("positive", "Relu", &["y"], &["z"], &[])];
    let m = onnx(&folder, &nodes, &[], &[("x", &[0, 3])], &["z"]);
    let x = save(&folder, "x.npy", &Tensor::filled([2, 3], 0.328_125));
    let (page, saved) = (folder.path("page.html"), folder.path("run.json"));
    let run = cli("--json infer --parties thread --model {} --input {} --report {}", &[&m, &x, &page]);
    let text = std::fs::read_to_string(&page).unwrap();
    for part in ["<!doctype html>", "mizar", "positive", "Who learns what", "Ranges"] {
        assert!(text.contains(part), "{part} is missing");
    }
    assert!(!text.contains("0.65625"), "an output is in the page");
    // The same of what was printed, beside itself and with the accuracy.
    std::fs::write(&saved, run.json("megrez.infer/1").to_string()).unwrap();
    let check = cli("--json check --parties thread --model {} --input {}", &[&m, &x]).json("megrez.check/1");
    let checked = folder.file("check.json", check.to_string().into_bytes());
    let made = cli("--json report {} --before {} --check {} --output {}", &[&saved, &saved, &checked, &page]);
    assert_eq!(made.json("megrez.report/1")["file"], json!(page));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("Compared") && text.contains("Accuracy by layer") && !text.contains("0.65625"));
    cli("report {} --output {}", &[&checked, &page]).refused(&["megrez.check/1"]);
}
