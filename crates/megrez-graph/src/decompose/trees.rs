//! Ensembles of decision trees (the domain `ai.onnx.ml`): random forests and gradient boosting.
//!
//! All comparisons of all trees are one step, and so is the choice of all leaves: a leaf is reached
//! if no comparison on its way leads elsewhere, so the comparisons that do are counted, and the
//! count is compared with 0. Two comparisons deep, whatever the depth of the trees.
//!
//! Everybody sees the shape of the trees and which feature a node looks at; thresholds and the
//! values of leaves are weights, and secret. Thresholds are exact on the fixed-point grid: a number
//! on a threshold goes where the original sends it.

use super::estimators::{Classes, both, classified, reals, row, rows, transformed};
use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::layers::{NONE, THRESHOLDS};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use std::collections::{BTreeSet, HashMap};

pub(super) const TABLE: &[(&str, Decompose)] =
    &[("TreeEnsembleClassifier", classifier), ("TreeEnsembleRegressor", regressor)];

/// The attributes of nodes, which both operators have.
const OF_NODES: [&str; 11] = [
    "aggregate_function",
    "base_values",
    "nodes_falsenodeids",
    "nodes_featureids",
    "nodes_hitrates",
    "nodes_missing_value_tracks_true",
    "nodes_modes",
    "nodes_nodeids",
    "nodes_treeids",
    "nodes_truenodeids",
    "nodes_values",
];
/// A tree is not deeper.
const MAX_DEPTH: usize = 64;
/// What a step of a way costs, in places.
const PER_STEP: usize = 4;
/// What to do about a file that does not hold together.
const AGAIN: &str = "export the model again";

/// A node that compares.
struct Test {
    feature: usize,
    mode: Mode,
    threshold: f32,
}

/// How a node compares a feature with its threshold.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    AtMost,
    Below,
    AtLeast,
    Above,
}

/// A leaf: the tests on its way, each with whether it is passed, and what it adds to the targets.
struct Leaf {
    way: Vec<(usize, bool)>,
    adds: Vec<(usize, f32)>,
}

/// All trees of a model.
struct Ensemble {
    tests: Vec<Test>,
    leaves: Vec<Leaf>,
    trees: usize,
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
        let ints = |name: &str| match p.call().ints(name)? {
            Some(list) => Ok(list),
            None => refuse(format!("`{name}` is missing"), AGAIN),
        };
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
        let mut added: HashMap<usize, Vec<(usize, f32)>> = HashMap::new();
        let ints = |name: &str| p.call().ints(name).map(Option::unwrap_or_default);
        let [trees, nodes, targets] = [ints(adds[0])?, ints(adds[1])?, ints(adds[2])?];
        let numbers = reals(p, adds[3])?;
        if [trees.len(), nodes.len(), targets.len()].iter().any(|&length| length != numbers.len()) {
            return refuse("has lists of leaves of different lengths", AGAIN);
        }
        for i in 0..numbers.len() {
            match (places.get(&(trees[i], nodes[i])), usize::try_from(targets[i])) {
                (Some(&place), Ok(target)) => added.entry(place).or_default().push((target, numbers[i])),
                _ => return refuse("gives a number to a leaf that there is not", AGAIN),
            }
        }
        // A root is a node that no other leads to.
        let child = |place: usize, passed: bool| {
            places.get(&(lists.ids[place].0, lists.ways[usize::from(passed)][place])).copied()
        };
        let mut below = BTreeSet::new();
        for place in 0..lists.ids.len() {
            if lists.mode(place)?.is_some() {
                below.extend([child(place, false), child(place, true)].into_iter().flatten());
            }
        }
        let roots: Vec<usize> = (0..lists.ids.len()).filter(|place| !below.contains(place)).collect();
        let mut ensemble = Ensemble { tests: vec![], leaves: vec![], trees: roots.len() };
        let mut seen = vec![false; lists.ids.len()];
        let mut open: Vec<(usize, Vec<(usize, bool)>)> = roots.into_iter().map(|r| (r, vec![])).collect();
        while let Some((place, way)) = open.pop() {
            if std::mem::replace(&mut seen[place], true) || way.len() > MAX_DEPTH {
                return refuse(format!("has trees that are none, or deeper than {MAX_DEPTH}"), AGAIN);
            }
            // Its way here, and a column for each step of it.
            p.graph.afford(PER_STEP * (way.len() + 1))?;
            let Some(mode) = lists.mode(place)? else {
                let adds = added.remove(&place).unwrap_or_default();
                ensemble.leaves.push(Leaf { way, adds });
                continue;
            };
            let feature = usize::try_from(lists.features[place]).ok().filter(|&f| f < features);
            let (Some(feature), Some(failed), Some(passed)) =
                (feature, child(place, false), child(place, true))
            else {
                return refuse("has a node without its feature or its branches", AGAIN);
            };
            let test = ensemble.tests.len();
            ensemble.tests.push(Test { feature, mode, threshold: lists.thresholds[place] });
            for (next, passes) in [(failed, false), (passed, true)] {
                open.push((next, way.iter().copied().chain([(test, passes)]).collect()));
            }
        }
        if seen.contains(&false) {
            return refuse("has trees that lead to their own roots", AGAIN);
        }
        Ok(ensemble)
    }

    /// The targets that leaves add to.
    fn targets(&self) -> BTreeSet<usize> {
        self.leaves.iter().flat_map(|leaf| leaf.adds.iter().map(|(target, _)| *target)).collect()
    }

    /// The outcomes of all tests, 1 where one is passed, in the order of `order`.
    fn outcomes(&self, p: &mut Parts, x: Id) -> Result<(Id, Vec<usize>), Refusal> {
        let (mut parts, mut order) = (vec![], vec![0; self.tests.len()]);
        let mut column = 0;
        for mode in [Mode::AtMost, Mode::Below, Mode::AtLeast, Mode::Above] {
            let tests: Vec<usize> = (0..self.tests.len()).filter(|&t| self.tests[t].mode == mode).collect();
            if tests.is_empty() {
                continue;
            }
            let features: Vec<usize> = tests.iter().map(|&t| self.tests[t].feature).collect();
            let thresholds: Vec<f32> = tests.iter().map(|&t| self.tests[t].threshold).collect();
            let x = p.gather(x, 1, &features)?;
            let thresholds = row(p, thresholds, tests.len())?;
            let strict = i64::from(matches!(mode, Mode::AtMost | Mode::Above));
            let above = p.node(THRESHOLDS, &[x, thresholds], Attributes::none().with("strict", strict))?;
            // At most a threshold is what is not above it.
            parts.push(match mode {
                Mode::AtMost | Mode::Below => p.affine(above, -1.0, 1.0)?,
                Mode::AtLeast | Mode::Above => above,
            });
            for test in tests {
                order[test] = column;
                column += 1;
            }
        }
        Ok((p.concat(&parts, 1)?, order))
    }

    /// For every row the sum of what its leaves add, for `targets` of them.
    fn sums(&self, p: &mut Parts, x: Id, targets: usize) -> Result<Id, Refusal> {
        let n = p.dims(x)[0];
        let mut leaves = vec![0.0; self.leaves.len() * targets];
        for (i, leaf) in self.leaves.iter().enumerate() {
            for &(target, number) in &leaf.adds {
                match leaves.get_mut(i * targets + target).filter(|_| target < targets) {
                    Some(sum) => *sum += number,
                    None => return refuse("adds to a target that there is not", AGAIN),
                }
            }
        }
        let values = p.constant(Tensor::new([self.leaves.len(), targets], leaves));
        if self.tests.is_empty() {
            return refuse("has no node that compares", "remove the model: it gives one number");
        }
        let (passed, order) = self.outcomes(p, x)?;
        let count = self.tests.len();
        // Column t: test t is failed; column count + t: it is passed; the last one: zero.
        let failed = p.affine(passed, -1.0, 1.0)?;
        let all = p.concat(&[failed, passed], 1)?;
        let all = p.node("Pad", &[all], Attributes::none().with("pads", [0, 0, 0, 1]))?;
        let depth = self.leaves.iter().map(|leaf| leaf.way.len()).max().unwrap_or(0);
        let mut misses = vec![];
        for level in 0..depth {
            let miss = |leaf: &Leaf| match leaf.way.get(level) {
                // What leads elsewhere is the other outcome.
                Some(&(test, true)) => order[test],
                Some(&(test, false)) => count + order[test],
                None => 2 * count,
            };
            let columns: Vec<usize> = self.leaves.iter().map(miss).collect();
            misses.push(p.gather(all, 1, &columns)?);
        }
        let misses = if depth == 1 { misses[0] } else { p.of("Sum", &misses)? };
        let reached = p.node(NONE, &[misses], Attributes::none().with("most", depth as i64))?;
        debug_assert_eq!(p.dims(reached), [n, self.leaves.len()]);
        p.of("MatMul", &[reached, values])
    }
}

fn regressor(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let own =
        ["n_targets", "post_transform", "target_ids", "target_nodeids", "target_treeids", "target_weights"];
    p.call().only(1, &[&OF_NODES[..], &own].concat())?;
    let (x, [_, features]) = rows(p)?;
    let mut ensemble =
        Ensemble::of(p, features, ["target_treeids", "target_nodeids", "target_ids", "target_weights"])?;
    match p.call().string("aggregate_function", "SUM")?.as_str() {
        "SUM" => {}
        "AVERAGE" => {
            let trees = ensemble.trees as f32;
            ensemble.leaves.iter_mut().flat_map(|leaf| &mut leaf.adds).for_each(|(_, v)| *v /= trees);
        }
        other => return refuse(format!("aggregates by {other}"), "use sums or averages"),
    }
    let targets = match usize::try_from(p.call().int("n_targets", 1)?) {
        Ok(targets) if (1..=1 << 12).contains(&targets) => targets,
        _ => return refuse("has no sane number of targets", AGAIN),
    };
    let mut y = ensemble.sums(p, x, targets)?;
    if let Some(base) = p.call().reals("base_values")?.filter(|base| !base.is_empty()) {
        let base = row(p, base, targets)?;
        y = p.plus(y, base)?;
    }
    Ok(vec![transformed(p, y)?])
}

fn classifier(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    let own = [
        "class_ids",
        "class_nodeids",
        "class_treeids",
        "class_weights",
        "classlabels_int64s",
        "classlabels_strings",
        "post_transform",
    ];
    p.call().only(1, &[&OF_NODES[..], &own].concat())?;
    let (x, [_, features]) = rows(p)?;
    let mut ensemble =
        Ensemble::of(p, features, ["class_treeids", "class_nodeids", "class_ids", "class_weights"])?;
    let classes = Classes::of(p, "classlabels_int64s")?;
    let targets = ensemble.targets();
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
    let mut adds = ensemble.leaves.iter_mut().flat_map(|leaf| &mut leaf.adds);
    let positive = adds.by_ref().map(|(target, v)| (*target = 0, *v >= 0.0).1).fold(true, |all, v| all & v);
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
