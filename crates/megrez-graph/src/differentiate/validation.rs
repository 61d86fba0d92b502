//! What is looked at after an epoch, on rows that nothing is learnt from: how many a model is right
//! about or, where there are no classes, its loss.

use super::loss::OfLoss;
use super::step::{Untied, untie};
use super::{Loss, State, Trained};
use crate::gradients::list;
use crate::graph::{Attributes, Graph, Id};
use crate::layers::AFFINE;
use crate::problem::{Problem, Problems};
use crate::tensor::Tensor;

/// A look at rows.
#[derive(Clone, Debug)]
pub struct Validation {
    /// Takes the model's inputs, [`Step::LABELS`](super::Step::LABELS), the weights and the sum so
    /// far; gives the sum.
    pub graph: Graph,
    /// What it reads of what lasts, in the order of inputs: the weights, and the sum.
    pub state: Vec<State>,
    /// Rows of a batch.
    pub batch: usize,
}

impl Validation {
    /// The state that is the number of rows that the model is right about: of rows of several
    /// classes those whose largest output is at the label (of equal ones the first is the largest),
    /// of one output those whose sign is right. A label between 0 and 1 counts as so much of a row.
    pub const CORRECT_SO_FAR: &'static str = "correct.so-far";
    /// The state that is the sum of the mean losses of batches, where there are no classes.
    pub const LOSS_SO_FAR: &'static str = "validation-loss.so-far";

    /// The name of the sum.
    pub fn sum(loss: Loss) -> &'static str {
        if loss.has_classes() { Self::CORRECT_SO_FAR } else { Self::LOSS_SO_FAR }
    }
}

/// What counts on a batch how well a model does, whose trained weights are inputs as in the
/// [`step`](super::differentiate).
///
/// # Errors
/// As [`differentiate`](super::differentiate), but for what has no backward.
pub fn validation(model: &Graph, loss: Loss, trained: &Trained) -> Result<Validation, Problems> {
    let Untied { mut graph, output, labels, state, .. } = untie(model, loss, trained, true)?;
    graph.outputs.clear();
    Ok(counting(graph, (output, labels.expect("they were asked for")), loss, state)?)
}

/// A graph that also says how well its output goes with labels.
pub(crate) fn counting(
    mut graph: Graph,
    (output, labels): (Id, Id),
    loss: Loss,
    mut state: Vec<State>,
) -> Result<Validation, Problem> {
    let batch = graph.shape(output).dims()[0];
    let found = match loss.has_classes() {
        true => correct(&mut graph, output, labels)?,
        false => {
            let OfLoss { sum, share, .. } = loss.gradient(&mut graph, output, labels)?;
            graph.add("loss.mean", AFFINE, &[sum], Attributes::none().with("factor", share / batch as f32))?
        }
    };
    let name = Validation::sum(loss);
    let so_far = graph.input(name, graph.shape(found).clone())?;
    let sum = graph.add("validation.so-far", "Add", &[so_far, found], Attributes::none())?;
    graph.output(name, sum);
    state.push(State { name: name.into(), start: Tensor::filled(graph.shape(found).clone(), 0.0) });
    Ok(Validation { graph, state, batch })
}

/// How many rows are right, as [1, 1].
fn correct(graph: &mut Graph, output: Id, labels: Id) -> Result<Id, Problem> {
    let one = graph.shape(output).dims()[1] == 1;
    let zero = graph.constant("validation.zero", Tensor::new([1], vec![0.0]));
    let mut add = |part: &str, op: &str, inputs: &[Id], attributes: Attributes| {
        graph.add(&format!("validation.{part}"), op, inputs, attributes)
    };
    let (none, affine) = (Attributes::none, |factor: f32| Attributes::none().with("factor", factor));
    let each = if one {
        // Of a yes and a label of 1, or a no and one of 0: 1 − yes − y + 2·yes·y.
        let yes = add("yes", "Greater", &[output, zero], none())?;
        let both = add("both", "Mul", &[yes, labels], none())?;
        let twice = add("twice", AFFINE, &[both], affine(2.0).with("offset", 1.0f32))?;
        let either = add("either", "Add", &[yes, labels], none())?;
        add("right", "Sub", &[twice, either], none())?
    } else {
        let largest = add("largest", "Hardmax", &[output], none().with("axis", 1i64))?;
        add("right", "Mul", &[largest, labels], none())?
    };
    add("correct", "ReduceSum", &[each], list("axes", vec![0, 1]))
}
