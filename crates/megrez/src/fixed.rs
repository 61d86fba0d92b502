//! Models in fixed point on a ring: compiled, their weights encoded, their data encoded and their
//! outputs decoded.

use crate::batches::{Described, Rows, named, one_hot};
use crate::rows;
use megrez_graph::lower::{Compiled, DataInput, Revealed};
use megrez_graph::{CompileOptions, Graph, Tensor, compile};
use megrez_plan::{Input, Plan, Value};
use megrez_ring::{decode_words, encode_words};
use megrez_service::{Error, ErrorKind, Result};

/// Compiles a model all of whose inputs, weights included, belong to `client`, who also learns the
/// output.
pub fn compile_for(graph: &Graph, client: &str, options: &CompileOptions) -> Result<Compiled> {
    let options = CompileOptions {
        model_owner: client.into(),
        data_owner: client.into(),
        recipient: client.into(),
        ..options.clone()
    };
    Ok(compile(graph, &options)?)
}

/// Encodes a data input, checking shape and declared range.
pub fn encode_data(ring: u32, input: &DataInput, values: &Tensor) -> Result<Vec<u64>> {
    input.check(values)?;
    match input.tokens {
        Some(rows) => one_hot(input, rows, values, 1),
        None => Ok(encode_words(ring, &values.data, input.frac)?),
    }
}

/// Decodes an output and applies what is left to the recipient (softmax, argmax).
pub fn decode_output(ring: u32, revealed: &Revealed, words: &[u64]) -> Tensor {
    revealed.finish(decode_words(ring, words, revealed.frac))
}

/// A compiled model with its weights encoded, ready to run on data in batches.
pub struct FixedModel {
    /// The plan and its description.
    pub compiled: Compiled,
    weights: Vec<(String, Vec<u64>)>,
}

impl FixedModel {
    /// Compiles a graph for one client who owns everything.
    pub fn new(graph: &Graph, client: &str, options: &CompileOptions) -> Result<Self> {
        let compiled = compile_for(graph, client, options)?;
        let weights = compiled
            .model_inputs
            .iter()
            .map(|w| {
                let words = encode_words(compiled.plan.ring, &w.values, w.frac).map_err(|e| {
                    let what = format!("weights `{}`: {e}", w.name);
                    Error::of(ErrorKind::OutOfRange, what)
                })?;
                Ok((w.name.clone(), words))
            })
            .collect::<Result<_>>()?;
        Ok(FixedModel { compiled, weights })
    }

    /// The words of an input: weights by name, or data of run `run` from `data`.
    ///
    /// # Errors
    /// Those of `data`, or if the model has no such input.
    pub fn words(&self, run: u32, input: &Input, data: &Rows<'_>) -> Result<Vec<u64>> {
        if let Some((_, words)) = self.weights.iter().find(|(name, _)| *name == input.name) {
            return Ok(words.clone());
        }
        let wanted = named(&self.compiled.data_inputs, input)?;
        encode_data(self.compiled.plan.ring, wanted, &data(run, wanted)?)
    }

    /// The plan with all inputs and outputs given to another client than the one that it was
    /// compiled for.
    pub fn plan_for(&self, client: &str) -> Plan {
        let mut plan = self.compiled.plan.clone();
        plan.inputs.iter_mut().for_each(|i| i.owner = client.into());
        plan.outputs.iter_mut().for_each(|o| o.recipient = client.into());
        plan
    }

    /// The type of a value of the plan.
    pub fn value(&self, id: megrez_plan::ValueId) -> &Value {
        self.compiled.plan.value(id)
    }
}

impl Described for FixedModel {
    fn inputs(&self) -> &[DataInput] {
        &self.compiled.data_inputs
    }

    fn outputs(&self) -> &[Revealed] {
        &self.compiled.outputs
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed(&self.compiled.plan, self.inputs(), self.outputs(), rows)
    }
}
