//! Classical models, against numbers worked out by hand, in the clear and lowered.

use crate::common::check;
use megrez_graph::{
    Activations, Attribute, Attributes, CompileOptions, Graph, Id, Interval, RangePolicy, Tensor, compile,
    plain,
};

fn floats(list: &[f32]) -> Attribute {
    Attribute::Floats(list.to_vec())
}

fn strings(list: &[&str]) -> Attribute {
    Attribute::Strings(list.iter().map(ToString::to_string).collect())
}

fn graph(op: &str, x: &Tensor, attributes: Attributes, outputs: usize) -> Result<Graph, String> {
    let mut g = Graph::new("test");
    let input = g.input("x", x.shape.clone()).unwrap();
    let ids: Vec<Id> = g
        .add_nodes("model", op, &[Some(input)], attributes, &vec![true; outputs])
        .map_err(|problem| problem.to_string())?;
    for (i, id) in ids.into_iter().take(outputs).enumerate() {
        g.output(&format!("y{i}"), id);
    }
    Ok(g)
}

/// The first of `outputs` outputs by hand, and all of them lowered.
fn expect(op: &str, x: &Tensor, attributes: Attributes, outputs: usize, want: &[f32]) {
    let g = graph(op, x, attributes, outputs).unwrap();
    let got = &plain::run(&g, std::slice::from_ref(x)).unwrap()[0];
    let near = |(g, w): (&f32, &f32)| (g - w).abs() <= 1e-5 * (1.0 + w.abs());
    assert!(got.data.len() == want.len() && got.data.iter().zip(want).all(near), "{op}: {:?}", got.data);
    let options = CompileOptions {
        input_ranges: [("x".to_owned(), Interval { low: -8.0, high: 8.0 })].into(),
        activations: Activations::Fine,
        policy: RangePolicy::Assume,
        ..CompileOptions::default()
    };
    let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
    check(&compiled, std::slice::from_ref(x), 4e-3);
}

/// Two trees on two features: x0 ≤ 1.5 ? (x1 ≤ −2 ? 1 : 2) : 4, and x1 ≤ 0.5 ? 10 : 20.
fn forest(mode: &str) -> Attributes {
    Attributes::none()
        .with("nodes_treeids", [0i64, 0, 0, 0, 0, 1, 1, 1])
        .with("nodes_nodeids", [0i64, 1, 2, 3, 4, 0, 1, 2])
        .with("nodes_featureids", [0i64, 1, 0, 0, 0, 1, 0, 0])
        .with("nodes_modes", strings(&[mode, mode, "LEAF", "LEAF", "LEAF", mode, "LEAF", "LEAF"]))
        .with("nodes_values", floats(&[1.5, -2.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0]))
        .with("nodes_truenodeids", [1i64, 2, 0, 0, 0, 1, 0, 0])
        .with("nodes_falsenodeids", [4i64, 3, 0, 0, 0, 2, 0, 0])
}

fn regression(mode: &str) -> Attributes {
    forest(mode)
        .with("target_treeids", [0i64, 0, 0, 1, 1])
        .with("target_nodeids", [2i64, 3, 4, 1, 2])
        .with("target_ids", [0i64; 5])
        .with("target_weights", floats(&[1.0, 2.0, 4.0, 10.0, 20.0]))
        .with("n_targets", 1)
}

#[test]
fn numbers_on_a_threshold_go_where_the_mode_says() {
    let x = Tensor::new([6, 2], vec![1.5, 0.5, 1.5, -2.0, 1.499, -2.001, 1.501, 0.501, -3.0, 0.0, 2.0, 0.5]);
    let rows = |f: &dyn Fn(f32, f32) -> f32| x.data.chunks(2).map(|r| f(r[0], r[1])).collect::<Vec<_>>();
    let value = |first: bool, second: bool, third: bool| {
        let one = match (first, second) {
            (true, true) => 1.0,
            (true, false) => 2.0,
            _ => 4.0,
        };
        one + if third { 10.0 } else { 20.0 }
    };
    type Compares = fn(f32, f32) -> bool;
    let modes: [(&str, Compares); 4] = [
        ("BRANCH_LEQ", |x, t| x <= t),
        ("BRANCH_LT", |x, t| x < t),
        ("BRANCH_GTE", |x, t| x >= t),
        ("BRANCH_GT", |x, t| x > t),
    ];
    for (mode, passes) in modes {
        let want = rows(&|a, b| value(passes(a, 1.5), passes(b, -2.0), passes(b, 0.5)));
        expect("TreeEnsembleRegressor", &x, regression(mode), 1, &want);
        let halves: Vec<f32> = want.iter().map(|v| v / 2.0 + 0.25).collect();
        let average =
            regression(mode).with("aggregate_function", "AVERAGE").with("base_values", floats(&[0.25]));
        expect("TreeEnsembleRegressor", &x, average, 1, &halves);
    }
}

#[test]
fn labels_are_those_of_the_largest_score_whatever_their_numbers() {
    let x = Tensor::new([3, 2], vec![0.0, -3.0, 0.0, 0.0, 3.0, 3.0]);
    let classes = |labels: Vec<i64>| {
        forest("BRANCH_LEQ")
            .with("class_treeids", [0i64, 0, 0, 1, 1])
            .with("class_nodeids", [2i64, 3, 4, 1, 2])
            .with("class_ids", [0i64, 1, 2, 0, 2])
            .with("class_weights", floats(&[1.0, 1.0, 1.0, 0.25, 0.5]))
            .with("classlabels_int64s", labels)
    };
    expect("TreeEnsembleClassifier", &x, classes(vec![0, 1, 2]), 2, &[0.0, 1.0, 2.0]);
    expect("TreeEnsembleClassifier", &x, classes(vec![7, -3, 5]), 2, &[7.0, -3.0, 5.0]);
}

#[test]
fn two_classes_may_have_one_score() {
    let x = Tensor::new([3, 2], vec![0.0, -3.0, 0.0, 3.0, 3.0, 3.0]);
    let classes = |weights: &[f32]| {
        forest("BRANCH_LEQ")
            .with("class_treeids", [0i64, 0, 0, 1, 1])
            .with("class_nodeids", [2i64, 3, 4, 1, 2])
            .with("class_ids", [0i64; 5])
            .with("class_weights", floats(weights))
            .with("classlabels_int64s", [0i64, 1])
    };
    // Sums of 0.2, 0.6, 0.9: a probability, which is compared with a half.
    let probability = classes(&[0.1, 0.2, 0.5, 0.1, 0.4]);
    expect("TreeEnsembleClassifier", &x, probability, 2, &[0.0, 1.0, 1.0]);
    // Sums of −1.5, −0.5, 1.5: a score, which is compared with zero.
    let score = classes(&[-1.0, -1.0, 1.0, -0.5, 0.5]).with("post_transform", "LOGISTIC");
    expect("TreeEnsembleClassifier", &x, score, 2, &[0.0, 0.0, 1.0]);
}

#[test]
fn trees_that_are_none_are_refused() {
    let x = Tensor::new([1, 2], vec![0.0, 0.0]);
    let refused = |attributes: Attributes, what: &str| {
        let error = graph("TreeEnsembleRegressor", &x, attributes, 1).expect_err("it is no tree");
        assert!(error.contains(what), "{error}");
    };
    // A branch back to an inner node, to the root, to nothing; a feature that there is not.
    refused(
        regression("BRANCH_LEQ").with("nodes_truenodeids", [1i64, 1, 0, 0, 0, 1, 0, 0]),
        "trees that are none",
    );
    refused(regression("BRANCH_LEQ").with("nodes_truenodeids", [1i64, 0, 0, 0, 0, 1, 0, 0]), "own roots");
    refused(regression("BRANCH_LEQ").with("nodes_truenodeids", [9i64, 2, 0, 0, 0, 1, 0, 0]), "branches");
    refused(regression("BRANCH_LEQ").with("nodes_featureids", [2i64, 1, 0, 0, 0, 1, 0, 0]), "feature");
    refused(regression("BRANCH_EQ"), "BRANCH_EQ");
    refused(regression("BRANCH_LEQ").with("target_ids", [0i64, 0, 0, 0, 3]), "target");
    refused(regression("BRANCH_LEQ").with("nodes_values", floats(&[1.0])), "different lengths");
}

#[test]
fn linear_models_and_what_prepares_their_numbers() {
    let x = Tensor::new([2, 2], vec![1.0, 2.0, -3.0, 0.5]);
    let linear = Attributes::none()
        .with("coefficients", floats(&[1.0, -2.0, 0.5, 1.0]))
        .with("intercepts", floats(&[0.5, -1.0]));
    expect("LinearRegressor", &x, linear.clone().with("targets", 2), 1, &[-2.5, 1.5, -3.5, -2.0]);
    let labels = linear.with("classlabels_ints", [0i64, 1]).with("post_transform", "SOFTMAX");
    expect("LinearClassifier", &x, labels, 2, &[1.0, 1.0]);
    let scaler = Attributes::none().with("offset", floats(&[1.0, 0.5])).with("scale", floats(&[2.0]));
    expect("Scaler", &x, scaler, 1, &[0.0, 3.0, -8.0, 0.0]);
    let sums = Attributes::none().with("norm", "L1");
    expect("Normalizer", &x, sums, 1, &[1.0 / 3.0, 2.0 / 3.0, -3.0 / 3.5, 0.5 / 3.5]);
    expect("Binarizer", &x, Attributes::none().with("threshold", 1.0), 1, &[0.0, 1.0, 0.0, 0.0]);
    let missing = Attributes::none()
        .with("imputed_value_floats", floats(&[4.0, 5.0]))
        .with("replaced_value_float", 0.5);
    expect("Imputer", &x, missing, 1, &[1.0, 2.0, -3.0, 5.0]);
}

#[test]
fn kernels_are_those_of_support_vector_machines() {
    let x = Tensor::new([2, 2], vec![1.0, 0.5, -0.5, 0.25]);
    let vectors = [[0.5f64, -1.0], [1.0, 1.0]];
    type Kernel = fn(f64, f64) -> f64;
    // By the inner product and the square of the distance.
    let kernels: [(&str, Kernel); 4] = [
        ("LINEAR", |product, _| product),
        ("POLY", |product, _| (0.5 * product + 0.25).powi(3)),
        ("SIGMOID", |product, _| (0.5 * product + 0.25).tanh()),
        ("RBF", |_, distance| (-0.5 * distance).exp()),
    ];
    for (name, kernel) in kernels {
        let attributes = Attributes::none()
            .with("kernel_type", name)
            .with("kernel_params", floats(&[0.5, 0.25, 3.0]))
            .with("n_supports", 2)
            .with("support_vectors", floats(&[0.5, -1.0, 1.0, 1.0]))
            .with("coefficients", floats(&[2.0, -1.0]))
            .with("rho", floats(&[0.125]));
        let value = |row: &[f32]| {
            let [a, b] = [f64::from(row[0]), f64::from(row[1])];
            let of = |v: &[f64; 2]| kernel(a * v[0] + b * v[1], (a - v[0]).powi(2) + (b - v[1]).powi(2));
            (2.0 * of(&vectors[0]) - of(&vectors[1]) + 0.125) as f32
        };
        let want: Vec<f32> = x.data.chunks(2).map(value).collect();
        expect("SVMRegressor", &x, attributes, 1, &want);
    }
}

#[test]
fn thresholds_outside_of_the_data_lead_one_way() {
    // Both thresholds are far beyond what numbers there are, on either side.
    let far =
        regression("BRANCH_LEQ").with("nodes_values", floats(&[1e30, -1e30, 0.0, 0.0, 0.0, 8.5, 0.0, 0.0]));
    let x = Tensor::new([3, 2], vec![8.0, -8.0, -8.0, 8.0, 0.0, 0.0]);
    expect("TreeEnsembleRegressor", &x, far, 1, &[12.0, 12.0, 12.0]);
    // All comparisons are narrow: of declared data, and of the few steps to a leaf.
    let options = CompileOptions::default();
    let g = graph("TreeEnsembleRegressor", &x, regression("BRANCH_LT"), 1).unwrap();
    let widths: Vec<u32> = compile(&g, &options)
        .unwrap()
        .plan
        .steps
        .iter()
        .filter_map(|step| match &step.op {
            megrez_plan::Op::CompareMany { sign, .. } => sign.bits,
            _ => None,
        })
        .collect();
    assert_eq!(widths.len(), 2);
    assert!(widths[0] <= 20 && widths[1] <= 3, "{widths:?}");
}

#[test]
fn probabilities_of_two_classes_are_fitted_to_the_decision() {
    let attributes = |classes: i64| {
        Attributes::none()
            .with("classlabels_ints", (0..classes).collect::<Vec<i64>>())
            .with("coefficients", floats(&vec![0.5; 2 * (classes as usize - 1)]))
            .with("kernel_type", "LINEAR")
            .with("support_vectors", floats(&[1.0, 0.0, 0.0, 1.0]))
            .with("vectors_per_class", vec![1i64; 2])
            .with("rho", floats(&[0.25]))
            .with("prob_a", floats(&[-1.5]))
            .with("prob_b", floats(&[0.5]))
    };
    let x = Tensor::new([2, 2], vec![1.0, 2.0, -3.0, 0.5]);
    let g = graph("SVMClassifier", &x, attributes(2), 2).unwrap();
    let got = plain::run(&g, std::slice::from_ref(&x)).unwrap();
    for (row, x) in got[1].data.chunks(2).zip(x.data.chunks(2)) {
        let decision = 0.5 * x[0] + 0.5 * x[1] + 0.25;
        let first = 1.0 / (1.0 + (-1.5 * decision + 0.5).exp());
        assert!((row[0] - first).abs() < 1e-5 && (row[0] + row[1] - 1.0).abs() < 1e-5, "{row:?}");
    }
    assert!(graph("SVMClassifier", &x, attributes(3), 2).is_err());
}

#[test]
fn every_tie_in_a_tree_goes_its_way() {
    // A full tree of depth three on two features; its leaves are numbered.
    let grid = [-1.0f32, -0.5, 0.0, 0.25];
    let thresholds = [0.0f32, -0.5, 0.25, -1.0, 0.0, 0.25, -0.5];
    let features = [0i64, 1, 0, 1, 1, 0, 0];
    let unit = 1.0 / 65536.0;
    let around: Vec<f32> = grid.iter().flat_map(|t| [t - unit, *t, t + unit]).collect();
    let rows: Vec<[f32; 2]> = around.iter().flat_map(|&a| around.iter().map(move |&b| [a, b])).collect();
    let x = Tensor::new([rows.len(), 2], rows.concat());
    type Compares = fn(f32, f32) -> bool;
    let modes: [(&str, Compares); 4] = [
        ("BRANCH_LEQ", |x, t| x <= t),
        ("BRANCH_LT", |x, t| x < t),
        ("BRANCH_GTE", |x, t| x >= t),
        ("BRANCH_GT", |x, t| x > t),
    ];
    for (mode, passes) in modes {
        let inner = |i: usize| i < 7;
        let all: Vec<i64> = (0..15).collect();
        let attributes = Attributes::none()
            .with("nodes_treeids", vec![0i64; 15])
            .with("nodes_nodeids", all)
            .with(
                "nodes_featureids",
                (0..15).map(|i| if inner(i) { features[i] } else { 0 }).collect::<Vec<_>>(),
            )
            .with(
                "nodes_modes",
                strings(&(0..15).map(|i| if inner(i) { mode } else { "LEAF" }).collect::<Vec<_>>()),
            )
            .with(
                "nodes_values",
                floats(&(0..15).map(|i| if inner(i) { thresholds[i] } else { 0.0 }).collect::<Vec<_>>()),
            )
            .with(
                "nodes_truenodeids",
                (0..15).map(|i| if inner(i) { 2 * i as i64 + 1 } else { 0 }).collect::<Vec<_>>(),
            )
            .with(
                "nodes_falsenodeids",
                (0..15).map(|i| if inner(i) { 2 * i as i64 + 2 } else { 0 }).collect::<Vec<_>>(),
            )
            .with("target_treeids", vec![0i64; 8])
            .with("target_nodeids", (7..15).collect::<Vec<i64>>())
            .with("target_ids", vec![0i64; 8])
            .with("target_weights", floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))
            .with("n_targets", 1);
        let leaf = |row: &[f32; 2]| {
            let mut at = 0;
            while inner(at) {
                at = 2 * at + if passes(row[features[at] as usize], thresholds[at]) { 1 } else { 2 };
            }
            (at - 7) as f32
        };
        let want: Vec<f32> = rows.iter().map(leaf).collect();
        expect("TreeEnsembleRegressor", &x, attributes, 1, &want);
    }
}
