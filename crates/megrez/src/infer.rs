//! Running a plan somewhere: on parties of this machine, on threads of this process, or on a cluster.

use crate::client::{Cluster, Inputs, Outcome, RunOptions};
use crate::device::{AnyDevice, DeviceChoice};
use crate::embedded::{Parties, Program};
use crate::secfloat;
use crate::wire::Source;
use crate::{Error, Result};
use megrez_engine::local::{LocalOptions, run_on};
use megrez_engine::{PlanCost, check};
use megrez_graph::lower::{Compiled, DataInput, Revealed};
use megrez_graph::{CompileOptions, Graph, Tensor, compile};
use megrez_net::ClockKind;
use megrez_plan::{Input, Plan, Value};
use megrez_protocols::{Suite, registry};
use megrez_ring::{Word, decode, encode};
use megrez_session::Error as SessionError;
use std::time::Duration;

/// Where parties run.
pub enum Backend {
    /// Processes on this machine, over TLS.
    Processes(Parties, Cluster),
    /// Threads of this process, over memory: party i on device i, or all on the only one.
    Threads(Vec<AnyDevice>),
    /// A cluster of parties that run elsewhere.
    Remote(Cluster),
}

impl Backend {
    /// Threads of this process, on the processor.
    pub fn threads() -> Self {
        Backend::Threads(vec![AnyDevice::default()])
    }

    /// Starts parties for a protocol, on one device or on one for each.
    pub fn processes(program: impl Into<Program>, protocol: &str, devices: &[DeviceChoice]) -> Result<Self> {
        let parties = find(protocol)?.parties;
        if parties < 2 {
            return Err(Error::Refused(format!("`{protocol}` has one party: run it with --parties thread")));
        }
        let parties = Parties::start(program, parties, devices)?;
        let cluster = parties.connect()?;
        Ok(Backend::Processes(parties, cluster))
    }

    /// The name under which this client owns inputs and learns outputs.
    pub fn client(&self) -> &str {
        match self {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => cluster.name(),
            Backend::Threads(_) => crate::embedded::CLIENT,
        }
    }

    /// Runs a plan whose inputs and outputs are all this client's.
    pub fn run(
        &mut self,
        plan: &Plan,
        options: &RunOptions,
        inputs: &Inputs<'_>,
        progress: &dyn Fn(u32),
    ) -> Result<Outcome> {
        let protocol = find(&options.protocol)?;
        if protocol.insecure && !options.insecure {
            return Err(Error::Refused(format!(
                "`{}` does not protect the data ({}); say `--insecure` if that is what you want",
                protocol.name, protocol.security
            )));
        }
        match self {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => {
                cluster.run(plan, Source::Plan(plan.to_bytes()), options, &|_| true, inputs, progress)
            }
            Backend::Threads(devices) => {
                let local = LocalOptions {
                    net: options.net.clone(),
                    clock: ClockKind::Real,
                    runs: options.runs,
                    timeout: Duration::from_secs(3600),
                    tap: None,
                };
                let run = run_on(devices, &options.protocol, plan, inputs, progress, &local)
                    .map_err(|e| Error::Refused(e.to_string()))?;
                Ok(Outcome { outputs: run.outputs, reports: run.reports })
            }
        }
    }
}

/// The protocol of this name.
pub fn find(name: &str) -> Result<&'static registry::Protocol> {
    let ring = registry::find(name);
    ring.or((name == secfloat::PROTOCOL.name).then_some(&secfloat::PROTOCOL)).ok_or_else(|| {
        Error::Refused(format!("there is no protocol `{name}`; `megrez protocols` lists them"))
    })
}

/// The exact cost of a plan, or all steps that the protocol lacks.
pub fn price(protocol: &str, plan: &Plan) -> Result<PlanCost> {
    struct Price<'a>(&'a Plan);
    impl registry::Visitor<AnyDevice> for Price<'_> {
        type Output = Result<PlanCost>;
        fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
            check(&suite, self.0).map_err(|e| Error::Refused(e.to_string()))
        }
    }
    registry::dispatch(protocol, plan.ring, Price(plan))
        .ok_or_else(|| Error::Refused(format!("`{protocol}` has no ring of {} bits", plan.ring)))?
}

/// Compiles a model all of whose inputs, weights included, belong to `client`, who also learns the output.
pub fn compile_for(graph: &Graph, client: &str, options: &CompileOptions) -> Result<Compiled> {
    let options = CompileOptions {
        model_owner: client.into(),
        data_owner: client.into(),
        recipient: client.into(),
        ..options.clone()
    };
    Ok(compile(graph, &options)?)
}

/// Ring elements of real numbers.
pub fn encode_words(ring: u32, values: &[f32], frac: u32) -> Result<Vec<u64>> {
    fn words<W: Word>(values: &[f32], frac: u32) -> Result<Vec<u64>> {
        Ok(encode::<W>(values, frac)?.into_iter().map(Word::to_u64).collect())
    }
    match ring {
        8 => words::<u8>(values, frac),
        16 => words::<u16>(values, frac),
        32 => words::<u32>(values, frac),
        _ => words::<u64>(values, frac),
    }
}

/// Real numbers of ring elements.
pub fn decode_words(ring: u32, words: &[u64], frac: u32) -> Vec<f32> {
    fn values<W: Word>(words: &[u64], frac: u32) -> Vec<f32> {
        decode(&words.iter().map(|&w| W::from_u64(w)).collect::<Vec<W>>(), frac)
    }
    match ring {
        8 => values::<u8>(words, frac),
        16 => values::<u16>(words, frac),
        32 => values::<u32>(words, frac),
        _ => values::<u64>(words, frac),
    }
}

/// Encodes a data input, checking shape and declared range.
pub fn encode_data(ring: u32, input: &DataInput, values: &Tensor) -> Result<Vec<u64>> {
    input.check(values)?;
    match input.tokens {
        Some(rows) => one_hot(input, rows, values, 1),
        None => encode_words(ring, &values.data, input.frac),
    }
}

/// For each token as many numbers as its table has `rows`: `one` at its place, zeros elsewhere.
pub(crate) fn one_hot<T: Copy + Default>(
    input: &DataInput,
    rows: usize,
    tokens: &Tensor,
    one: T,
) -> Result<Vec<T>> {
    let place = |(i, &v): (usize, &f32)| match v {
        _ if v.fract() == 0.0 && (0.0..rows as f32).contains(&v) => Ok(i * rows + v as usize),
        _ => Err(Error::Refused(format!(
            "input `{}` takes tokens: element {i} is {v}, no whole number below {rows}",
            input.name
        ))),
    };
    let places = tokens.data.iter().enumerate().map(place).collect::<Result<Vec<_>>>()?;
    let mut numbers = vec![T::default(); tokens.data.len() * rows];
    places.into_iter().for_each(|place| numbers[place] = one);
    Ok(numbers)
}

/// Decodes an output and applies what is left to the recipient (softmax, argmax).
pub fn decode_output(ring: u32, revealed: &Revealed, words: &[u64]) -> Tensor {
    revealed.finish(decode_words(ring, words, revealed.frac))
}

/// A compiled model with its weights encoded, ready to run on data in batches.
pub struct Model {
    /// The plan and its description.
    pub compiled: Compiled,
    weights: Vec<(String, Vec<u64>)>,
}

impl Model {
    /// Compiles a graph for one client who owns everything.
    pub fn new(graph: &Graph, client: &str, options: &CompileOptions) -> Result<Self> {
        let compiled = compile_for(graph, client, options)?;
        let weights = compiled
            .model_inputs
            .iter()
            .map(|w| {
                let words = encode_words(compiled.plan.ring, &w.values, w.frac)
                    .map_err(|e| Error::Refused(format!("weights `{}`: {e}", w.name)))?;
                Ok((w.name.clone(), words))
            })
            .collect::<Result<_>>()?;
        Ok(Model { compiled, weights })
    }

    /// The words of an input: weights by name, or data of run `run` from `data`.
    pub fn words(
        &self,
        run: u32,
        input: &Input,
        data: &dyn Fn(u32, &DataInput) -> Result<Tensor>,
    ) -> std::result::Result<Vec<u64>, SessionError> {
        if let Some((_, words)) = self.weights.iter().find(|(name, _)| *name == input.name) {
            return Ok(words.clone());
        }
        let Some(wanted) = self.compiled.data_inputs.iter().find(|d| d.name == input.name) else {
            return Err(SessionError::Refused(format!("the plan has an unknown input `{}`", input.name)));
        };
        data(run, wanted)
            .and_then(|values| encode_data(self.compiled.plan.ring, wanted, &values))
            .map_err(|e| SessionError::Refused(e.to_string()))
    }

    /// The plan with all inputs and outputs given to another client than the one that it was compiled for.
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

/// Rows of a data set in batches: batch `run` of `size` rows, the last one filled up with zeros.
pub fn batch(data: &Tensor, run: u32, size: usize, range: megrez_graph::Interval) -> Tensor {
    let dims = data.shape.dims();
    let row: usize = dims[1..].iter().product();
    let filler = 0f64.clamp(range.low, range.high) as f32;
    let start = (run as usize * size * row).min(data.data.len());
    let end = (start + size * row).min(data.data.len());
    let mut rows = data.data[start..end].to_vec();
    rows.resize(size * row, filler);
    let mut shape = dims.to_vec();
    shape[0] = size;
    Tensor::new(shape, rows)
}
