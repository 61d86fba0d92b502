//! Models in fixed point on a ring: compiled, their weights encoded, their data encoded and their
//! outputs decoded.

use crate::batches::{Described, Rows, apart, named, one_hot};
use crate::rows;
use megrez_graph::lower::{Compiled, DataInput, Revealed};
use megrez_graph::{CompileOptions, Graph, Tensor, compile};
use megrez_plan::{Input, Plan, Value};
use megrez_ring::{decode_words, encode_words, integers};
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
    match (&input.table, input.tokens) {
        // Whole numbers below the table's rows, as was checked.
        (Some(table), _) => {
            Ok(words(ring, values.data.iter().flat_map(|&v| table.row(v as usize, input.frac))))
        }
        (None, Some(rows)) => one_hot(input, rows, values, 1),
        (None, None) => Ok(encode_words(ring, &values.data, input.frac)?),
    }
}

/// Integers as words of a ring of so many bits.
fn words(ring: u32, integers: impl Iterator<Item = i64>) -> Vec<u64> {
    let mask = u64::MAX >> (64 - ring);
    integers.map(|v| v as u64 & mask).collect()
}

/// Decodes an output and applies what is left to the recipient (softmax, argmax).
pub fn decode_output(ring: u32, revealed: &Revealed, words: &[u64]) -> Tensor {
    revealed.finish(decode_words(ring, words, revealed.frac))
}

/// A compiled model whose weights fit the ring, ready to run on data in batches.
pub struct FixedModel {
    /// The plan and its description.
    pub compiled: Compiled,
}

impl FixedModel {
    /// Compiles a graph for one client who owns everything.
    pub fn new(graph: &Graph, client: &str, options: &CompileOptions) -> Result<Self> {
        let compiled = compile_for(graph, client, options)?;
        for weights in &compiled.model_inputs {
            let mut words = integers(compiled.plan.ring, &weights.values, weights.frac);
            words.try_for_each(|word| word.map(drop)).map_err(|e| {
                let what = format!("weights `{}`: {e}", weights.name);
                Error::of(ErrorKind::OutOfRange, what)
            })?;
        }
        Ok(FixedModel { compiled })
    }

    /// The words of an input, encoded as they are asked for: weights by name, or data of run `run`
    /// from `data`.
    ///
    /// # Errors
    /// Those of `data`, or if the model has no such input.
    pub fn words(&self, run: u32, input: &Input, data: &Rows<'_>) -> Result<Vec<u64>> {
        let ring = self.compiled.plan.ring;
        if let Some(weights) = self.compiled.model_inputs.iter().find(|w| w.name == input.name) {
            return Ok(encode_words(ring, &weights.values, weights.frac)?);
        }
        let wanted = named(&self.compiled.data_inputs, input)?;
        encode_data(ring, wanted, &data(run, wanted)?)
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
        apart(&self.compiled.outputs).0
    }

    fn guard(&self) -> Option<&Revealed> {
        apart(&self.compiled.outputs).1
    }

    fn mixed(&self, rows: usize) -> Option<&Revealed> {
        rows::mixed(&self.compiled.plan, self.inputs(), self.outputs(), rows)
    }
}
