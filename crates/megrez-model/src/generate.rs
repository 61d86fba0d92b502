//! Private generation of text, token by token: what attention has seen stays with the parties, in
//! shares.
//!
//! A model has an input of tokens [1, n], inputs `past.X` and outputs `present.X` (as many of them
//! as it likes), and logits [1, n, tokens] as its first output. `past.X` of a run is `present.X` of
//! the run before. Every length of the past is a plan of its own, compiled for exactly what has
//! been seen, with exact masks; weights are shared once, when a plan first reads them, and again
//! only where the values differ (the rows of a table of positions do).
//!
//! The client learns the logits and chooses the next token, here the one with the largest logit.

use crate::batches::{Described, in_range};
use crate::fixed::{FixedModel, encode_data};
use crate::report::Cost;
use megrez_graph::onnx::{self, Dim, FileInput, ImportOptions};
use megrez_graph::{CompileOptions, Graph, Interval, Tensor, plain};
use megrez_plan::{Input, KEPT};
use megrez_ring::decode_words;
use megrez_service::client::RunOptions;
use megrez_service::{Backend, Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Inputs and outputs of the past.
const PAST: &str = "past.";
const PRESENT: &str = "present.";

/// A language model in a file.
pub struct LanguageModel {
    bytes: Vec<u8>,
    /// The file's folder, where weights may lie in files of their own.
    folder: PathBuf,
    /// The name of the input of tokens.
    tokens: String,
    /// Per input of the past: its name and its dimensions, the open one `None`.
    past: Vec<(String, Vec<Option<usize>>)>,
}

impl LanguageModel {
    /// Reads a model; refuses one whose inputs are not those of a language model.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::file(path, e))?;
        let mut tokens = vec![];
        let mut past = vec![];
        for FileInput { name, dims } in onnx::inputs(&bytes)? {
            let size = |dim: Dim| if let Dim::Fixed(size) = dim { Some(size) } else { None };
            let dims: Vec<Option<usize>> = dims.into_iter().flatten().map(size).collect();
            let open = dims.iter().skip(1).filter(|d| d.is_none()).count();
            match name.starts_with(PAST) {
                true if open == 1 => past.push((name, dims)),
                false => tokens.push(name),
                true => {
                    return Err(Error::file(
                        path,
                        format!("input `{name}` does not have one open dimension"),
                    ));
                }
            }
        }
        match <[String; 1]>::try_from(tokens) {
            Ok([tokens]) if !past.is_empty() => {
                Ok(LanguageModel { bytes, folder: onnx::folder(path), tokens, past })
            }
            _ => Err(Error::file(path, "does not take one input of tokens and inputs named `past.…`")),
        }
    }

    /// The model for `new` tokens after `seen` others.
    pub fn graph(&self, seen: usize, new: usize) -> Result<Graph> {
        let mut shapes = BTreeMap::from([(self.tokens.clone(), vec![1, new])]);
        for (name, dims) in &self.past {
            let dim = |(d, size): (usize, &Option<usize>)| size.unwrap_or(if d == 0 { 1 } else { seen });
            shapes.insert(name.clone(), dims.iter().enumerate().map(dim).collect());
        }
        Ok(onnx::read(&self.bytes, &ImportOptions { batch: 1, shapes, folder: Some(self.folder.clone()) })?)
    }

    /// The logits after these tokens, in the clear.
    pub fn plain(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        let graph = self.graph(0, tokens.len())?;
        let tokens = Tensor::new([1, tokens.len()], tokens.iter().map(|&t| t as f32).collect());
        last_row(&plain::run(&graph, &[tokens])?.remove(0))
    }
}

/// The logits of the last token.
fn last_row(logits: &Tensor) -> Result<Vec<f32>> {
    match *logits.shape.dims() {
        [1, n, width] if n > 0 => Ok(logits.data[(n - 1) * width..].to_vec()),
        _ => Err(Error::Refused(format!(
            "the first output has the shape {}, not [1, n, tokens]",
            logits.shape
        ))),
    }
}

/// The position of the largest number.
pub fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best }) as u32
}

/// A text that grows on the parties of a backend.
pub struct Generation<'a> {
    model: &'a LanguageModel,
    backend: &'a mut Backend,
    options: CompileOptions,
    run: RunOptions,
    /// Tokens in the past.
    seen: usize,
    /// What holds for the past that is kept.
    bounds: BTreeMap<String, Interval>,
    /// The weights that are kept, by name: a hash of their values.
    weights: HashMap<String, [u8; 32]>,
    /// Whether all ranges of all plans were proven.
    pub proven: bool,
}

impl<'a> Generation<'a> {
    /// Begins with nothing seen. The parties must be processes: they keep values between runs.
    pub fn new(
        model: &'a LanguageModel,
        backend: &'a mut Backend,
        options: CompileOptions,
        run: RunOptions,
    ) -> Result<Self> {
        if matches!(backend, Backend::Threads(_) | Backend::Simulated) {
            return Err(Error::of(
                ErrorKind::Unsupported,
                "generation keeps values with the parties between runs, which threads do not: use --parties process",
            ));
        }
        let (bounds, weights) = (BTreeMap::new(), HashMap::new());
        Ok(Generation { model, backend, options, run, seen: 0, bounds, weights, proven: true })
    }

    /// Continues a text by `count` tokens, each the most likely one; `each` hears of it and what it
    /// cost, and ends all by an error.
    ///
    /// # Errors
    /// If the prompt is empty, or a party fails.
    pub fn write(
        &mut self,
        prompt: &[u32],
        count: usize,
        each: &mut dyn FnMut(u32, Cost) -> Result<()>,
    ) -> Result<Vec<u32>> {
        if prompt.is_empty() || count == 0 {
            let what = "a prompt has at least one token, and so has its continuation";
            return Err(Error::Refused(what.into()));
        }
        let (mut text, mut fresh) = (prompt.to_vec(), prompt.to_vec());
        for _ in 0..count {
            let (logits, cost) = self.read(&fresh)?;
            fresh = vec![largest(&logits)];
            text.extend(&fresh);
            each(fresh[0], cost)?;
        }
        Ok(text)
    }

    /// Shows the model more tokens: the logits of what follows the last one, and what that cost.
    pub fn read(&mut self, tokens: &[u32]) -> Result<(Vec<f32>, Cost)> {
        let graph = self.model.graph(self.seen, tokens.len())?;
        let name = |past: &str| past.replacen(PAST, PRESENT, 1);
        let kept = self.model.past.iter().map(|(past, _)| (name(past), past.clone())).collect();
        let options = CompileOptions { kept, input_ranges: self.bounds.clone(), ..self.options.clone() };
        let client = self.backend.client().to_owned();
        let model = FixedModel::new(&graph, &client, &options)?;
        self.proven &= model.compiled.ranges.iter().all(|r| r.proven);

        let mut plan = model.compiled.plan.clone();
        for weight in &model.compiled.model_inputs {
            let bytes: Vec<u8> = weight.values.iter().flat_map(|v| v.to_le_bytes()).collect();
            let fingerprint = megrez_engine::hash("megrez 2026 kept weights", &bytes);
            let known = self.weights.insert(weight.name.clone(), fingerprint) == Some(fingerprint);
            let input = plan.inputs.iter_mut().find(|i| i.name == weight.name);
            let input = input.expect("the plan has an input for every weight");
            if known {
                input.owner = KEPT.into();
            } else {
                let value = input.value;
                plan.output(&weight.name, KEPT, value);
            }
        }
        let ids = tokens.iter().map(|&t| t as f32).collect();
        let ids = Tensor::new([1, tokens.len()], ids);
        let words = |run: u32, input: &Input| match model
            .compiled
            .data_inputs
            .iter()
            .find(|d| d.name == input.name)
        {
            Some(wanted) => Ok(encode_data(plan.ring, wanted, &ids)?),
            None => {
                Ok(model.words(run, input, &|_, _| Err(Error::Refused("it is no input of tokens".into())))?)
            }
        };
        let options = RunOptions { runs: 1, ..self.run.clone() };
        let mut outcome = self.backend.run(&plan, &options, &words, &|_| {})?;
        in_range(model.guard(), &outcome.outputs)?;
        let revealed = model.outputs().first();
        let revealed = revealed.ok_or_else(|| Error::Refused("the model reveals nothing".into()))?;
        let logits = decode_words(plan.ring, &outcome.outputs[0].remove(0), revealed.frac);
        self.bounds.extend(model.compiled.kept.iter().cloned());
        self.seen += tokens.len();
        let logits = last_row(&Tensor::new(revealed.shape.clone(), logits))?;
        Ok((logits, Cost::of(&outcome.reports)))
    }
}
