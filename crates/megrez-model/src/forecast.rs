//! What a run will cost, reckoned before it begins: by the formulas that the meter is held to.

use crate::inference::Inference;
use crate::model::Model;
use crate::report::{bytes, phase_name};
use megrez_engine::float::{dealt_cost, float_cost};
use megrez_graph::Tensor;
use megrez_net::NetProfile;
use megrez_service::Result;
use megrez_service::protocols::{self, find};
use megrez_session::Phase;
use serde::Serialize;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Where the dealer of float32 sends the only message that it has for others.
const DEALT_TO: &str = "2>0";

/// One phase of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Foretold {
    /// Messages on the critical path.
    pub rounds: u32,
    /// Seconds that the network takes at least. What the parties compute comes on top.
    pub network_seconds: f64,
    /// Payload bytes of protocol messages per link, `from>to`, of all links that are used.
    pub sent_bytes: BTreeMap<String, u64>,
}

impl Foretold {
    fn total(&self) -> u64 {
        self.sent_bytes.values().sum()
    }
}

/// The cost of a model under a protocol. What the clients send and receive is not in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// The protocol.
    pub protocol: String,
    /// Runs that the data takes.
    pub runs: u32,
    /// One run, by phase.
    pub phases: BTreeMap<Phase, Foretold>,
}

impl Forecast {
    /// Of `runs` runs over a network.
    ///
    /// # Errors
    /// If the model does not go with the protocol, or has steps that it lacks.
    pub fn of(model: &Model, protocol: &str, net: &NetProfile, runs: u32) -> Result<Self> {
        model.goes_with(protocol)?;
        let phases = match model {
            Model::Fixed(model) => {
                of_steps(&protocols::cost(protocol, &model.compiled.plan)?, protocol, net)?
            }
            Model::Float(model) if find(protocol)?.parties == 2 => {
                let steps = float_cost(&model.compiled.plan);
                let sent = [0, 1].map(|party| steps.iter().map(|s| s.bytes[party]).sum());
                let rounds = steps.iter().map(|s| s.rounds).sum();
                BTreeMap::from([(Phase::Online, between(rounds, sent, net))])
            }
            Model::Float(model) => {
                let steps = dealt_cost(&model.compiled.plan);
                let (dealt, opened) = steps.iter().fold((0, 0), |(d, o), s| (d + s.dealt, o + s.opened));
                let offline = Foretold {
                    rounds: 1,
                    network_seconds: seconds(net, 1, dealt),
                    sent_bytes: BTreeMap::from([(DEALT_TO.into(), dealt)]),
                };
                let rounds = steps.iter().map(|s| s.rounds).sum();
                BTreeMap::from([
                    (Phase::Offline, offline),
                    (Phase::Online, between(rounds, [opened; 2], net)),
                ])
            }
        };
        Ok(Forecast { protocol: protocol.into(), runs, phases })
    }

    /// Seconds that the network takes for all runs, both phases.
    pub fn network_seconds(&self) -> f64 {
        f64::from(self.runs) * self.phases.values().map(|phase| phase.network_seconds).sum::<f64>()
    }

    /// The report of `megrez infer --dry-run --json`.
    pub fn json(&self) -> Json {
        json!({
            "schema": "megrez.forecast/1",
            "protocol": self.protocol,
            "runs": self.runs,
            "phases": self.phases,
        })
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut out = format!("foretold for {} of {}\n", runs(self.runs), self.protocol);
        out += &format!("{:<9} {:>6} {:>12} {:>10}  a run\n", "phase", "rounds", "bytes", "network");
        for (phase, cost) in &self.phases {
            out += &format!(
                "{:<9} {:>6} {:>12} {:>9.3}s\n",
                phase_name(*phase),
                cost.rounds,
                bytes(cost.total()),
                cost.network_seconds
            );
        }
        out + "bytes are payload of protocol messages over all links; what the parties compute takes its time beside\n"
    }
}

/// How far an output is from the model's in the clear, in floating point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distance {
    /// The output.
    pub name: String,
    /// The largest difference of an element.
    pub largest: f64,
    /// The mean over all elements.
    pub mean: f64,
}

impl Distance {
    /// Of all outputs, in their order. A number that is none in one of the two is infinitely far.
    pub fn of(inference: &Inference, clear: &[(String, Tensor)]) -> Vec<Distance> {
        let of = |((name, got), (_, wanted)): (&(String, Tensor), &(String, Tensor))| {
            let far = got.data.iter().zip(&wanted.data).map(|(a, b)| match a.to_bits() == b.to_bits() {
                true => 0.0,
                false => Some(f64::from(a - b).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
            });
            let mean = far.clone().sum::<f64>() / got.data.len().max(1) as f64;
            Distance { name: name.clone(), largest: far.fold(0.0, f64::max), mean }
        };
        inference.outputs.iter().zip(clear).map(of).collect()
    }
}

/// `1 run` or `3 runs`.
fn runs(count: u32) -> String {
    format!("{count} run{}", if count == 1 { "" } else { "s" })
}

fn seconds(net: &NetProfile, rounds: u32, bytes: u64) -> f64 {
    (f64::from(rounds) * net.delay_ns() as f64 + net.transmit_ns(bytes) as f64) * 1e-9
}

/// Messages between two workers.
fn between(rounds: u32, sent: [u64; 2], net: &NetProfile) -> Foretold {
    Foretold {
        rounds,
        network_seconds: seconds(net, rounds, sent[0].max(sent[1])),
        sent_bytes: BTreeMap::from([("0>1".into(), sent[0]), ("1>0".into(), sent[1])]),
    }
}

/// Steps in fixed point, whose critical path is known.
fn of_steps(
    cost: &megrez_engine::PlanCost,
    protocol: &str,
    net: &NetProfile,
) -> Result<BTreeMap<Phase, Foretold>> {
    let protocol = find(protocol)?;
    let (delay, transmit) = (net.delay_ns() as f64 * 1e-9, |bytes| net.transmit_ns(bytes) as f64 * 1e-9);
    let links = (0..protocol.parties).flat_map(|from| (0..protocol.parties).map(move |to| (from, to)));
    let phases: &[Phase] = if protocol.offline { &[Phase::Offline, Phase::Online] } else { &[Phase::Online] };
    let of = |&phase: &Phase| {
        let path = cost.critical_path(phase, delay, transmit);
        let sent = links.clone().map(|(from, to)| (format!("{from}>{to}"), cost.bytes(phase, from, to)));
        let sent_bytes = sent.filter(|(_, bytes)| *bytes > 0).collect();
        (phase, Foretold { rounds: path.rounds, network_seconds: path.seconds, sent_bytes })
    };
    Ok(phases.iter().map(of).collect())
}
