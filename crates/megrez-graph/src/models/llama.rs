//! The LLaMA family as Hugging Face defines it: normalisation by the root mean square, rotary
//! positions, heads of keys that several heads of queries share, SwiGLU, no biases, and a table of
//! its own for the result.

use super::builder::{Builder, TABLE};
use super::transformer::{Config, attention, last_tokens, linear, reshape};
use crate::graph::{Attributes, Id};
use crate::problem::Problem;
use crate::tensor::Tensor;

/// The shape of TinyLlama 1.1B.
pub(super) const LLAMA_1B: Config = Config {
    layers: 22,
    width: 2048,
    heads: 32,
    key_heads: 4,
    hidden: 5632,
    tokens: 8,
    context: 2048,
    vocabulary: 32000,
    epsilon: 1e-5,
    rotary: Some(10000.0),
};
/// The shape of LLaMA 7B.
pub(super) const LLAMA_7B: Config =
    Config { layers: 32, width: 4096, key_heads: 32, hidden: 11008, epsilon: 1e-6, ..LLAMA_1B };
/// Two layers of width 64 and 256 tokens.
pub(super) const LLAMA_TINY: Config =
    Config { layers: 2, width: 64, heads: 8, key_heads: 2, hidden: 176, vocabulary: 256, ..LLAMA_1B };

/// How many weights a network has.
pub(super) fn weights(config: Config) -> u64 {
    let Config { layers, width, heads, key_heads, hidden, vocabulary, .. } = config;
    let attention = width * (width + 2 * key_heads * (width / heads)) + width * width;
    let layer = attention + 3 * width * hidden + 2 * width;
    (2 * vocabulary * width + layers * layer + width) as u64
}

/// Tokens in, the logits of what follows the last one out.
pub(super) fn llama(net: &mut Builder, batch: usize, config: Config) -> Result<(), Problem> {
    let Config { width, tokens, vocabulary, .. } = config;
    let ids = net.graph.input("tokens", [batch, tokens])?;
    let table = net.normal(TABLE, [vocabulary, width], 0.02);
    let x = net.graph.add("token", "Gather", &[table, ids], Attributes::none())?;
    let mut x = reshape(net, "rows", x, &[batch * tokens, width])?;
    for layer in 0..config.layers {
        x = block(net, &format!("h{layer}"), x, batch, config)?;
    }
    let last = last_tokens(net, x, batch, config)?;
    let last = norm(net, "ln-f", last, config)?;
    net.at = linear(net, "head", last, vocabulary, 0.02, false)?;
    Ok(())
}

fn block(net: &mut Builder, name: &str, x: Id, batch: usize, config: Config) -> Result<Id, Problem> {
    let part = |part: &str| format!("{name}.{part}");
    let y = norm(net, &part("ln1"), x, config)?;
    let y = attention(net, &part("attention"), y, batch, config, true)?;
    let y = linear(net, &part("attention.out"), y, config.width, 0.02, false)?;
    let x = net.graph.add(&part("add1"), "Add", &[x, y], Attributes::none())?;
    let y = norm(net, &part("ln2"), x, config)?;
    let gate = linear(net, &part("gate"), y, config.hidden, 0.02, false)?;
    let gate = net.graph.add(&part("silu"), "Swish", &[gate], Attributes::none())?;
    let up = linear(net, &part("up"), y, config.hidden, 0.02, false)?;
    let y = net.graph.add(&part("gated"), "Mul", &[gate, up], Attributes::none())?;
    let y = linear(net, &part("down"), y, config.width, 0.02, false)?;
    net.graph.add(&part("add2"), "Add", &[x, y], Attributes::none())
}

fn norm(net: &mut Builder, name: &str, x: Id, config: Config) -> Result<Id, Problem> {
    let scale = net.graph.constant(&format!("{name}.scale"), Tensor::filled([config.width], 1.0));
    let attributes = Attributes::none().with("epsilon", config.epsilon);
    net.graph.add(name, "RMSNormalization", &[x, scale], attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_large_one_has_the_weights_of_its_model() {
        // `sum(p.numel() for p in model.parameters())` of TinyLlama-1.1B.
        assert_eq!(weights(LLAMA_1B), 1_100_048_384);
        // The same of LLaMA-7B.
        assert_eq!(weights(LLAMA_7B), 6_738_415_616);
        let mut net = Builder::new("llama-tiny", 1);
        llama(&mut net, 1, LLAMA_TINY).unwrap();
        let graph = net.finish();
        let named = |name: &str| name.ends_with("weight") || name.ends_with("scale");
        let parts = graph.values.iter().filter(|v| v.constant.is_some() && named(&v.name));
        assert_eq!(parts.map(|v| v.shape.elements() as u64).sum::<u64>(), weights(LLAMA_TINY));
    }
}
