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
