//! Ensembles of decision trees: what `decompose/trees.rs` makes of a file.
//!
//! Two forms, between which the model's owner chooses ([`TreeForm`]): in `shape` everybody sees
//! the exact trees and which feature a test looks at; in `hidden` the number of trees and how many
//! leaves the largest has, rounded up to a power of two. Thresholds and the numbers of leaves are
//! secret weights in both. Every comparison is exact on the fixed-point grid: a number on a
//! threshold goes where the original sends it.

mod forest;
mod hidden;
mod shown;

pub(crate) use forest::{Forest, Next, Test};

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, SPARE_BITS, Secret};
use crate::options::TreeForm;
use crate::problem::{Refusal, refuse};
use crate::range::Range;
use crate::scale::Scale;
use crate::tensor::{Constant, Tensor};
use megrez_plan::View;
use megrez_ring::Shape;
use std::sync::Arc;

/// Rows [n, features], tests [t, 4] as [`Forest::encoded`] writes them, thresholds [t] and numbers
/// of leaves [leaves, targets] give, for every row and target, the sum over the trees [n, targets].
pub(crate) const TREES: &str = "Trees";

struct Trees {
    shape: Shape,
    forest: Forest,
    /// The roots, one for each tree.
    roots: Vec<usize>,
}

pub(super) fn trees(call: &Call) -> Result<Arc<dyn Layer>, Refusal> {
    call.only(4, &[])?;
    let (&[n, features], &[leaves, targets]) = (call.shape(0)?.dims(), call.floats(3)?.shape.dims()) else {
        return refuse("its rows or its leaves are no matrices", "");
    };
    let Some(Constant::Ints(tests)) = &call.graph.value(call.id(1)?).constant else {
        return refuse("its trees are secret numbers", "");
    };
    let forest = Forest::decoded(tests, features, leaves)?;
    let thresholds = call.floats(2)?;
    if thresholds.data.len() != forest.tests.len() || thresholds.data.iter().any(|t| t.is_nan()) {
        return refuse("compares with what is no number", "export the model again");
    }
    let roots = forest.trees().iter().map(|tree| tree.first).collect();
    Ok(Arc::new(Trees { shape: [n, targets].into(), forest, roots }))
}

impl Layer for Trees {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn plain(&self, inputs: &[&Tensor]) -> Tensor {
        let &[x, thresholds, leaves] = inputs else { unreachable!("understood with three operands") };
        let (features, targets) = (x.shape.dims()[1], self.shape.dims()[1]);
        let mut y = Tensor::filled(self.shape.clone(), 0.0);
        for (row, sums) in x.data.chunks_exact(features).zip(y.data.chunks_exact_mut(targets)) {
            let passes = |test: &Test, i: usize| {
                let (x, t) = (row[test.feature], thresholds.data[i]);
                if test.strict { x > t } else { x >= t }
            };
            for leaf in self.forest.reached(&self.roots, passes) {
                let numbers = &leaves.data[leaf * targets..][..targets];
                sums.iter_mut().zip(numbers).for_each(|(sum, v)| *sum += v);
            }
        }
        y
    }

    fn lower(&self, cx: &mut Lowering, inputs: &[Operand]) -> Result<Secret, Refusal> {
        let (x, thresholds, leaves) = (inputs[0].secret()?, inputs[1].constant()?, inputs[2].constant()?);
        // Rows last: what belongs to a test or to a leaf lies together.
        let x = cx.view("columns", x, View::transpose(cx.shape(x), &[1, 0]))?;
        let ensemble = Ensemble { forest: &self.forest, thresholds, leaves, rows: self.shape.dims()[0] };
        let sums = match cx.tree_form() {
            TreeForm::Hidden => hidden::sums(cx, &ensemble, &x)?,
            TreeForm::Shape => shown::sums(cx, &ensemble, &x)?,
        };
        let bounds = ensemble.bounds(leaf_frac(cx));
        let y = cx.view("rows", &sums, View::transpose(cx.shape(&sums), &[1, 0]))?;
        Ok(y.within(bounds))
    }

    fn scale(&self) -> Scale {
        Scale::Passes
    }

    fn work(&self) -> u64 {
        (self.shape.dims()[0] * self.forest.tests.len()) as u64
    }
}

/// A forest with its weights.
struct Ensemble<'a> {
    forest: &'a Forest,
    thresholds: &'a Tensor,
    /// [leaves, targets].
    leaves: &'a Tensor,
    rows: usize,
}

impl Ensemble<'_> {
    fn targets(&self) -> usize {
        self.leaves.shape.dims()[1]
    }

    /// The sums' bounds, as words: of every tree one leaf counts.
    fn bounds(&self, frac: u32) -> Range {
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

    /// For each test the number from which on it is passed, as a column that is taken from x.
    /// `places` has for each place of the column a test, or none where any number will do.
    fn borders(&self, cx: &Lowering, x: &Secret, places: &[Option<usize>]) -> Tensor {
        let (low, high) = x.range.hull();
        let unit = 2f64.powi(cx.frac_of(x) as i32);
        // Beyond the range one threshold is like any other.
        let first = ((low - 1) as f64 / unit) as f32;
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
fn leaf_frac(cx: &Lowering) -> u32 {
    if cx.ring() == 64 { cx.frac() + SPARE_BITS } else { cx.frac() }
}

/// The least number of float32 that is not below the word after this one.
fn after(word: i128, unit: f64) -> f32 {
    let next = (word + 1) as f64 / unit;
    let near = next as f32;
    if f64::from(near) < next { near.next_up() } else { near }
}

/// A bound that everybody may know of |x − t| for borders t of [`Ensemble::borders`], in words: the
/// range of x and a unit at either end; float32 has 24 significant bits, so rounded borders may
/// lie further out by so much.
fn room(x: &Range) -> i128 {
    let (low, high) = x.hull();
    let rounding = x.magnitude() >> 22;
    high.saturating_sub(low).saturating_add(2).saturating_add(rounding.saturating_mul(2))
}

/// The bits [x ≥ t] [tests, rows] of columns x [tests, rows], one for each border.
fn compared(cx: &mut Lowering, x: &Secret, borders: &Tensor, public: bool) -> Result<Secret, Refusal> {
    let most = room(&x.range);
    let room = cx.bias(x, borders)?;
    cx.reached("compare", &room, most, public)
}
