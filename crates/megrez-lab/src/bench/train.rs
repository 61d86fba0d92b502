//! `megrez bench model NAME --train` in floating point: a step of training a perceptron on shares
//! (forward, backward, update), by transfers or with a dealer, measured, beside its cost and
//! against the same step in the clear. Party 0 brings the weights, party 1 data and labels.

use super::sample::{any_model, test_image};
use crate::supplied::{self, Part, Priced, Sent, SetUp, all_sent, by_link, cost, sent, sent_since};
use megrez::report::Seconds;
use megrez::{Error, Result, Work};
use megrez_float::programs::{Layer, Matrix, Mlp, Step};
use megrez_float::{AnyBlocks, Failure, Float, Format, Plain, in_the_clear};
use megrez_graph::models::relevance_features;
use megrez_graph::{Attribute, Graph, Tensor};
use megrez_net::{NetProfile, Network};
use megrez_plan::View;
use megrez_service::pair::{self, Job};
use megrez_session::Phase;
use megrez_twoparty::Supplier;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrainBench {
    /// The protocol: one on floats.
    pub protocol: String,
    /// How many parties it has.
    pub parties: usize,
    /// A built-in network or an ONNX file: dense layers with ReLU between them.
    pub model: String,
    /// Inputs per step.
    pub batch: usize,
    /// How many steps, one after the other from the same weights.
    pub repeat: u32,
    /// Seed of weights and data, never of shares.
    pub seed: u64,
    /// How the parties work.
    pub work: Work,
    /// The learning rate.
    pub rate: f32,
}

/// What one party measured in one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    seconds: f64,
    busy_seconds: f64,
    rounds: u32,
    sent: Sent,
    /// What is opened, to the parties that compute.
    loss: Option<f32>,
    /// Numbers that differ from the clear; party 0 looks.
    wrong: usize,
}

/// Weights (inputs × outputs) and biases of a perceptron's layers.
type Weights = Vec<(Tensor, Tensor)>;

/// The layers of a graph of dense layers with ReLU between them.
fn perceptron(graph: &Graph) -> Result<Weights> {
    let refuse =
        |what: &str| Error::Refused(format!("only dense layers with ReLU between them are trained: {what}"));
    let mut layers = vec![];
    for (i, node) in graph.nodes.iter().enumerate() {
        let expected = if i % 2 == 0 { "Gemm" } else { "Relu" };
        if node.op != expected {
            return Err(refuse(&format!("`{}` is a {} where a {expected} belongs", node.name, node.op)));
        }
        if expected == "Relu" {
            continue;
        }
        let plain = |name: &str, default: i64| {
            let value = node.attributes.0.get(name);
            value.is_none_or(|v| *v == Attribute::Int(default) || *v == Attribute::Float(default as f32))
        };
        let constant = |i: usize| node.inputs.get(i).copied().flatten().and_then(|id| graph.floats(id));
        let (Some(weights), Some(bias)) = (constant(1), constant(2)) else {
            return Err(refuse(&format!("`{}` has no constant weights and bias", node.name)));
        };
        let turned = node.attributes.0.get("transB") == Some(&Attribute::Int(1));
        if !(plain("alpha", 1) && plain("beta", 1) && plain("transA", 0)) || bias.shape.rank() != 1 {
            return Err(refuse(&format!("`{}` is scaled or transposed", node.name)));
        }
        let weights = if turned {
            weights.view(&View::transpose(&weights.shape, &[1, 0]))
        } else {
            (**weights).clone()
        };
        layers.push((weights, (**bias).clone()));
    }
    if layers.is_empty() || graph.nodes.len().is_multiple_of(2) {
        return Err(refuse("the last layer is a dense one"));
    }
    Ok(layers)
}

impl TrainBench {
    fn weights(&self) -> Result<Weights> {
        perceptron(&any_model(&self.model, self.batch, self.seed)?)
    }

    fn data(&self, features: usize) -> Tensor {
        match self.model.as_str() {
            "relevance" => relevance_features(self.batch, self.seed),
            _ => test_image(self.seed, 0, "input", [self.batch, features].into()),
        }
    }

    /// Input i is of class i, modulo their number.
    fn labels(&self, classes: usize) -> Vec<f32> {
        (0..self.batch * classes).map(|i| f32::from(u8::from(i % classes == i / classes % classes))).collect()
    }

    /// The step, on numbers that `secret` makes of the owner's: party 0's weights, party 1's data.
    fn step<E>(
        &self,
        layers: &Weights,
        mut secret: impl FnMut(usize, &[f32]) -> std::result::Result<Float, E>,
    ) -> std::result::Result<(Mlp, Matrix, Matrix), E> {
        let mut all = vec![];
        for (weights, bias) in layers {
            let &[rows, cols] = weights.shape.dims() else { unreachable!("a Gemm's weights are a matrix") };
            let weights = Matrix { rows, cols, data: secret(0, &weights.data)? };
            all.push(Layer { weights, bias: secret(0, &bias.data)? });
        }
        let (features, classes) = (all[0].weights.rows, all[all.len() - 1].weights.cols);
        let x = secret(1, &self.data(features).data)?;
        let labels = secret(1, &self.labels(classes))?;
        let x = Matrix { rows: self.batch, cols: features, data: x };
        Ok((Mlp { layers: all }, x, Matrix { rows: self.batch, cols: classes, data: labels }))
    }
}

/// The step of these layers, to be priced.
struct Pricing<'a>(&'a TrainBench, &'a Weights);

impl Priced for Pricing<'_> {
    fn ask(&self, b: &mut AnyBlocks) -> std::result::Result<(), Failure> {
        let (mlp, x, labels) = self.0.step(self.1, |_, v| Ok(b.secret(&Plain::from_f32(v))))?;
        mlp.step(b, &x, &labels, self.0.rate).map(drop)
    }
}

/// Everything that a step gives, in one vector.
fn results(b: &AnyBlocks, step: &Step) -> Float {
    let layers = step.mlp.layers.iter().flat_map(|l| [&l.weights.data, &l.bias]);
    Float::concat(b, &std::iter::once(&step.loss).chain(layers).collect::<Vec<_>>())
}

impl Job for TrainBench {
    const NAME: &'static str = "bench training";
    type Report = Vec<Measured>;

    fn parties(&self) -> usize {
        self.parties
    }

    fn run(&self, network: Network) -> Result<Vec<Measured>> {
        supplied::party(network, self.work, self)
    }
}

impl Part for TrainBench {
    type Report = Vec<Measured>;

    fn run<S: Supplier>(&self, b: &mut S, _: SetUp) -> Result<Vec<Measured>> {
        let layers = self.weights()?;
        let me = b.party().me();
        let mut measured = vec![];
        for run in 0..self.repeat {
            b.enter(Phase::Input, run);
            let mut names = 0..;
            let (mlp, x, labels) = self.step(&layers, |owner, numbers| {
                let name = format!("number {}", names.next().unwrap_or(0));
                let plain = (owner == me).then(|| Plain::from_f32(numbers));
                b.share(owner, &name, Format::FLOAT32, numbers.len(), plain.as_ref())
            })?;
            b.enter(Phase::Online, run);
            b.party_mut().barrier("start")?;
            let before = sent(b);
            let start = Instant::now();
            let all = b.step("training", |b| {
                let step = mlp.step(b, &x, &labels, self.rate)?;
                Ok(results(b, &step))
            })?;
            let seconds = start.elapsed().as_secs_f64();
            let busy_seconds = seconds - b.waited().as_secs_f64();
            let (rounds, sent) = (b.party().rounds(), sent_since(b, &before));
            b.enter(Phase::Output, run);
            let opened = b.open(&all)?.map(|opened| opened.to_f32());
            let wrong = match &opened {
                Some(opened) if me == 0 => self.differences(&layers, opened),
                _ => 0,
            };
            let loss = opened.map(|opened| opened[0]);
            measured.push(Measured { seconds, busy_seconds, rounds, sent, loss, wrong });
        }
        Ok(measured)
    }
}

impl TrainBench {
    /// In how many numbers the results differ from the same step in the clear.
    fn differences(&self, layers: &Weights, got: &[f32]) -> usize {
        let results = in_the_clear(|b| {
            let (mlp, x, labels) = self.step(layers, |_, v| Ok(Plain::from_f32(v).secret()))?;
            let step = mlp.step(b, &x, &labels, self.rate)?;
            Ok(results(b, &step))
        });
        let clear = results.plain().to_f32();
        got.iter().zip(&clear).filter(|(g, c)| g.to_bits() != c.to_bits()).count()
    }
}

/// Measures a step of training; `processes` or threads.
///
/// # Errors
/// If the model is no perceptron, or a party fails.
pub fn bench_training(o: &TrainBench, net: &NetProfile, processes: bool) -> Result<Json> {
    let cost = cost(&Pricing(o, &o.weights()?), o.parties, o.work, o.repeat);
    let reports = if processes { pair::in_processes(o, net)? } else { pair::in_threads(o, net)? };
    let runs = 0..o.repeat as usize;
    let slowest = |run: usize| reports.iter().map(|r| r[run].seconds).fold(0.0, f64::max);
    let busy = |r: &Vec<Measured>| Seconds::of(r.iter().map(|m| m.busy_seconds).collect()).median;
    let last: Vec<&Measured> = reports.iter().filter_map(|r| r.last()).collect();
    let sent = all_sent(last.iter().map(|m| &m.sent));
    let mut options = supplied::options(o.parties, o.work);
    options.insert("rate".into(), json!(o.rate));
    let wrong: usize = reports.iter().flatten().map(|m| m.wrong).sum();
    Ok(json!({
        "schema": "megrez.bench/1",
        "op": null,
        "model": o.model,
        "training": true,
        "protocol": o.protocol,
        "insecure": false,
        "numbers": "float32",
        "batch": o.batch,
        "options": options,
        "net": { "name": net.name, "rtt_ms": net.rtt_ms, "mbps": net.mbps },
        "parties": if processes { "process" } else { "thread" },
        "repeat": o.repeat,
        "phases": {
            "offline": {
                "seconds": Seconds::default(), "rounds": u32::from(o.parties > 2), "sent_bytes": by_link(&sent[0]),
            },
            "online": {
                "seconds": Seconds::of(runs.map(slowest).collect()),
                "rounds": last.iter().map(|m| m.rounds).max(),
                "sent_bytes": by_link(&sent[1]),
                "busy_seconds": reports.iter().map(busy).collect::<Vec<_>>(),
            },
        },
        "formula_bytes": cost.by_link(),
        "formula_rounds": cost.rounds,
        "loss": last[0].loss,
        "wrong": wrong,
        "verified": wrong == 0 && sent == cost.sent,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_perceptrons_are_trained() {
        let refused = |name: &str| perceptron(&any_model(name, 1, 0).unwrap()).unwrap_err().to_string();
        assert!(refused("lenet").contains("`conv1` is a Conv where a Gemm belongs"));
        assert_eq!(perceptron(&any_model("relevance", 1, 0).unwrap()).unwrap().len(), 4);
    }
}
