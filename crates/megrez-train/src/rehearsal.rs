//! Training in the clear: what to expect, and how large a step's numbers get.

use crate::{Rows, Step};
use megrez_graph::{Calibration, Interval, Tensor, calibrate, plain};
use megrez_service::{Error, ErrorKind, Result};

/// How many times larger than in the rehearsal numbers may get: two bits.
pub const MARGIN: f64 = 4.0;

/// A step run in float32, again and again.
pub struct Clear<'a> {
    step: &'a Step,
    state: Vec<Tensor>,
}

impl<'a> Clear<'a> {
    /// Begins with the weights that the step begins with.
    pub fn new(step: &'a Step) -> Self {
        Clear { step, state: step.state.iter().map(|state| state.start.clone()).collect() }
    }

    /// Goes on with another step of the same state.
    pub fn go_on(&mut self, step: &'a Step) {
        self.step = step;
    }

    /// What the graph of the step takes now.
    fn inputs(&self, batch: [Tensor; 2]) -> Vec<Tensor> {
        batch.into_iter().chain(self.state.iter().cloned()).collect()
    }

    /// One step on inputs and labels; the batch's mean loss, if the step reveals it.
    ///
    /// # Errors
    /// If the batch is not of the step's shape, or numbers are no longer finite.
    pub fn step(&mut self, batch: [Tensor; 2]) -> Result<Option<f32>> {
        let found = plain::run(&self.step.graph, &self.inputs(batch))?;
        let mut loss = None;
        for (output, tensor) in self.step.graph.outputs.iter().zip(found) {
            if tensor.data.iter().any(|v| !v.is_finite()) {
                let what = format!(
                    "`{}` is no longer finite: training diverges, choose a smaller rate",
                    output.name
                );
                return Err(Error::of(ErrorKind::OutOfRange, what));
            }
            match self.step.state.iter().position(|state| state.name == output.name) {
                Some(place) => self.state[place] = tensor,
                None => loss = tensor.data.first().copied(),
            }
        }
        Ok(loss)
    }

    /// What lasts from step to step, by name.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        self.step.state.iter().map(|state| state.name.clone()).zip(self.state.iter().cloned()).collect()
    }
}

/// How large a step's numbers get.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// Of every layer.
    pub calibration: Calibration,
    /// Of what lasts from step to step, in its order.
    pub state: Vec<Interval>,
    /// The largest sums of squares of it, as they were.
    pub squares: Vec<f64>,
    /// Of labels: classes are 0 or 1.
    pub labels: Interval,
}

impl Rehearsal {
    /// With room for the labels of all these rows, rehearsed or not.
    #[must_use]
    pub fn with_labels_of(mut self, rows: &Rows) -> Self {
        self.labels = Interval::abs(self.labels.high.max(rows.largest_label()));
        self
    }
}

/// The range of labels that are not larger than `largest`, where they are targets and not classes.
fn labels(step: &Step, largest: f64) -> Interval {
    Interval::abs(if step.loss.has_classes() { 1.0 } else { largest.max(1.0) })
}

/// Runs the step in the clear on some batches and measures it. Whoever sees a plan that is fitted
/// to the result learns each layer's magnitude on these batches, to a factor of two.
///
/// # Errors
/// Those of [`Clear::step`]; or if there is no batch.
pub fn rehearse(step: &Step, batches: impl IntoIterator<Item = [Tensor; 2]>) -> Result<Rehearsal> {
    let mut clear = Clear::new(step);
    let largest = |tensor: &Tensor| f64::from(tensor.data.iter().fold(0f32, |most, v| most.max(v.abs())));
    let norm = |tensor: &Tensor| tensor.data.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
    let mut state = vec![0f64; step.state.len()];
    let mut squares: Vec<f64> = clear.state.iter().map(norm).collect();
    let mut failed = None;
    let (mut runs, mut targets) = (0, 0f64);
    let inputs = batches.into_iter().map_while(|batch| {
        let inputs = clear.inputs(batch.clone());
        targets = targets.max(largest(&batch[1]));
        failed = clear.step(batch).err();
        state.iter_mut().zip(&clear.state).for_each(|(most, tensor)| *most = most.max(largest(tensor)));
        squares.iter_mut().zip(&clear.state).for_each(|(most, tensor)| *most = most.max(norm(tensor)));
        runs += 1;
        failed.is_none().then_some(inputs)
    });
    let calibration = calibrate::calibrate(&step.graph, inputs, MARGIN);
    if let Some(error) = failed {
        return Err(error);
    }
    if runs == 0 {
        return Err(Error::of(ErrorKind::Invalid, "fewer rows than one batch has"));
    }
    let mut calibration = calibration?;
    // What was never negative in a few steps may be so later.
    for range in calibration.ranges.values_mut() {
        *range = Interval::abs(range.low.abs().max(range.high.abs()));
    }
    let state = state.into_iter().map(|most| Interval::abs((most * MARGIN).max(1.0))).collect();
    Ok(Rehearsal { calibration, state, squares, labels: labels(step, targets * MARGIN) })
}

/// What stands for a rehearsal where there are no rows to see: every layer, weight and gradient is
/// taken to stay within `room`, or within [`MARGIN`] times what two steps on made-up rows in
/// `range` and the first class give, where that is more. It says nothing about anybody's rows, and
/// proves nothing about them either.
///
/// # Errors
/// Those of [`rehearse`].
pub fn room(step: &Step, range: Interval, room: f64) -> Result<Rehearsal> {
    let made_up = |run: u64| {
        let shape = |place: usize| step.graph.shape(step.graph.inputs[place]).clone();
        let (x, y) = (shape(0), shape(1));
        let spread = |i: usize| {
            // Numbers all over the range, the same each time.
            let z = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31 + run as u32);
            (range.low + (range.high - range.low) * (z >> 40) as f64 / f64::from(1 << 24)) as f32
        };
        let inputs = (0..x.elements()).map(spread).collect();
        let classes = y.dims()[1];
        let labels = (0..y.elements()).map(|i| if i % classes == 0 { 1.0 } else { 0.0 }).collect();
        [Tensor::new(x, inputs), Tensor::new(y, labels)]
    };
    // By chance the same model would be another plan each time, and owners compare plans.
    let mut rehearsal = rehearse(&step.without_noise()?, (0..2).map(made_up))?;
    let least = room / MARGIN;
    rehearsal.calibration.layers.values_mut().for_each(|seen| *seen = seen.max(least));
    for range in rehearsal.calibration.ranges.values_mut() {
        *range = Interval::abs(range.low.abs().max(range.high.abs()).max(least));
    }
    rehearsal.state.iter_mut().for_each(|range| *range = Interval::abs(range.high.max(room)));
    rehearsal.labels = labels(step, room);
    Ok(rehearsal)
}
