//! Models in single precision: compiled, and their data as numbers to share.

use crate::batches::{Described, Rows, named, one_hot};
use crate::rows;
use megrez_graph::{DataInput, FloatCompiled, FloatOptions, Graph, Revealed, Tensor, compile_floats};
use megrez_plan::{FloatPlan, Input};
use megrez_service::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// How the parties work; results do not depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Work {
    /// Bits of a group of the OT extension, 1, 2, 4 or 8: more is fewer bytes and more work. 0 is
    /// silent transfers, in one thread.
    pub group: u32,
    /// Threads of each party, 1 to [`MAX_THREADS`](megrez_plan::MAX_THREADS).
    pub threads: u32,
}

/// Groups of four bits, and half of this machine's cores, for both parties are on it.
impl Default for Work {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Work { group: 4, threads: (cores as u32 / 2).clamp(1, megrez_plan::MAX_THREADS) }
    }
}

/// A model all of whose inputs, weights included, belong to one client, who also learns the output.
pub struct FloatModel {
    /// The plan and its description.
    pub compiled: FloatCompiled,
}

impl FloatModel {
    /// Compiles a graph for a client.
    ///
    /// # Errors
    /// Every layer that has no floating-point form, or `work` that no party does.
    pub fn new(graph: &Graph, client: &str, work: Work) -> Result<Self> {
        let owner = client.to_owned();
        let options = FloatOptions {
            model_owner: owner.clone(),
            data_owner: owner.clone(),
            recipient: owner,
            group: work.group,
            threads: work.threads,
        };
        let compiled = compile_floats(graph, &options)?;
        compiled.plan.validate().map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        Ok(FloatModel { compiled })
    }

    /// The plan with all inputs and outputs given to another client than the one that it was
    /// compiled for.
    #[must_use]
    pub fn plan_for(&self, client: &str) -> FloatPlan {
        let mut plan = self.compiled.plan.clone();
        plan.inputs.iter_mut().for_each(|i| i.owner = client.into());
        plan.outputs.iter_mut().for_each(|o| o.recipient = client.into());
        plan
    }

    /// The numbers of an input: weights by name, or data of run `run` from `data`.
    ///
    /// # Errors
    /// Those of `data`, or if the model has no such input.
    pub fn numbers(&self, run: u32, input: &Input, data: &Rows<'_>) -> Result<Vec<f32>> {
        if let Some(weights) = self.compiled.model_inputs.iter().find(|w| w.name == input.name) {
            return Ok(weights.values.clone());
        }
        let wanted = named(&self.compiled.data_inputs, input)?;
        spread(wanted, data(run, wanted)?)
    }
}

impl Described for FloatModel {
    fn inputs(&self) -> &[DataInput] {
        &self.compiled.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        &self.compiled.outputs
    }

    fn guard(&self) -> Option<&Revealed> {
        None
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed_floats(&self.compiled.plan, self.inputs(), self.outputs(), rows)
    }
}

/// The numbers to share: those of the data, or for tokens a one and zeros.
pub(crate) fn spread(input: &DataInput, data: Tensor) -> Result<Vec<f32>> {
    input.check(&data)?;
    match input.tokens {
        Some(rows) => one_hot(input, rows, &data, 1.0),
        None => Ok(data.data),
    }
}
