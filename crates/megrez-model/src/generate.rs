//! Private generation of text, token by token: what attention has seen stays with the parties, in
//! shares.
//!
//! A model has an input of tokens [1, n], inputs `past.X` and outputs `present.X` (as many of them
//! as it likes), and logits [1, n, tokens] as its first output, or those after the last token
//! [1, 1, tokens]. `past.X` of a run is `present.X` of the run before. Every length of the past is
//! a plan of its own, compiled for exactly what has been seen, with exact masks and positions;
//! weights are shared once, when a plan first reads them, and again only where the values differ
//! (the rows of a table of positions do).
//!
//! The next token is the one with the largest logit, or one that is drawn ([`Sampling`]). The
//! client learns the logits and looks, or the parties find it ([`Choice`]) and the client learns
//! nothing but the token.
//!
//! With drafts ([`Generation::drafting`]) a small model of the client's proposes the next tokens,
//! the parties read all of them at once, and the client learns how many of them are what it would
//! have got one by one, and the token after them (`draft.rs`). What was kept of those that
//! are not is left unread.

use crate::batches::{Described, in_range};
use crate::draft;
use crate::fixed::{FixedModel, encode_data};
use crate::report::Cost;
use crate::sampling::NOISE;
pub use crate::sampling::{Choice, Sampling, largest};
use megrez_graph::lower::DataInput;
use megrez_graph::models::{DECODERS, Decoder};
use megrez_graph::onnx::{self, Dim, FileInput, ImportOptions};
use megrez_graph::{CompileOptions, Graph, HeldWeights, Interval, Publisher, Tensor, plain};
use megrez_plan::Input;
use megrez_ring::{Shape, decode_words};
use megrez_service::client::RunOptions;
use megrez_service::{Backend, Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Inputs and outputs of the past.
const PAST: &str = "past.";
const PRESENT: &str = "present.";
/// The seed of the weights of built-in models.
const SEED: u64 = 1;

/// A language model in a file, or a built-in one.
pub struct LanguageModel(Source);

enum Source {
    File(File),
    Network(Box<Decoder>),
}

struct File {
    bytes: Vec<u8>,
    /// The file's folder, where weights may lie in files of their own.
    folder: PathBuf,
    /// The name of the input of tokens.
    tokens: String,
    /// Per input of the past: its name and its dimensions, the open one `None`.
    past: Vec<(String, Vec<Option<usize>>)>,
}

impl File {
    fn read(path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let mut tokens = vec![];
        let mut past = vec![];
        for FileInput { name, dims } in onnx::inputs(&bytes).map_err(|e| Error::file(path, e))? {
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
            Ok([tokens]) if !past.is_empty() => Ok(File { bytes, folder: onnx::folder(path), tokens, past }),
            _ => Err(Error::file(path, "does not take one input of tokens and inputs named `past.…`")),
        }
    }

    fn graph(&self, seen: usize, new: usize) -> Result<Graph> {
        let mut shapes = BTreeMap::from([(self.tokens.clone(), vec![1, new])]);
        for (name, dims) in &self.past {
            let dim = |(d, size): (usize, &Option<usize>)| size.unwrap_or(if d == 0 { 1 } else { seen });
            shapes.insert(name.clone(), dims.iter().enumerate().map(dim).collect());
        }
        let folder = Some(self.folder.clone());
        Ok(onnx::read(&self.bytes, &ImportOptions { shapes, folder, ..ImportOptions::default() })?)
    }
}

impl LanguageModel {
    /// A model by the path of its ONNX file, or a built-in one with random weights by its name
    /// ([`DECODERS`]), which a publisher makes public as they are drawn.
    ///
    /// # Errors
    /// If the file cannot be read or its inputs are not those of a language model, or if this
    /// machine has too little memory for the built-in one.
    pub fn load(model: &Path, publisher: Option<&Publisher>) -> Result<Self> {
        match model.to_str().filter(|name| DECODERS.contains(name)) {
            Some(name) => {
                let decoder = match publisher {
                    Some(publisher) => Decoder::public(name, SEED, publisher)?,
                    None => Decoder::new(name, SEED)?,
                };
                Ok(LanguageModel(Source::Network(Box::new(decoder))))
            }
            None => {
                let bytes = std::fs::read(model).map_err(|e| Error::file(model, e))?;
                Ok(LanguageModel(Source::File(File::read(model, bytes)?)))
            }
        }
    }

    /// A model by the bytes of its ONNX file, which holds all of its weights.
    ///
    /// # Errors
    /// If its inputs are not those of a language model.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        Ok(LanguageModel(Source::File(File::read(Path::new("model"), bytes.to_vec())?)))
    }

    /// The model for `new` tokens after `seen` others.
    ///
    /// # Errors
    /// If it does not read so many.
    pub fn graph(&self, seen: usize, new: usize) -> Result<Graph> {
        self.graph_of_last(seen, new, 1)
    }

    /// As [`graph`](Self::graph), with logits of each of the `last` tokens at least, where the
    /// model gives them.
    fn graph_of_last(&self, seen: usize, new: usize, last: usize) -> Result<Graph> {
        match &self.0 {
            Source::File(file) => file.graph(seen, new),
            Source::Network(network) => Ok(network.graph_of_last(seen, new, last)?),
        }
    }

    /// The logits after these tokens, in the clear.
    ///
    /// # Errors
    /// If the model does not read so many tokens.
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

/// A text that grows on the parties of a backend.
pub struct Generation<'a> {
    model: &'a LanguageModel,
    backend: &'a mut Backend,
    options: CompileOptions,
    run: RunOptions,
    choice: Choice,
    sampling: Sampling,
    /// The client's own model, and how many tokens it proposes at once.
    draft: Option<(&'a LanguageModel, usize)>,
    /// The text, …
    text: Vec<u32>,
    /// … and how many of its tokens the model has read.
    seen: usize,
    /// Tokens that it has written.
    written: usize,
    /// What holds for the past that is kept, …
    bounds: BTreeMap<String, Interval>,
    /// … and its shapes, where more may have been read than `seen` counts.
    kept: BTreeMap<String, Shape>,
    /// The weights that are kept.
    weights: HeldWeights,
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
        Ok(Generation {
            model,
            backend,
            options,
            run,
            choice: Choice::Client,
            sampling: Sampling::new(0.0, None)?,
            draft: None,
            text: vec![],
            seen: 0,
            written: 0,
            bounds: BTreeMap::new(),
            kept: BTreeMap::new(),
            weights: HeldWeights::default(),
            proven: true,
        })
    }

    /// The same, with tokens that `choice` finds; by default the client does.
    #[must_use]
    pub fn choosing(self, choice: Choice) -> Self {
        Generation { choice, ..self }
    }

    /// The same, with tokens that are drawn; by default the likeliest are taken.
    #[must_use]
    pub fn sampling(self, sampling: Sampling) -> Self {
        Generation { sampling, ..self }
    }

    /// The same, with `count` tokens at a time that `model`, in the clear at the client, proposes,
    /// and of which the parties say how many are right. Not where only the likeliest are drawn
    /// from, which the parties would put in order for each of them.
    ///
    /// # Errors
    /// If no tokens are proposed.
    pub fn drafting(self, model: &'a LanguageModel, count: usize) -> Result<Self> {
        if count == 0 {
            return Err(Error::Refused("a draft has at least one token".into()));
        }
        Ok(Generation { draft: Some((model, count)), ..self })
    }

    /// How tokens are drawn.
    pub fn drawing(&self) -> &Sampling {
        &self.sampling
    }

    /// Begins a new text unless the model reads `count` tokens more; whether it does.
    ///
    /// # Errors
    /// If the model does not read so many at all.
    pub fn make_room(&mut self, count: usize) -> Result<bool> {
        let written = self.text.len();
        if self.model.graph(0, written + count).is_ok() {
            return Ok(false);
        }
        self.model.graph(0, count)?;
        self.seen = 0;
        self.text.clear();
        self.bounds.clear();
        self.kept.clear();
        Ok(written > 0)
    }

    /// Continues a text by `count` tokens; `each` hears of every one and what it cost (a token that
    /// came with the one before, nothing), and ends all by an error. Called again, goes on with the
    /// same text: `prompt` follows what was written.
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
        self.text.extend(prompt);
        let begins = self.text.len();
        while self.text.len() < begins + count {
            let left = begins + count - self.text.len();
            let proposed = self.proposed(left - 1)?;
            let tokens = [&self.text[self.seen..], &proposed].concat();
            let (row, accepted, mut cost) = self.pass(&tokens, proposed.len())?;
            // What was proposed beyond is not seen: it is read from no more.
            self.seen -= proposed.len() - accepted;
            let token = self.choice.token(&row, self.written + accepted, &self.sampling)?;
            let new = [&proposed[..accepted], &[token]].concat();
            // All of them, whatever becomes of who hears of them.
            self.text.extend(&new);
            self.written += new.len();
            for token in new {
                each(token, std::mem::take(&mut cost))?;
            }
        }
        Ok([prompt, &self.text[begins..]].concat())
    }

    /// What the client's own model goes on with, `most` tokens at most.
    fn proposed(&self, most: usize) -> Result<Vec<u32>> {
        let Some((model, count)) = self.draft else { return Ok(vec![]) };
        if self.sampling.draws() && self.sampling.top(usize::MAX).is_some() {
            let what = "drafts are of the likeliest token, or drawn from all: give no --top with --draft";
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        let mut text = self.text.clone();
        for i in 0..count.min(most) {
            text.push(self.sampling.pick(self.written + i, &model.plain(&text)?));
        }
        Ok(text.split_off(self.text.len()))
    }

    /// Shows the model more tokens, of which the last ones are proposed: the logits of what follows
    /// the last right one, or what the parties found if they choose; how many of the proposed are
    /// right; and what that cost.
    fn pass(&mut self, tokens: &[u32], proposed: usize) -> Result<(Vec<f32>, usize, Cost)> {
        let mut graph = self.model.graph_of_last(self.seen, tokens.len(), proposed + 1)?;
        for (name, shape) in &self.kept {
            // More was read than counts.
            let longer = graph.inputs.iter().map(|&id| graph.value(id)).find(|value| value.name == *name);
            let longer = longer.and_then(|value| {
                shape.dims().iter().zip(value.shape.dims()).position(|(kept, read)| kept > read)
            });
            if let Some(axis) = longer {
                graph.crop_input(name, axis, shape.dims()[axis])?;
            }
        }
        let graph = match proposed {
            0 => self.choice.finish(graph, &self.sampling)?,
            _ => draft::finish(graph, proposed, self.choice, &self.sampling)?,
        };
        let present = graph.outputs.iter().filter_map(|output| {
            let of = output.name.strip_prefix(PRESENT)?;
            Some((output.name.clone(), format!("{PAST}{of}"), graph.shape(output.id).clone()))
        });
        let present: Vec<(String, String, Shape)> = present.collect();
        let kept = present.iter().map(|(name, past, _)| (name.clone(), past.clone())).collect();
        let mut input_ranges = self.bounds.clone();
        input_ranges.insert(NOISE.into(), self.sampling.range());
        input_ranges.insert(draft::DRAFT.into(), Interval { low: 0.0, high: 1.0 });
        let options = CompileOptions { kept, input_ranges, ..self.options.clone() };
        let client = self.backend.client().to_owned();
        let model = FixedModel::new(&graph, &client, &options)?;
        self.proven &= model.compiled.ranges.iter().all(|r| r.proven);

        let plan = self.weights.plan(&model.compiled);
        let ids = tokens.iter().map(|&t| t as f32).collect();
        let ids = Tensor::new([1, tokens.len()], ids);
        let given = |wanted: &DataInput| -> Result<Tensor> {
            let (shape, n) = (wanted.shape.clone(), wanted.shape.elements());
            Ok(match wanted.name.as_str() {
                // A row for each of the proposed tokens and for the one after them.
                NOISE => {
                    let rows = 0..=proposed;
                    let rows = rows.flat_map(|i| self.sampling.noise(self.written + i, n / (proposed + 1)));
                    Tensor::new(shape, rows.collect())
                }
                draft::DRAFT => draft::ones(&shape, &tokens[tokens.len() - proposed..])?,
                _ => ids.clone(),
            })
        };
        // A draft that the model does not understand is refused before anything is sent.
        let inputs = &model.compiled.data_inputs;
        let given = inputs.iter().map(|wanted| Ok((wanted, given(wanted)?)));
        let given = given.collect::<Result<Vec<_>>>()?;
        let words = |run: u32, input: &Input| match given.iter().find(|(d, _)| d.name == input.name) {
            Some((wanted, data)) => Ok(encode_data(plan.ring, wanted, data)?),
            None => {
                Ok(model.words(run, input, &|_, _| Err(Error::Refused("it is no input of tokens".into())))?)
            }
        };
        let options = RunOptions { runs: 1, ..self.run.clone() };
        let mut outcome = self.backend.run(&plan, &options, &words, &|_| {})?;
        in_range(model.guard(), &outcome.outputs)?;
        let mut revealed = model.outputs().iter().zip(outcome.outputs.remove(0));
        let mut next = || {
            let (revealed, words) = revealed.next()?;
            Some(Tensor::new(revealed.shape.clone(), decode_words(plan.ring, &words, revealed.frac)))
        };
        let logits = next().ok_or_else(|| Error::Refused("the model reveals nothing".into()))?;
        let accepted = if proposed > 0 { draft::accepted(next(), proposed)? } else { 0 };
        self.bounds.extend(model.compiled.kept.iter().cloned());
        self.kept = present.into_iter().map(|(_, past, shape)| (past, shape)).collect();
        self.seen += tokens.len();
        Ok((last_row(&logits)?, accepted, Cost::of(&outcome.reports)))
    }
}
