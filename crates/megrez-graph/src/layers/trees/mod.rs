//! Ensembles of decision trees: what `decompose/trees.rs` makes of a file.
//!
//! Two forms, between which the model's owner chooses ([`TreeForm`]): in `shape` everybody sees the
//! exact trees and which feature a test looks at; in `hidden` the number of trees and how many
//! leaves the largest has, rounded up to a power of two, and their depth where many rows are guided
//! ([`guided`]). Thresholds and the numbers of leaves are secret weights in both. Every comparison
//! is exact on the fixed-point grid: a number on a threshold goes where the original sends it.

mod ensemble;
mod forest;
mod guided;
mod hidden;
mod shown;

pub(crate) use forest::{Forest, Next, Test};

use super::call::Call;
use crate::layer::Layer;
use crate::lowering::{Lowering, Operand, Secret};
use crate::options::TreeForm;
use crate::problem::{Refusal, refuse};
use crate::scale::Scale;
use crate::tensor::{Constant, Tensor};
use ensemble::{Ensemble, leaf_frac};
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
