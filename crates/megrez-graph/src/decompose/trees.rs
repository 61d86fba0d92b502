//! Ensembles of decision trees (the domain `ai.onnx.ml`), random forests and gradient boosting:
//! what a file says of them becomes one layer ([`crate::layers::TREES`]).

use super::estimators::{Classes, both, classified, reals, row, rows, transformed};
use super::{Decompose, Parts};
use crate::graph::{Attribute, Attributes, Id};
use crate::layers::{Forest, Next, TREES, Test};
use crate::problem::{Refusal, refuse};
use crate::tensor::{Constant, Tensor};
use std::collections::{BTreeSet, HashMap};

pub(super) const TABLE: &[(&str, Decompose)] = &[
    ("TreeEnsemble", ensemble),
    ("TreeEnsembleClassifier", classifier),
    ("TreeEnsembleRegressor", regressor),
];

/// The attributes of nodes, which both operators have.
const OF_NODES: [&str; 14] = [
    "aggregate_function",
    "base_values",
    "base_values_as_tensor",
    "nodes_falsenodeids",
    "nodes_featureids",
    "nodes_hitrates",
    "nodes_hitrates_as_tensor",
    "nodes_missing_value_tracks_true",
    "nodes_modes",
    "nodes_nodeids",
    "nodes_treeids",
    "nodes_truenodeids",
    "nodes_values",
    "nodes_values_as_tensor",
];
/// A tree is not deeper.
const MAX_DEPTH: usize = 64;
/// What a step of a way costs, in places.
const PER_STEP: usize = 4;
/// What to do about a file that does not hold together.
const AGAIN: &str = "export the model again";

/// How a node compares a feature with its threshold.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    AtMost,
    Below,
    AtLeast,
    Above,
}

/// What a leaf adds to which targets.
type Adds = Vec<(usize, f32)>;

/// All trees of a model.
struct Ensemble {
    forest: Forest,
    thresholds: Vec<f32>,
    /// In the forest's order of leaves.
    leaves: Vec<Adds>,
    /// Of trees that are one leaf, which everything reaches.
    always: Vec<Adds>,
}

/// What a node compares, and the places of those that failing and passing lead to.
struct Split {
    mode: Mode,
    feature: i64,
    threshold: f32,
    next: [Option<usize>; 2],
}

/// A node: a leaf, where nothing is compared.
struct Node {
    split: Option<Split>,
    adds: Adds,
}

/// A list of the node's integers that must be there.
fn integers(p: &Parts, name: &str) -> Result<Vec<i64>, Refusal> {
    match p.call().ints(name)? {
        Some(list) => Ok(list),
        None => refuse(format!("`{name}` is missing"), AGAIN),
    }
}

/// The nodes as the file lists them: everything about one stands at one place of all lists.
struct Lists {
    ids: Vec<(i64, i64)>,
    features: Vec<i64>,
    modes: Vec<String>,
    thresholds: Vec<f32>,
    ways: [Vec<i64>; 2],
}

impl Lists {
    fn of(p: &Parts) -> Result<Self, Refusal> {
        let ints = |name: &str| integers(p, name);
        let (trees, nodes) = (ints("nodes_treeids")?, ints("nodes_nodeids")?);
        let lists = Lists {
            ids: trees.iter().copied().zip(nodes.iter().copied()).collect(),
            features: ints("nodes_featureids")?,
            modes: p.call().strings("nodes_modes")?.unwrap_or_default(),
            thresholds: reals(p, "nodes_values")?,
            ways: [ints("nodes_falsenodeids")?, ints("nodes_truenodeids")?],
        };
        let n = lists.ids.len();
        let lengths = [trees.len(), nodes.len(), lists.features.len(), lists.modes.len()];
        let more = [lists.thresholds.len(), lists.ways[0].len(), lists.ways[1].len()];
        if n == 0 || lengths.into_iter().chain(more).any(|length| length != n) {
            return refuse("has lists of nodes of different lengths", AGAIN);
        }
        Ok(lists)
    }

    fn mode(&self, node: usize) -> Result<Option<Mode>, Refusal> {
        Ok(Some(match self.modes[node].as_str() {
            "LEAF" => return Ok(None),
            "BRANCH_LEQ" => Mode::AtMost,
            "BRANCH_LT" => Mode::Below,
            "BRANCH_GTE" => Mode::AtLeast,
            "BRANCH_GT" => Mode::Above,
            other => {
                return refuse(
                    format!("compares by {other}"),
                    "train it on numbers: categories are not supported",
                );
            }
        }))
    }
}

impl Ensemble {
    /// The trees of a node's attributes; `adds` has tree, node, target and number of every addend.
    fn of(p: &mut Parts, features: usize, adds: [&str; 4]) -> Result<Self, Refusal> {
        let lists = Lists::of(p)?;
        let mut places = HashMap::new();
        for (place, id) in lists.ids.iter().enumerate() {
            if places.insert(*id, place).is_some() {
                return refuse("has two nodes of one number", AGAIN);
            }
        }
        let child = |place: usize, passed: bool| {
            places.get(&(lists.ids[place].0, lists.ways[usize::from(passed)][place])).copied()
        };
        let mut nodes = vec![];
        for place in 0..lists.ids.len() {
            let split = lists.mode(place)?.map(|mode| Split {
                mode,
                feature: lists.features[place],
                threshold: lists.thresholds[place],
                next: [child(place, false), child(place, true)],
            });
            nodes.push(Node { split, adds: vec![] });
        }
        let ints = |name: &str| p.call().ints(name).map(Option::unwrap_or_default);
        let [trees, ids, targets] = [ints(adds[0])?, ints(adds[1])?, ints(adds[2])?];
        let numbers = reals(p, adds[3])?;
        if [trees.len(), ids.len(), targets.len()].iter().any(|&length| length != numbers.len()) {
            return refuse("has lists of leaves of different lengths", AGAIN);
        }
        for i in 0..numbers.len() {
            match (places.get(&(trees[i], ids[i])), usize::try_from(targets[i])) {
                (Some(&place), Ok(target)) => nodes[place].adds.push((target, numbers[i])),
                _ => return refuse("gives a number to a leaf that there is not", AGAIN),
            }
        }
        // A root is a node that no other leads to.
        let splits = nodes.iter().filter_map(|node| node.split.as_ref());
        let below: BTreeSet<usize> = splits.flat_map(|split| split.next).flatten().collect();
        let roots = (0..nodes.len()).filter(|place| !below.contains(place)).collect();
        Ensemble::grown(p, nodes, roots, features)
    }

    /// The trees of these nodes, from their roots on.
    fn grown(p: &mut Parts, nodes: Vec<Node>, roots: Vec<usize>, features: usize) -> Result<Self, Refusal> {
        let mut ensemble =
            Ensemble { forest: Forest::default(), thresholds: vec![], leaves: vec![], always: vec![] };
        let mut left: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        // A node, its level, and the side of the test that leads to it.
        type Open = (usize, usize, Option<(usize, usize)>);
        let mut open: Vec<Open> = roots.into_iter().rev().map(|root| (root, 0, None)).collect();
        while let Some((place, level, from)) = open.pop() {
            let Some(node) = left.get_mut(place).and_then(Option::take).filter(|_| level <= MAX_DEPTH) else {
                return refuse(format!("has trees that are none, or deeper than {MAX_DEPTH}"), AGAIN);
            };
            // Its way here, and a column for each step of it.
            p.graph.afford(PER_STEP * (level + 1))?;
            let next = match node.split {
                None => {
                    if from.is_none() {
                        ensemble.always.push(node.adds);
                        continue;
                    }
                    ensemble.leaves.push(node.adds);
                    ensemble.forest.leaves += 1;
                    Next::Leaf(ensemble.leaves.len() - 1)
                }
                Some(Split { mode, feature, threshold, next }) => {
                    let feature = usize::try_from(feature).ok().filter(|&f| f < features);
                    let (Some(feature), [Some(failed), Some(passed)]) = (feature, next) else {
                        return refuse("has a node without its feature or its branches", AGAIN);
                    };
                    if threshold.is_nan() {
                        return refuse("compares with what is no number", AGAIN);
                    }
                    let test = ensemble.thresholds.len();
                    ensemble.thresholds.push(threshold);
                    // At most a threshold is what is not above it.
                    let strict = matches!(mode, Mode::AtMost | Mode::Above);
                    let above = usize::from(matches!(mode, Mode::AtLeast | Mode::Above));
                    ensemble.forest.tests.push(Test { feature, strict, next: [Next::Leaf(0); 2] });
                    open.push((passed, level + 1, Some((test, above))));
                    open.push((failed, level + 1, Some((test, 1 - above))));
                    Next::Test(test)
                }
            };
            if let Some((test, side)) = from {
                ensemble.forest.tests[test].next[side] = next;
            }
        }
        if left.iter().any(Option::is_some) {
            return refuse("has trees that lead to their own roots", AGAIN);
        }
        Ok(ensemble)
    }

    /// Divides what the leaves add by how many trees there are.
    fn average(&mut self) {
        let trees = (self.forest.trees().len() + self.always.len()) as f32;
        self.adds().for_each(|(_, v)| *v /= trees);
    }

    /// What all leaves add.
    fn adds(&mut self) -> impl Iterator<Item = &mut (usize, f32)> {
        self.leaves.iter_mut().chain(&mut self.always).flatten()
    }

    /// For every row the sum of what its leaves add, for `targets` of them.
    fn sums(&self, p: &mut Parts, x: Id, targets: usize) -> Result<Id, Refusal> {
        if self.forest.tests.is_empty() {
            return refuse("has no node that compares", "remove the model: it gives one number");
        }
        p.graph.afford(self.leaves.len().saturating_mul(targets))?;
        let mut leaves = vec![0.0; self.leaves.len() * targets];
        // What everything reaches is added to all leaves of the first tree.
        let first = self.forest.trees()[0].leaves.len();
        let own = self.leaves.iter().enumerate().map(|(i, adds)| (i..i + 1, adds));
        for (range, adds) in own.chain(self.always.iter().map(|adds| (0..first, adds))) {
            for &(target, number) in adds {
                if target >= targets {
                    return refuse("adds to a target that there is not", AGAIN);
                }
                range.clone().for_each(|leaf| leaves[leaf * targets + target] += number);
            }
        }
        let tests = p.constant(self.forest.encoded());
        let thresholds = p.constant(Tensor::new([self.thresholds.len()], self.thresholds.clone()));
        let leaves = p.constant(Tensor::new([self.leaves.len(), targets], leaves));
        p.of(TREES, &[x, tests, thresholds, leaves])
    }
}

fn regressor(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let own = [
        "n_targets",
        "post_transform",
        "target_ids",
        "target_nodeids",
        "target_treeids",
        "target_weights",
        "target_weights_as_tensor",
    ];
    p.call().only(1, &[&OF_NODES[..], &own].concat())?;
    let (x, [_, features]) = rows(p)?;
    let mut ensemble =
        Ensemble::of(p, features, ["target_treeids", "target_nodeids", "target_ids", "target_weights"])?;
    match p.call().string("aggregate_function", "SUM")?.as_str() {
        "SUM" => {}
        "AVERAGE" => ensemble.average(),
        other => return refuse(format!("aggregates by {other}"), "use sums or averages"),
    }
    let targets = targets(p)?;
    let mut y = ensemble.sums(p, x, targets)?;
    if let Some(base) = p.call().reals("base_values")?.filter(|base| !base.is_empty()) {
        let base = row(p, base, targets)?;
        y = p.plus(y, base)?;
    }
    Ok(vec![transformed(p, y)?])
}

/// How many sums a row has.
fn targets(p: &Parts) -> Result<usize, Refusal> {
    match usize::try_from(p.call().int("n_targets", 1)?) {
        Ok(targets) if (1..=1 << 12).contains(&targets) => Ok(targets),
        _ => refuse("has no sane number of targets", AGAIN),
    }
}

/// The operator of version 5, whose leaves stand in lists of their own.
fn ensemble(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let lists = [
        "aggregate_function",
        "leaf_targetids",
        "leaf_weights",
        "membership_values",
        "n_targets",
        "nodes_falseleafs",
        "nodes_falsenodeids",
        "nodes_featureids",
        "nodes_hitrates",
        "nodes_missing_value_tracks_true",
        "nodes_modes",
        "nodes_splits",
        "nodes_trueleafs",
        "nodes_truenodeids",
        "post_transform",
        "tree_roots",
    ];
    p.call().only(1, &lists)?;
    let (x, [_, features]) = rows(p)?;
    let (nodes, roots) = listed(p)?;
    let mut ensemble = Ensemble::grown(p, nodes, roots, features)?;
    match p.call().int("aggregate_function", 1)? {
        0 => ensemble.average(),
        1 => {}
        _ => return refuse("aggregates by the least or the largest", "use sums or averages"),
    }
    let targets = targets(p)?;
    let y = ensemble.sums(p, x, targets)?;
    let softmax = Attributes::none().with("axis", 1);
    Ok(vec![match p.call().int("post_transform", 0)? {
        0 => y,
        1 => p.node("Softmax", &[y], softmax)?,
        2 => p.of("Sigmoid", &[y])?,
        other => return refuse(format!("`post_transform` {other} is not supported"), "export raw scores"),
    }])
}

/// The nodes of version 5, leaves behind those that compare, and the roots.
fn listed(p: &Parts) -> Result<(Vec<Node>, Vec<usize>), Refusal> {
    let ints = |name: &str| integers(p, name);
    let features = ints("nodes_featureids")?;
    let modes = match p.call().attributes.0.get("nodes_modes") {
        Some(Attribute::Tensor(Constant::Ints(t))) => t.data.clone(),
        _ => return refuse("`nodes_modes` is no list of bytes", AGAIN),
    };
    let (thresholds, weights) = (reals(p, "nodes_splits")?, reals(p, "leaf_weights")?);
    let (is_leaf, to) = (
        [ints("nodes_falseleafs")?, ints("nodes_trueleafs")?],
        [ints("nodes_falsenodeids")?, ints("nodes_truenodeids")?],
    );
    let targets = ints("leaf_targetids")?;
    let n = features.len();
    let lengths = [modes.len(), thresholds.len()].into_iter();
    let mut lengths = lengths.chain(is_leaf.iter().chain(&to).map(Vec::len));
    if n == 0 || lengths.any(|length| length != n) || weights.len() != targets.len() {
        return refuse("has lists of nodes or leaves of different lengths", AGAIN);
    }
    let mut leaves = vec![];
    let mut leaf = |i: i64| {
        let i = usize::try_from(i).ok().filter(|&i| i < weights.len())?;
        let adds = vec![(usize::try_from(targets[i]).ok()?, weights[i])];
        leaves.push(Node { split: None, adds });
        Some(n + leaves.len() - 1)
    };
    let mut nodes = vec![];
    for i in 0..n {
        let mode = match modes[i] {
            0 => Mode::AtMost,
            1 => Mode::Below,
            2 => Mode::AtLeast,
            3 => Mode::Above,
            _ => return refuse("tests for equality or membership", "train it on numbers, not on categories"),
        };
        let next = [0, 1].map(|side| match is_leaf[side][i] {
            0 => usize::try_from(to[side][i]).ok().filter(|&to| to < n),
            _ => leaf(to[side][i]),
        });
        let (feature, threshold) = (features[i], thresholds[i]);
        nodes.push(Node { split: Some(Split { mode, feature, threshold, next }), adds: vec![] });
    }
    nodes.extend(leaves);
    let roots: Option<Vec<usize>> =
        ints("tree_roots")?.into_iter().map(|r| usize::try_from(r).ok()).collect();
    match roots.filter(|roots| !roots.is_empty()) {
        Some(roots) => Ok((nodes, roots)),
        None => refuse("has no trees", AGAIN),
    }
}

fn classifier(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let own = [
        "class_ids",
        "class_nodeids",
        "class_treeids",
        "class_weights",
        "class_weights_as_tensor",
        "classlabels_int64s",
        "classlabels_strings",
        "post_transform",
    ];
    p.call().only(1, &[&OF_NODES[..], &own].concat())?;
    let (x, [_, features]) = rows(p)?;
    let mut ensemble =
        Ensemble::of(p, features, ["class_treeids", "class_nodeids", "class_ids", "class_weights"])?;
    let classes = Classes::of(p, "classlabels_int64s")?;
    let targets: BTreeSet<usize> = ensemble.adds().map(|(target, _)| *target).collect();
    let base = p.call().reals("base_values")?.unwrap_or_default();
    // Of two classes, a model may have just one score.
    let single = classes.0.len() == 2 && targets.len() == 1;
    if !single {
        let mut y = ensemble.sums(p, x, classes.0.len())?;
        if !base.is_empty() {
            let base = row(p, base, classes.0.len())?;
            y = p.plus(y, base)?;
        }
        return classified(p, &classes, y);
    }
    let positive = ensemble.adds().map(|(target, v)| (*target = 0, *v >= 0.0).1).fold(true, |all, v| all & v);
    let mut y = ensemble.sums(p, x, 1)?;
    match base[..] {
        [] => {}
        [base] => {
            let base = row(p, vec![base], 1)?;
            y = p.plus(y, base)?;
        }
        _ => return refuse("has more base values than scores", AGAIN),
    }
    let plain = p.call().string("post_transform", "NONE")? == "NONE";
    match (positive, plain) {
        // A probability.
        (true, true) => {
            let other = p.affine(y, -1.0, 1.0)?;
            let scores = p.concat(&[other, y], 1)?;
            classified(p, &classes, scores)
        }
        (true, false) => refuse("transforms one score that has no negative addend", "export raw scores"),
        (false, _) => {
            let scores = both(p, y)?;
            classified(p, &classes, scores)
        }
    }
}
