//! Classical models, against numbers worked out by hand, in the clear and lowered.

use crate::common::{check, check_floats};
use megrez_graph::{
    Activations, Attribute, Attributes, CompileOptions, Graph, Id, Interval, RangePolicy, Tensor, TreeForm,
    compile, plain,
};
use megrez_plan::{Op, Plan};

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
    // Also as protocols take it that add up what bits choose, and that multiply matrices of bits.
    for (trees, dealt) in
        [TreeForm::Hidden, TreeForm::Shape].into_iter().flat_map(|t| [(t, false), (t, true)])
    {
        let options = CompileOptions {
            trees,
            selects_truncated: dealt,
            multiplies_bits: dealt,
            defer_openings: dealt,
            ..options.clone()
        };
        let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
        check(&compiled, std::slice::from_ref(x), 4e-3);
    }
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

/// The forest of [`forest`] and a tree of one leaf, which adds 0.25, as version 5 lists it.
fn listed(mode: i64) -> Attributes {
    let tensor = |data: &[f32]| Attribute::Tensor(Tensor::new([data.len()], data.to_vec()).into());
    Attributes::none()
        .with("tree_roots", [0i64, 2, 3])
        .with("nodes_featureids", [0i64, 1, 1, 0])
        .with("nodes_modes", Attribute::Tensor(Tensor::new([4], vec![mode; 4]).into()))
        .with("nodes_splits", tensor(&[1.5, -2.0, 0.5, 0.0]))
        .with("nodes_trueleafs", [0i64, 1, 1, 1])
        .with("nodes_truenodeids", [1i64, 0, 3, 5])
        .with("nodes_falseleafs", [1i64, 1, 1, 1])
        .with("nodes_falsenodeids", [2i64, 1, 4, 5])
        .with("leaf_targetids", [0i64; 6])
        .with("leaf_weights", tensor(&[1.0, 2.0, 4.0, 10.0, 20.0, 0.25]))
        .with("n_targets", 1)
}

#[test]
fn version_5_lists_leaves_apart() {
    let x = Tensor::new([4, 2], vec![1.5, 0.5, 1.5, -2.0, 1.499, -2.001, 1.501, 0.501]);
    for (mode, name) in ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"].into_iter().enumerate() {
        let old = graph("TreeEnsembleRegressor", &x, regression(name), 1).unwrap();
        let old = plain::run(&old, std::slice::from_ref(&x)).unwrap().remove(0).data;
        let want: Vec<f32> = old.iter().map(|v| v + 0.25).collect();
        expect("TreeEnsemble", &x, listed(mode as i64), 1, &want);
        let thirds: Vec<f32> = want.iter().map(|v| v / 3.0).collect();
        expect("TreeEnsemble", &x, listed(mode as i64).with("aggregate_function", 0), 1, &thirds);
    }
    for (attributes, what) in [
        (listed(4), "equality or membership"),
        (listed(0).with("aggregate_function", 3), "the least or the largest"),
        (listed(0).with("tree_roots", Vec::<i64>::new()), "no trees"),
        (listed(0).with("tree_roots", [0i64, 2]), "their own roots"),
        (listed(0).with("tree_roots", [0i64, 2, 3, 9]), "trees that are none"),
        (listed(0).with("nodes_truenodeids", [1i64, 0, 3, 6]), "without its feature or its branches"),
        (listed(0).with("nodes_featureids", [0i64, 1, 1]), "different lengths"),
        (listed(0).with("leaf_targetids", [1i64; 6]), "a target that there is not"),
    ] {
        let refusal = graph("TreeEnsemble", &x, attributes, 1).expect_err(what);
        assert!(refusal.contains(what), "{refusal}");
    }
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
    for norm in ["L1", "L2"] {
        let zeros = Tensor::new([1, 2], vec![0.0, 0.0]);
        let g = graph("Normalizer", &zeros, Attributes::none().with("norm", norm), 1).unwrap();
        assert_eq!(plain::run(&g, std::slice::from_ref(&zeros)).unwrap()[0].data, [0.0, 0.0], "{norm}");
        check_floats(&g, &[zeros]);
    }
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
    let options = CompileOptions { input_range: Interval::abs(8.0), ..CompileOptions::default() };
    assert_eq!(widths(&far_plan(&x, &options)), [22, 3]);
    let shape = CompileOptions { trees: TreeForm::Shape, ..options };
    assert_eq!(widths(&far_plan(&x, &shape)), [22]);
    let guided = CompileOptions { selects_truncated: true, ..shape };
    assert_eq!(widths(&far_plan(&x, &guided)), [22, 22]);
}

fn far_plan(x: &Tensor, options: &CompileOptions) -> Plan {
    compile(&graph("TreeEnsembleRegressor", x, regression("BRANCH_LT"), 1).unwrap(), options).unwrap().plan
}

fn widths(plan: &Plan) -> Vec<u32> {
    let width = |step: &megrez_plan::Step| match &step.op {
        Op::CompareMany { sign, .. } => sign.bits,
        _ => None,
    };
    plan.steps.iter().filter_map(width).collect()
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

/// One random tree of so many leaves, as attributes that begin with the tree's number.
struct Grown {
    nodes: Vec<[i64; 5]>,
    thresholds: Vec<f32>,
    modes: Vec<&'static str>,
    leaves: Vec<[i64; 2]>,
    numbers: Vec<f32>,
}

/// Trees of these numbers of leaves on so many features, drawn at random; as deep as `chain` makes
/// them.
fn grown(
    seed: u64,
    sizes: &[usize],
    features: i64,
    modes: &[&'static str],
    chain: bool,
) -> (Attributes, Grown) {
    let mut state = seed;
    let mut draw = |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut all = Grown { nodes: vec![], thresholds: vec![], modes: vec![], leaves: vec![], numbers: vec![] };
    for (tree, &leaves) in sizes.iter().enumerate() {
        // Node 0 is a leaf; any leaf becomes a test with two of them.
        let first = all.nodes.len();
        let mut open = vec![0i64];
        let add = |all: &mut Grown, node: i64| {
            all.nodes.push([tree as i64, node, 0, 0, 0]);
            all.thresholds.push(0.0);
            all.modes.push("LEAF");
        };
        add(&mut all, 0);
        while open.len() < leaves {
            let at = if chain { open.len() - 1 } else { draw(open.len()) };
            let node = open.swap_remove(at);
            let next = (all.nodes.len() - first) as i64;
            let i = first + node as usize;
            all.nodes[i] = [tree as i64, node, draw(features as usize) as i64, next, next + 1];
            all.thresholds[i] = draw(64) as f32 / 8.0 - 4.0;
            all.modes[i] = modes[draw(modes.len())];
            add(&mut all, next);
            add(&mut all, next + 1);
            open.extend([next, next + 1]);
        }
        for leaf in open {
            all.leaves.push([tree as i64, leaf]);
            all.numbers.push(draw(1000) as f32 / 64.0);
        }
    }
    let column = |c: usize| all.nodes.iter().map(|node| node[c]).collect::<Vec<i64>>();
    let attributes = Attributes::none()
        .with("nodes_treeids", column(0))
        .with("nodes_nodeids", column(1))
        .with("nodes_featureids", column(2))
        .with("nodes_truenodeids", column(3))
        .with("nodes_falsenodeids", column(4))
        .with("nodes_modes", strings(&all.modes))
        .with("nodes_values", floats(&all.thresholds))
        .with("target_treeids", all.leaves.iter().map(|leaf| leaf[0]).collect::<Vec<_>>())
        .with("target_nodeids", all.leaves.iter().map(|leaf| leaf[1]).collect::<Vec<_>>())
        .with("target_ids", vec![0i64; all.leaves.len()])
        .with("target_weights", floats(&all.numbers))
        .with("n_targets", 1);
    (attributes, all)
}

impl Grown {
    /// The sum of the trees for a row, node by node as the file says.
    fn value(&self, row: &[f32]) -> f32 {
        let trees = self.nodes.iter().map(|node| node[0]).max().unwrap_or(0);
        (0..=trees).map(|tree| self.leaf(tree, row)).sum()
    }

    fn leaf(&self, tree: i64, row: &[f32]) -> f32 {
        let first = self.nodes.iter().position(|node| node[0] == tree).unwrap();
        let mut at = 0;
        loop {
            let i = first + at as usize;
            let [_, _, feature, passed, failed] = self.nodes[i];
            let (x, t) = (row[feature as usize], self.thresholds[i]);
            at = match self.modes[i] {
                "BRANCH_LEQ" if x <= t => passed,
                "BRANCH_LT" if x < t => passed,
                "BRANCH_GTE" if x >= t => passed,
                "BRANCH_GT" if x > t => passed,
                "LEAF" => break,
                _ => failed,
            };
        }
        let leaf = self.leaves.iter().position(|leaf| *leaf == [tree, at]).unwrap();
        self.numbers[leaf]
    }
}

const MODES: [&str; 4] = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"];

#[test]
fn trees_of_any_shape_give_the_same_in_all_forms() {
    // Few rows are counted where trees are deep, many are guided; leaves alone are trees as well.
    for (sizes, rows, chain) in [
        (&[5usize, 1, 9, 2][..], 3, false),
        (&[12, 3, 1], 4, true),
        (&[1, 31, 17, 31], 2, false),
        (&[2, 2], 5, false),
        (&[40], 1000, true),
        (&[31, 17, 5, 1, 31], 9000, false),
        (&[8, 8, 8, 3, 1, 8, 8, 8, 2, 8], 2000, true),
    ] {
        for seed in 0..if rows > 1000 { 1 } else { 3 } {
            let (attributes, trees) = grown(seed, sizes, 5, &MODES, chain);
            // On a grid that thresholds lie on.
            let x = (0..rows * 5).map(|i| ((i * 7919 + seed as usize * 31) % 129) as f32 / 16.0 - 4.0);
            let x = Tensor::new([rows, 5], x.collect());
            let want: Vec<f32> = x.data.chunks(5).map(|row| trees.value(row)).collect();
            expect("TreeEnsembleRegressor", &x, attributes, 1, &want);
        }
    }
}

#[test]
fn many_rows_are_guided_through_shown_trees_and_few_are_counted() {
    let comparisons = |rows: usize, sizes: &[usize], selects_truncated: bool| {
        let (attributes, _) = grown(1, sizes, 5, &MODES, false);
        let g = graph("TreeEnsembleRegressor", &Tensor::filled([rows, 5], 0.0), attributes, 1).unwrap();
        let trees = TreeForm::Shape;
        let input_range = Interval::abs(8.0);
        let options = CompileOptions { trees, input_range, selects_truncated, ..CompileOptions::default() };
        let plan = compile(&g, &options).unwrap().plan;
        let count = |which: fn(&Op) -> bool| crate::common::elements(&plan, which) / rows;
        (
            count(|op| matches!(op, Op::CompareMany { .. })),
            count(|op| matches!(op, Op::Select { .. })),
            count(|op| matches!(op, Op::SelectSum { .. })),
        )
    };
    // 39 leaves: 37 tests in 2 trees, and a count for each leaf.
    assert_eq!(comparisons(2, &[31, 8], true), (37 + 39, 0, 0));
    let (compared, none, sums) = comparisons(20_000, &[31, 8], true);
    assert!(none == 0 && compared < 20 && sums == compared - 2 + 1, "{compared} {sums}");
    // What others compare, and select: every test but the roots.
    assert_eq!(comparisons(20_000, &[31, 8], false), (37, 35, 0));
}

/// Fewer words are opened, if there are enough rows that rounds do not count: none but the sums.
#[test]
fn many_rows_are_guided_through_hidden_trees() {
    let plan = |rows: usize, sizes: &[usize], chain: bool, dealt: bool| {
        let (attributes, trees) = grown(1, sizes, 5, &MODES, chain);
        // As large in all of them: a guided plan shows how large.
        let attributes = attributes.with("target_weights", floats(&vec![1.5; trees.numbers.len()]));
        let g = graph("TreeEnsembleRegressor", &Tensor::filled([rows, 5], 0.0), attributes, 1).unwrap();
        let options = CompileOptions {
            input_range: Interval::abs(8.0),
            multiplies_bits: dealt,
            defer_openings: dealt,
            ..CompileOptions::default()
        };
        compile(&g, &options).unwrap().plan
    };
    let opened = |plan: &Plan, rows: usize| {
        let of_bits = crate::common::elements(plan, |op| matches!(op, Op::And | Op::BitMatMul)) / rows;
        let shared =
            crate::common::elements(plan, |op| matches!(op, Op::Reshare | Op::BitToRing | Op::MatMul));
        (of_bits, shared / rows)
    };
    // Four trees of 31 leaves at most; two halves of eight, whose numbers are opened apart.
    for (sizes, chain, words) in [(&[31usize, 31, 20, 31][..], false, 28), (&[8; 16], true, 2 * 28)] {
        let guided = opened(&plan(20_000, sizes, chain, true), 20_000);
        assert!(guided.0 > 0 && guided.1 == words, "{sizes:?}: {guided:?}");
        assert_eq!(opened(&plan(20_000, sizes, chain, false), 20_000).0, 0);
        assert_eq!(opened(&plan(2, sizes, chain, true), 2).0, 0);
    }
    // As hidden as others are, but for the depth.
    let same = |a: &[usize], b: (&[usize], bool)| {
        plan(20_000, a, true, true).to_bytes() == plan(20_000, b.0, b.1, true).to_bytes()
    };
    assert!(same(&[8; 16], (&[8, 5, 7, 6, 8, 2, 2, 3, 2, 4, 2, 8, 8, 2, 2, 2], true)));
    assert!(!same(&[8; 16], (&[8; 16], false)));
}

/// Between parties, where truncations give one more at times: rows on thresholds and beside them go
/// where the file says.
#[test]
fn guided_trees_give_the_same_between_parties() {
    for (ring, chain) in [(64, true), (40, false)] {
        let (rows, features) = (1500, 3);
        let (attributes, trees) = grown(7, &[8, 5, 8, 7, 8, 8], features as i64, &MODES, chain);
        let x = (0..rows * features).map(|i| ((i * 7919) % 16_385) as f32 / 2048.0 - 4.0);
        let x = Tensor::new([rows, features], x.collect());
        let want: Vec<f32> = x.data.chunks(features).map(|row| trees.value(row)).collect();
        let g = graph("TreeEnsembleRegressor", &x, attributes, 1).unwrap();
        let options = CompileOptions {
            ring,
            frac: 12,
            input_range: Interval::abs(4.0),
            multiplies_bits: true,
            defer_openings: true,
            ..CompileOptions::default()
        };
        let compiled = compile(&g, &options).unwrap();
        assert!(compiled.plan.steps.iter().any(|step| step.op == Op::BitMatMul), "so many rows are guided");
        let word = |value: f32, frac: u32| {
            let word = (f64::from(value) * 2f64.powi(frac as i32)).round() as i64;
            word as u64 & u64::MAX >> (64 - ring)
        };
        let words = |values: &[f32], frac: u32| values.iter().map(|&v| word(v, frac)).collect::<Vec<_>>();
        let data = compiled.data_inputs.iter().map(|input| (input.name.clone(), words(&x.data, input.frac)));
        let weights = compiled.model_inputs.iter();
        let weights = weights.map(|input| (input.name.clone(), words(&input.values, input.frac)));
        let given = data.chain(weights).collect();
        let found = crate::common::first_output("mizar", &compiled, &given);
        assert!(crate::common::farthest(&found, &want) < 1e-3, "ring {ring}");
    }
}

#[test]
fn hidden_trees_have_one_plan_whatever_they_look_like() {
    let x = Tensor::filled([7, 5], 0.0);
    let plan = |attributes: Attributes, trees: TreeForm| {
        let options = CompileOptions { trees, input_range: Interval::abs(8.0), ..CompileOptions::default() };
        let g = graph("TreeEnsembleRegressor", &x, attributes, 1).unwrap();
        compile(&g, &options).unwrap()
    };
    let same = |a: Attributes, b: Attributes, trees: TreeForm| {
        let (a, b) = (plan(a, trees), plan(b, trees));
        // All that may differ is what the owner of the model shares.
        (a.plan.to_bytes() == b.plan.to_bytes(), a.model_inputs == b.model_inputs)
    };
    // Other shapes, features, modes, thresholds far outside of the data, and numbers of leaves; of
    // as many trees, the largest of 17 to 32 leaves.
    let one = || grown(1, &[17, 3, 8], 5, &MODES, false).0;
    let deep = grown(2, &[4, 4, 32], 1, &MODES[..1], true).0;
    let far = one().with("nodes_values", floats(&[1e30; 53]));
    let large = one().with("target_weights", floats(&[500.0; 28]));
    for other in [deep, far, large] {
        assert_eq!(same(one(), other, TreeForm::Hidden), (true, false));
    }
    let (more_leaves, more_trees) =
        (grown(1, &[33, 3, 8], 5, &MODES, false).0, grown(1, &[17, 3, 8, 2], 5, &MODES, false).0);
    for other in [more_leaves, more_trees] {
        assert_eq!(same(one(), other, TreeForm::Hidden), (false, false));
    }
    let moved = grown(3, &[17, 3, 8], 5, &MODES, false).0;
    assert_eq!(same(one(), moved.clone(), TreeForm::Hidden), (true, false));
    assert_eq!(same(one(), moved, TreeForm::Shape), (false, false));
    // Nothing of a tree stands in the plan: there are no constants, no picked features.
    let hidden = plan(one(), TreeForm::Hidden).plan;
    assert!(hidden.steps.iter().all(|s| !matches!(s.op, Op::Constant { .. } | Op::Gather { .. })));
}

#[test]
fn trees_that_are_too_large_to_hide_are_refused_and_shown_if_asked_for() {
    let x = Tensor::filled([1, 2], 0.0);
    let (attributes, _) = grown(1, &[4097, 2, 2], 2, &MODES, false);
    let g = graph("TreeEnsembleRegressor", &x, attributes, 1).unwrap();
    let error = compile(&g, &CompileOptions::default()).unwrap_err().to_string();
    assert!(error.contains("--trees shape") && error.contains("8192 leaves"), "{error}");
    assert!(compile(&g, &CompileOptions { trees: TreeForm::Shape, ..CompileOptions::default() }).is_ok());
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
