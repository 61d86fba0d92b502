//! RNN, GRU and LSTM, a step after the other. What a step takes of the data is one product for all
//! steps; within a step independent functions run side by side.

use super::{Decompose, Parts};
use crate::graph::{Attributes, Id};
use crate::problem::{Refusal, refuse};
use crate::tensor::Tensor;
use std::sync::Arc;

pub(super) const TABLE: &[(&str, Decompose)] = &[("GRU", recurrent), ("LSTM", recurrent), ("RNN", recurrent)];

/// The most steps.
const MOST: usize = 1 << 12;

/// A function of a cell, with its numbers.
#[derive(Clone)]
struct Activation {
    name: String,
    alpha: Option<f32>,
    beta: Option<f32>,
}

impl Activation {
    fn of(&self, p: &mut Parts, x: Id) -> Result<Id, Refusal> {
        let attributes = |names: [Option<&str>; 2]| {
            let mut attributes = Attributes::none();
            for (name, value) in names.into_iter().zip([self.alpha, self.beta]) {
                if let (Some(name), Some(value)) = (name, value) {
                    attributes = attributes.with(name, value);
                }
            }
            attributes
        };
        match self.name.to_lowercase().as_str() {
            "relu" => p.of("Relu", &[x]),
            "tanh" => p.of("Tanh", &[x]),
            "sigmoid" => p.of("Sigmoid", &[x]),
            "softsign" => p.of("Softsign", &[x]),
            "softplus" => p.of("Softplus", &[x]),
            "affine" => p.affine(x, self.alpha.unwrap_or(1.0), self.beta.unwrap_or(0.0)),
            "scaledtanh" => {
                let inner = p.affine(x, self.beta.unwrap_or(1.0), 0.0)?;
                let y = p.of("Tanh", &[inner])?;
                p.affine(y, self.alpha.unwrap_or(1.0), 0.0)
            }
            "hardsigmoid" => p.node("HardSigmoid", &[x], attributes([Some("alpha"), Some("beta")])),
            "leakyrelu" => p.node("LeakyRelu", &[x], attributes([Some("alpha"), None])),
            "elu" => p.node("Elu", &[x], attributes([Some("alpha"), None])),
            "thresholdedrelu" => p.node("ThresholdedRelu", &[x], attributes([Some("alpha"), None])),
            other => refuse(format!("the activation `{other}` is not known"), "use Tanh, Sigmoid or Relu"),
        }
    }
}

/// One direction of a node.
struct Cell {
    hidden: usize,
    activations: Vec<Activation>,
    /// The transposed weights of the state.
    recurrent: Id,
    /// Of an RNN and an LSTM, part of what the data gives; of a GRU, what the state gives.
    state_bias: Option<Id>,
    peepholes: Option<Id>,
    clip: Option<f32>,
    linear_before_reset: bool,
    coupled: bool,
}

impl Cell {
    fn apply(&self, p: &mut Parts, which: usize, x: Id) -> Result<Id, Refusal> {
        let x = match self.clip {
            Some(clip) => p.node("Clip", &[x], Attributes::none().with("min", -clip).with("max", clip))?,
            None => x,
        };
        self.activations[which].of(p, x)
    }

    /// A gate of [batch, gates · hidden].
    fn gate(&self, p: &mut Parts, x: Id, i: usize) -> Result<Id, Refusal> {
        p.slice(x, 1, i * self.hidden..(i + 1) * self.hidden)
    }

    fn rnn(&self, p: &mut Parts, given: Id, h: Id) -> Result<Id, Refusal> {
        let state = p.of("MatMul", &[h, self.recurrent])?;
        let sum = p.plus(given, state)?;
        self.apply(p, 0, sum)
    }

    fn gru(&self, p: &mut Parts, given: Id, h: Id) -> Result<Id, Refusal> {
        let n = self.hidden;
        let recurrent_gates = p.slice(self.recurrent, 1, 0..2 * n)?;
        let recurrent_rest = p.slice(self.recurrent, 1, 2 * n..3 * n)?;
        let bias = |p: &mut Parts, x: Id, from: usize, to: usize| match self.state_bias {
            Some(bias) => {
                let bias = p.slice(bias, 0, from..to)?;
                p.plus(x, bias)
            }
            None => Ok(x),
        };
        let state = p.of("MatMul", &[h, recurrent_gates])?;
        let state = bias(p, state, 0, 2 * n)?;
        let given_gates = p.slice(given, 1, 0..2 * n)?;
        let gates = p.plus(given_gates, state)?;
        let gates = self.apply(p, 0, gates)?;
        let [update, reset] = [self.gate(p, gates, 0)?, self.gate(p, gates, 1)?];
        let given_rest = p.slice(given, 1, 2 * n..3 * n)?;
        let rest = if self.linear_before_reset {
            let state = p.of("MatMul", &[h, recurrent_rest])?;
            let state = bias(p, state, 2 * n, 3 * n)?;
            p.times(reset, state)?
        } else {
            let kept = p.times(reset, h)?;
            let state = p.of("MatMul", &[kept, recurrent_rest])?;
            bias(p, state, 2 * n, 3 * n)?
        };
        let sum = p.plus(given_rest, rest)?;
        let new = self.apply(p, 1, sum)?;
        // (1 − z)·new + z·h.
        let change = p.minus(h, new)?;
        let part = p.times(update, change)?;
        p.plus(new, part)
    }

    fn lstm(&self, p: &mut Parts, given: Id, h: Id, c: Id) -> Result<[Id; 2], Refusal> {
        let state = p.of("MatMul", &[h, self.recurrent])?;
        let sum = p.plus(given, state)?;
        let peep = |p: &mut Parts, gate: Id, i: usize, c: Id| match self.peepholes {
            Some(weights) => {
                let weights = p.slice(weights, 0, i * self.hidden..(i + 1) * self.hidden)?;
                let part = p.times(c, weights)?;
                p.plus(gate, part)
            }
            None => Ok(gate),
        };
        let mut gates = vec![];
        for i in 0..4 {
            gates.push(self.gate(p, sum, i)?);
        }
        let input = peep(p, gates[0], 0, c)?;
        let input = self.apply(p, 0, input)?;
        let forget = if self.coupled {
            p.affine(input, -1.0, 1.0)?
        } else {
            let forget = peep(p, gates[2], 2, c)?;
            self.apply(p, 0, forget)?
        };
        let new = self.apply(p, 1, gates[3])?;
        let [kept, added] = [p.times(forget, c)?, p.times(input, new)?];
        let c = p.plus(kept, added)?;
        let output = peep(p, gates[1], 1, c)?;
        let output = self.apply(p, 0, output)?;
        let shown = self.activations[2].of(p, c)?;
        Ok([p.times(output, shown)?, c])
    }
}

/// The activations of all directions, with the node's numbers dealt out in their order.
fn activations(p: &Parts, per_cell: usize, directions: usize) -> Result<Vec<Activation>, Refusal> {
    let defaults: &[&str] = match p.op {
        "LSTM" => &["Sigmoid", "Tanh", "Tanh"],
        "GRU" => &["Sigmoid", "Tanh"],
        _ => &["Tanh"],
    };
    let call = p.call();
    let names = match call.strings("activations")? {
        Some(names) => names,
        None => defaults.iter().cycle().take(per_cell * directions).map(ToString::to_string).collect(),
    };
    if names.len() != per_cell * directions {
        return refuse("has another number of activations than of functions", "");
    }
    let mut alphas = call.reals("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = call.reals("activation_beta")?.unwrap_or_default().into_iter();
    let takes = |name: &str, list: &[&str]| list.contains(&name.to_lowercase().as_str());
    Ok(names
        .into_iter()
        .map(|name| {
            let with_alpha = ["affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"];
            let alpha = takes(&name, &with_alpha).then(|| alphas.next()).flatten();
            let beta = takes(&name, &["affine", "scaledtanh", "hardsigmoid"]).then(|| betas.next()).flatten();
            Activation { name, alpha, beta }
        })
        .collect())
}

fn recurrent(p: &mut Parts) -> Result<Vec<Id>, Refusal> {
    p.call().only(
        8,
        &[
            "activation_alpha",
            "activation_beta",
            "activations",
            "clip",
            "direction",
            "hidden_size",
            "input_forget",
            "layout",
            "linear_before_reset",
        ],
    )?;
    let (gates, per_cell) = match p.op {
        "LSTM" => (4, 3),
        "GRU" => (3, 2),
        _ => (1, 1),
    };
    let batch_first = p.call().int("layout", 0)? != 0;
    let mut x = p.input(0)?;
    if p.dims(x).len() != 3 {
        return refuse("takes sequences [steps, batch, numbers]", "");
    }
    if batch_first {
        x = p.transpose(x, &[1, 0, 2])?;
    }
    let (dims, weights, recurrent) = (p.dims(x), p.input(1)?, p.input(2)?);
    let (steps, batch) = (dims[0], dims[1]);
    let &[directions, rows, hidden] = p.dims(recurrent).as_slice() else {
        return refuse("the weights of the state are not [directions, gates, hidden]", "");
    };
    let reversed: &[bool] = match p.call().string("direction", "forward")?.as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return refuse(format!("the direction `{other}` is not known"), ""),
    };
    let fits = p.dims(weights) == [directions, gates * hidden, dims[2]];
    if !fits || rows != gates * hidden || directions != reversed.len() || steps > MOST {
        return refuse("the weights do not fit the data, or there are too many steps", "");
    }
    let lengths = match p.has(4) {
        true => Some(p.known_ints(4)?).filter(|l| l.data.iter().any(|&l| l != steps as i64)),
        false => None,
    };
    if lengths.as_ref().is_some_and(|l| l.data.len() != batch) {
        return refuse("has another number of lengths than of sequences", "");
    }
    let all = activations(p, per_cell, directions)?;
    let clip = if p.attributes.0.contains_key("clip") { Some(p.call().float("clip", 0.0)?) } else { None };
    let (linear_before_reset, coupled) =
        (p.call().int("linear_before_reset", 0)? != 0, p.call().int("input_forget", 0)? != 0);
    let (mut sequences, mut last, mut last_cells) = (vec![], vec![], vec![]);
    for (d, &reverse) in reversed.iter().enumerate() {
        let of = |p: &mut Parts, i: usize| -> Result<Option<Id>, Refusal> {
            let Some(value) = p.inputs.get(i).copied().flatten() else { return Ok(None) };
            // The states of sequences stand first with `layout`.
            let axis = usize::from(batch_first && matches!(i, 5 | 6));
            let size = p.dims(value);
            let slice = p.slice(value, axis, d..d + 1)?;
            let rest: Vec<usize> = (0..size.len()).filter(|&a| a != axis).map(|a| size[a]).collect();
            Ok(Some(p.reshape(slice, &rest)?))
        };
        let (Some(w), Some(r)) = (of(p, 1)?, of(p, 2)?) else { return refuse("has no weights", "") };
        let [w, r] = [p.transpose(w, &[1, 0])?, p.transpose(r, &[1, 0])?];
        let bias = of(p, 3)?;
        let mut state_bias = None;
        let sequence = if reverse { backwards(p, x, lengths.as_ref())? } else { x };
        let mut given = p.of("MatMul", &[sequence, w])?;
        if let Some(bias) = bias {
            let [wb, rb] = [p.slice(bias, 0, 0..rows)?, p.slice(bias, 0, rows..2 * rows)?];
            let both = if p.op == "GRU" { wb } else { p.plus(wb, rb)? };
            state_bias = (p.op == "GRU").then_some(rb);
            given = p.plus(given, both)?;
        }
        let zeros = |p: &mut Parts| p.constant(Tensor::filled([batch, hidden], 0.0));
        let mut h = match of(p, 5)? {
            Some(h) => h,
            None => zeros(p),
        };
        let lstm = p.op == "LSTM";
        let mut c = match if lstm { of(p, 6)? } else { None } {
            Some(c) => c,
            None => zeros(p),
        };
        let cell = Cell {
            hidden,
            activations: all[d * per_cell..(d + 1) * per_cell].to_vec(),
            recurrent: r,
            state_bias,
            peepholes: if lstm { of(p, 7)? } else { None },
            clip,
            linear_before_reset,
            coupled,
        };
        let mut states = vec![];
        for t in 0..steps {
            let now = p.slice(given, 0, t..t + 1)?;
            let now = p.reshape(now, &[batch, rows])?;
            let (next_h, next_c) = match p.op {
                "LSTM" => {
                    let [h, c] = cell.lstm(p, now, h, c)?;
                    (h, c)
                }
                "GRU" => (cell.gru(p, now, h)?, c),
                _ => (cell.rnn(p, now, h)?, c),
            };
            let mut shown = next_h;
            (h, c) = match &lengths {
                None => (next_h, next_c),
                // A sequence that has ended keeps its state and shows zeros.
                Some(lengths) => {
                    let goes_on = lengths.data.iter().map(|&l| i64::from((t as i64) < l)).collect();
                    let goes_on = p.constant(Tensor::<i64>::new([batch, 1], goes_on));
                    let zeros = zeros(p);
                    shown = p.of("Where", &[goes_on, next_h, zeros])?;
                    let c = if lstm { p.of("Where", &[goes_on, next_c, c])? } else { c };
                    (p.of("Where", &[goes_on, next_h, h])?, c)
                }
            };
            states.push(p.reshape(shown, &[1, batch, hidden])?);
        }
        let states = p.concat(&states, 0)?;
        let states = if reverse { backwards(p, states, lengths.as_ref())? } else { states };
        sequences.push(p.reshape(states, &[steps, 1, batch, hidden])?);
        last.push(p.reshape(h, &[1, batch, hidden])?);
        last_cells.push(c);
    }
    let mut outputs = vec![p.concat(&sequences, 1)?, p.concat(&last, 0)?];
    if p.op == "LSTM" {
        for cell in &mut last_cells {
            *cell = p.reshape(*cell, &[1, batch, hidden])?;
        }
        outputs.push(p.concat(&last_cells, 0)?);
    }
    if batch_first {
        outputs[0] = p.transpose(outputs[0], &[2, 0, 1, 3])?;
        for output in &mut outputs[1..] {
            *output = p.transpose(*output, &[1, 0, 2])?;
        }
    }
    Ok(outputs)
}

/// The steps in reverse, each sequence within its length.
fn backwards(p: &mut Parts, x: Id, lengths: Option<&Arc<Tensor<i64>>>) -> Result<Id, Refusal> {
    match lengths {
        None => {
            let steps = p.dims(x)[0];
            p.gather(x, 0, &(0..steps).rev().collect::<Vec<_>>())
        }
        Some(lengths) => {
            let lengths = p.constant((**lengths).clone());
            p.of("ReverseSequence", &[x, lengths])
        }
    }
}
