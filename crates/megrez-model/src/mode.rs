//! One model, one call, three ways to run it.

use megrez_graph::Tensor;
use megrez_service::Result;
use megrez_service::backend::Backend;
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
    pub fn of(outputs: &[(String, Tensor)], clear: &[(String, Tensor)]) -> Vec<Distance> {
        let of = |((name, got), (_, wanted)): (&(String, Tensor), &(String, Tensor))| {
            let far = got.data.iter().zip(&wanted.data).map(|(a, b)| match a.to_bits() == b.to_bits() {
                true => 0.0,
                false => Some(f64::from(a - b).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
            });
            let mean = far.clone().sum::<f64>() / got.data.len().max(1) as f64;
            Distance { name: name.clone(), largest: far.fold(0.0, f64::max), mean }
        };
        outputs.iter().zip(clear).map(of).collect()
    }
}
