//! What an optimiser makes of gradients, as nodes.

use super::optimiser::{Optimiser, Rate, Squares};
use crate::graph::{Attributes, Graph, Id};
use crate::layers::{ADAPTIVE, MOMENTUM_BITS, UPDATE};
use crate::problem::Problem;
use crate::tensor::Tensor;

/// Units of β.
const BETA_BITS: u32 = 10;

/// What an optimiser keeps of each weight besides the weight: inputs of the step, by the weights'
/// order.
pub(super) struct Lasts {
    /// What momentum adds up.
    moves: Vec<Id>,
    /// The mean squares, and the largest of those.
    squares: Vec<Id>,
    largest: Vec<Id>,
}

/// `factor` · 2^−`bits`, and the factor of what was before, in units of 2^−`unit`.
fn mix((factor, bits): (i64, i64), before: i64, unit: u32) -> Attributes {
    Attributes::none()
        .with("factor", factor)
        .with("bits", bits)
        .with("momentum", before)
        .with("unit", i64::from(unit))
}

impl Lasts {
    /// Adds the inputs, and to the state that they begin at zero.
    pub(super) fn new(
        graph: &mut Graph,
        optimiser: Optimiser,
        state: &mut Vec<State>,
    ) -> Result<Self, Problem> {
        let weights = state.clone();
        let mut all = |prefix: &str, wanted: bool| -> Result<Vec<Id>, Problem> {
            let mut ids = vec![];
            for State { name, start } in weights.iter().filter(|_| wanted) {
                let name = format!("{prefix}.{}", &name["w.".len()..]);
                ids.push(graph.input(&name, start.shape.clone())?);
                state.push(State { name, start: Tensor::filled(start.shape.clone(), 0.0) });
            }
            Ok(ids)
        };
        let squares = optimiser.squares;
        Ok(Lasts {
            moves: all("v", optimiser.momentum > 0)?,
            squares: all("u", squares.is_some())?,
            largest: all("h", squares.is_some_and(|squares| squares.largest))?,
        })
    }

    /// What is taken off weight `i`, from its gradient over the batch's sum.
    pub(super) fn step(
        &self,
        graph: &mut Graph,
        optimiser: Optimiser,
        batch: usize,
        (name, i): (&str, usize),
        [weight, gradient]: [Id; 2],
    ) -> Result<Id, Problem> {
        let (decay, decay_bits) = optimiser.decay.map_or((0, 0), |decay| optimiser.rate.times(decay));
        let decays = optimiser.decay.map(|_| weight);
        let with_decay =
            |attributes: Attributes| attributes.with("decay", decay).with("decay-bits", decay_bits);
        let bare = &name["w.".len()..];
        let update = format!("update.{name}");
        let momentum = i64::from(optimiser.momentum);
        let last = self.moves.get(i).copied();
        let Some(squares) = optimiser.squares else {
            let attributes = with_decay(mix(optimiser.rate.over(batch), momentum, MOMENTUM_BITS));
            let operands: Vec<Id> = [Some(gradient), last, decays].into_iter().flatten().collect();
            let step = graph.add(&update, UPDATE, &operands, attributes)?;
            if last.is_some() {
                graph.output(&format!("v.{bare}"), step);
            }
            return Ok(step);
        };
        // Mean gradients, 2^6 times as large.
        let share = mix(Rate::scaled_share(Squares::BITS, batch), 0, MOMENTUM_BITS);
        let gradient = graph.add(&format!("{update}.gradient"), UPDATE, &[gradient], share)?;
        let mut mean = gradient;
        if let Some(last) = last {
            let rest = ((1 << MOMENTUM_BITS) - momentum, MOMENTUM_BITS.into());
            let attributes = mix(rest, momentum, MOMENTUM_BITS);
            mean = graph.add(&format!("{update}.mean"), UPDATE, &[gradient, last], attributes)?;
            graph.output(&format!("v.{bare}"), mean);
        }
        let square =
            graph.add(&format!("{update}.square"), "Mul", &[gradient, gradient], Attributes::none())?;
        let beta = i64::from(squares.beta);
        let attributes = mix(((1 << BETA_BITS) - beta, BETA_BITS.into()), beta, BETA_BITS);
        let mut size =
            graph.add(&format!("{update}.squares"), UPDATE, &[square, self.squares[i]], attributes)?;
        graph.output(&format!("u.{bare}"), size);
        if let Some(&largest) = self.largest.get(i) {
            size = graph.add(&format!("{update}.largest"), "Max", &[largest, size], Attributes::none())?;
            graph.output(&format!("h.{bare}"), size);
        }
        let step = graph.add(&format!("{update}.divided"), ADAPTIVE, &[mean, size], Attributes::none())?;
        let operands: Vec<Id> = [Some(step), decays].into_iter().flatten().collect();
        let attributes = with_decay(mix(optimiser.rate.parts(), 0, MOMENTUM_BITS));
        graph.add(&update, UPDATE, &operands, attributes)
    }
}

/// What a step of training changes: an input and an output of the graph of the same name.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// `w.` and the name of the weights; `v.` and the same for what momentum adds up, `u.` for the
    /// mean square of the gradient, `h.` for the largest of those; or
    /// [`Step::LOSS_SO_FAR`](super::Step::LOSS_SO_FAR).
    pub name: String,
    /// What training begins with: the model's weights, and zeros for the others.
    pub start: Tensor,
}
