//! Plans that the owner of a model approves.

use megrez_graph::lower::{DataInput, Revealed};
use serde::{Deserialize, Serialize};

/// A plan that a model's owner approves, with what its user needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPlan {
    /// Inputs per run.
    pub batch: usize,
    /// The plan's bytes.
    pub plan: Vec<u8>,
    /// What the data owner shares.
    pub data_inputs: Vec<DataInput>,
    /// What the recipient opens.
    pub outputs: Vec<Revealed>,
}

impl ModelPlan {
    /// The largest number that the data's owner declares.
    #[must_use]
    pub fn largest(&self) -> f64 {
        let of = |input: &DataInput| input.range.low.abs().max(input.range.high.abs());
        self.data_inputs.iter().map(of).fold(0.0, f64::max)
    }
}
