//! Language models with random weights, read token by token.

use super::builder::{Builder, Past};
use super::llama::{self, LLAMA_1B, LLAMA_7B, LLAMA_TINY};
use super::transformer::{Config, GPT2, GPT2_TINY, gpt2, reshape};
use crate::graph::Graph;
use crate::problem::{Problem, Refusal};
use crate::publisher::Publisher;
use crate::tensor::Constant;
use std::collections::HashMap;

/// The names that [`Decoder::new`] knows.
pub const DECODERS: [&str; 5] = ["gpt2", "gpt2-tiny", "llama-tiny", "llama-1b", "llama-7b"];

/// A language model with weights drawn from a seed, for any number of tokens after any number of
/// others.
pub struct Decoder {
    name: String,
    seed: u64,
    config: Config,
    drawn: HashMap<String, Constant>,
}

pub(super) fn config(name: &str) -> Option<Config> {
    match name {
        "gpt2" => Some(GPT2),
        "gpt2-tiny" => Some(GPT2_TINY),
        "llama-tiny" => Some(LLAMA_TINY),
        "llama-1b" => Some(LLAMA_1B),
        "llama-7b" => Some(LLAMA_7B),
        _ => None,
    }
}

/// Adds a decoder that reads `config.tokens` tokens of each text, if this machine has the memory
/// for its weights.
pub(super) fn decoder(net: &mut Builder, batch: usize, seed: u64, config: Config) -> Result<(), Problem> {
    let Some(_) = config.rotary else { return gpt2(net, batch, seed, config) };
    if net.drawn.is_empty() {
        let bytes = net.publisher.as_ref().map_or(BYTES, |publisher| publisher.bytes());
        afford(llama::weights(config), bytes, available()).map_err(|r| r.at(&net.graph.name, ""))?;
    }
    llama::llama(net, batch, config)
}

/// Bytes that a weight takes until it is shared: in the graph, and in the plan's description.
const BYTES: u64 = 8;

/// Refuses weights that do not fit the memory that is left, in bytes, before they are drawn.
fn afford(weights: u64, bytes: u64, available: Option<u64>) -> Result<(), Refusal> {
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match (weights * bytes, available) {
        (needs, Some(has)) if needs > has => Err(Refusal::new(
            format!(
                "its {weights} weights take {:.1} GiB, and this machine has {:.1} GiB left",
                gib(needs),
                gib(has)
            ),
            "use a machine with more memory, a smaller network, or public weights: --weights public-int8",
        )),
        _ => Ok(()),
    }
}

/// The memory in bytes that this machine has left, where the operating system tells.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

impl Decoder {
    /// Draws the weights of a model.
    ///
    /// # Errors
    /// If there is no such model, or this machine has too little memory for it.
    pub fn new(name: &str, seed: u64) -> Result<Self, Problem> {
        Decoder::with(name, seed, None)
    }

    /// As [`new`](Self::new), with weights that are public as soon as they are drawn: the network
    /// needs no more memory than one of its matrices. What was drawn once is found again.
    ///
    /// # Errors
    /// Those of [`new`](Self::new), or if weights cannot be written.
    pub fn public(name: &str, seed: u64, publisher: &Publisher) -> Result<Self, Problem> {
        Decoder::with(name, seed, Some(publisher))
    }

    fn with(name: &str, seed: u64, publisher: Option<&Publisher>) -> Result<Self, Problem> {
        let Some(config) = config(name) else {
            let known = DECODERS.join(", ");
            let what = "there is no such language model";
            return Err(Refusal::new(what, format!("choose one of {known}")).at(name, ""));
        };
        let mut decoder = Decoder { name: name.into(), seed, config, drawn: HashMap::new() };
        // Of other networks a table is a factor as well, which an index of tables does not say.
        let publisher = publisher.filter(|_| config.rotary.is_some());
        let index = format!("{name}-{seed}");
        if let Some(drawn) = publisher.and_then(|publisher| publisher.found(&index)) {
            decoder.drawn = drawn;
            return Ok(decoder);
        }
        let graph = decoder.graph_of(0, 1, 1, publisher)?;
        // All that it drew, so that nothing is drawn again; what depends on positions is made anew.
        let drawn = |name: &str| [".weight", ".bias", ".offset"].iter().any(|end| name.ends_with(end));
        let values = graph.values.into_iter().filter(|value| drawn(&value.name));
        decoder.drawn = values.filter_map(|value| Some((value.name, value.constant?))).collect();
        if let Some(publisher) = publisher {
            publisher.keep(&index, &decoder.drawn).map_err(|r| r.at(name, ""))?;
        }
        Ok(decoder)
    }

    /// How many tokens it knows.
    pub fn vocabulary(&self) -> usize {
        self.config.vocabulary
    }

    /// The model for `new` tokens after `seen` others: the input `tokens` [1, new], inputs `past.X`
    /// if something was seen; outputs `logits` [1, 1, vocabulary] of what follows the last token,
    /// and `present.X`, which are the `past.X` of the next tokens.
    ///
    /// # Errors
    /// If there are no tokens, or more in all than the model's context holds.
    pub fn graph(&self, seen: usize, new: usize) -> Result<Graph, Problem> {
        self.graph_of(seen, new, 1, None)
    }

    /// As [`graph`](Self::graph), with the logits of what follows each of the `last` tokens, [1,
    /// last, vocabulary].
    ///
    /// # Errors
    /// Those of [`graph`](Self::graph), or if there are not so many tokens.
    pub fn graph_of_last(&self, seen: usize, new: usize, last: usize) -> Result<Graph, Problem> {
        self.graph_of(seen, new, last, None)
    }

    /// With a publisher of what is drawn now.
    fn graph_of(
        &self,
        seen: usize,
        new: usize,
        last: usize,
        publisher: Option<&Publisher>,
    ) -> Result<Graph, Problem> {
        let context = self.config.context;
        if !(1..=new).contains(&last) || seen.saturating_add(new) > context {
            let what = format!("a text of {seen} and {new} tokens; it holds 1 to {context}");
            return Err(
                Refusal::new(what, "use a shorter prompt, or ask for fewer tokens").at(&self.name, "")
            );
        }
        let mut net = Builder::new(&self.name, self.seed);
        net.drawn.clone_from(&self.drawn);
        net.publisher = publisher.cloned();
        net.past = Some(Past { seen, last, present: vec![] });
        decoder(&mut net, 1, self.seed, Config { tokens: new, ..self.config })?;
        if let Some(problem) = net.problem.take() {
            return Err(problem.at(&self.name, ""));
        }
        let at = net.at;
        net.at = reshape(&mut net, "logits", at, &[1, last, self.config.vocabulary])?;
        let present = net.past.take().map(|past| past.present).unwrap_or_default();
        let mut graph = net.finish();
        present.into_iter().for_each(|(name, id)| graph.output(&name, id));
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain;
    use crate::tensor::Tensor;

    fn tokens(ids: &[u32]) -> Tensor {
        Tensor::new([1, ids.len()], ids.iter().map(|&id| id as f32).collect())
    }

    /// What was read and does not count is cropped away, and logits of several tokens are those of
    /// each.
    #[test]
    fn what_was_read_too_much_is_not_read_from() {
        let text = [7, 200, 3, 91, 18];
        for name in ["gpt2-tiny", "llama-tiny"] {
            let decoder = Decoder::new(name, 1).unwrap();
            let whole = plain::run(&decoder.graph_of_last(0, 5, 2).unwrap(), &[tokens(&text)]).unwrap();
            assert_eq!(whole[0].shape.dims(), [1, 2, decoder.vocabulary()]);
            let read = [&text[..3], &[5, 6]].concat();
            let past = plain::run(&decoder.graph(0, 5).unwrap(), &[tokens(&read)]).unwrap().split_off(1);
            let mut graph = decoder.graph_of_last(3, 2, 2).unwrap();
            let names: Vec<String> =
                graph.inputs[1..].iter().map(|&id| graph.value(id).name.clone()).collect();
            for (name, past) in names.iter().zip(&past) {
                let id = graph.inputs.iter().copied().find(|&id| graph.value(id).name == *name).unwrap();
                let pairs = graph.shape(id).dims().iter().zip(past.shape.dims());
                let axis = pairs.clone().position(|(read, kept)| read < kept).unwrap();
                assert_eq!(pairs.filter(|(read, kept)| read != kept).count(), 1);
                graph.crop_input(name, axis, past.shape.dims()[axis]).unwrap();
                assert!(graph.crop_input(name, axis, 2).is_err());
            }
            let inputs: Vec<Tensor> = std::iter::once(tokens(&text[3..])).chain(past).collect();
            let rest = plain::run(&graph, &inputs).unwrap();
            let pairs = rest[0].data.iter().zip(&whole[0].data);
            let off = pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(off < 1e-5, "{name}: off by {off}");
            assert!(graph.crop_input("nothing", 0, 1).is_err());
            assert!(decoder.graph_of_last(3, 2, 3).is_err());
        }
    }

    #[test]
    fn a_text_read_in_parts_is_the_text_read_at_once() {
        let text = [7, 200, 3, 3, 91, 18];
        for name in ["gpt2-tiny", "llama-tiny"] {
            let decoder = Decoder::new(name, 1).unwrap();
            let whole = plain::run(&decoder.graph(0, 6).unwrap(), &[tokens(&text)]).unwrap();
            let mut past: Vec<Tensor> = vec![];
            let mut seen = 0;
            for part in [&text[..3], &text[3..4], &text[4..]] {
                let graph = decoder.graph(seen, part.len()).unwrap();
                let inputs: Vec<Tensor> = std::iter::once(tokens(part)).chain(past).collect();
                let mut outputs = plain::run(&graph, &inputs).unwrap();
                past = outputs.split_off(1);
                seen += part.len();
                if seen == 6 {
                    let pairs = outputs[0].data.iter().zip(&whole[0].data);
                    let off = pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
                    let size = whole[0].data.iter().fold(0f32, |m, v| m.max(v.abs()));
                    assert!(off < 1e-5 && size > 0.1, "{name}: off by {off} of {size}");
                }
            }
            // What is not read again is not what it was: the past matters.
            let last = plain::run(&decoder.graph(0, 2).unwrap(), &[tokens(&text[4..])]).unwrap();
            assert!(last[0].data.iter().zip(&whole[0].data).any(|(a, b)| (a - b).abs() > 1e-3), "{name}");
        }
    }

    #[test]
    fn a_decoder_of_the_same_seed_is_the_network_of_that_name() {
        for name in ["gpt2-tiny", "llama-tiny"] {
            let network = crate::models::build(name, 1, 5).unwrap();
            let decoder = Decoder::new(name, 5).unwrap();
            let ids = tokens(&[1, 2, 3, 4, 5, 6, 7, 8]);
            let want = plain::run(&network, std::slice::from_ref(&ids)).unwrap();
            let got = plain::run(&decoder.graph(0, 8).unwrap(), &[ids]).unwrap();
            assert_eq!(got[0].data, want[0].data, "{name}");
        }
    }

    #[test]
    fn texts_and_weights_that_do_not_fit_are_refused() {
        let decoder = Decoder::new("llama-tiny", 1).unwrap();
        for (seen, new) in [(0, 0), (2048, 1), (usize::MAX, 1)] {
            assert!(decoder.graph(seen, new).unwrap_err().to_string().contains("1 to 2048"));
        }
        assert!(Decoder::new("llama", 1).err().unwrap().to_string().contains("llama-tiny"));
        let refused = afford(1 << 30, 8, Some((8 << 30) - 1)).unwrap_err();
        assert!(refused.what.contains("8.0 GiB"), "{}", refused.what);
        assert!(afford(1 << 30, 8, Some(8 << 30)).is_ok() && afford(1, 8, None).is_ok());
        #[cfg(target_os = "linux")]
        assert!(available().unwrap() > 1 << 20);
    }
}
