//! Reading ONNX: real files, files that megrez does not support, and files that lie.

use crate::common::onnx::{float, int, int_tensor, ints, message, model, node, sample, tensor, typed, value};
use megrez_graph::onnx::{ImportOptions, read, read_file};
use megrez_graph::{CompileOptions, Tensor, compile, npy, plain};
use proptest::prelude::*;
use std::path::PathBuf;

fn digits(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(name)
}

pub fn batch(batch: usize) -> ImportOptions {
    ImportOptions { batch, ..ImportOptions::default() }
}

#[test]
fn trained_models_classify_the_held_out_digits() {
    let images = npy::load(&digits("test_images.npy")).unwrap();
    let labels = npy::load(&digits("test_labels.npy")).unwrap();
    for name in ["lenet.onnx", "cnn.onnx"] {
        let graph = read_file(&digits(name), &batch(labels.data.len())).unwrap();
        let logits = plain::run(&graph, std::slice::from_ref(&images)).unwrap().remove(0);
        let best = |row: &[f32]| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as f32;
        let right =
            logits.data.chunks_exact(10).zip(&labels.data).filter(|(row, l)| best(row) == **l).count();
        assert!(right * 100 >= labels.data.len() * 95, "{name}: {right} of {} right", labels.data.len());
    }
}

#[test]
fn a_model_with_arithmetic_on_shapes_is_read() {
    let graph = read(&sample(), &batch(3)).unwrap();
    let ops: Vec<(&str, &str)> = graph.nodes.iter().map(|n| (n.name.as_str(), n.op.as_str())).collect();
    let rest = [("pool", "MaxPool"), ("reshape1", "Reshape"), ("fc", "Gemm"), ("softmax1", "Softmax")];
    assert_eq!(ops[..2], [("conv.Conv", "Conv"), ("relu1", "Relu")]);
    assert_eq!(ops[2..], rest);
    assert_eq!((graph.outputs[0].name.as_str(), graph.shape(graph.outputs[0].id).dims()), ("y", &[3, 3][..]));
    let compiled = compile(&graph, &CompileOptions::default()).unwrap();
    crate::common::check(&compiled, &[crate::common::noise([3, 1, 4, 4], 5)], 1e-3);
    let soft = plain::run(&graph, &[crate::common::noise([3, 1, 4, 4], 5)]).unwrap().remove(0);
    assert!(soft.data.chunks_exact(3).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
}

#[test]
fn everything_unsupported_is_listed_at_once() {
    let nodes = [
        node("/act/Unique", "Unique", &["x"], &["a"], &[]),
        node("soft", "Relu", &["a"], &["b"], &[]),
        node("", "Bernoulli", &["x"], &["c"], &[]),
        node("pool", "MaxPool", &["x"], &["d"], &[ints("kernel_shape", &[9, 9])]),
        node("mine", "Relu", &["nowhere"], &["e"], &[]),
        node("special", "Relu", &["x"], &["f"], &[]).text(7, "com.example"),
    ];
    let bytes =
        model(17, &nodes, &[], &[value("x", &[1, 1, 4, 4])], &[value("b", &[1]), value("lost", &[1])]);
    let problems = read(&bytes, &batch(1)).unwrap_err();
    let named: Vec<(&str, &str)> = problems.0.iter().map(|p| (p.node.as_str(), p.op.as_str())).collect();
    let want = [
        ("/act/Unique", "Unique"),
        ("c", "Bernoulli"),
        ("pool", "MaxPool"),
        ("mine", "Relu"),
        ("special", "Relu"),
        ("lost", ""),
    ];
    assert_eq!(named, want);
    let text = problems.to_string();
    assert!(text.contains("depends on the data") && text.contains("model.eval()"), "{text}");
    assert!(text.contains("reads `nowhere`") && text.contains("com.example"), "{text}");
}

#[test]
fn unsuitable_files_are_refused_with_a_remedy() {
    let relu = || vec![node("r", "Relu", &["x"], &["y"], &[])];
    let with = |opset, nodes: &[_], tensors: &[_], dims: &[i64]| {
        model(opset, nodes, tensors, &[value("x", dims)], &[value("y", &[1])])
    };
    let error = |bytes: &[u8], options: &ImportOptions| read(bytes, options).unwrap_err().to_string();
    assert!(error(&with(0, &relu(), &[], &[1]), &batch(1)).contains("operator set 0"));
    assert!(error(&with(29, &relu(), &[], &[1]), &batch(1)).contains("operator set 29"));
    assert!(error(&with(17, &relu(), &[], &[1, 0]), &batch(1)).contains("dimension 1 of the input is open"));
    assert!(error(&with(17, &relu(), &[], &[2, 3]), &batch(4)).contains("made for batches of 2, not of 4"));
    assert!(read(&with(17, &relu(), &[], &[0, 3]), &batch(4)).is_ok());
    let external = tensor("w", &[1], &[]).int(14, 1);
    assert!(error(&with(17, &relu(), &[external], &[1]), &batch(1)).contains("save_as_external_data=False"));
    let complex = message().int(1, 1).int(2, 14).text(8, "w").bytes(9, &[0; 8]);
    assert!(error(&with(17, &relu(), &[complex], &[1]), &batch(1)).contains("float32"));
    let nan = tensor("w", &[1], &[f32::NAN]);
    assert!(error(&with(17, &relu(), &[nan], &[1]), &batch(1)).contains("not numbers"));
    let short = tensor("w", &[3], &[1.0]);
    assert!(error(&with(17, &relu(), &[short], &[1]), &batch(1)).contains("has 1 elements"));
    let huge = tensor("w", &[1 << 40, 1 << 40], &[]);
    assert!(error(&with(17, &relu(), &[huge], &[1]), &batch(1)).contains("absurd"));
    assert!(error(&[], &batch(1)).contains("no graph"));
    assert!(error(b"GIF89a", &batch(1)).contains("no ONNX model"));
    let two = [node("r", "MaxPool", &["x"], &["m", "y"], &[ints("kernel_shape", &[1, 1])])];
    assert!(error(&with(17, &two, &[], &[1, 1, 2, 2]), &batch(1)).contains("extra output `y`"));
    assert!(
        read_file(&digits("no-such-file.onnx"), &batch(1)).unwrap_err().to_string().contains("no-such-file")
    );
}

#[test]
fn shapes_can_be_given() {
    let bytes =
        model(17, &[node("r", "Relu", &["x"], &["y"], &[])], &[], &[value("x", &[0, 0])], &[value("y", &[])]);
    let options = ImportOptions { batch: 1, shapes: [("x".to_string(), vec![2, 5])].into(), ..batch(1) };
    assert_eq!(read(&bytes, &options).unwrap().shape(megrez_graph::Id(0)).dims(), [2, 5]);
}

#[test]
fn older_operator_sets_keep_their_meaning() {
    let nodes = [
        node("clip", "Clip", &["x"], &["a"], &[float("min", 0.0), float("max", 6.0)]),
        node("pad", "Pad", &["a"], &["b"], &[ints("pads", &[0, 0, 0, 1])]),
        node("drop", "Dropout", &["b"], &["c"], &[float("ratio", 0.5)]),
        node("squeeze", "Squeeze", &["c"], &["d"], &[ints("axes", &[0])]),
        node("unsqueeze", "Unsqueeze", &["d"], &["e"], &[ints("axes", &[0])]),
        node("soft", "Softmax", &["e"], &["y"], &[]),
    ];
    let bytes = model(9, &nodes, &[], &[value("x", &[1, 2])], &[value("y", &[1, 3])]);
    let graph = read(&bytes, &batch(1)).unwrap();
    let y = plain::run(&graph, &[Tensor::new([1, 2], vec![-1.0, 9.0])]).unwrap().remove(0);
    let e = 6f32.exp();
    assert!((y.data[1] - e / (e + 2.0)).abs() < 1e-5 && (y.data[2] - 1.0 / (e + 2.0)).abs() < 1e-5);
    let flattening = [node("soft", "Softmax", &["x"], &["y"], &[])];
    let bytes = model(9, &flattening, &[], &[value("x", &[1, 2, 3])], &[value("y", &[1, 2, 3])]);
    let graph = read(&bytes, &batch(1)).unwrap();
    let x = crate::common::noise([1, 2, 3], 1);
    let y = plain::run(&graph, std::slice::from_ref(&x)).unwrap().remove(0);
    let sum: f32 = x.data.iter().map(|v| v.exp()).sum();
    assert!((0..6).all(|i| (y.data[i] - x.data[i].exp() / sum).abs() < 1e-6), "both dimensions are one");
}

#[test]
fn training_is_refused() {
    let truth = |v: i64| message().int(1, 1).int(2, 9).text(8, "training").bytes(9, &[v as u8]);
    let drop = |inputs: &[&str], outputs: &[&str]| {
        let ratio = tensor("ratio", &[1], &[0.5]);
        let nodes = [node("drop", "Dropout", inputs, outputs, &[])];
        (nodes, ratio)
    };
    let run = |opset, inputs: &[&str], outputs: &[&str], training: i64| {
        let (nodes, ratio) = drop(inputs, outputs);
        let given: Vec<_> = outputs.iter().map(|o| value(o, &[2, 3])).collect();
        let used = if outputs.len() > 1 { &given[..] } else { &given[..1] };
        read(&model(opset, &nodes, &[ratio, truth(training)], &[value("x", &[2, 3])], used), &batch(2))
            .map_err(|e| e.to_string())
    };
    let refused = |said: Result<_, String>, words: &str| {
        let said = said.map(|_: megrez_graph::Graph| ()).unwrap_err();
        assert!(said.contains("`drop` (Dropout)") && said.contains(words), "{said}");
    };
    for opset in [12, 13, 17, 22] {
        refused(run(opset, &["x", "ratio", "training"], &["y"], 1), "training mode");
        assert!(run(opset, &["x", "ratio", "training"], &["y"], 0).is_ok());
        assert!(run(opset, &["x", "ratio"], &["y"], 1).is_ok());
    }
    refused(run(17, &["x", "ratio", "x"], &["y"], 0), "depends on an input");
    assert!(run(17, &["x"], &["y", "mask"], 0).is_ok());

    let four = |name| tensor(name, &[3], &[1.0; 3]);
    let parameters = [four("a"), four("b"), four("m"), four("v")];
    let norm = |opset, outputs: &[&str], attributes: &[_]| {
        let nodes = [node("norm", "BatchNormalization", &["x", "a", "b", "m", "v"], outputs, attributes)];
        read(&model(opset, &nodes, &parameters, &[value("x", &[2, 3])], &[value("y", &[2, 3])]), &batch(2))
            .map_err(|e| e.to_string())
    };
    assert!(norm(15, &["y"], &[]).is_ok() && norm(9, &["y"], &[]).is_ok());
    assert!(norm(15, &["y", "mean", "var"], &[int("training_mode", 1)]).unwrap_err().contains("eval()"));
    assert!(norm(9, &["y", "mean", "var", "sm", "sv"], &[]).unwrap_err().contains("training mode"));
}

#[test]
fn casts_of_secrets_round_towards_zero_and_integers_are_not_divided() {
    let cast = |to| node("cast", "Cast", &["x"], &["i"], &[int("to", to)]);
    let back = node("back", "Cast", &["i"], &["y"], &[int("to", 1)]);
    let run = |nodes: &[_], element: i64| {
        let x = typed("x", element, &[2]);
        read(&model(17, nodes, &[], &[x], &[value("y", &[2])]), &batch(2)).map_err(|e| e.to_string())
    };
    let x = Tensor::new([2], vec![-1.75, 2.5]);
    for (to, want) in [(7, [-1.0, 2.0]), (9, [1.0, 1.0]), (10, [-1.75, 2.5])] {
        let graph = run(&[cast(to), back.clone()], 1).unwrap();
        assert_eq!(plain::run(&graph, std::slice::from_ref(&x)).unwrap()[0].data, want, "to {to}");
    }
    assert!(run(&[cast(7), back.clone()], 6).is_ok(), "integers stay what they are");
    let halve = node("halve", "Div", &["i", "i"], &["y"], &[]);
    assert!(run(&[cast(7), halve.clone()], 6).unwrap_err().contains("cast them to float32"));
    assert!(run(&[cast(1), halve], 6).is_ok());
}

#[test]
fn inputs_are_listed_as_the_file_declares_them() {
    use megrez_graph::onnx::inputs;
    let nodes = [node("sum", "Add", &["a", "b"], &["y"], &[])];
    let bytes = model(17, &nodes, &[], &[value("a", &[0, 3]), value("b", &[2, 3])], &[value("y", &[2, 3])]);
    let listed: Vec<String> = inputs(&bytes).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["`a` [N, 3]", "`b` [2, 3]"]);
    // One input leaves the batch open: the other's first dimension is its own.
    assert!(read(&bytes, &batch(2)).is_ok());
    let fixed = model(17, &nodes, &[], &[value("a", &[2, 3]), value("b", &[2, 3])], &[value("y", &[2, 3])]);
    assert!(read(&fixed, &batch(4)).unwrap_err().to_string().contains("made for batches of 2, not of 4"));
}

#[test]
fn names_have_one_meaning() {
    let relu = |input, output| node(output, "Relu", &[input], &[output], &[]);
    let bytes =
        |nodes: &[_], tensors: &[_]| model(17, nodes, tensors, &[value("x", &[2])], &[value("y", &[2])]);
    let error = |bytes: &[u8]| read(bytes, &batch(2)).unwrap_err().to_string();
    assert!(read(&bytes(&[relu("x", "y")], &[]), &batch(2)).is_ok());
    let twice = bytes(&[relu("x", "y"), node("again", "Neg", &["x"], &["y"], &[])], &[]);
    assert!(error(&twice).contains("`again` (Neg): defines `y`, which is defined already"));
    let w = || tensor("w", &[2], &[1.0, 2.0]);
    assert!(error(&bytes(&[relu("x", "y")], &[w(), w()])).contains("`w` (initializer): defines `w`"));
}

#[test]
fn constants_come_in_many_forms() {
    let doubles: Vec<u8> = [0.5f64, -0.5].iter().flat_map(|v| v.to_le_bytes()).collect();
    let packed: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let nodes = [
        node("", "Constant", &[], &["k"], &[message().text(1, "value_float").float(2, 2.0).int(20, 1)]),
        node(
            "",
            "Constant",
            &[],
            &["t"],
            &[message().text(1, "value").message(5, &tensor("", &[2], &[1.0, 1.0])).int(20, 4)],
        ),
        node("", "Transpose", &["w"], &["wt"], &[]),
        node("", "Mul", &["x", "k"], &["a"], &[]),
        node("", "Add", &["a", "t"], &["b"], &[]),
        node("", "Add", &["b", "d"], &["c"], &[]),
        node("", "Add", &["c", "wt"], &["y"], &[]),
    ];
    let tensors = [
        message().int(1, 2).int(2, 11).text(8, "d").bytes(9, &doubles),
        message().int(1, 2).int(1, 1).int(2, 1).text(8, "w").bytes(4, &packed),
    ];
    let bytes = model(17, &nodes, &tensors, &[value("x", &[1, 2])], &[value("y", &[1, 2])]);
    let graph = read(&bytes, &batch(1)).unwrap();
    assert_eq!(graph.nodes.len(), 4, "constants are folded");
    let y = plain::run(&graph, &[Tensor::new([1, 2], vec![1.0, -1.0])]).unwrap().remove(0);
    assert_eq!(y.data, [4.5, 0.5]);
}

#[test]
fn a_file_cut_off_anywhere_gives_an_error_or_a_model() {
    let bytes = sample();
    for length in 0..bytes.len() {
        let _ = read(&bytes[..length], &batch(1));
    }
}

#[test]
fn small_files_do_not_ask_for_much() {
    // A chain of additions that doubles in both directions: 2^14 elements more with each node if it
    // were folded.
    let wide = vec![1.0; 1 << 14];
    let nodes = [node("", "Add", &["a", "b"], &["c"], &[]), node("", "Add", &["x", "c"], &["y"], &[])];
    let tensors = [tensor("a", &[1 << 14, 1], &wide), tensor("b", &[1, 1 << 14], &wide)];
    let bytes = model(17, &nodes, &tensors, &[value("x", &[1])], &[value("y", &[1])]);
    assert!(read(&bytes, &batch(1)).unwrap_err().to_string().contains("too large to be computed"));
    let many = vec![message(); 1 << 15];
    let bytes = model(17, &many, &[], &[], &[]);
    assert!(read(&bytes, &batch(1)).unwrap_err().to_string().contains("more than 16384 nodes"));
    let deep = [node("", "Unsqueeze", &["x", "axes"], &["y"], &[])];
    let axes = int_tensor("axes", &[64], &(0..64).collect::<Vec<_>>());
    let bytes = model(17, &deep, &[axes], &[value("x", &[1])], &[value("y", &[1])]);
    assert!(read(&bytes, &batch(1)).is_err());
    let pool = [node(
        "",
        "AveragePool",
        &["x"],
        &["y"],
        &[ints("kernel_shape", &[1 << 20, 1 << 20]), int("ceil_mode", 1)],
    )];
    let bytes = model(17, &pool, &[], &[value("x", &[1, 1, 8192, 8192])], &[value("y", &[1])]);
    assert!(read(&bytes, &batch(1)).is_err());
}

#[test]
fn long_models_take_linear_time() {
    let names: Vec<String> = (0..10_001).map(|i| format!("v{i}")).collect();
    let mut nodes: Vec<_> = names.windows(2).map(|w| node("", "Relu", &[&w[0]], &[&w[1]], &[])).collect();
    nodes.push(node("pool", "MaxPool", &["v10000"], &["y"], &[ints("kernel_shape", &[2, 2])]));
    let bytes = model(17, &nodes, &[], &[value("v0", &[1, 1, 2, 2])], &[value("y", &[1, 1, 1, 1])]);
    let start = std::time::Instant::now();
    let compiled = compile(&read(&bytes, &batch(1)).unwrap(), &CompileOptions::default()).unwrap();
    assert_eq!(compiled.graph.nodes[0].op, "MaxPool");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn mutated_models_give_errors_or_sound_plans() {
    let wide = {
        let nodes = [
            node("t", "Transpose", &["x"], &["t"], &[ints("perm", &[1, 0])]),
            node("c", "Concat", &["t", "t"], &["c"], &[int("axis", 1)]),
            node("g", "Gather", &["c", "at"], &["g"], &[int("axis", 0)]),
            node("d", "Dropout", &["g"], &["d"], &[]),
            node("s", "Softmax", &["d"], &["y"], &[int("axis", 1)]),
            node("r", "ReduceMean", &["d"], &["z"], &[ints("axes", &[1])]),
        ];
        let tensors = [int_tensor("at", &[2], &[1, 0])];
        let outputs = [value("y", &[2, 4]), value("z", &[2, 1])];
        model(13, &nodes, &tensors, &[value("x", &[2, 3])], &outputs)
    };
    megrez_graph::faults::each(&[sample(), wide], |bytes| {
        let _ = megrez_graph::onnx::inputs(bytes);
        let Ok(graph) = read(bytes, &batch(1)) else { return };
        if graph.values.iter().map(|v| v.shape.elements()).sum::<usize>() > 1 << 16 {
            return;
        }
        if let Ok(compiled) = compile(&graph, &CompileOptions::default()) {
            compiled.plan.validate().unwrap();
            let data: Vec<Tensor> =
                compiled.data_inputs.iter().map(|i| Tensor::filled(i.shape.clone(), 0.0)).collect();
            let outputs = plain::run(&compiled.graph, &data).unwrap();
            for (output, revealed) in outputs.into_iter().zip(&compiled.outputs) {
                revealed.finish(output.data);
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn damaged_files_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = sample();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(graph) = read(&bytes, &batch(1)) {
            let small = graph.values.iter().map(|v| v.shape.elements()).sum::<usize>() < 1 << 20;
            if small && let Ok(compiled) = compile(&graph, &CompileOptions::default()) {
                prop_assert!(compiled.plan.validate().is_ok());
            }
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes, &batch(1));
    }
}

#[test]
fn weights_of_all_types_are_read() {
    let with = |element: i64, raw: &[u8]| {
        let w = message().int(1, 2).int(2, element).text(8, "w").bytes(9, raw);
        let nodes = [node("sum", "Mul", &["x", "w"], &["y"], &[])];
        let graph =
            read(&model(17, &nodes, &[w], &[value("x", &[2])], &[value("y", &[2])]), &batch(2)).unwrap();
        plain::run(&graph, &[Tensor::new([2], vec![1.0, 2.0])]).unwrap().remove(0).data
    };
    // 1.5 and −0.25 in 16 bits; then bytes, signed and not.
    assert_eq!(with(10, &[0x00, 0x3e, 0x00, 0xb4]), [1.5, -0.5]);
    assert_eq!(with(16, &[0xc0, 0x3f, 0x80, 0xbe]), [1.5, -0.5]);
    assert_eq!(with(2, &[200, 1]), [200.0, 2.0]);
    assert_eq!(with(3, &[0xff, 1]), [-1.0, 2.0]);
    assert_eq!(with(5, &[0xff, 0xff, 1, 0]), [-1.0, 2.0]);
    assert_eq!(with(12, &[1, 0, 0, 0, 2, 0, 0, 0]), [1.0, 4.0]);
}

#[test]
fn integers_that_are_known_can_be_outputs() {
    let nodes = [node("shape", "Shape", &["x"], &["y"], &[])];
    let bytes = model(17, &nodes, &[], &[value("x", &[2, 3])], &[value("y", &[2])]);
    let graph = read(&bytes, &batch(2)).unwrap();
    let compiled = compile(&graph, &CompileOptions::default()).unwrap();
    let x = crate::common::noise([2, 3], 1);
    crate::common::check(&compiled, std::slice::from_ref(&x), 0.0);
    assert_eq!(plain::run(&graph, &[x]).unwrap()[0].data, [2.0, 3.0]);
}
