//! One model, one call, three ways to run it.

use crate::batches::{Batches, Described};
use crate::forecast::Distance;
use crate::inference::{Inference, infer, infer_plain};
use crate::model::Model;
use crate::report::Cost;
use megrez_graph::{Revealed, Tensor};
use megrez_service::Result;
use megrez_service::backend::Backend;
use megrez_service::client::RunOptions;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// How a model is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By parties, on shares.
    #[default]
    Execute,
    /// By the steps of the protocol, words and roundings included, all in this process: nothing is
    /// private. Seconds are those of this machine's work and those that the network would take.
    Simulate,
    /// In the clear, in floating point: the reference.
    Clear,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Execute, Mode::Simulate, Mode::Clear];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Execute => "execute",
            Mode::Simulate => "simulate",
            Mode::Clear => "clear",
        }
    }

    /// Where it runs: only [`Mode::Execute`] needs parties.
    ///
    /// # Errors
    /// Those of `parties`.
    pub fn backend(self, parties: impl FnOnce() -> Result<Backend>) -> Result<Backend> {
        match self {
            Mode::Execute => parties(),
            Mode::Simulate | Mode::Clear => Ok(Backend::Simulated),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| format!("the mode is execute, simulate or clear, not `{text}`"))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs a model on data as [`infer`] does, in a mode, on what [`Mode::backend`] gave.
///
/// # Errors
/// Those of [`infer`].
pub fn run(
    mode: Mode,
    backend: &mut Backend,
    model: &Model,
    data: &[Tensor],
    options: &RunOptions,
    before: &dyn Fn(u32) -> Result<()>,
) -> Result<Inference> {
    if mode == Mode::Clear {
        let batches = Batches::new(model, data)?;
        return Ok(Inference {
            mode,
            outputs: infer_plain(model, data)?,
            named: model.outputs().iter().map(Revealed::named).collect(),
            protocol: options.protocol.clone(),
            insecure: options.insecure,
            range: model.basis(),
            batch: batches.size,
            runs: batches.runs,
            cost: Cost::default(),
            distances: vec![],
        });
    }
    let ran = infer(backend, model, data, options, before)?;
    let distances = match mode {
        Mode::Simulate => Distance::of(&ran, &infer_plain(model, data)?),
        _ => vec![],
    };
    Ok(Inference { mode, distances, ..ran })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::Forecast;
    use crate::model::Recipe;
    use megrez_graph::models;
    use megrez_net::NetProfile;
    use megrez_session::Phase;

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
            let ran = run(Mode::Simulate, &mut backend, &model, &[data(3)], &options, &|_| Ok(())).unwrap();
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
        let clear = run(Mode::Clear, &mut nowhere, &model, &[data(3)], &options, &|_| Ok(())).unwrap();
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
            let ran = run(
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
