//! Trees whose shape nobody sees: every tree becomes as large as the largest, with as many leaves
//! as the next power of two, L, and L − 1 tests. Everybody sees the number of trees and L.
//!
//! Which feature a test looks at, and which tests lie on the way to a leaf, are matrices of secret
//! whole numbers, so the products are exact:
//! - features [tests, features] has a one in each row: the feature that the test compares;
//! - ways [leaves, tests] has a −1 where the way to the leaf fails the test, and a 1 where it
//!   passes; the tests that are passed on the way, taken from the product with the outcomes, leave
//!   0 at the leaf that is reached, and less at all others.
//!
//! So few rows are counted; many are guided ([`super::guided`]).
//!
//! What is left, compared with 0, is a one at one leaf of L. Its number is taken apart into two
//! digits: the exclusive or over the leaves of one digit is local, so that few bits, not L, must
//! become numbers before the products with the leaves' values.

use super::ensemble::{Distances, Ensemble, MAX_WEIGHTS, leaf_frac};
use crate::lowering::{Lowering, Secret};
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::tensor::Tensor;
use megrez_plan::View;

/// The sums of all trees [targets, rows], from the features [features, rows].
pub(super) fn sums(cx: &mut Lowering, ensemble: &Ensemble, x: &Secret) -> Result<Secret, Refusal> {
    if let Some(sums) = super::guided::sums(cx, ensemble, x)? {
        return Ok(sums);
    }
    let all = ensemble.forest.trees();
    let largest = all.iter().map(|tree| tree.leaves.len()).max().unwrap_or(1);
    let size = Size {
        trees: all.len(),
        leaves: largest.next_power_of_two(),
        features: cx.shape(x).dims()[0],
        rows: ensemble.rows,
        targets: ensemble.targets(),
    };
    size.check()?;
    let Size { trees, leaves, features, rows, .. } = size;
    let tests = leaves - 1;
    let mut places = vec![None; trees * tests];
    let mut chosen = vec![0.0; trees * tests * features];
    let mut ways = vec![0.0; trees * leaves * tests];
    let mut passes = vec![-1.0; trees * leaves];
    for (t, tree) in all.iter().enumerate() {
        for i in 0..tree.tests {
            let place = t * tests + i;
            places[place] = Some(tree.first + i);
            chosen[place * features + ensemble.forest.tests[tree.first + i].feature] = 1.0;
        }
        for (i, (_, way)) in tree.leaves.iter().enumerate() {
            let leaf = t * leaves + i;
            passes[leaf] = 0.0;
            for &(test, passed) in way {
                ways[leaf * tests + test - tree.first] = if passed { 1.0 } else { -1.0 };
                passes[leaf] -= f32::from(u8::from(passed));
            }
        }
    }
    let public = cx.is_public(x);
    let data = x.range.merged().with_zero();
    let chosen = Tensor::new([trees * tests, features], chosen);
    let columns = cx.product_within(["feature", "features"], (&chosen, 0), x, data)?;
    let borders = ensemble.borders(cx, &columns, &places);
    let distances = Distances::of(cx, &columns, &borders, public)?;
    let bits = distances.compared(cx, &distances.all)?;
    let ones = cx.bit_to_ring("number", &bits)?;
    let ones = cx.reshape("by-tree", &ones, [trees, tests, rows].into())?;
    let most = tests as i128;
    let ways = Tensor::new([trees, leaves, tests], ways);
    let left = cx.product_within(["way", "ways"], (&ways, 0), &ones, Range::uniform(-most, most))?;
    let left = cx.bias(&left, &Tensor::new([trees, leaves, 1], passes))?;
    let left = left.within(Range::uniform(-most, 0));
    let reached = cx.reached("leaf", &left, most, true)?;
    let own: Vec<Vec<usize>> =
        all.iter().map(|tree| tree.leaves.iter().map(|(leaf, _)| *leaf).collect()).collect();
    digits(cx, ensemble, &size, &reached, &own)
}

/// What everybody sees.
struct Size {
    trees: usize,
    leaves: usize,
    features: usize,
    rows: usize,
    targets: usize,
}

impl Size {
    fn check(&self) -> Result<(), Refusal> {
        let per_tree = self.leaves.checked_mul(self.leaves + self.features + self.targets);
        match per_tree.and_then(|n| n.checked_mul(self.trees)) {
            Some(n) if n <= MAX_WEIGHTS => Ok(()),
            _ => refuse(
                format!(
                    "{} trees of up to {} leaves, all made as large as the largest to hide their shape, take more than 2^25 secret weights",
                    self.trees, self.leaves
                ),
                "train smaller trees (max_leaf_nodes), or show everybody their shape: --trees shape",
            ),
        }
    }

    /// How many values the lower digit has: as few numbers as can be, of both digits and of the
    /// product between them.
    fn lower(&self) -> usize {
        let numbers = |lower: usize| self.leaves / lower + lower * (1 + self.targets);
        (0..=self.leaves.ilog2()).map(|i| 1 << i).min_by_key(|&lower| numbers(lower)).unwrap_or(1)
    }
}

/// The sums [targets, rows] of the leaves that bits [trees, leaves, rows] mark, one in each tree.
fn digits(
    cx: &mut Lowering,
    ensemble: &Ensemble,
    size: &Size,
    reached: &Secret,
    own: &[Vec<usize>],
) -> Result<Secret, Refusal> {
    let &Size { trees, leaves, rows, targets, .. } = size;
    let lower = size.lower();
    let upper = leaves / lower;
    // The value of leaf (u, l) of tree t, at [t, (l, target), u].
    let mut values = vec![0.0; trees * leaves * targets];
    for (t, own) in own.iter().enumerate() {
        for (i, leaf) in own.iter().enumerate() {
            for target in 0..targets {
                let column = (i % lower) * targets + target;
                values[(t * lower * targets + column) * upper + i / lower] =
                    ensemble.leaves.data[leaf * targets + target];
            }
        }
    }
    let values = Tensor::new([trees, lower * targets, upper], values);
    let folded = cx.parity("upper", reached, [trees * upper, lower, rows])?;
    let high = cx.bit_to_ring("upper-number", &folded)?;
    let high = cx.reshape("upper-digit", &high, [trees, upper, rows].into())?;
    let folded = cx.parity("lower", reached, [trees, upper, lower * rows])?;
    let low = cx.bit_to_ring("lower-number", &folded)?;
    let frac = leaf_frac(cx);
    let range = cx.bounds(&values.data, frac)?.with_zero();
    let picked = cx.product_within(["value", "values"], (&values, frac), &high, range)?;
    // [rows, targets, trees · lower] · [rows, trees · lower, 1].
    let picked = cx.reshape("by-digit", &picked, [trees * lower, targets, rows].into())?;
    let picked = cx.view("by-row", &picked, View::transpose(cx.shape(&picked), &[2, 1, 0]))?;
    let low = cx.reshape("lower-digit", &low, [trees * lower, rows].into())?;
    let low = cx.view("lower-by-row", &low, View::transpose(cx.shape(&low), &[1, 0]))?;
    let low = cx.reshape("lower-column", &low, [rows, trees * lower, 1].into())?;
    let sums = cx.matmul_within("sum", &picked, &low, ensemble.bounds(frac).merged())?;
    let sums = cx.reshape("sums", &sums, [rows, targets].into())?;
    cx.view("by-target", &sums, View::transpose(cx.shape(&sums), &[1, 0]))
}
