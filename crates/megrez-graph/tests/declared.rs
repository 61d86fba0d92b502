//! What a plan tells about the weights, with declared ranges and without.

use crate::common::small::none;
use crate::common::{check, noise};
use megrez_graph::{
    Activations, Comparison, CompileOptions, Constant, Declared, Graph, Interval, ListStyle, RangePolicy,
    Tensor, compile, models,
};
use megrez_plan::Fewest;
use std::sync::Arc;

/// A product with weights of this size, what reads its range to choose its structure, and one more
/// product.
fn behind_weights(op: &str, size: f32) -> Graph {
    let mut g = Graph::new("declared");
    let x = g.input("x", [2, 4]).unwrap();
    let scaled = |n: &str, shape: [usize; 2], seed| {
        let w = noise(shape, seed);
        (n.to_string(), Tensor::new(shape, w.data.iter().map(|v| v * size).collect::<Vec<_>>()))
    };
    let [w, v] = [scaled("w", [4, 3], 1), scaled("v", [3, 3], 2)].map(|(n, t)| g.constant(&n, t));
    let y = g.add("first", "MatMul", &[x, w], none()).unwrap();
    let y = match op {
        "LayerNormalization" => {
            let scale = g.constant("scale", Tensor::new([3], vec![size; 3]));
            g.add("middle", op, &[y, scale], none()).unwrap()
        }
        "Softmax" => g.add("middle", op, &[y], none().with("axis", -1)).unwrap(),
        _ => g.add("middle", op, &[y], none()).unwrap(),
    };
    let y = g.add("second", "MatMul", &[y, v], none()).unwrap();
    let y = g.add("end", "Relu", &[y], none()).unwrap();
    g.output("y", y);
    g
}

#[test]
fn with_declared_ranges_the_plan_tells_nothing_about_the_weights() {
    let list = ListStyle::Digits(Fewest::Total);
    let fitted = Comparison::Fitted { list, bits: None, calibration: None };
    let proven = CompileOptions { comparison: fitted, ..CompileOptions::default() };
    for op in ["Exp", "LayerNormalization", "Softmax", "Sigmoid", "Gelu", "Relu"] {
        let bounds = [("first", 6.5), ("middle", 4.0)].map(|(n, b)| (n.to_string(), Interval::abs(b)));
        let with_weights = if op == "LayerNormalization" { 2 } else { 1 };
        let layers = bounds.into_iter().take(with_weights).collect();
        let declared = Declared { all: Some(Interval::abs(20_000.0)), layers };
        let declared = CompileOptions { declared: Some(declared), ..proven.clone() };
        let plans = |options: &CompileOptions| {
            [0.125, 1.5].map(|size| compile(&behind_weights(op, size), options).unwrap().plan.to_bytes())
        };
        let [small, large] = plans(&proven);
        assert_ne!(small, large, "{op}: the proven ranges show");
        let [small, large] = plans(&declared);
        assert!(small == large, "{op}: the declared ranges are all that shows");
        let compiled = compile(&behind_weights(op, 1.5), &declared).unwrap();
        check(&compiled, &[noise([2, 4], 9)], 2e-2);
    }
}

/// What tables begin with and how large they are stands in the plan.
#[test]
fn without_declared_ranges_a_plan_tells_bounds_to_a_factor_of_two() {
    for activations in [Activations::Minimax, Activations::Lookup] {
        let options = CompileOptions { activations, ..CompileOptions::default() };
        for op in ["Exp", "LayerNormalization", "Softmax", "Sigmoid", "Gelu", "Relu"] {
            let plan = |size| compile(&behind_weights(op, size), &options).unwrap().plan;
            let [first, second] = [0.5, 0.5001].map(plan);
            let steps = first.steps.iter().zip(&second.steps).find(|(a, b)| a != b);
            assert!(first.to_bytes() == second.to_bytes(), "{activations:?}, {op}: {steps:?}");
        }
    }
}

#[test]
fn tables_of_one_extent_tell_no_more_than_splines_do() {
    let told = |op: &str, activations| {
        let options = CompileOptions { activations, ..CompileOptions::default() };
        let [small, large] =
            [0.125, 1.5].map(|size| compile(&behind_weights(op, size), &options).unwrap().plan.to_bytes());
        small != large
    };
    for op in ["Sigmoid", "Tanh", "Erf", "Gelu", "Swish"] {
        assert!(!told(op, Activations::Tables), "{op}");
        assert!(told(op, Activations::Lookup), "{op}: a short table shows the range");
    }
    for op in ["Exp", "LayerNormalization", "Softmax", "Relu"] {
        assert!(!told(op, Activations::Tables) || told(op, Activations::Minimax), "{op}");
    }
}

#[test]
fn declared_plans_of_the_built_in_networks_do_not_depend_on_their_weights() {
    let list = ListStyle::Digits(Fewest::Total);
    let declared = CompileOptions {
        declared: Some(Declared { all: Some(Interval::abs(64.0)), ..Declared::default() }),
        comparison: Comparison::Fitted { list, bits: None, calibration: None },
        policy: RangePolicy::Assume,
        ..CompileOptions::default()
    };
    for name in ["net-c", "lenet", "relevance", "bert-tiny", "gpt2-block"] {
        // Weights of other seeds, and of other sizes: channels that are far apart in magnitude, and
        // tensors that are.
        let plan = |seed: u64, skewed: bool| {
            let mut graph = models::build(name, 1, seed).unwrap();
            if skewed {
                for value in &mut graph.values {
                    if let Some(Constant::Floats(weights)) = &mut value.constant
                        // Single numbers, such as a scale of 1/8, and masks are architecture.
                        && weights.data.len() > 1
                        && weights.data.iter().any(|w| ![0.0, 1.0].contains(w) && w.abs() < 100.0)
                    {
                        let size = |i: usize| [0.003f32, 1.0, 7.0][i % 3];
                        let data =
                            weights.data.iter().enumerate().map(|(i, w)| w * size(i)).collect::<Vec<_>>();
                        *weights = Arc::new(Tensor::new(weights.shape.clone(), data));
                    }
                }
            }
            compile(&graph, &declared).unwrap().plan
        };
        let first = plan(1, false);
        for other in [plan(2, false), plan(3, true)] {
            let steps = first.steps.iter().zip(&other.steps).find(|(a, b)| a != b);
            assert!(first.to_bytes() == other.to_bytes(), "{name}: {steps:?}");
        }
    }
}

#[test]
fn a_declaration_must_hold_for_the_weights_that_are_shared() {
    let of = |declared: Declared, policy| {
        let options = CompileOptions { declared: Some(declared), policy, ..CompileOptions::default() };
        compile(&behind_weights("Exp", 1.5), &options)
    };
    let first = |bound: f64| [("first".to_string(), Interval::abs(bound))].into();
    let narrow = Declared { all: Some(Interval::abs(20_000.0)), layers: first(0.5) };
    let error = of(narrow.clone(), RangePolicy::Prove).unwrap_err().to_string();
    assert!(error.contains("`first` (MatMul)") && error.contains("does not hold"), "{error}");
    let assumed = of(narrow, RangePolicy::Assume).unwrap();
    assert!(!assumed.ranges.iter().find(|r| r.layer == "first").unwrap().proven);
    // Every layer that reads weights has one.
    let error = of(Declared { all: None, layers: first(7.0) }, RangePolicy::Prove).unwrap_err().to_string();
    assert!(error.contains("`second` (MatMul)") && error.contains("no range is declared"), "{error}");
    // One that is never read is a mistake.
    let layers = [("first", 6.5), ("frist", 1.0)].map(|(n, b)| (n.to_string(), Interval::abs(b))).into();
    let error = of(Declared { all: Some(Interval::abs(20_000.0)), layers }, RangePolicy::Prove)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`frist`"), "{error}");
    // What compares within such a layer is refused.
    let mut g = Graph::new("maximum");
    let x = g.input("x", [3]).unwrap();
    let c = g.constant("c", noise([3], 1));
    let y = g.add("max", "Max", &[x, c], none()).unwrap();
    g.output("y", y);
    let declared = Some(Declared { all: Some(Interval::abs(9.0)), ..Declared::default() });
    let error =
        compile(&g, &CompileOptions { declared, ..CompileOptions::default() }).unwrap_err().to_string();
    assert!(error.contains("`max` (Max)") && error.contains("would follow from them"), "{error}");
    assert!(compile(&g, &CompileOptions::default()).is_ok());
}
