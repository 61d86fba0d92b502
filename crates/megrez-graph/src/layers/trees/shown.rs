//! Trees whose shape everybody sees: a leaf's way is public, its tests' outcomes are not.
//!
//! All tests are one comparison. Then there are two ways to the leaves:
//! - counted: a leaf is reached if no test on its way leads elsewhere, so the tests that do are
//!   counted, and the counts compared with 0: as many rounds for any depth;
//! - walked: a bit of the ring goes down from the root of every tree, and each test selects where
//!   it goes on: a round for each level, and one product in place of two conversions and a
//!   comparison.
//!
//! Which one it is follows from the shape and the number of rows alone.

use super::ensemble::{Ensemble, compared, leaf_frac};
use super::forest::{Next, Way};
use crate::lowering::{Lowering, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::View;

/// Leaves of all rows from which on a round costs less than what counting sends more, some 75 bits
/// a leaf: as many as a link of 1 Gbit/s carries in 2.5 ms.
const LEAVES_PER_ROUND: usize = 1 << 15;
/// Rounds from a test's bit to the bit of a leaf, counted: a conversion, a comparison, a
/// conversion.
const ROUNDS: usize = 4;

/// The sums of all trees [targets, rows], from the features [features, rows].
pub(super) fn sums(cx: &mut Lowering, ensemble: &Ensemble, x: &Secret) -> Result<Secret, Refusal> {
    let forest = ensemble.forest;
    let trees = forest.trees();
    let levels = levels(ensemble, &trees.iter().map(|tree| tree.first).collect::<Vec<_>>());
    let order: Vec<usize> = levels.concat();
    let features: Vec<usize> = order.iter().map(|&test| forest.tests[test].feature).collect();
    let public = cx.is_public(x);
    let columns = cx.pick("features", x, 0, &features)?;
    let places: Vec<Option<usize>> = order.iter().map(|&test| Some(test)).collect();
    let borders = ensemble.borders(cx, x, &places);
    let bits = compared(cx, &Secret { range: x.range.merged(), ..columns }, &borders, public)?;
    let extra = levels.len().saturating_sub(ROUNDS) * LEAVES_PER_ROUND;
    let reached = if forest.leaves * ensemble.rows >= extra {
        descend(cx, ensemble, &levels, &Walked { bits })?
    } else {
        let ones = cx.bit_to_ring("number", &bits)?;
        let rest = descend(cx, ensemble, &levels, &Counted { ones })?;
        let most = trees.iter().flat_map(|t| t.leaves.iter().map(|(_, way): &(usize, Way)| way.len())).max();
        let reached = cx.reached("leaf", &rest, most.unwrap_or(0) as i128, true)?;
        cx.bit_to_ring("leaf-number", &reached)?
    };
    let values = transposed(ensemble.leaves);
    let frac = leaf_frac(cx);
    cx.product_within(["sum", "values"], (&values, frac), &reached, ensemble.bounds(frac).merged())
}

/// The tests of each level, roots first.
fn levels(ensemble: &Ensemble, roots: &[usize]) -> Vec<Vec<usize>> {
    let mut levels = vec![roots.to_vec()];
    loop {
        let below = |test: &usize| {
            ensemble.forest.tests[*test].next.into_iter().filter_map(|next| match next {
                Next::Test(test) => Some(test),
                Next::Leaf(_) => None,
            })
        };
        let next: Vec<usize> = levels[levels.len() - 1].iter().flat_map(below).collect();
        if next.is_empty() {
            return levels;
        }
        levels.push(next);
    }
}

/// What goes down from the roots.
trait Step {
    /// What comes to those who fail and to those who pass the tests of a level, which begin at
    /// `first`; `here` is what has come to these tests, nothing at the roots.
    fn step(
        &self,
        cx: &mut Lowering,
        first: usize,
        shape: [usize; 2],
        here: Option<&Secret>,
    ) -> Result<[Secret; 2], Refusal>;
}

/// The bits of all tests, [tests, rows].
struct Walked {
    bits: Secret,
}

/// The same as numbers.
struct Counted {
    ones: Secret,
}

/// The rows of a level.
fn level(cx: &mut Lowering, all: &Secret, first: usize, shape: [usize; 2]) -> Result<Secret, Refusal> {
    cx.view("level", all, View { offset: first * shape[1], ..View::whole(shape.into()) })
}

impl Step for Walked {
    fn step(
        &self,
        cx: &mut Lowering,
        first: usize,
        shape: [usize; 2],
        here: Option<&Secret>,
    ) -> Result<[Secret; 2], Refusal> {
        let bits = level(cx, &self.bits, first, shape)?;
        let bit = Range::uniform(0, 1);
        let (passed, failed) = match here {
            None => {
                let passed = cx.bit_to_ring("number", &bits)?;
                let failed = cx.combine("failed", &[(-1, &passed)], 1)?;
                (passed, failed)
            }
            Some(here) => {
                let passed = cx.select("passed", &bits, here)?;
                let failed = cx.combine("failed", &[(1, here), (-1, &passed)], 0)?;
                (passed, failed)
            }
        };
        Ok([failed.within(bit.clone()), passed.within(bit)])
    }
}

impl Step for Counted {
    /// Less the tests that lead elsewhere.
    fn step(
        &self,
        cx: &mut Lowering,
        first: usize,
        shape: [usize; 2],
        here: Option<&Secret>,
    ) -> Result<[Secret; 2], Refusal> {
        let ones = level(cx, &self.ones, first, shape)?;
        let before = here.map(|here| (1, here));
        let terms = |sign: i64| before.into_iter().chain([(sign, &ones)]).collect::<Vec<_>>();
        Ok([cx.combine("failed", &terms(-1), 0)?, cx.combine("passed", &terms(1), -1)?])
    }
}

/// What comes to the leaves [leaves, rows].
fn descend(
    cx: &mut Lowering,
    ensemble: &Ensemble,
    levels: &[Vec<usize>],
    step: &dyn Step,
) -> Result<Secret, Refusal> {
    let (mut here, mut first): (Option<Secret>, usize) = (None, 0);
    let (mut arrived, mut order) = (vec![], vec![]);
    for tests in levels {
        let next = step.step(cx, first, [tests.len(), ensemble.rows], here.as_ref())?;
        first += tests.len();
        let both = cx.concat("both", &[&next[0], &next[1]], 0)?;
        let place = |side: usize, i: usize| side * tests.len() + i;
        let (mut on, mut leaves) = (vec![], vec![]);
        for (i, &test) in tests.iter().enumerate() {
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
    let mut places = vec![0; order.len()];
    order.into_iter().enumerate().for_each(|(place, leaf)| places[leaf] = place);
    cx.pick("in-order", &all, 0, &places)
}

/// [targets, leaves].
fn transposed(leaves: &Tensor) -> Tensor {
    let view = View::transpose(&leaves.shape, &[1, 0]);
    leaves.view(&view)
}
