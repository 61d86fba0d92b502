//! Boosted trees as a job: their rehearsal, and the course of a tree an epoch.

use crate::{Course, Rehearsal, rehearse};
use megrez_graph::boosting::{Boosting, Objective};
use megrez_graph::differentiate::{State, Step, Validation};
use megrez_graph::{Activations, CompileOptions, Graph, Interval, Tensor};
use megrez_service::{Error, ErrorKind, Result};

/// How trees are compiled for these options: indicators are 0 or 1, and what stands for a sigmoid
/// is fine enough, or among thresholds that gain next to the same its error would choose.
pub fn tree_options(options: CompileOptions) -> CompileOptions {
    let activations = match options.activations {
        Activations::Minimax => Activations::Fine,
        tables => tables,
    };
    CompileOptions { input_range: Interval { low: 0.0, high: 1.0 }, activations, ..options }
}

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

/// How many times more than on rows that are made up gains, leaves and scores may be on others.
const ROOM: f64 = 8.0;

/// Most indicators of all rows together that trees are imagined on: a GiB of them.
const MOST_IMAGINED: usize = 1 << 28;

/// What stands for [`rehearse_trees`] where there are no rows to see: trees on made-up rows, of
/// which one indicator says all, with some times more room. Of rows that are as many and can be
/// told apart as well as can be, gains and scores are the largest; those of labels of which few are
/// ones may be larger for some leaves. It says nothing about anybody's rows.
///
/// # Errors
/// If there are no indicators, or more than 2^28.
pub fn imagine_trees(boosting: &Boosting, rows: usize, columns: usize) -> Result<Rehearsal> {
    let all = rows.checked_mul(columns).filter(|all| (1..=MOST_IMAGINED).contains(all));
    let Some(all) = all else {
        let what = format!("trees grow on 1 to {MOST_IMAGINED} indicators, not on {rows} rows of {columns}");
        return Err(Error::of(ErrorKind::Invalid, what));
    };
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut coin = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f32::from(u8::from(state >> 63 == 1))
    };
    let inputs = Tensor::new([rows, columns], (0..all).map(|_| coin()).collect());
    let told: Vec<f32> = inputs.data.iter().step_by(columns).copied().collect();
    let targets = match boosting.objective {
        Objective::Logistic => told,
        Objective::Squares => told.into_iter().map(|one| 2.0 * one - 1.0).collect(),
    };
    let mut rehearsal = rehearse_trees(boosting, &inputs, &Tensor::new([rows, 1], targets))?;
    rehearsal.calibration.layers.values_mut().for_each(|seen| *seen *= ROOM);
    for range in rehearsal.calibration.ranges.values_mut().chain(&mut rehearsal.state) {
        *range = Interval::abs(range.low.abs().max(range.high.abs()) * ROOM);
    }
    Ok(rehearsal)
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
    /// Rows of a batch that they are only looked at on, if there are any.
    pub validated: Option<usize>,
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

    fn validation(&self) -> Result<Option<Validation>> {
        let looks = |batch| self.boosting.validation(batch, self.columns);
        Ok(self.validated.map(looks).transpose()?)
    }
}
