//! Gradient-boosted trees: one step grows one tree on all rows. XGBoost's algorithm on histograms
//! (Chen and Guestrin 2016, §2.2 and Algorithm 1), with complete trees, on shares.
//!
//! A row is its *indicators*, one for each threshold of each feature: u_c is 1 where the feature
//! exceeds the threshold t_c, and else 0. The row's owner compares, so the parties never do. With M
//! the rows' membership in the nodes of a level, g and h the first and second derivative of the
//! loss at the scores so far:
//!
//! ```text
//! G = (M·g)ᵀ U,  H = (M·h)ᵀ U       sums right of every threshold, and left of it with 1 − U
//! gain = G² / (H + λ)               of both sides, added up
//! S = one-hot of the largest gain   R = U Sᵀ, who goes right
//! M' = (M·(1 − R) | M·R)            leaves −η·G / (H + λ) at the chosen thresholds, scores += M'·leaves
//! ```
//!
//! A node in which no threshold gains anything is split all the same, at some threshold; where no
//! row is on a side, that side's leaf is 0.
//!
//! *Scales.* G and H are up to as many as there are rows, and fraction bits are few. With 4^j of
//! about the largest cover, (G / 2^j)² and (H + λ) / 4^j have small whole parts: a gain is off by
//! 2^−15 of itself, so that one threshold wins in every run unless two gain next to the same.
//!
//! What lasts from step to step is the trees so far (`w.split` [trees, nodes, thresholds] and
//! `w.leaf` [trees, leaves], the newest last) and the scores of the rows. Nothing is opened but the
//! mean of g² (for squares half of it) over the rows, which is added up as any loss. Everybody
//! knows how many rows, trees, levels and thresholds there are; nobody which thresholds are chosen.
//!
//! Indicators, membership and choices are exact: a product of numbers 0 and 1 is truncated without
//! a remainder.

use crate::differentiate::{Loss, State, Step, Validation, counting};
use crate::graph::{Attributes, Graph, Id};
use crate::layers::{AFFINE, PICKED};
use crate::problem::{Cause, Problem, Refusal};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use std::str::FromStr;

/// The state that is the trees' thresholds, and their leaves.
const SPLIT: &str = "w.split";
const LEAF: &str = "w.leaf";
/// The state that is what the trees so far say of the rows.
const SCORES: &str = "scores";
/// The most levels.
const MAX_DEPTH: u32 = 8;
/// The most trees.
const MAX_TREES: usize = 1000;

/// What trees make small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The binary cross-entropy of labels 0 and 1; a score is a logit.
    Logistic,
    /// Half the squared distance from targets.
    Squares,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "logistic" => Ok(Objective::Logistic),
            "squares" => Ok(Objective::Squares),
            _ => Err(format!("there is no objective `{text}`: logistic or squares")),
        }
    }
}

/// How trees are grown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Boosting {
    /// What they make small.
    pub objective: Objective,
    /// How many there are: epochs of the job.
    pub trees: usize,
    /// Levels of each: 2^depth leaves.
    pub depth: u32,
    /// η: how much of its step a tree takes.
    pub rate: f32,
    /// λ, added to the second derivatives of a leaf.
    pub penalty: f32,
}

/// What nodes are appended to, with short hands for what trees need.
struct Trees(Graph);

impl Trees {
    fn add(&mut self, name: &str, op: &str, inputs: &[Id], attributes: Attributes) -> Result<Id, Problem> {
        self.0.add(name, op, inputs, attributes)
    }

    fn plain(&mut self, name: &str, op: &str, inputs: &[Id]) -> Result<Id, Problem> {
        self.add(name, op, inputs, Attributes::none())
    }

    fn affine(&mut self, name: &str, x: Id, factor: f32, offset: f32) -> Result<Id, Problem> {
        self.add(name, AFFINE, &[x], Attributes::none().with("factor", factor).with("offset", offset))
    }

    fn reshape(&mut self, name: &str, x: Id, dims: &[usize]) -> Result<Id, Problem> {
        let dims: Vec<i64> = dims.iter().map(|&n| n as i64).collect();
        self.add(name, "Reshape", &[x], Attributes::none().with("shape", dims))
    }

    fn concat(&mut self, name: &str, parts: &[Id], axis: i64) -> Result<Id, Problem> {
        self.add(name, "Concat", parts, Attributes::none().with("axis", axis))
    }

    fn slice(&mut self, name: &str, x: Id, axis: i64, from: usize, to: usize) -> Result<Id, Problem> {
        let one = |v: i64| vec![v];
        let attributes = Attributes::none()
            .with("axes", one(axis))
            .with("starts", one(from as i64))
            .with("ends", one(to as i64));
        self.add(name, "Slice", &[x], attributes)
    }

    fn sum(&mut self, name: &str, x: Id, axis: i64, keep: bool) -> Result<Id, Problem> {
        let attributes = Attributes::none().with("axes", vec![axis]).with("keepdims", i64::from(keep));
        self.add(name, "ReduceSum", &[x], attributes)
    }

    fn transposed(&mut self, name: &str, x: Id) -> Result<Id, Problem> {
        self.add(name, "Transpose", &[x], Attributes::none().with("perm", vec![1i64, 0]))
    }

    /// What goes right, and what is left of it.
    fn parted(&mut self, name: &str, x: Id, right: Id) -> Result<[Id; 2], Problem> {
        let right = self.plain(&format!("{name}.right"), "Mul", &[x, right])?;
        let left = self.plain(&format!("{name}.left"), "Sub", &[x, right])?;
        Ok([left, right])
    }
}

impl Boosting {
    fn check(&self) -> Result<(), Problem> {
        let invalid = |what: String| Err(Refusal::new(what, "").because(Cause::Invalid).at("trees", ""));
        if !(1..=MAX_DEPTH).contains(&self.depth) {
            return invalid(format!("trees have from 1 to {MAX_DEPTH} levels, not {}", self.depth));
        }
        if !(1..=MAX_TREES).contains(&self.trees) {
            return invalid(format!("there are from 1 to {MAX_TREES} trees, not {}", self.trees));
        }
        if !(self.rate > 0.0 && self.rate <= 1.0) {
            return invalid(format!("the rate is above 0 and at most 1, not {}", self.rate));
        }
        // Below, the quotient of an empty leaf has no room.
        if !(0.125..=1024.0).contains(&self.penalty) {
            return invalid(format!("the penalty is from 0.125 to 1024, not {}", self.penalty));
        }
        Ok(())
    }

    /// What training knows of the objective: whether labels are classes.
    fn loss(&self) -> Loss {
        match self.objective {
            Objective::Logistic => Loss::CrossEntropy,
            Objective::Squares => Loss::MeanSquares,
        }
    }

    /// Inner nodes of a tree, and its leaves.
    fn sizes(&self) -> [usize; 2] {
        [(1 << self.depth) - 1, 1 << self.depth]
    }

    /// What the step and the kept model have in common: the trees, at first without any split.
    fn state(&self, columns: usize) -> Vec<State> {
        let [inner, leaves] = self.sizes();
        let zeros = |name: &str, shape: Shape| State { name: name.into(), start: Tensor::filled(shape, 0.0) };
        vec![zeros(SPLIT, [self.trees, inner, columns].into()), zeros(LEAF, [self.trees, leaves].into())]
    }

    /// The step that grows the next tree on `rows` rows of `columns` indicators.
    ///
    /// # Errors
    /// Numbers of trees, levels, rate or penalty that make no sense.
    pub fn step(&self, rows: usize, columns: usize) -> Result<Step, Problem> {
        self.check()?;
        let mut t = Trees(Graph::new("boosting"));
        let x = t.0.input("x", [rows, columns])?;
        let y = t.0.input(Step::LABELS, [rows, 1])?;
        let mut state = self.state(columns);
        let [splits, leaves] = [0, 1].map(|i| (state[i].name.clone(), state[i].start.shape.clone()));
        let splits = t.0.input(&splits.0, splits.1)?;
        let leaves = t.0.input(&leaves.0, leaves.1)?;
        let scores = t.0.input(SCORES, [rows, 1])?;
        state.push(State { name: SCORES.into(), start: Tensor::filled([rows, 1], 0.0) });

        // The derivatives of the loss by the scores.
        let (g, h, largest_h, half) = match self.objective {
            Objective::Logistic => {
                let p = t.plain("probability", "Sigmoid", &[scores])?;
                let rest = t.affine("rest", p, -1.0, 1.0)?;
                let product = t.plain("product", "Mul", &[p, rest])?;
                // What stands for a sigmoid may leave 0 to 1 by its error, and thousands of these
                // are added up.
                (t.plain("gradient", "Sub", &[p, y])?, t.plain("curvature", "Relu", &[product])?, 0.25, 1.0)
            }
            Objective::Squares => {
                let g = t.plain("gradient", "Sub", &[scores, y])?;
                (g, t.affine("curvature", scores, 0.0, 1.0)?, 1.0, 0.5)
            }
        };
        // What is divided by is 1 at most, so its inverse has all its fraction bits. Factors down
        // to 2^−16 are exact.
        let largest = f64::from(self.penalty) + rows as f64 * largest_h;
        let root = 2f32.powi(-((largest.log2() / 2.0).ceil() as i32).clamp(0, 8));
        let unit = root * root;

        let not_beyond = t.affine("not-beyond", x, -1.0, 1.0)?;
        let (mut of_g, mut of_h, mut members) = (g, h, None);
        let mut chosen = vec![];
        for level in 0..self.depth {
            let (nodes, at) = (1usize << level, |what: &str| format!("level{level}.{what}"));
            // The sums on both sides of every threshold, and what they are worth.
            let g_nodes = t.transposed(&at("g.nodes"), of_g)?;
            let h_nodes = t.transposed(&at("h.nodes"), of_h)?;
            let (mut sides, mut gains) = (vec![], vec![]);
            // Both sides are sums of what is not negative: a difference would not prove it.
            for (side, rows) in [("left", not_beyond), ("right", x)] {
                let g = t.plain(&at(&format!("{side}.g")), "MatMul", &[g_nodes, rows])?;
                let h = t.plain(&at(&format!("{side}.h")), "MatMul", &[h_nodes, rows])?;
                let h = t.affine(&at(&format!("{side}.cover")), h, unit, self.penalty * unit)?;
                let inverse = t.plain(&at(&format!("{side}.inverse")), "Reciprocal", &[h])?;
                let g = t.affine(&at(&format!("{side}.scaled")), g, root, 0.0)?;
                let square = t.plain(&at(&format!("{side}.square")), "Mul", &[g, g])?;
                gains.push(t.plain(&at(&format!("{side}.gain")), "Mul", &[square, inverse])?);
                sides.push((side, g, inverse));
            }
            let gain = t.plain(&at("gain"), "Add", &gains)?;
            let one = t.add(&at("split"), "Hardmax", &[gain], Attributes::none().with("axis", 1i64))?;
            chosen.push(one);
            let turned = t.transposed(&at("thresholds"), one)?;
            let right = t.plain(&at("goes-right"), PICKED, &[x, turned])?;
            let left = t.affine(&at("goes-left"), right, -1.0, 1.0)?;
            let [left_members, right_members] = match members {
                Some(members) => t.parted(&at("members"), members, right)?,
                None => [left, right],
            };
            members = Some(t.concat(&at("members"), &[left_members, right_members], 1)?);
            if level + 1 < self.depth {
                let of_children = t.parted(&at("g"), of_g, right)?;
                of_g = t.concat(&at("g.children"), &of_children, 1)?;
                let left = t.plain(&at("h.left"), "Mul", &[of_h, left])?;
                let right = t.plain(&at("h.right"), "Mul", &[of_h, right])?;
                of_h = t.concat(&at("h.children"), &[left, right], 1)?;
                continue;
            }
            // The leaves: what the chosen thresholds' sides are worth.
            let mut of_sides = vec![];
            for (side, g, inverse) in sides {
                let inverse = t.affine(&at(&format!("{side}.inverse-scaled")), inverse, root, 0.0)?;
                let value = t.plain(&at(&format!("{side}.value")), "Mul", &[g, inverse])?;
                let own = t.plain(&at(&format!("{side}.chosen")), "Mul", &[value, one])?;
                of_sides.push(t.sum(&at(&format!("{side}.leaf")), own, 1, false)?);
            }
            let steps = t.concat("steps", &of_sides, 0)?;
            let leaf = t.affine("leaf", steps, -self.rate, 0.0)?;
            let column = t.reshape("leaf.column", leaf, &[2 * nodes, 1])?;
            let members = members.expect("every level makes them");
            let moves = t.plain("moves", "MatMul", &[members, column])?;
            let moved = t.plain("scores.moved", "Add", &[scores, moves])?;
            t.0.output(SCORES, moved);
            let row = t.reshape("leaf.row", leaf, &[1, 2 * nodes])?;
            let last = self.behind(&mut t, "leaf", leaves, row)?;
            t.0.output(LEAF, last);
        }
        let [inner, _] = self.sizes();
        let tree = if chosen.len() == 1 { chosen[0] } else { t.concat("splits", &chosen, 0)? };
        let tree = t.reshape("splits.row", tree, &[1, inner, columns])?;
        let last = self.behind(&mut t, "split", splits, tree)?;
        t.0.output(SPLIT, last);

        let squares = t.plain("loss.squares", "Mul", &[g, g])?;
        let sum = t.sum("loss.rows", squares, 0, true)?;
        let mean = t.affine("loss.mean", sum, half / rows as f32, 0.0)?;
        t.0.output(Step::LOSS, mean);
        let loss = self.loss();
        Step { graph: t.0, state, batch: rows, shards: 1, loss, privacy: None }.adding_up_losses()
    }

    /// The newest tree behind those before it; the oldest goes.
    fn behind(&self, t: &mut Trees, what: &str, all: Id, newest: Id) -> Result<Id, Problem> {
        if self.trees == 1 {
            return Ok(newest);
        }
        let before = t.slice(&format!("{what}.before"), all, 0, 1, self.trees)?;
        t.concat(&format!("{what}.all"), &[before, newest], 0)
    }

    /// The trees as a model of `batch` rows of indicators: scores [batch, 1], and the state that it
    /// reads.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn model(&self, batch: usize, columns: usize) -> Result<(Graph, Vec<State>), Problem> {
        self.check()?;
        let [inner, leaves] = self.sizes();
        let mut t = Trees(Graph::new("trees"));
        let x = t.0.input("x", [batch, columns])?;
        let state = self.state(columns);
        let split = t.0.input(SPLIT, state[0].start.shape.clone())?;
        let leaf = t.0.input(LEAF, state[1].start.shape.clone())?;
        let all = t.reshape("splits", split, &[self.trees * inner, columns])?;
        let turned = t.transposed("thresholds", all)?;
        let right = t.plain("goes-right", PICKED, &[x, turned])?;
        let right = t.reshape("ways", right, &[batch, self.trees, inner])?;
        let mut members = None;
        for level in 0..self.depth {
            let (nodes, at) = (1usize << level, |what: &str| format!("level{level}.{what}"));
            let right = t.slice(&at("ways"), right, 2, nodes - 1, 2 * nodes - 1)?;
            let sides = match members {
                Some(members) => t.parted(&at("members"), members, right)?,
                None => [t.affine(&at("members.left"), right, -1.0, 1.0)?, right],
            };
            members = Some(t.concat(&at("members"), &sides, 2)?);
        }
        let members = members.expect("there is a level");
        let members = t.reshape("leaves.of-rows", members, &[batch, self.trees * leaves])?;
        let column = t.reshape("leaves", leaf, &[self.trees * leaves, 1])?;
        let scores = t.plain("scores", "MatMul", &[members, column])?;
        t.0.output("scores", scores);
        Ok((t.0, state))
    }

    /// What counts on a batch how many rows' labels the trees are right about, or takes their loss.
    ///
    /// # Errors
    /// Those of [`step`](Self::step).
    pub fn validation(&self, batch: usize, columns: usize) -> Result<Validation, Problem> {
        let (mut graph, state) = self.model(batch, columns)?;
        let scores = graph.outputs.remove(0).id;
        let labels = graph.input(Step::LABELS, [batch, 1])?;
        counting(graph, (scores, labels), self.loss(), state)
    }
}
