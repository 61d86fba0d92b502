//! Rows with labels, and batches of them.

use crate::{
    Loss, Optimiser, Privacy, State, Step, Trained, differentiate_in_shards, differentiate_privately,
};
use megrez_graph::differentiate::{Validation, forward, validation};
use megrez_graph::{Graph, Tensor, plain};
use megrez_service::{Error, ErrorKind, Result};
use std::num::NonZeroU32;

/// How a model learns.
#[derive(Clone, Debug)]
pub struct Learning {
    /// What is made small.
    pub loss: Loss,
    /// Which weights are trained.
    pub trained: Trained,
    /// How they move, at first.
    pub optimiser: Optimiser,
    /// After so many epochs the rate is halved, again and again; `None` for a rate that stays.
    pub halve_every: Option<NonZeroU32>,
    /// What the weights may tell of a row; `None` if that is not bounded.
    pub privacy: Option<Privacy>,
    /// In how many shards the rows of a step come, each as large as the model's batch.
    pub shards: NonZeroU32,
}

/// What a job trains: its steps, and what is kept of it.
pub trait Course {
    /// For how many epochs each of its stages runs, in their order.
    fn epochs(&self) -> Result<Vec<u32>>;

    /// The step of a stage. All read and write the same state.
    fn step(&self, stage: usize) -> Result<Step>;

    /// What the parties can run afterwards, in each of its sizes: graphs, and the state that is
    /// their input.
    fn models(&self) -> Result<Vec<(Graph, Vec<State>)>>;

    /// What is counted on rows that nothing is learnt from, if this course can.
    fn validation(&self) -> Result<Option<Validation>> {
        Ok(None)
    }
}

/// A network that is trained: at the batch of a step, and at those in which it is to be run.
pub struct Network<'a> {
    /// How.
    pub learning: &'a Learning,
    /// At the batch of a step.
    pub graph: &'a Graph,
    /// At the batches of runs.
    pub runnable: &'a [Graph],
    /// At a batch of rows that it is only looked at on, if there are any.
    pub validated: Option<&'a Graph>,
    /// How often every row is learnt from.
    pub epochs: u32,
}

impl Course for Network<'_> {
    fn epochs(&self) -> Result<Vec<u32>> {
        Ok(self.learning.stages(self.epochs)?.into_iter().map(|(_, epochs)| epochs).collect())
    }

    fn step(&self, stage: usize) -> Result<Step> {
        let stages = self.learning.stages(self.epochs)?;
        let found = stages.get(stage).ok_or_else(|| Error::of(ErrorKind::Internal, "no such stage"))?;
        self.learning.step_of(self.graph, found.0)
    }

    fn models(&self) -> Result<Vec<(Graph, Vec<State>)>> {
        let Learning { loss, trained, .. } = self.learning;
        self.runnable.iter().map(|graph| Ok(forward(graph, *loss, trained)?)).collect()
    }

    fn validation(&self) -> Result<Option<Validation>> {
        let Learning { loss, trained, .. } = self.learning;
        Ok(self.validated.map(|graph| validation(graph, *loss, trained)).transpose()?)
    }
}

impl Learning {
    /// The step that trains a model, with losses added up.
    ///
    /// # Errors
    /// Every layer that has no backward.
    pub fn step(&self, model: &Graph) -> Result<Step> {
        self.step_of(model, self.optimiser)
    }

    /// As [`step`](Self::step), with the optimiser of one of the [`stages`](Self::stages).
    ///
    /// # Errors
    /// Every layer that has no backward.
    pub fn step_of(&self, model: &Graph, optimiser: Optimiser) -> Result<Step> {
        Ok(self.telling_losses(model, optimiser)?.adding_up_losses()?)
    }

    /// As [`step_of`](Self::step_of), of a step that reveals the loss of its batch: for the clear.
    ///
    /// # Errors
    /// Every layer that has no backward.
    pub fn telling_losses(&self, model: &Graph, optimiser: Optimiser) -> Result<Step> {
        let (loss, trained) = (self.loss, &self.trained);
        Ok(match self.privacy {
            None => differentiate_in_shards(model, loss, trained, optimiser, self.shards)?,
            Some(_) if self.shards.get() > 1 => {
                let what = "what the weights tell of a row is not bounded where rows come in shards";
                return Err(Error::of(ErrorKind::Unsupported, what));
            }
            Some(privacy) => differentiate_privately(model, loss, trained, optimiser, privacy)?,
        })
    }

    /// What the optimiser is, for how many epochs, in their order.
    ///
    /// # Errors
    /// If the rate falls below 2^−30.
    pub fn stages(&self, epochs: u32) -> Result<Vec<(Optimiser, u32)>> {
        let each = self.halve_every.map_or(epochs, NonZeroU32::get);
        let (mut stages, mut left, mut optimiser) = (vec![], epochs, self.optimiser);
        while left > 0 {
            if !stages.is_empty() {
                let rate = optimiser.rate.halved();
                let rate =
                    rate.ok_or_else(|| Error::of(ErrorKind::Invalid, "the rate is halved below 2^-30"))?;
                optimiser = optimiser.at(rate);
            }
            stages.push((optimiser, each.min(left)));
            left -= each.min(left);
        }
        Ok(stages)
    }
}

/// Rows of data, each with its label.
pub struct Rows {
    inputs: Tensor,
    /// One-hot rows, or targets.
    labels: Tensor,
}

fn rows(tensor: &Tensor) -> usize {
    tensor.shape.dims().first().copied().unwrap_or(0)
}

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::of(ErrorKind::Invalid, what))
}

impl Rows {
    /// `inputs`, N rows, are of the shape of the model's input but for N; `labels` are N class
    /// numbers or N × K numbers.
    ///
    /// # Errors
    /// If they do not go with the model, or with each other.
    pub fn new(model: &Graph, loss: Loss, inputs: Tensor, labels: Tensor) -> Result<Self> {
        let (&[input], [output]) = (&model.inputs[..], &model.outputs[..]) else {
            return invalid("training takes a model of one input and one output".into());
        };
        let &[_, classes] = model.shape(output.id).dims() else {
            return invalid("the model's output is no matrix of a row for each input".into());
        };
        let wanted = model.shape(input);
        if inputs.shape.dims().get(1..) != wanted.dims().get(1..) || rows(&inputs) == 0 {
            return invalid(format!("the model takes rows of {wanted}, the data is {}", inputs.shape));
        }
        let count = rows(&inputs);
        let labels = match *labels.shape.dims() {
            [n, k] if n == count && k == classes => labels,
            [n] if n == count && classes == 1 && loss != Loss::CrossEntropy => labels.reshape([n, 1]),
            [n] | [n, 1] if n == count && loss.has_classes() => one_hot(&labels.data, classes)?,
            _ => {
                return invalid(format!(
                    "{count} rows of {classes} classes have labels {}: give class numbers, or one row for each",
                    labels.shape
                ));
            }
        };
        let within = |label: &f32| (0.0..=1.0).contains(label);
        if let (true, Some(at)) = (loss.has_classes(), labels.data.iter().position(|label| !within(label))) {
            let (row, label) = (at / classes.max(1), labels.data[at]);
            return invalid(format!("label {row} is {label}: of a class it is between 0, no, and 1, yes"));
        }
        Ok(Rows { inputs, labels })
    }

    /// Makes sure that there is something to be right about.
    ///
    /// # Errors
    /// If labels are targets of one number.
    pub fn have_classes(&self, loss: Loss) -> Result<()> {
        match loss.has_classes() || self.labels.shape.dims()[1] > 1 {
            true => Ok(()),
            false => {
                invalid("rows of one target have no class to be right about: leave out test rows".into())
            }
        }
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        rows(&self.inputs)
    }

    /// The largest magnitude of a label.
    pub fn largest_label(&self) -> f64 {
        self.labels.data.iter().fold(0.0, |most: f32, v| most.max(v.abs())).into()
    }

    /// The order of the rows in an epoch: a permutation that follows from the numbers alone.
    pub fn order(&self, seed: u64, epoch: u32) -> Vec<usize> {
        let mut state = seed ^ u64::from(epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: usize| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((u128::from(z ^ (z >> 31)) * below as u128) >> 64) as usize
        };
        let mut order: Vec<usize> = (0..self.count()).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, next(i + 1)));
        order
    }

    /// The batches of `epochs` epochs, each in an order of its own.
    pub fn batches(&self, size: usize, epochs: u32, seed: u64) -> impl Iterator<Item = [Tensor; 2]> {
        let runs = (self.count() / size.max(1)) as u32;
        (0..epochs).flat_map(move |epoch| {
            let order = self.order(seed, epoch);
            (0..runs).map(move |run| self.batch(&order, run, size))
        })
    }

    /// Batch `run` of `size` rows in this order: inputs and labels.
    ///
    /// # Panics
    /// If the order has no such batch.
    pub fn batch(&self, order: &[usize], run: u32, size: usize) -> [Tensor; 2] {
        let chosen = &order[run as usize * size..][..size];
        [&self.inputs, &self.labels].map(|all| {
            let width = all.data.len() / self.count();
            let data = chosen.iter().flat_map(|&row| &all.data[row * width..][..width]).copied().collect();
            Tensor::new([&[size], &all.shape.dims()[1..]].concat(), data)
        })
    }
}

pub(crate) fn one_hot(classes: &[f32], count: usize) -> Result<Tensor> {
    let mut rows = Tensor::filled([classes.len(), count], 0.0);
    for (row, &class) in classes.iter().enumerate() {
        if class.fract() != 0.0 || !(0.0..count as f32).contains(&class) {
            return invalid(format!("label {row} is {class}, which is no class from 0 to {}", count - 1));
        }
        rows.data[row * count + class as usize] = 1.0;
    }
    Ok(rows)
}

/// A model with other weights: pairs of `w.` and a constant's name, and its numbers.
pub fn with_weights(model: &Graph, weights: &[(String, Tensor)]) -> Graph {
    let mut model = model.clone();
    for value in &mut model.values {
        let mut named =
            weights.iter().filter(|(name, _)| name.strip_prefix("w.") == Some(value.name.as_str()));
        if let (Some((_, tensor)), Some(_)) = (named.next(), &value.constant) {
            value.constant = Some(tensor.clone().into());
        }
    }
    model
}

/// The share of rows whose largest output is at the label, in the clear; of a model of one output,
/// which says yes or no, the share of right answers.
///
/// # Errors
/// If the rows do not go with the model, or there are no classes.
pub fn accuracy(model: &Graph, loss: Loss, rows: &Rows) -> Result<f64> {
    rows.have_classes(loss)?;
    // A model that says how likely yes is, and one that says how much more than no.
    let is_probability =
        model.nodes.iter().any(|node| model.is_output(node.output) && Some(&*node.op) == loss.function());
    let border = if is_probability { 0.5 } else { 0.0 };
    let batch = model.inputs.first().and_then(|&id| model.shape(id).dims().first().copied()).unwrap_or(1);
    let order: Vec<usize> = (0..rows.count()).collect();
    let largest = |row: &[f32]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let (mut right, mut seen) = (0, 0);
    for run in 0..(rows.count() / batch) as u32 {
        let [x, y] = rows.batch(&order, run, batch);
        let found = plain::run(model, &[x])?.remove(0);
        let classes = y.shape.dims()[1];
        let pairs = found.data.chunks_exact(classes).zip(y.data.chunks_exact(classes));
        let is_right = |(found, y): &(&[f32], &[f32])| match (found, y) {
            ([found], [y]) => (*found > border) == (*y > 0.5),
            _ => largest(found) == largest(y),
        };
        right += pairs.filter(is_right).count();
        seen += batch;
    }
    match seen {
        0 => invalid(format!("fewer rows than a batch of {batch}")),
        _ => Ok(right as f64 / seen as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::{Attributes, models};

    #[test]
    fn labels_become_rows_and_damaged_ones_are_refused() {
        let model = models::build("net-a", 2, 1).unwrap();
        let x = Tensor::filled([3, 784], 0.5);
        let of = |labels: Tensor| Rows::new(&model, Loss::CrossEntropy, x.clone(), labels);
        let rows = of(Tensor::new([3], vec![2.0, 0.0, 9.0])).unwrap();
        let [_, y] = rows.batch(&[2, 0, 1], 0, 2);
        assert_eq!((y.data[9], y.data[12], y.data.iter().sum::<f32>()), (1.0, 1.0, 2.0));
        for wrong in [10.0, -1.0, 0.5, f32::NAN] {
            assert!(of(Tensor::new([3], vec![0.0, wrong, 1.0])).is_err(), "{wrong}");
        }
        assert!(of(Tensor::new([4], vec![0.0; 4])).is_err());
        let square = Tensor::filled([3, 28, 28], 0.5);
        assert!(Rows::new(&model, Loss::CrossEntropy, square, Tensor::new([3], vec![0.0; 3])).is_err());
    }

    #[test]
    fn a_rate_is_halved_until_it_is_too_small() {
        let stages = |rate: &str, every: Option<u32>, epochs| {
            let optimiser = Optimiser::sgd(rate.parse().unwrap());
            let halve_every = every.and_then(NonZeroU32::new);
            let learning = Learning {
                loss: Loss::MeanSquares,
                trained: Trained::All,
                optimiser,
                halve_every,
                privacy: None,
                shards: NonZeroU32::MIN,
            };
            learning.stages(epochs).map(|stages| {
                stages.into_iter().map(|(o, epochs)| (o.rate.to_string(), epochs)).collect::<Vec<_>>()
            })
        };
        let of = |text: &str, epochs| (text.to_owned(), epochs);
        assert_eq!(stages("3*2^-4", None, 7).unwrap(), [of("3*2^-4", 7)]);
        assert_eq!(stages("2^-4", Some(2), 5).unwrap(), [of("2^-4", 2), of("2^-5", 2), of("2^-6", 1)]);
        assert!(stages("2^-29", Some(1), 2).is_ok() && stages("2^-29", Some(1), 3).is_err());
    }

    #[test]
    fn one_output_says_yes_or_no() {
        let model = |function: Option<&str>| {
            let mut g = Graph::new("one");
            let x = g.input("x", [2, 1]).unwrap();
            let w = g.constant("w", Tensor::filled([1, 1], 1.0));
            let mut y = g.add("y", "MatMul", &[x, w], Attributes::none()).unwrap();
            if let Some(function) = function {
                y = g.add("end", function, &[y], Attributes::none()).unwrap();
            }
            g.output("y", y);
            g
        };
        let (loss, x) = (Loss::BinaryCrossEntropy, Tensor::new([4, 1], vec![2.0, 0.2, -0.1, -3.0]));
        let of = |loss, labels: Vec<f32>| Rows::new(&model(None), loss, x.clone(), Tensor::new([4], labels));
        let rows = of(loss, vec![1.0, 0.0, 0.0, 0.0]).unwrap();
        // A number of more than 0 says yes, and a probability of more than a half.
        for function in [None, Some("Sigmoid")] {
            assert_eq!(accuracy(&model(function), loss, &rows).unwrap(), 0.75);
        }
        assert_eq!(accuracy(&model(None), Loss::Hinge, &rows).unwrap(), 0.75);
        let targets = of(Loss::MeanSquares, vec![5.0, -2.0, 0.0, 0.0]).unwrap();
        assert!(accuracy(&model(None), Loss::MeanSquares, &targets).is_err());
        for wrong in [2.0, -0.5, f32::NAN] {
            let error = of(loss, vec![1.0, wrong, 0.0, 0.0]).err().unwrap().to_string();
            assert!(error.contains("label 1"), "{error}");
        }
    }

    /// What is counted on shares is what [`accuracy`] counts in the clear, of one output and of
    /// more.
    #[test]
    fn a_validation_counts_what_is_right() {
        let count = |model: &Graph, loss, rows: &Rows| {
            let looks = validation(model, loss, &Trained::All).unwrap();
            let order: Vec<usize> = (0..rows.count()).collect();
            let state = looks.state.iter().map(|state| state.start.clone());
            let inputs: Vec<Tensor> = rows.batch(&order, 0, looks.batch).into_iter().chain(state).collect();
            let found = plain::run(&looks.graph, &inputs).unwrap().remove(0);
            assert_eq!(
                (found.data.len(), looks.state.last().unwrap().name.as_str()),
                (1, Validation::sum(loss))
            );
            found.data[0]
        };
        let model = models::build("net-a", 40, 3).unwrap();
        let x = Tensor::new([40, 784], (0..40 * 784).map(|i| ((i * i) % 97) as f32 / 97.0).collect());
        let labels = Tensor::new([40], (0..40).map(|i| ((i * 7) % 10) as f32).collect());
        let rows = Rows::new(&model, Loss::CrossEntropy, x.clone(), labels).unwrap();
        for loss in [Loss::CrossEntropy, Loss::BinaryCrossEntropy, Loss::Hinge] {
            let right = accuracy(&model, loss, &rows).unwrap() * 40.0;
            assert_eq!(count(&model, loss, &rows), right as f32);
            assert!(right > 0.0 && right < 40.0);
        }
        // The loss of targets, as the step has it.
        let squares = plain::run(&model, &[x]).unwrap().remove(0);
        let order: Vec<usize> = (0..40).collect();
        let [_, y] = rows.batch(&order, 0, 40);
        let of = |(a, b): (&f32, &f32)| 0.5 * (a - b) * (a - b);
        let mean = squares.data.iter().zip(&y.data).map(of).sum::<f32>() / 40.0;
        assert!((count(&model, Loss::MeanSquares, &rows) - mean).abs() < 1e-4 * mean);

        let mut one = Graph::new("one");
        let x = one.input("x", [4, 1]).unwrap();
        let w = one.constant("w", Tensor::filled([1, 1], 1.0));
        let y = one.add("y", "MatMul", &[x, w], Attributes::none()).unwrap();
        one.output("y", y);
        let x = Tensor::new([4, 1], vec![2.0, 0.2, -0.1, -3.0]);
        for labels in [[1.0, 0.0, 0.0, 1.0], [1.0; 4], [0.0, 0.0, 1.0, 1.0]] {
            let rows = Rows::new(&one, Loss::Hinge, x.clone(), Tensor::new([4], labels.to_vec())).unwrap();
            let right = accuracy(&one, Loss::Hinge, &rows).unwrap() * 4.0;
            assert_eq!(count(&one, Loss::Hinge, &rows), right as f32);
        }
    }

    #[test]
    fn an_order_has_every_row_once_and_changes_by_epoch() {
        let model = models::build("net-a", 1, 1).unwrap();
        let x = Tensor::filled([50, 784], 0.5);
        let rows = Rows::new(&model, Loss::CrossEntropy, x, Tensor::new([50], vec![0.0; 50])).unwrap();
        let mut orders = [rows.order(1, 0), rows.order(1, 1), rows.order(2, 0)];
        assert!(orders[0] != orders[1] && orders[0] != orders[2] && orders[0] == rows.order(1, 0));
        orders.iter_mut().for_each(|order| order.sort_unstable());
        assert!(orders.iter().all(|order| order.iter().copied().eq(0..50)));
    }
}
