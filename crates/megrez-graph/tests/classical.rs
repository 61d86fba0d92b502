//! Classical models whole: labels that are strings, maps, probabilities that are coupled, and
//! models that somebody has damaged.

use crate::common::check;
use crate::common::onnx::{Message, floats, int, ints, model, node, text, text_tensor, texts, value};
use megrez_graph::onnx::{ImportOptions, read};
use megrez_graph::{
    Activations, Attribute, Attributes, CompileOptions, Compiled, Graph, Interval, RangePolicy, Tensor,
    TreeForm, compile, faults, plain,
};

fn options() -> CompileOptions {
    CompileOptions {
        input_range: Interval::abs(8.0),
        activations: Activations::Fine,
        policy: RangePolicy::Assume,
        ..CompileOptions::default()
    }
}

fn import(nodes: &[Message], tensors: &[Message], outputs: &[&str]) -> Result<Graph, String> {
    let outputs: Vec<Message> = outputs.iter().map(|name| value(name, &[2, 3])).collect();
    let bytes = model(15, nodes, tensors, &[value("x", &[2, 2])], &outputs);
    read(&bytes, &ImportOptions::default()).map_err(|e| e.to_string())
}

/// The outputs in the clear, finished by their recipient.
fn finished(compiled: &Compiled, x: &Tensor) -> Vec<Tensor> {
    check(compiled, std::slice::from_ref(x), 4e-3);
    let outputs = plain::run(&compiled.graph, std::slice::from_ref(x)).unwrap();
    outputs.into_iter().zip(&compiled.outputs).map(|(y, output)| output.finish(y.data)).collect()
}

/// Scores x0, x1, −x0 − x1 of the classes.
fn linear(classes: &[Message]) -> Message {
    let attributes = [
        &[
            floats("coefficients", &[1.0, 0.0, 0.0, 1.0, -1.0, -1.0]),
            floats("intercepts", &[0.0; 3]),
            text("post_transform", "SOFTMAX"),
        ],
        classes,
    ]
    .concat();
    node("model", "LinearClassifier", &["x"], &["label", "scores"], &attributes)
}

fn rows() -> Tensor {
    Tensor::new([2, 2], vec![3.0, 1.0, -2.0, -1.0])
}

#[test]
fn labels_that_are_strings_come_to_the_recipient() {
    let names = ["setosa", "b", "ä"];
    let classes = [texts("classlabels_strings", &names)];
    let zip = node("zip", "ZipMap", &["scores"], &["map"], &classes);
    let graph = import(&[linear(&classes), zip], &[], &["label", "map", "scores"]).unwrap();
    let compiled = compile(&graph, &options()).unwrap();
    let outputs = finished(&compiled, &rows());
    let named = compiled.outputs[0].named();
    let labels: Vec<&str> = outputs[0].data.iter().map(|&v| named.class(v).unwrap()).collect();
    assert_eq!(labels, ["setosa", "ä"]);
    // The map's columns have names, the same numbers without a map have none.
    assert_eq!(compiled.outputs[1].named().columns, names);
    assert_eq!(outputs[1].data, outputs[2].data);
    assert!(compiled.outputs[2].named().columns.is_empty() && compiled.outputs[2].named().classes.is_empty());
    assert_eq!(compiled.outputs[0].named().class(7.0), None);
    assert_eq!(compiled.outputs[0].named().class(f32::NAN), None);
    // The recipient takes the largest score: nothing is compared on shares.
    assert!(!compiled.plan.steps.iter().any(|s| matches!(s.op, megrez_plan::Op::CompareMany { .. })));
    // Numbers as labels have no names.
    let plain =
        import(&[linear(&[ints("classlabels_ints", &[5, 6, 7])])], &[], &["label", "scores"]).unwrap();
    assert!(compile(&plain, &options()).unwrap().outputs[0].named().classes.is_empty());
}

#[test]
fn names_come_from_lists_and_encoders_as_well() {
    let arg = node("arg", "ArgMax", &["x"], &["place"], &[int("axis", 1)]);
    let pick = node("pick", "ArrayFeatureExtractor", &["names", "place"], &["picked"], &[]);
    let shape = node("shape", "Flatten", &["picked"], &["label"], &[]);
    let names = [text_tensor("names", &["no", "yes"])];
    let encode = node(
        "encode",
        "LabelEncoder",
        &["place"],
        &["label"],
        &[
            ints("keys_int64s", &[0, 1]),
            texts("values_strings", &["no", "yes"]),
            text("default_string", "neither"),
        ],
    );
    let few = node(
        "encode",
        "LabelEncoder",
        &["place"],
        &["label"],
        &[ints("keys_int64s", &[1]), texts("values_strings", &["yes"]), text("default_string", "no")],
    );
    for (nodes, tensors) in [
        (vec![arg.clone(), pick.clone(), shape], &names[..]),
        (vec![arg.clone(), encode], &[]),
        (vec![arg.clone(), few], &[]),
    ] {
        let graph = import(&nodes, tensors, &["label"]).unwrap();
        let compiled = compile(&graph, &options()).unwrap();
        let outputs = finished(&compiled, &rows());
        let named = compiled.outputs[0].named();
        let labels: Vec<_> = outputs[0].data.iter().map(|&v| named.class(v)).collect();
        assert_eq!(labels, [Some("no"), Some("yes")]);
    }
    // Shares hold no strings: what computes with them is refused.
    let sum = node("sum", "Add", &["picked", "picked"], &["label"], &[]);
    let error = import(&[arg.clone(), pick, sum], &names, &["label"]).unwrap_err();
    assert!(error.contains("computes with strings"), "{error}");
    let back = node(
        "back",
        "LabelEncoder",
        &["names"],
        &["label"],
        &[texts("keys_strings", &["no"]), ints("values_int64s", &[4])],
    );
    assert!(import(&[arg, back], &names, &["label"]).unwrap_err().contains("computes with strings"));
}

#[test]
fn labels_are_few_and_short() {
    let long = "n".repeat(257);
    let error = import(&[linear(&[texts("classlabels_strings", &[&long, "b", "c"])])], &[], &["label"]);
    assert!(error.unwrap_err().contains("longer ones than 256 bytes"));
    let many: Vec<&str> = vec!["n"; 4097];
    let arg = node("arg", "ArgMax", &["x"], &["place"], &[int("axis", 1)]);
    let pick = node("pick", "ArrayFeatureExtractor", &["names", "place"], &["label"], &[]);
    let error = import(&[arg, pick], &[text_tensor("names", &many)], &["label"]).unwrap_err();
    assert!(error.contains("more than 4096"), "{error}");
    let zip = node("zip", "ZipMap", &["x"], &["map"], &[texts("classlabels_strings", &["a", "b", "c"])]);
    assert!(import(&[zip], &[], &["map"]).unwrap_err().contains("not those of its columns"));
}

/// LIBSVM's `multiclass_probability`: the iteration of the paper's second approach.
fn libsvm(r: [[f64; 3]; 3]) -> [f64; 3] {
    let mut q = [[0.0; 3]; 3];
    for t in 0..3 {
        for j in (0..3).filter(|&j| j != t) {
            q[t][t] += r[j][t] * r[j][t];
            q[t][j] = -r[j][t] * r[t][j];
        }
    }
    let mut p = [1.0 / 3.0; 3];
    for _ in 0..1000 {
        for t in 0..3 {
            let qp: Vec<f64> = (0..3).map(|i| (0..3).map(|j| q[i][j] * p[j]).sum()).collect();
            let pqp: f64 = (0..3).map(|i| p[i] * qp[i]).sum();
            p[t] += (pqp - qp[t]) / q[t][t];
            let sum: f64 = p.iter().sum();
            p.iter_mut().for_each(|v| *v /= sum);
        }
    }
    p
}

#[test]
fn probabilities_of_three_classes_are_coupled_as_libsvm_does() {
    let classes = |n: usize| {
        Attributes::none()
            .with("classlabels_ints", (0..n as i64).collect::<Vec<_>>())
            .with("kernel_type", "LINEAR")
            .with(
                "support_vectors",
                Attribute::Floats(vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0, -1.0, 0.5][..2 * n].to_vec()),
            )
            .with("vectors_per_class", vec![1i64; n])
            .with("coefficients", Attribute::Floats((0..n * (n - 1)).map(|i| i as f32 / 4.0 - 0.6).collect()))
            .with("rho", Attribute::Floats(vec![0.25; n * (n - 1) / 2]))
            .with("prob_a", Attribute::Floats(vec![-1.5; n * (n - 1) / 2]))
            .with("prob_b", Attribute::Floats(vec![0.3; n * (n - 1) / 2]))
    };
    // From even pairs to such that leave no doubt, and circles of winners.
    let data: Vec<f32> = (0..200).map(|i| ((i * 7919 % 161) as f32 - 80.0) / 10.0).collect();
    let x = Tensor::new([100, 2], data);
    let mut g = Graph::new("svm");
    let input = g.input("x", x.shape.clone()).unwrap();
    let ids = g.add_nodes("model", "SVMClassifier", &[Some(input)], classes(3), &[true, true]).unwrap();
    g.output("label", ids[0]);
    g.output("scores", ids[1]);
    let got = plain::run(&g, std::slice::from_ref(&x)).unwrap();
    let c = [-0.6f64, -0.35, -0.1, 0.15, 0.4, 0.65];
    for (i, row) in x.data.chunks(2).enumerate() {
        let (a, b) = (f64::from(row[0]), f64::from(row[1]));
        let kernel = [a, b, a + b];
        // Row 0 of the coefficients is against the first other class, row 1 against the second.
        let decision = |i: usize, j: usize| {
            let of =
                |class: usize, other: usize| c[(if other > class { other - 1 } else { other }) * 3 + class];
            of(i, j) * kernel[i] + of(j, i) * kernel[j] + 0.25
        };
        let (mut r, mut votes) = ([[0.0; 3]; 3], [0; 3]);
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            votes[if decision(i, j) > 0.0 { i } else { j }] += 1;
            let p = 1.0 / (1.0 + (-1.5 * decision(i, j) + 0.3).exp());
            r[i][j] = p.clamp(1e-7, 1.0 - 1e-7);
            r[j][i] = 1.0 - r[i][j];
        }
        let want = libsvm(r);
        for (g, w) in got[1].data[3 * i..][..3].iter().zip(want) {
            assert!((f64::from(*g) - w).abs() < 1e-4, "row {i}: {g} instead of {w}");
        }
        // The label is that of the votes, which probabilities may see otherwise.
        let most = (0..3).rev().max_by_key(|&class| votes[class]).unwrap();
        assert_eq!(got[0].data[i], most as f32, "row {i}: {votes:?}");
    }
    // On shares within 2^−8.
    check(&compile(&g, &options()).unwrap(), std::slice::from_ref(&x), 1.0 / 256.0);
    let four = g.add_nodes("four", "SVMClassifier", &[Some(input)], classes(4), &[true, true]);
    assert!(four.unwrap_err().to_string().contains("4 classes, not of two or three"));
}

#[test]
fn damaged_files_of_classical_models_give_errors_or_names() {
    let names = [texts("classlabels_strings", &["setosa", "b", "c"])];
    let zip = node("zip", "ZipMap", &["scores"], &["map"], &names);
    let shape = |outputs: &[&str]| outputs.iter().map(|name| value(name, &[2, 3])).collect::<Vec<_>>();
    let first = model(15, &[linear(&names), zip], &[], &[value("x", &[2, 2])], &shape(&["label", "map"]));
    let arg = node("arg", "ArgMax", &["x"], &["place"], &[int("axis", 1)]);
    let pick = node("pick", "ArrayFeatureExtractor", &["names", "place"], &["label"], &[]);
    let tensors = [text_tensor("names", &["no", "yes"])];
    let second = model(15, &[arg, pick], &tensors, &[value("x", &[2, 2])], &shape(&["label"]));
    let nodes = [
        ints("nodes_treeids", &[0, 0, 0]),
        ints("nodes_nodeids", &[0, 1, 2]),
        ints("nodes_featureids", &[1, 0, 0]),
        texts("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        floats("nodes_values", &[0.5, 0.0, 0.0]),
        ints("nodes_truenodeids", &[1, 0, 0]),
        ints("nodes_falsenodeids", &[2, 0, 0]),
        ints("class_treeids", &[0, 0]),
        ints("class_nodeids", &[1, 2]),
        ints("class_ids", &[0, 1]),
        floats("class_weights", &[1.0, 0.75]),
        texts("classlabels_strings", &["no", "yes"]),
    ];
    let trees = node("trees", "TreeEnsembleClassifier", &["x"], &["label", "scores"], &nodes);
    let third = model(15, &[trees], &[], &[value("x", &[2, 2])], &shape(&["label", "scores"]));
    let mut named = 0;
    faults::each(&[first, second, third], |bytes| {
        let Ok(graph) = read(bytes, &ImportOptions::default()) else { return };
        if graph.values.iter().map(|v| v.shape.elements()).sum::<usize>() > 1 << 16 {
            return;
        }
        let Ok(compiled) = compile(&graph, &options()) else { return };
        compiled.plan.validate().unwrap();
        for output in &compiled.outputs {
            let names = output.named();
            let all = [names.classes, names.columns].concat();
            assert!(all.len() <= 1 << 13 && all.iter().all(|name| name.len() <= 256));
            named += usize::from(!all.is_empty());
        }
    });
    assert!(named > 100, "only {named} of the damaged files have names");
}

#[test]
fn damaged_classical_models_give_errors_or_sound_plans() {
    let mut sound = 0;
    faults::noise(|bytes| {
        let Some(graph) = faults::estimator(bytes) else { return };
        let x = Tensor::new([2, 3], vec![0.5, -0.25, 1.0, -1.0, 0.75, 0.0]);
        let clear = plain::run(&graph, std::slice::from_ref(&x)).unwrap();
        for trees in [TreeForm::Hidden, TreeForm::Shape] {
            for policy in [RangePolicy::Prove, RangePolicy::Assume] {
                let options = CompileOptions { trees, policy, ..CompileOptions::default() };
                let Ok(compiled) = compile(&graph, &options) else { continue };
                compiled.plan.validate().unwrap();
                sound += 1;
                let opened = plain::run(&compiled.graph, std::slice::from_ref(&x)).unwrap();
                for ((output, revealed), clear) in opened.into_iter().zip(&compiled.outputs).zip(&clear) {
                    let finished = revealed.finish(output.data);
                    assert_eq!(finished.shape, clear.shape);
                    let named = revealed.named();
                    assert!(finished.data.iter().all(|&v| named.class(v).is_none_or(|name| name.len() < 8)));
                }
            }
        }
    });
    assert!(sound > 1000, "only {sound} of the damaged models compile");
}
