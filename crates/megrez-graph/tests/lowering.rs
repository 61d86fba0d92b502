//! Passes and lowering: what is emitted, where truncations go, and that the plan computes what the
//! graph does.

use crate::common::small::none;
use crate::common::{check, elements, noise, steps};
use megrez_graph::onnx::{ImportOptions, read_file};
use megrez_graph::{
    Attributes, Comparison, CompileOptions, Compiled, Graph, Id, Interval, PoolForm, RangePolicy, Tensor,
    compile, models, npy,
};
use megrez_plan::{Fewest, List, Op, SignBit};
use proptest::prelude::*;
use std::path::PathBuf;

fn is_relu(op: &Op) -> bool {
    matches!(op, Op::Relu(_))
}

fn is_fused(op: &Op) -> bool {
    matches!(op, Op::Relu(relu) if relu.truncate > 0)
}

fn is_truncation(op: &Op) -> bool {
    matches!(op, Op::Truncate { .. })
}

pub fn pool(kernel: i64, stride: i64) -> Attributes {
    none().with("kernel_shape", [kernel; 2]).with("strides", [stride; 2])
}

#[test]
fn lenet_is_this_list_of_steps() {
    let compiled = compile(&models::build("lenet", 1, 7).unwrap(), &CompileOptions::default()).unwrap();
    let want = [
        "conv1/product",
        "conv1/bias-broadcast",
        "conv1/biased",
        "pool1/max/0/left",
        "pool1/max/0/right",
        "pool1/max/0/difference",
        "pool1/max/0/relu",
        "pool1/max/0/max",
        "pool1/max/1/left",
        "pool1/max/1/right",
        "pool1/max/1/difference",
        "pool1/max/1/relu",
        "pool1/max/1/max",
        "relu1/relu",
        "conv2/product",
        "conv2/bias-broadcast",
        "conv2/biased",
        "pool2/max/0/left",
        "pool2/max/0/right",
        "pool2/max/0/difference",
        "pool2/max/0/relu",
        "pool2/max/0/max",
        "pool2/max/1/left",
        "pool2/max/1/right",
        "pool2/max/1/difference",
        "pool2/max/1/relu",
        "pool2/max/1/max",
        "relu2/relu",
        "flatten/view",
        "fc1/product",
        "fc1/bias-broadcast",
        "fc1/biased",
        "relu3/relu",
        "fc2/product",
        "fc2/bias-broadcast",
        "fc2/biased",
    ];
    assert_eq!(steps(&compiled.plan), want);
    // 3 comparisons per pooled element, then one; 500 behind the first matrix.
    assert_eq!(elements(&compiled.plan, is_relu), 4 * (20 * 12 * 12 + 50 * 4 * 4) + 500);
    // Every truncation is part of a ReLU.
    assert_eq!(elements(&compiled.plan, is_fused), 20 * 12 * 12 + 50 * 4 * 4 + 500);
    assert_eq!(elements(&compiled.plan, |op| matches!(op, Op::Truncate { .. })), 0);
    let names: Vec<&str> = compiled.model_inputs.iter().map(|i| i.name.as_str()).collect();
    assert_eq!(names[..4], ["conv1/weight", "conv1/bias", "conv2/weight", "conv2/bias"]);
    assert_eq!(compiled.model_inputs.iter().map(|i| i.values.len()).sum::<usize>(), 431_080);
    assert_eq!(
        (compiled.model_inputs[0].frac, compiled.model_inputs[1].frac, compiled.outputs[0].frac),
        (16, 32, 32)
    );
    let owners: Vec<&str> = compiled.plan.inputs.iter().map(|i| i.owner.as_str()).collect();
    assert_eq!(owners[..2], ["data-owner", "model-owner"]);
    let weights: Vec<&str> =
        compiled.plan.inputs.iter().filter(|i| i.owner == "model-owner").map(|i| i.name.as_str()).collect();
    assert_eq!(weights, names);
    assert_eq!(compiled.layers[0].work, 20 * 24 * 24 * 25);
    check(&compiled, &[noise([1, 1, 28, 28], 1)], 2e-3);
}

#[test]
fn all_networks_lower() {
    for name in models::NAMES {
        let policy = RangePolicy::Assume;
        let options = CompileOptions { policy, ..CompileOptions::default() };
        // The classifiers of the large one would only take time.
        if name == "vgg16-cifar-max" {
            continue;
        }
        let compiled = compile(&models::build(name, 2, 1).unwrap(), &options).unwrap();
        compiled.plan.validate().unwrap();
        if name == "vgg16-cifar" {
            assert_eq!(elements(&compiled.plan, is_relu), 2 * 276_992);
            // Every ReLU takes a truncation along.
            assert_eq!(elements(&compiled.plan, is_fused), 2 * 276_992);
            assert_eq!(elements(&compiled.plan, is_truncation), 0);
            assert!(compiled.ranges.iter().any(|r| !r.proven));
            assert!(compiled.ranges[0].proven);
        }
    }
    let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
    let net = models::build("alexnet-cifar", 1, 3).unwrap();
    check(&compile(&net, &options).unwrap(), &[noise([1, 3, 32, 32], 2)], 1e-2);
}

/// x^16, of numbers that may reach 8 and are measured up to 1.25.
fn sixteenth_power() -> (megrez_graph::Graph, CompileOptions) {
    let mut g = megrez_graph::Graph::new("power");
    let mut x = g.input("x", [1, 3]).unwrap();
    for i in 0..4 {
        x = g.add(&format!("square{i}"), "Mul", &[x, x], megrez_graph::Attributes::none()).unwrap();
    }
    g.output("y", x);
    (g, CompileOptions { input_range: megrez_graph::Interval::abs(8.0), ..CompileOptions::default() })
}

#[test]
fn data_vouches_for_ranges_that_cannot_be_proven() {
    let (g, options) = sixteenth_power();
    let refused = compile(&g, &options).unwrap_err().to_string();
    assert!(refused.contains("--range calibrated"), "{refused}");
    let policy = RangePolicy::Calibrated;
    let without = CompileOptions { policy, ..options.clone() };
    assert!(compile(&g, &without).unwrap_err().to_string().contains("megrez calibrate"));
    let data = Tensor::new([1, 3], vec![1.25, -1.0, 0.5]);
    let measured = megrez_graph::calibrate::calibrate(&g, [vec![data.clone()]], 2.0).unwrap();
    let options = CompileOptions { measured: Some(measured.clone()), ..without };
    let compiled = compile(&g, &options).unwrap();
    let basis: Vec<_> = compiled.ranges.iter().map(|r| (r.proven, r.calibrated)).collect();
    assert_eq!(basis[0], (false, true), "{:?}", compiled.ranges);
    assert_eq!(megrez_graph::lower::LayerRange::basis(&compiled.ranges), "calibrated");
    crate::common::check(&compiled, &[data], 1e-2);
    // What can be proven is proven.
    let near = CompileOptions { input_range: megrez_graph::Interval::abs(1.25), ..options.clone() };
    assert!(compile(&g, &near).unwrap().ranges.iter().all(|r| r.proven && !r.calibrated));
    // Numbers that contradict the proof were measured elsewhere.
    let elsewhere =
        measured.ranges.keys().map(|l| (l.clone(), megrez_graph::Interval { low: -9.0, high: -8.0 }));
    let measured = megrez_graph::Calibration { ranges: elsewhere.collect(), ..measured };
    let wrong = CompileOptions { measured: Some(measured), ..options };
    assert!(compile(&g, &wrong).unwrap_err().to_string().contains("cannot lie where they were measured"));
}

/// (x + y) − x is y, and y − y/2 half of it: bounds alone would add up.
#[test]
fn what_cancels_is_not_counted_twice() {
    let mut g = megrez_graph::Graph::new("cancels");
    let none = megrez_graph::Attributes::none;
    let (x, y) = (g.input("x", [1, 3]).unwrap(), g.input("y", [1, 3]).unwrap());
    let sum = g.add("sum", "Add", &[x, y], none()).unwrap();
    let rest = g.add("rest", "Sub", &[sum, x], none()).unwrap();
    let twice = g.add("twice", "Add", &[rest, rest], none()).unwrap();
    let once = g.add("once", "Sub", &[twice, y], none()).unwrap();
    g.output("once", once);
    let wide = ("x".to_owned(), megrez_graph::Interval::abs(1000.0));
    let options = CompileOptions { input_ranges: [wide].into(), ..CompileOptions::default() };
    let compiled = compile(&g, &options).unwrap();
    let bound = |i: usize| compiled.ranges[i].output.high;
    assert_eq!([bound(0), bound(1), bound(2), bound(3)], [1001.0, 1.0, 2.0, 1.0]);
    check(&compiled, &[Tensor::new([1, 3], vec![999.0, -1000.0, 3.5]), noise([1, 3], 4)], 1e-3);
}

fn digits(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(name)
}

#[test]
fn the_trained_networks_are_proven_and_compute_the_same() {
    let images = npy::load(&digits("test_images.npy")).unwrap();
    let image = Tensor::new([1, 1, 28, 28], images.data[..784].to_vec());
    for name in ["lenet.onnx", "cnn.onnx"] {
        let graph = read_file(&digits(name), &ImportOptions::default()).unwrap();
        let compiled = compile(&graph, &CompileOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(compiled.ranges.iter().all(|r| r.proven));
        assert!(compiled.graph.nodes.iter().all(|n| n.op != "BatchNormalization"), "all are folded");
        check(&compiled, std::slice::from_ref(&image), 5e-3);
    }
}

/// What a small ring can prove depends on the declared range and on the fraction.
#[test]
fn the_small_ring_is_proven_where_the_fraction_is_short() {
    let graph = read_file(&digits("lenet.onnx"), &ImportOptions::default()).unwrap();
    let small = |frac| CompileOptions {
        ring: 32,
        frac,
        input_range: Interval { low: 0.0, high: 1.0 },
        // Digits for this ring, as commands choose them; a remedy on another has others.
        comparison: Comparison::Fixed(SignBit { list: List::digits(32, Fewest::Total), ..SignBit::FULL }),
        ..CompileOptions::default()
    };
    let provable: Vec<u32> = (2..=14).filter(|&f| compile(&graph, &small(f)).is_ok()).collect();
    assert!(!provable.is_empty() && !provable.contains(&14), "{provable:?}");
    let error = compile(&graph, &small(14)).unwrap_err();
    assert_eq!(error.0.len(), 1, "what follows the first layer without proof is not reported");
    let best = provable.last().unwrap();
    assert!(
        error.to_string().contains(&format!("use {best} fraction bits, or use the 40-bit ring")),
        "{error}"
    );
}

#[test]
fn truncations_go_where_the_fewest_elements_are() {
    // Behind the pool, and shared by the two branches of the sum.
    let mut g = Graph::new("residual");
    let x = g.input("x", [1, 2, 8, 8]).unwrap();
    let w = ["a", "b", "c"].map(|n| g.constant(n, noise([2, 2, 1, 1], n.len() as u64)));
    let a = g.add("a", "Conv", &[x, w[0]], none()).unwrap();
    let b = g.add("b", "Conv", &[x, w[1]], none()).unwrap();
    let sum = g.add("sum", "Add", &[a, b], none()).unwrap();
    let relu = g.add("relu", "Relu", &[sum], none()).unwrap();
    let pooled = g.add("pool", "AveragePool", &[relu], pool(2, 2)).unwrap();
    let y = g.add("c", "Conv", &[pooled, w[2]], none()).unwrap();
    g.output("y", y);
    let truncations = |compiled: &Compiled| -> Vec<String> {
        let truncates = |s: &&megrez_plan::Step| is_truncation(&s.op) || is_fused(&s.op);
        compiled.plan.steps.iter().filter(truncates).map(|s| s.name.clone()).collect()
    };
    // A ReLU takes it along.
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    assert_eq!(truncations(&compiled), ["relu/relu"]);
    check(&compiled, &[noise([1, 2, 8, 8], 4)], 2e-3);
    // Without one it waits for the pool, but not where the ring has no room for the pool's sum.
    let mut g = Graph::new("plain");
    let x = g.input("x", [1, 2, 8, 8]).unwrap();
    let w = ["a", "b"].map(|n| g.constant(n, noise([2, 2, 1, 1], n.len() as u64)));
    let a = g.add("a", "Conv", &[x, w[0]], none()).unwrap();
    let pooled = g.add("pool", "AveragePool", &[a], pool(2, 2)).unwrap();
    let y = g.add("c", "Conv", &[pooled, w[1]], none()).unwrap();
    g.output("y", y);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    assert_eq!(truncations(&compiled), ["pool/truncate"]);
    let options = CompileOptions { ring: 32, frac: 8, ..CompileOptions::default() };
    assert_eq!(truncations(&compile(&g, &options).unwrap()), ["a/truncate"]);
}

#[test]
fn a_value_that_is_read_twice_is_truncated_once() {
    let mut g = Graph::new("fork");
    let x = g.input("x", [1, 4]).unwrap();
    let w = g.constant("w", noise([4, 4], 1));
    let y = g.add("shared", "MatMul", &[x, w], none()).unwrap();
    let a = g.add("a", "MatMul", &[y, w], none()).unwrap();
    let b = g.add("b", "MatMul", &[y, w], none()).unwrap();
    let sum = g.add("sum", "Sub", &[a, b], none()).unwrap();
    g.output("sum", sum);
    g.output("shared", y);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    let truncations: Vec<&str> =
        steps(&compiled.plan).into_iter().filter(|s| s.contains("truncate")).collect();
    assert_eq!(truncations, ["shared/truncate"]);
    assert_eq!(compiled.outputs.iter().map(|o| o.frac).collect::<Vec<_>>(), [32, 16]);
    check(&compiled, &[noise([1, 4], 2)], 1e-3);
}

#[test]
fn an_average_over_any_number_is_truncated_behind_the_pool() {
    let mut g = Graph::new("global");
    let x = g.input("x", [1, 2, 7, 7]).unwrap();
    let w = g.constant("w", noise([2, 2, 1, 1], 1));
    let y = g.add("conv", "Conv", &[x, w], none()).unwrap();
    let y = g.add("pool", "GlobalAveragePool", &[y], none()).unwrap();
    let y = g.add("conv2", "Conv", &[y, w], none()).unwrap();
    g.output("y", y);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    assert_eq!(elements(&compiled.plan, is_truncation), 4, "two of two elements");
    check(&compiled, &[noise([1, 2, 7, 7], 3)], 1e-3);
}

#[test]
fn names_are_paths_and_unique() {
    let mut g = Graph::new("names");
    let x = g.input("x", [1, 2]).unwrap();
    let mut y = x;
    for name in ["/features/0/Relu", "", "relu1", "features.0.Relu", "", "ü/x y"] {
        y = g.add(name, "Relu", &[y], none()).unwrap();
    }
    g.output("y", y);
    let names: Vec<&str> = g.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["features.0.Relu", "relu1", "relu1_2", "features.0.Relu_2", "relu2", "..x.y"]);
    compile(&g, &CompileOptions::default()).unwrap().plan.validate().unwrap();
}

#[test]
fn wide_values_are_compared_by_their_high_bits() {
    let list = List::Digits(vec![5, 5, 5, 5]);
    let sign = SignBit { list, cut: 4, bits: Some(21) };
    let mut g = Graph::new("sign");
    let x = g.input("x", [1, 4]).unwrap();
    let before = g.add("before", "Relu", &[x], none()).unwrap();
    let w = g.constant("w", noise([4, 4], 1));
    let y = g.add("fc", "MatMul", &[before, w], none()).unwrap();
    let y = g.add("after", "Relu", &[y], none()).unwrap();
    g.output("y", y);
    let compiled = compile(
        &g,
        &CompileOptions { comparison: Comparison::Fixed(sign.clone()), ..CompileOptions::default() },
    )
    .unwrap();
    let cuts: Vec<u32> = (compiled.plan.steps.iter())
        .filter_map(|s| if let Op::Relu(r) = &s.op { Some(r.sign.cut) } else { None })
        .collect();
    assert_eq!(cuts, [4, 20]);
    // 21 bits after the cut hold words below 2^24: 256 at 16 fraction bits.
    let options = CompileOptions {
        comparison: Comparison::Fixed(sign),
        input_range: Interval::abs(300.0),
        ..CompileOptions::default()
    };
    let error = compile(&g, &options).unwrap_err().to_string();
    assert!(error.contains("`before/relu` may reach") && error.contains("below 2^24"), "{error}");
}

#[test]
fn padding_counts_in_the_ranges() {
    for op in ["Conv", "AveragePool", "Pad"] {
        let mut g = Graph::new("range");
        let x = g.input("x", [1, 1, 3, 3]).unwrap();
        let w = g.constant("w", Tensor::filled([1, 1, 2, 2], 1.0));
        let pads = none().with("pads", [1, 1, 0, 0]);
        let y = match op {
            "Conv" => g.add(op, op, &[x, w], pads),
            "AveragePool" => {
                g.add(op, op, &[x], pads.with("kernel_shape", [2, 2]).with("count_include_pad", 1))
            }
            _ => g.add(op, op, &[x], none().with("pads", vec![0, 0, 1, 1, 0, 0, 0, 0])),
        };
        g.output("y", y.unwrap());
        let options =
            CompileOptions { input_range: Interval { low: 1.0, high: 2.0 }, ..CompileOptions::default() };
        let compiled = compile(&g, &options).unwrap();
        check(&compiled, &[Tensor::filled([1, 1, 3, 3], 1.0)], 1e-3);
        assert_eq!(compiled.ranges[0].output.low, 0.0, "{op}");
    }
}

#[test]
fn data_outside_of_its_range_is_refused_by_place_and_secrets_do_not_print() {
    let mut g = Graph::new("data");
    let x = g.input("x", [1, 2]).unwrap();
    let w = g.constant("w", Tensor::new([2], vec![0.625, 0.875]));
    let y = g.add("scaled", "Mul", &[x, w], none()).unwrap();
    g.output("y", y);
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    let data = |v: [f32; 2]| {
        compiled.data_inputs[0].check(&Tensor::new([1, 2], v.to_vec())).map_err(|p| p.to_string())
    };
    assert!(data([1.0, -1.0]).is_ok());
    assert!(
        data([0.0, 1.25]).unwrap_err().contains("element [0, 1] is 1.25, outside the declared range -1 … 1")
    );
    assert!(data([f32::NAN, 0.0]).is_err());
    assert!(compiled.data_inputs[0].check(&Tensor::filled([2, 1], 0.0)).is_err());
    let printed = format!("{compiled:?} {g:?}");
    assert!(printed.contains("scaled/weight") && !printed.contains("0.625"), "{printed}");
    g.output("y", x);
    assert!(compile(&g, &CompileOptions::default()).unwrap_err().to_string().contains("two outputs"));
}

#[test]
fn options_are_checked() {
    let g = models::build("net-a", 1, 0).unwrap();
    let refused = |options: CompileOptions| compile(&g, &options).unwrap_err().to_string();
    let default = CompileOptions::default;
    assert!(refused(CompileOptions { ring: 16, ..default() }).contains("32, 40, 48 or 64"));
    assert!(refused(CompileOptions { frac: 31, ..default() }).contains("1 to 30 bits"));
    assert!(refused(CompileOptions { recipient: String::new(), ..default() }).contains("names"));
    let range = Interval { low: 1.0, high: f64::NAN };
    assert!(refused(CompileOptions { input_range: range, ..default() }).contains("finite"));
    let huge = CompileOptions { input_range: Interval::abs(1e15), ..default() };
    assert!(refused(huge).contains("does not fit the ring"));
}

/// A random chain of layers on images, some of them joined.
fn random_graph(choices: &[(u8, u8)]) -> Graph {
    let mut g = Graph::new("random");
    let mut y: Id = g.input("x", [1, 2, 6, 6]).unwrap();
    let mut earlier: Vec<Id> = vec![y];
    for (i, &(kind, detail)) in choices.iter().enumerate() {
        let name = format!("n{i}");
        let shape = g.shape(y).dims().to_vec();
        let (channels, image) = (shape[1], shape[2].min(shape[3]));
        let detail = usize::from(detail);
        let seed = (i * 31 + detail) as u64;
        let kernel = 1 + detail % image.min(3);
        let pad = (detail / 3 % kernel) as i64;
        let window = pool(kernel as i64, 1 + (detail / 7 % 2) as i64).with("pads", [pad, 0, pad, 0]);
        let added = match kind % 9 {
            0 => {
                let out = 1 + detail % 3;
                let inputs = [noise([out, channels, kernel, kernel], seed), noise([out], seed + 1)];
                let ids = inputs.map(|t| g.constant("w", t));
                g.add(
                    &name,
                    "Conv",
                    &[y, ids[0], ids[1]],
                    none().with("strides", [1 + (detail / 7 % 2) as i64; 2]),
                )
            }
            1 => g.add(&name, "Relu", &[y], none()),
            2 => g.add(&name, "MaxPool", &[y], window),
            3 => g.add(&name, "AveragePool", &[y], window.with("count_include_pad", (detail % 2) as i64)),
            4 => g.add(&name, "LeakyRelu", &[y], none().with("alpha", 0.125 * detail as f32 / 255.0)),
            5 => {
                let c = g.constant("c", noise([channels, 1, 1], seed));
                g.add(&name, ["Add", "Mul", "Sub"][detail % 3], &[y, c], none())
            }
            6 => {
                let other = earlier.iter().rev().find(|&&e| g.shape(e) == g.shape(y)).copied().unwrap_or(y);
                g.add(
                    &name,
                    ["Add", "Sub", "Concat", "Mul"][detail % 4],
                    &[y, other],
                    match detail % 4 {
                        2 => none().with("axis", 1),
                        _ => none(),
                    },
                )
            }
            7 => {
                let bounds = [-0.5f32, 0.75].map(|v| g.constant("b", Tensor::new([], vec![v])));
                g.add(&name, "Clip", &[y, bounds[0], bounds[1]], none())
            }
            _ => g.add(&name, "Transpose", &[y], none().with("perm", [0, 1, 3, 2])),
        };
        y = added.unwrap();
        earlier.push(y);
    }
    g.output("y", y);
    g
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn random_graphs_lower_to_what_they_compute(
        choices in prop::collection::vec(any::<(u8, u8)>(), 1..8),
        seed in any::<u64>(),
        private_weights in any::<bool>(),
    ) {
        let graph = random_graph(&choices);
        let pool = if seed % 2 == 0 { PoolForm::Tournament } else { PoolForm::AllPairs };
        let options = CompileOptions { private_weights, pool, ..CompileOptions::default() };
        // Products of products can outgrow any ring; then the error names a layer.
        match compile(&graph, &options) {
            Ok(compiled) => {
                let x = noise([1, 2, 6, 6], seed);
                // What is off in a factor counts as often as the other is large.
                let trace = megrez_graph::plain::trace(&compiled.graph, std::slice::from_ref(&x)).unwrap();
                let numbers = compiled.layers.iter().flat_map(|l| &trace.value(l.graph_value).unwrap().data);
                let largest = numbers.fold(0f32, |m, v| m.max(v.abs()));
                check(&compiled, &[x], f64::from(largest).mul_add(1e-4, 5e-2))
            }
            Err(problems) => prop_assert!(problems.0.iter().all(|p| p.what.contains("outgrow")), "{problems}"),
        }
    }
}
