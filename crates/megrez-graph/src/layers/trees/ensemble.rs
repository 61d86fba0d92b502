//! A forest with its weights: what both forms of trees compare and add.

use super::forest::Forest;
use crate::lowering::{Lowering, SPARE_BITS, Secret};
use crate::problem::Refusal;
use crate::range::Range;
use crate::tensor::Tensor;

/// The most secret weights that stand for the shape of hidden trees.
pub(super) const MAX_WEIGHTS: usize = 1 << 25;

/// A forest with its weights.
pub(super) struct Ensemble<'a> {
    pub forest: &'a Forest,
    pub thresholds: &'a Tensor,
    /// [leaves, targets].
    pub leaves: &'a Tensor,
    pub rows: usize,
}

impl Ensemble<'_> {
    pub fn targets(&self) -> usize {
        self.leaves.shape.dims()[1]
    }

    /// The sums' bounds, as words: of every tree one leaf counts.
    pub fn bounds(&self, frac: u32) -> Range {
        let (targets, unit) = (self.targets(), 2f64.powi(frac as i32));
        let trees = self.forest.trees();
        let of_target = |target: usize| {
            let mut sum = (0i128, 0i128);
            for tree in &trees {
                let numbers = tree.leaves.iter().map(|(leaf, _)| {
                    (f64::from(self.leaves.data[leaf * targets + target]) * unit).round() as i128
                });
                sum.0 = sum.0.saturating_add(numbers.clone().min().unwrap_or(0));
                sum.1 = sum.1.saturating_add(numbers.max().unwrap_or(0));
            }
            sum
        };
        Range::per_channel((0..targets).map(of_target).collect())
    }

    /// The leaves' numbers as words [leaves, targets].
    pub fn words(&self, cx: &Lowering) -> Result<Vec<i64>, Refusal> {
        let frac = leaf_frac(cx);
        self.leaves.data.iter().map(|&number| cx.encode(number, frac)).collect()
    }

    /// For each test the number from which on it is passed, as a column that is taken from x.
    /// `places` has for each place of the column a test, or none where any number will do.
    pub fn borders(&self, cx: &Lowering, x: &Secret, places: &[Option<usize>]) -> Tensor {
        let (low, high) = x.range.hull();
        let unit = 2f64.powi(cx.frac_of(x) as i32);
        // Beyond the range one threshold is like any other.
        let first = not_above((low - 1) as f64 / unit);
        let last = after(high, unit);
        let border = |place: &Option<usize>| {
            let Some(i) = *place else { return 0.0 };
            let t = self.thresholds.data[i].clamp(first, last);
            let word = (f64::from(t) * unit).round() as i128;
            -if self.forest.tests[i].strict { after(word, unit).min(last) } else { t }
        };
        Tensor::new([places.len(), 1], places.iter().map(border).collect())
    }
}

/// The fraction bits of the leaves' numbers, of which many are added: as many as a product takes of
/// what it multiplies, on the larger ring.
pub(super) fn leaf_frac(cx: &Lowering) -> u32 {
    if cx.ring() == 64 { cx.frac() + SPARE_BITS } else { cx.frac() }
}

/// The largest number of float32 that is not above this one.
fn not_above(value: f64) -> f32 {
    let near = value as f32;
    if f64::from(near) > value { near.next_down() } else { near }
}

/// The least number of float32 that is not below the word after this one.
fn after(word: i128, unit: f64) -> f32 {
    -not_above(-((word + 1) as f64 / unit))
}

/// A bound that everybody may know of |x − t| for borders t of [`Ensemble::borders`], in words: the
/// range of x and a unit at either end; float32 has 24 significant bits, so rounded borders may
/// lie further out by so much.
pub(super) fn room(x: &Range) -> i128 {
    let (low, high) = x.hull();
    let rounding = x.magnitude() >> 22;
    high.saturating_sub(low).saturating_add(2).saturating_add(rounding.saturating_mul(2))
}

/// How far columns x [tests, rows] are above borders, one for each test.
pub(super) struct Distances {
    /// [tests, rows].
    pub all: Secret,
    /// A bound that everybody may know, in words.
    most: i128,
    /// Whether the range of x is public.
    public: bool,
}

impl Distances {
    pub fn of(cx: &mut Lowering, x: &Secret, borders: &Tensor, public: bool) -> Result<Self, Refusal> {
        Ok(Distances { most: room(&x.range), all: cx.bias(x, borders)?, public })
    }

    /// The bits [d ≥ 0] of distances, or of 0 in place of some.
    pub fn compared(&self, cx: &mut Lowering, distances: &Secret) -> Result<Secret, Refusal> {
        cx.reached("compare", distances, self.most, self.public)
    }
}
