//! What a run will cost, reckoned before it begins: by the formulas that the meter is held to.

use crate::model::Model;
use crate::report::{bytes, phase_name};
use megrez_engine::float::{dealt_cost, float_cost};
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
    /// Bytes that a party holds at most: values, masks and randomness of a run. Not reckoned in
    /// floating point.
    pub memory_bytes: Option<u64>,
}

impl Forecast {
    /// Of `runs` runs over a network.
    ///
    /// # Errors
    /// If the model does not go with the protocol, or has steps that it lacks.
    pub fn of(model: &Model, protocol: &str, net: &NetProfile, runs: u32) -> Result<Self> {
        let protocol = model.goes_with(protocol)?;
        let mut memory_bytes = None;
        let phases = match model {
            Model::Fixed(model) => {
                let cost = protocols::cost(protocol, &model.compiled.plan)?;
                memory_bytes = cost.memory.iter().copied().max();
                of_steps(&cost, protocol, net)?
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
        Ok(Forecast { protocol: protocol.into(), runs, phases, memory_bytes })
    }

    /// Bytes that all parties send in one run.
    pub fn sent_bytes(&self) -> u64 {
        self.phases.values().map(Foretold::total).sum()
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
            "memory_bytes": self.memory_bytes,
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
        if let Some(memory) = self.memory_bytes {
            out += &format!("a party holds at most {}\n", bytes(memory));
        }
        out + "bytes are payload of protocol messages over all links; what the parties compute takes its time beside\n"
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
    let links = (0..protocol.parties).flat_map(|from| (0..protocol.parties).map(move |to| (from, to)));
    let phases: &[Phase] = if protocol.offline { &[Phase::Offline, Phase::Online] } else { &[Phase::Online] };
    let of = |&phase: &Phase| {
        let path = cost.critical_path(phase, net);
        let sent = links.clone().map(|(from, to)| (format!("{from}>{to}"), cost.bytes(phase, from, to)));
        let sent_bytes = sent.filter(|(_, bytes)| *bytes > 0).collect();
        (phase, Foretold { rounds: path.rounds, network_seconds: path.seconds, sent_bytes })
    };
    Ok(phases.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::{infer_as, infer_plain};
    use crate::mode::Mode;
    use crate::model::Recipe;
    use megrez_graph::Tensor;
    use megrez_graph::models;
    use megrez_service::backend::Backend;
    use megrez_service::client::RunOptions;

    fn data(rows: usize) -> Tensor {
        let values = (0..rows * 784).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        Tensor::new([rows, 1, 28, 28], values)
    }

    /// What is foretold is what a simulation measures, and a simulation is what parties do.
    #[test]
    fn a_simulation_costs_what_was_foretold() {
        let graph = models::build("net-b", 2, 1).unwrap();
        let model = Recipe::Fixed(Box::default()).compile(&graph, "client").unwrap();
        for protocol in ["mizar", "aby3", "alkaid"] {
            let net = NetProfile::wan();
            let options = RunOptions { net: net.clone(), ..RunOptions::new(protocol) };
            let mut backend = Mode::Simulate.backend(|| unreachable!("nobody starts parties")).unwrap();
            let ran =
                infer_as(Mode::Simulate, &mut backend, &model, &[data(3)], &options, &|_| Ok(())).unwrap();
            let foretold = Forecast::of(&model, protocol, &net, ran.runs).unwrap();
            assert_eq!(foretold.runs, 2);
            for (phase, foretold) in &foretold.phases {
                let measured = &ran.cost.phases[phase];
                assert_eq!(measured.rounds, foretold.rounds, "{protocol} {phase:?}");
                let used = measured.sent_bytes.iter().filter(|(_, bytes)| **bytes > 0);
                assert!(used.eq(foretold.sent_bytes.iter()), "{protocol} {phase:?}");
                assert!(measured.seconds.median >= 0.9 * foretold.network_seconds, "{protocol} {phase:?}");
            }
            // Reckoned, not waited for.
            assert!(foretold.phases[&Phase::Online].network_seconds > 0.2, "{protocol}");
            assert!(ran.distances[0].largest < 1e-2 && ran.distances[0].mean > 0.0, "{:?}", ran.distances);
            assert!(ran.summary().contains("nothing is private"), "{}", ran.summary());
        }
        let options = RunOptions::new("mizar");
        let mut nowhere = Backend::Simulated;
        let clear = infer_as(Mode::Clear, &mut nowhere, &model, &[data(3)], &options, &|_| Ok(())).unwrap();
        assert_eq!(clear.outputs, infer_plain(&model, &[data(3)]).unwrap());
        assert!("simulated".parse::<Mode>().unwrap_err().contains("execute, simulate or clear"));
    }

    #[test]
    fn floats_cost_what_was_foretold() {
        let graph = models::build("net-a", 1, 1).unwrap();
        let image = Tensor::new([1, 784], data(1).data);
        let model =
            Recipe::Float(crate::float::Work { group: 4, threads: 1 }).compile(&graph, "client").unwrap();
        for protocol in ["secfloat", "mizar-float"] {
            let options = RunOptions::new(protocol);
            let mut backend = Backend::Simulated;
            let ran = infer_as(
                Mode::Simulate,
                &mut backend,
                &model,
                std::slice::from_ref(&image),
                &options,
                &|_| Ok(()),
            )
            .unwrap();
            let foretold = Forecast::of(&model, protocol, &options.net, 1).unwrap();
            for (phase, foretold) in &foretold.phases {
                let measured = &ran.cost.phases[phase];
                let used = measured.sent_bytes.iter().filter(|(_, bytes)| **bytes > 0);
                assert!(
                    used.eq(foretold.sent_bytes.iter()),
                    "{protocol} {phase:?}: {measured:?} {foretold:?}"
                );
                // Steps that do not wait for each other may share rounds.
                assert!((1..=foretold.rounds).contains(&measured.rounds), "{protocol} {phase:?}");
            }
            assert!(ran.distances[0].largest < 1e-3);
        }
    }
}
