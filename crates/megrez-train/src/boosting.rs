//! Boosted trees as a job: their rehearsal, and the course of a tree an epoch.

use crate::{Course, Rehearsal, rehearse};
use megrez_graph::boosting::{Boosting, Objective};
use megrez_graph::differentiate::{State, Step};
use megrez_graph::{Graph, Tensor};
use megrez_service::{Error, ErrorKind, Result};

/// Grows trees in the clear, on indicators [rows, columns] and targets [rows, 1], to see how large
/// numbers get.
///
/// # Errors
/// If there are no such rows.
pub fn rehearse_trees(boosting: &Boosting, inputs: &Tensor, targets: &Tensor) -> Result<Rehearsal> {
    let invalid = |what: String| Err(Error::of(ErrorKind::Invalid, what));
    let &[rows, columns] = inputs.shape.dims() else {
        return invalid(format!("indicators are a matrix, not {}", inputs.shape));
    };
    if columns == 0 {
        return invalid("rows have no indicators".into());
    }
    if targets.shape.dims() != [rows, 1] || rows == 0 {
        return invalid(format!("{rows} rows have targets {}: one number for each", targets.shape));
    }
    let exact = |v: &f32| *v == 0.0 || *v == 1.0;
    if let Some(at) = inputs.data.iter().position(|v| !exact(v)) {
        return invalid(format!("indicator {} of row {} is neither 0 nor 1", at % columns, at / columns));
    }
    if let Some(row) = targets.data.iter().position(|v| !v.is_finite()) {
        return invalid(format!("the target of row {row} is not finite"));
    }
    if boosting.objective == Objective::Logistic
        && let Some(row) = targets.data.iter().position(|v| !exact(v))
    {
        return invalid(format!("the label of row {row} is neither 0 nor 1"));
    }
    let all = (0..boosting.trees).map(|_| [inputs.clone(), targets.clone()]);
    rehearse(&boosting.step(rows, columns)?, all)
}

/// Trees that are grown: on so many rows of so many indicators, and run on batches.
pub struct Grows<'a> {
    /// How.
    pub boosting: &'a Boosting,
    /// Rows of a step: all of them.
    pub rows: usize,
    /// Indicators of a row.
    pub columns: usize,
    /// At which batches the trees are to be run.
    pub batches: &'a [usize],
}

impl Course for Grows<'_> {
    fn epochs(&self) -> Result<Vec<u32>> {
        Ok(vec![self.boosting.trees as u32])
    }

    fn step(&self, _: usize) -> Result<Step> {
        Ok(self.boosting.step(self.rows, self.columns)?)
    }

    fn models(&self) -> Result<Vec<(Graph, Vec<State>)>> {
        self.batches.iter().map(|&batch| Ok(self.boosting.model(batch, self.columns)?)).collect()
    }
}
