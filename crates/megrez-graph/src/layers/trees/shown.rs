//! Trees whose shape everybody sees: a leaf's way is public, its tests' outcomes are not.
//!
//! There are three ways to the leaves:
//! - counted: all tests are one comparison. A leaf is reached if no test on its way leads
//!   elsewhere, so the tests that do are counted, and the counts compared with 0: as many rounds
//!   for any depth;
//! - guided, where a protocol adds up what bits select: a bit goes down from the root of every
//!   tree. On each level it chooses among a tree's tests the one that is asked, whose distance
//!   alone is compared: one comparison for each level of a tree in place of one for each test, and
//!   four rounds for each level;
//! - walked, where it does not: all tests are one comparison, and a bit of the ring goes down from
//!   the roots, of which each test selects where it goes on: a round for each level, and one
//!   product for a test.
//!
//! Which one it is follows from the shape, the number of rows and the protocol alone.

use super::ensemble::{Distances, Ensemble, leaf_frac};
use super::forest::{Next, Way};
use crate::lowering::{Lowering, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::View;

/// What a way costs besides what counting does.
struct Price {
    /// Leaves of all rows from which on a round costs less than what counting sends more, as many
    /// as a link of 1 Gbit/s carries in 2.5 ms: of some 170 bits a leaf, or 75.
    leaves_per_round: usize,
    /// Rounds of a level.
    rounds: usize,
    /// Levels that take as long as counting does.
    levels: usize,
}

const GUIDED: Price = Price { leaves_per_round: 1 << 14, rounds: 4, levels: 2 };
const WALKED: Price = Price { leaves_per_round: 1 << 15, rounds: 1, levels: 4 };

/// The most targets whose numbers are chosen by bits, two dealt words for each number of a leaf;
/// for more, bits become numbers, and a product with all targets follows.
const CHOSEN_TARGETS: usize = 2;

/// The sums of all trees [targets, rows], from the features [features, rows].
pub(super) fn sums(cx: &mut Lowering, ensemble: &Ensemble, x: &Secret) -> Result<Secret, Refusal> {
    let forest = ensemble.forest;
    let trees = forest.trees();
    let levels = levels(ensemble);
    let order: Vec<usize> = levels.iter().flat_map(|level| level.tests.clone()).collect();
    let features: Vec<usize> = order.iter().map(|&test| forest.tests[test].feature).collect();
    let public = cx.is_public(x);
    let columns = cx.pick("features", x, 0, &features)?;
    let places: Vec<Option<usize>> = order.iter().map(|&test| Some(test)).collect();
    let borders = ensemble.borders(cx, x, &places);
    let columns = Secret { range: x.range.merged(), ..columns };
    let distances = Distances::of(cx, &columns, &borders, public)?;
    let price = if cx.adds_what_it_selects() { GUIDED } else { WALKED };
    let extra = levels.len().saturating_sub(price.levels) * price.rounds * price.leaves_per_round;
    let counts = forest.leaves * ensemble.rows < extra;
    if !counts && cx.adds_what_it_selects() {
        let (bits, leaves) = descend(cx, ensemble, &levels, &Guided { distances })?;
        return chosen(cx, ensemble, x, &bits, &leaves);
    }
    let bits = distances.compared(cx, &distances.all)?;
    if !counts {
        let (reached, leaves) = descend(cx, ensemble, &levels, &Walked { bits })?;
        return added(cx, ensemble, &reached, &leaves);
    }
    let ones = cx.bit_to_ring("number", &bits)?;
    let (rest, leaves) = descend(cx, ensemble, &levels, &Counted { ones })?;
    let most = trees.iter().flat_map(|t| t.leaves.iter().map(|(_, way): &(usize, Way)| way.len())).max();
    let reached = cx.reached("leaf", &rest, most.unwrap_or(0) as i128, true)?;
    let reached = cx.bit_to_ring("leaf-number", &reached)?;
    added(cx, ensemble, &reached, &leaves)
}

/// The sums of the numbers of the leaves that bits [leaves, rows] mark, beside the features.
fn chosen(
    cx: &mut Lowering,
    ensemble: &Ensemble,
    x: &Secret,
    bits: &Secret,
    leaves: &[usize],
) -> Result<Secret, Refusal> {
    let targets = ensemble.targets();
    if targets > CHOSEN_TARGETS {
        let reached = cx.bit_to_ring("leaf-number", bits)?;
        return added(cx, ensemble, &reached, leaves);
    }
    let (values, n) = (values(ensemble, leaves), targets * leaves.len());
    let frac = leaf_frac(cx);
    let column = Tensor::new([n, 1], values.data);
    let column = cx.hidden_at(x, ("values", &column), frac)?;
    let column = cx.broadcast("values-of-rows", &column, &[n, ensemble.rows].into())?;
    let copies = match targets {
        1 => bits.clone(),
        _ => cx.concat("of-targets", &vec![bits; targets], 0)?,
    };
    cx.select_sum("sum", &copies, &column, &vec![leaves.len(); targets], ensemble.bounds(frac).merged())
}

/// The same of ones and zeros [leaves, rows], by a product.
fn added(
    cx: &mut Lowering,
    ensemble: &Ensemble,
    reached: &Secret,
    leaves: &[usize],
) -> Result<Secret, Refusal> {
    let frac = leaf_frac(cx);
    let range = ensemble.bounds(frac).merged();
    cx.product_within(["sum", "values"], (&values(ensemble, leaves), frac), reached, range)
}

/// The numbers of leaves in this order, [targets, leaves].
fn values(ensemble: &Ensemble, leaves: &[usize]) -> Tensor {
    let targets = ensemble.targets();
    let of = |target: usize| leaves.iter().map(move |leaf| ensemble.leaves.data[leaf * targets + target]);
    Tensor::new([targets, leaves.len()], (0..targets).flat_map(of).collect())
}

/// A level of all trees.
struct Level {
    /// Its tests, those of a tree together.
    tests: Vec<usize>,
    /// How many tests each tree has that has some.
    groups: Vec<usize>,
    /// How many tests are on the levels above.
    first: usize,
}

/// The levels, roots first.
fn levels(ensemble: &Ensemble) -> Vec<Level> {
    let forest = ensemble.forest;
    let trees = forest.trees();
    let tree = |test: &usize| trees.partition_point(|tree| tree.first <= *test);
    let mut tests: Vec<usize> = trees.iter().map(|tree| tree.first).collect();
    let (mut first, mut levels) = (0, vec![]);
    loop {
        let groups = tests.chunk_by(|a, b| tree(a) == tree(b)).map(<[usize]>::len).collect();
        let below = |test: &usize| {
            forest.tests[*test].next.into_iter().filter_map(|next| match next {
                Next::Test(test) => Some(test),
                Next::Leaf(_) => None,
            })
        };
        let next: Vec<usize> = tests.iter().flat_map(below).collect();
        let above = first;
        first += tests.len();
        levels.push(Level { tests, groups, first: above });
        if next.is_empty() {
            return levels;
        }
        tests = next;
    }
}

/// What goes down from the roots.
trait Step {
    /// What comes to those who fail and to those who pass the tests of a level; `here` is what has
    /// come to these tests, nothing at the roots.
    fn step(&self, cx: &mut Lowering, level: &Level, here: Option<&Secret>) -> Result<[Secret; 2], Refusal>;
}

/// The distances of all tests, of which the one that is asked is compared.
struct Guided {
    distances: Distances,
}

/// The outcomes of all tests, [tests, rows].
struct Walked {
    bits: Secret,
}

/// The same as numbers.
struct Counted {
    ones: Secret,
}

/// The rows of a level.
fn rows_of(cx: &mut Lowering, level: &Level, all: &Secret) -> Result<Secret, Refusal> {
    let rows = cx.shape(all).dims()[1];
    let view = View { offset: level.first * rows, ..View::whole([level.tests.len(), rows].into()) };
    cx.view("level", all, view)
}

impl Step for Guided {
    fn step(&self, cx: &mut Lowering, level: &Level, here: Option<&Secret>) -> Result<[Secret; 2], Refusal> {
        let mut asked = rows_of(cx, level, &self.distances.all)?;
        if let Some(here) = here {
            // Of a tree's tests at most one is asked.
            let range = asked.range.merged().with_zero();
            asked = cx.select_sum("asked", here, &asked, &level.groups, range)?;
        }
        let outcome = self.distances.compared(cx, &asked)?;
        let trees = level.groups.iter().enumerate().flat_map(|(tree, &n)| vec![tree; n]);
        let outcomes = cx.pick("outcome", &outcome, 0, &trees.collect::<Vec<_>>())?;
        cx.split(["failed", "passed"], here, &outcomes)
    }
}

impl Step for Walked {
    fn step(&self, cx: &mut Lowering, level: &Level, here: Option<&Secret>) -> Result<[Secret; 2], Refusal> {
        let (bits, bit) = (rows_of(cx, level, &self.bits)?, Range::uniform(0, 1));
        let (passed, all, one) = match here {
            None => (cx.bit_to_ring("number", &bits)?, None, 1),
            Some(here) => (cx.select("passed", &bits, here)?, Some((1, here)), 0),
        };
        let terms: Vec<_> = all.into_iter().chain([(-1, &passed)]).collect();
        let failed = cx.combine("failed", &terms, one)?;
        Ok([failed.within(bit.clone()), passed.within(bit)])
    }
}

impl Step for Counted {
    /// Less the tests that lead elsewhere.
    fn step(&self, cx: &mut Lowering, level: &Level, here: Option<&Secret>) -> Result<[Secret; 2], Refusal> {
        let ones = rows_of(cx, level, &self.ones)?;
        let before = here.map(|here| (1, here));
        let terms = |sign: i64| before.into_iter().chain([(sign, &ones)]).collect::<Vec<_>>();
        Ok([cx.combine("failed", &terms(-1), 0)?, cx.combine("passed", &terms(1), -1)?])
    }
}

/// What comes to the leaves [leaves, rows], and which leaf each of them is.
fn descend(
    cx: &mut Lowering,
    ensemble: &Ensemble,
    levels: &[Level],
    step: &dyn Step,
) -> Result<(Secret, Vec<usize>), Refusal> {
    let mut here: Option<Secret> = None;
    let (mut arrived, mut order) = (vec![], vec![]);
    for level in levels {
        let next = step.step(cx, level, here.as_ref())?;
        let both = cx.concat("both", &[&next[0], &next[1]], 0)?;
        let place = |side: usize, i: usize| side * level.tests.len() + i;
        let (mut on, mut leaves) = (vec![], vec![]);
        for (i, &test) in level.tests.iter().enumerate() {
            for (side, next) in ensemble.forest.tests[test].next.into_iter().enumerate() {
                match next {
                    Next::Test(_) => on.push(place(side, i)),
                    Next::Leaf(leaf) => {
                        leaves.push(place(side, i));
                        order.push(leaf);
                    }
                }
            }
        }
        if !leaves.is_empty() {
            arrived.push(cx.pick("arrived", &both, 0, &leaves)?);
        }
        if !on.is_empty() {
            here = Some(cx.pick("here", &both, 0, &on)?);
        }
    }
    let all = cx.concat("leaves", &arrived.iter().collect::<Vec<_>>(), 0)?;
    Ok((all, order))
}
