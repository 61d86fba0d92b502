//! What a job looks at after every epoch besides losses: rows that it does not learn from, and
//! whether its numbers stay within bounds.

use crate::session::of_kept;
use crate::stored::{Part, add, named_rows};
use crate::{Rehearsal, Step};
use megrez_graph::differentiate::Validation;
use megrez_graph::{CompileOptions, Interval, Tensor};
use megrez_plan::{Kind, Plan};
use megrez_service::training::{Bound, Work};
use megrez_service::{Error, ErrorKind, Result};

/// Of how many rows at most a batch of validation is.
const MOST: usize = 512;

/// Rows of a batch of validation: as few batches as can be, so that of `rows` fewer are left out
/// than there are batches.
pub fn validation_batch(rows: usize) -> usize {
    rows / rows.div_ceil(MOST).max(1)
}

/// The plan that counts on rows that the parties keep.
pub(crate) fn validation_plan(
    validation: &Validation,
    (step, rows): (&Step, usize),
    client: &str,
    (options, rehearsal): (&CompileOptions, &Rehearsal),
    start: &mut Vec<Part>,
) -> Result<Plan> {
    let mut options = of_kept(step, &validation.state, (options, rehearsal));
    let input_ranges = &mut options.input_ranges;
    input_ranges.insert(Step::LABELS.into(), rehearsal.labels);
    if let Some(sum) = validation.state.last() {
        // One for each row, or a mean loss for each batch.
        let batches = (rows / validation.batch.max(1)) as f64;
        let loss = rehearsal.calibration.interval("loss.mean").map_or(1.0, |range| range.high);
        let most = if step.loss.has_classes() { rows as f64 } else { batches * loss.max(1.0) };
        input_ranges.insert(sum.name.clone(), Interval { low: 0.0, high: most });
    }
    for owner in [&mut options.model_owner, &mut options.data_owner, &mut options.recipient] {
        *owner = client.into();
    }
    let compiled = megrez_graph::compile(&validation.graph, &options)?;
    for frozen in compiled.model_inputs {
        add(start, (frozen.name, Tensor::new(frozen.shape, frozen.values), frozen.frac))?;
    }
    Ok(named_rows(compiled.plan, &compiled.data_inputs))
}

/// Bounds of the weights, and of what their optimiser keeps: the largest to which words that have
/// wrapped keep by a chance of 1 in 256 at most. Where the ring is too short for what was
/// rehearsed, times 16, to be within, the chance is larger; where that has no room at all, there is
/// no bound.
pub(crate) fn bounds(step: &Step, rehearsal: &Rehearsal, work: &Work) -> Result<Vec<Bound>> {
    let mut bounds = vec![];
    for (state, squares) in step.state.iter().zip(&rehearsal.squares) {
        if state.name == Step::LOSS_SO_FAR {
            continue;
        }
        let Some(Kind::Ring { frac }) = work.state(&state.name).map(|value| value.kind) else {
            return Err(Error::of(ErrorKind::Internal, format!("`{}` is no number on the ring", state.name)));
        };
        let least = (16.0 * squares.max(1.0)).log2().ceil() as i64;
        let all = i64::from(work.ring()) - 1 - 2 * i64::from(frac);
        let below = least.max(all - 8);
        if let Some(below) = u32::try_from(below).ok().filter(|_| below < all) {
            bounds.push(Bound { state: state.name.clone(), below });
        }
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_rows_are_left_out_than_there_are_batches() {
        for rows in (1..2000).chain([10_007, 60_000]) {
            let batch = validation_batch(rows);
            let batches = rows / batch;
            assert!((1..=MOST).contains(&batch) && rows - batches * batch < batches, "{rows}: {batch}");
        }
        assert_eq!([450, 512, 1347, 0].map(validation_batch), [450, 512, 449, 0]);
    }
}
