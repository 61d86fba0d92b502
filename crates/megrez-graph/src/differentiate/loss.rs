//! What training makes small, and its gradient at the model's output.

use crate::gradients::list;
use crate::graph::{Attributes, Graph, Id};
use crate::layers::{AFFINE, CROSS_ENTROPY, RELU_GRAD, SOFTMAX_CROSS_ENTROPY};
use crate::passes::rewrite::Rewrite;
use crate::problem::Problem;
use std::str::FromStr;

/// What training makes small: the mean over the rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Softmax cross-entropy of logits [B, K] and one-hot rows.
    CrossEntropy,
    /// Half of the squared distance of a row from its target.
    MeanSquares,
    /// Cross-entropy of the sigmoid of each logit and a label from 0 to 1, added up over a row: of
    /// two classes with one logit, of several that a row may all be of, or of each class against
    /// all others.
    BinaryCrossEntropy,
    /// max(1 − t·z, 0) for each logit z, t = 1 for label 1 and −1 for label 0, added up over a row.
    Hinge,
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cross-entropy" => Ok(Loss::CrossEntropy),
            "mse" => Ok(Loss::MeanSquares),
            "binary-cross-entropy" => Ok(Loss::BinaryCrossEntropy),
            "hinge" => Ok(Loss::Hinge),
            _ => Err(format!("there is no loss `{text}`: cross-entropy, binary-cross-entropy, hinge or mse")),
        }
    }
}

/// The gradient of a loss with respect to the model's output, times the batch; a sum over the
/// batch, and what part of it the loss is.
pub(super) struct OfLoss {
    pub(super) delta: Id,
    pub(super) sum: Id,
    pub(super) share: f32,
}

impl Loss {
    /// The operator at a model's end that belongs to the loss, and is left out.
    #[must_use]
    pub fn function(self) -> Option<&'static str> {
        match self {
            Loss::CrossEntropy => Some("Softmax"),
            Loss::BinaryCrossEntropy => Some("Sigmoid"),
            Loss::MeanSquares | Loss::Hinge => None,
        }
    }

    /// Whether labels say of a class yes or no, and are no targets.
    #[must_use]
    pub fn has_classes(self) -> bool {
        self != Loss::MeanSquares
    }

    /// A model without that operator, where it makes the only output.
    pub(super) fn without_its_function(self, model: Graph) -> Result<Graph, Problem> {
        let Some(function) = self.function() else { return Ok(model) };
        let mut rewrite = Rewrite::new(&model)?;
        for node in &model.nodes {
            match node.inputs.first() {
                Some(&Some(input)) if node.op == function && model.is_output(node.output) => {
                    let place = rewrite.place(input);
                    rewrite.put(node.output, place);
                }
                _ => rewrite.copy(node)?,
            }
        }
        Ok(rewrite.finish())
    }

    pub(super) fn gradient(self, graph: &mut Graph, logits: Id, labels: Id) -> Result<OfLoss, Problem> {
        let mut add = |part: &str, op: &str, inputs: &[Id], attributes: Attributes| {
            graph.add(&format!("loss.{part}"), op, inputs, attributes)
        };
        let (none, all) = (Attributes::none, || list("axes", vec![0, 1]));
        let affine = |factor: f32, offset: f32| none().with("factor", factor).with("offset", offset);
        Ok(match self {
            Loss::CrossEntropy => {
                let delta = add("gradient", SOFTMAX_CROSS_ENTROPY, &[logits, labels], none())?;
                let sum = add("sum", CROSS_ENTROPY, &[logits, labels, delta], none())?;
                OfLoss { delta, sum, share: 1.0 }
            }
            Loss::MeanSquares => {
                let delta = add("gradient", "Sub", &[logits, labels], none())?;
                let square = add("squares", "Mul", &[delta, delta], none())?;
                OfLoss { delta, sum: add("sum", "ReduceSum", &[square], all())?, share: 0.5 }
            }
            // −y·ln σ(z) − (1 − y)·ln(1 − σ(z)) = ln(1 + e^z) − y·z.
            Loss::BinaryCrossEntropy => {
                let found = add("found", "Sigmoid", &[logits], none())?;
                let delta = add("gradient", "Sub", &[found, labels], none())?;
                let above = add("above", "Softplus", &[logits], none())?;
                let own = add("own", "Mul", &[logits, labels], none())?;
                let each = add("each", "Sub", &[above, own], none())?;
                OfLoss { delta, sum: add("sum", "ReduceSum", &[each], all())?, share: 1.0 }
            }
            // Where 1 − t·z is not negative, −t.
            Loss::Hinge => {
                let against = add("against", AFFINE, &[labels], affine(-2.0, 1.0))?;
                let product = add("product", "Mul", &[against, logits], none())?;
                let short = add("short", AFFINE, &[product], affine(1.0, 1.0))?;
                let each = add("each", "Relu", &[short], none())?;
                let delta = add("gradient", RELU_GRAD, &[short, each, against], none())?;
                OfLoss { delta, sum: add("sum", "ReduceSum", &[each], all())?, share: 1.0 }
            }
        })
    }
}
