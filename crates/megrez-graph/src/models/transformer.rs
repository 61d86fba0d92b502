//! What transformers are made of, as Hugging Face defines them; GPT-2 and BERT on tokens, and one
//! block of GPT-2.

use super::builder::{Builder, Weights};
use crate::graph::{Attributes, Id};
use crate::layers::{Positions, ROTATION};
use crate::problem::Problem;
use crate::tensor::Tensor;

/// The sizes of a transformer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    /// Heads of keys and values; each serves as many heads of queries.
    pub key_heads: usize,
    /// Width of the layer between the two of a feed-forward network.
    pub hidden: usize,
    /// Tokens that are read at once.
    pub tokens: usize,
    /// The most tokens that a text may have.
    pub context: usize,
    pub vocabulary: usize,
    /// ε of the normalisations.
    pub epsilon: f32,
    /// The base of rotary positions.
    pub rotary: Option<f32>,
}

/// GPT-2 with 124 million weights, 8 tokens.
pub(super) const GPT2: Config = Config {
    layers: 12,
    width: 768,
    heads: 12,
    key_heads: 12,
    hidden: 4 * 768,
    tokens: 8,
    context: 1024,
    vocabulary: 50257,
    epsilon: 1e-5,
    rotary: None,
};
/// GPT-2 with two layers of width 64 and 256 tokens.
pub(super) const GPT2_TINY: Config =
    Config { layers: 2, width: 64, heads: 4, key_heads: 4, hidden: 4 * 64, vocabulary: 256, ..GPT2 };
/// BERT base, 128 tokens.
pub(super) const BERT_BASE: Config =
    Config { tokens: 128, context: 128, vocabulary: 30522, epsilon: 1e-12, ..GPT2 };
/// BERT with two layers of width 128, 128 tokens.
pub(super) const BERT_TINY: Config =
    Config { layers: 2, width: 128, heads: 2, key_heads: 2, hidden: 4 * 128, ..BERT_BASE };

/// Tokens in, the logits of what follows the last one out.
pub(super) fn gpt2(net: &mut Builder, batch: usize, seed: u64, config: Config) -> Result<(), Problem> {
    let Config { width, tokens, vocabulary, .. } = config;
    let seen = net.seen();
    let ids = net.graph.input("tokens", [batch, tokens])?;
    let table = net.normal("token.weight", [vocabulary, width], 0.02);
    let x = net.graph.add("token", "Gather", &[table, ids], Attributes::none())?;
    // The same row for a position, whatever else is read.
    let positions = Weights::named(seed, "position").normal_tensor([seen + tokens, width].into(), 0.01);
    let positions = Tensor::new([tokens, width], positions.data[seen * width..].to_vec());
    let positions = net.graph.constant("position.weight", positions);
    let mut x = net.graph.add("position", "Add", &[x, positions], Attributes::none())?;
    x = reshape(net, "rows", x, &[batch * tokens, width])?;
    for layer in 0..config.layers {
        x = gpt2_block(net, &format!("h{layer}"), x, batch, config)?;
    }
    let last = last_tokens(net, x, batch, config)?;
    let last = norm(net, "ln-f", last, config)?;
    net.at = net.graph.add("head", "Gemm", &[last, table], Attributes::none().with("transB", 1))?;
    Ok(())
}

/// One block on its input's rows, [batch · tokens, width].
pub(super) fn gpt2_block(
    net: &mut Builder,
    name: &str,
    x: Id,
    batch: usize,
    config: Config,
) -> Result<Id, Problem> {
    let width = config.width;
    let residual = residual_deviation(config);
    let y = norm(net, &format!("{name}.ln1"), x, config)?;
    let y = attention(net, &format!("{name}.attention"), y, batch, config, true)?;
    let y = linear(net, &format!("{name}.attention.out"), y, width, residual, true)?;
    let x = net.graph.add(&format!("{name}.add1"), "Add", &[x, y], Attributes::none())?;
    let y = norm(net, &format!("{name}.ln2"), x, config)?;
    let y = linear(net, &format!("{name}.fc"), y, config.hidden, 0.02, true)?;
    let tanh = Attributes::none().with("approximate", "tanh");
    let y = net.graph.add(&format!("{name}.gelu"), "Gelu", &[y], tanh)?;
    let y = linear(net, &format!("{name}.fc2"), y, width, residual, true)?;
    net.graph.add(&format!("{name}.add2"), "Add", &[x, y], Attributes::none())
}

/// Tokens in, two logits of the first token's pooled state out.
pub(super) fn bert(net: &mut Builder, batch: usize, config: Config) -> Result<(), Problem> {
    let Config { width, tokens, vocabulary, .. } = config;
    let ids = net.graph.input("tokens", [batch, tokens])?;
    let table = net.normal("token.weight", [vocabulary, width], 0.02);
    let x = net.graph.add("token", "Gather", &[table, ids], Attributes::none())?;
    // Positions and the one segment are known.
    let known = net.normal("position.weight", [tokens, width], 0.03);
    let mut x = net.graph.add("position", "Add", &[x, known], Attributes::none())?;
    x = reshape(net, "rows", x, &[batch * tokens, width])?;
    x = norm(net, "ln", x, config)?;
    for layer in 0..config.layers {
        let name = |part: &str| format!("layer{layer}.{part}");
        let y = attention(net, &name("attention"), x, batch, config, false)?;
        let y = linear(net, &name("attention.out"), y, width, 0.02, true)?;
        let y = net.graph.add(&name("add1"), "Add", &[x, y], Attributes::none())?;
        let y = norm(net, &name("ln1"), y, config)?;
        let z = linear(net, &name("fc"), y, config.hidden, 0.02, true)?;
        let z = net.graph.add(&name("gelu"), "Gelu", &[z], Attributes::none())?;
        let z = linear(net, &name("fc2"), z, width, 0.02, true)?;
        let z = net.graph.add(&name("add2"), "Add", &[y, z], Attributes::none())?;
        x = norm(net, &name("ln2"), z, config)?;
    }
    let first = reshape(net, "by-token", x, &[batch, tokens, width])?;
    let first = slice(net, "first", first, 1, 0, 1)?;
    let first = reshape(net, "first-rows", first, &[batch, width])?;
    let pooled = linear(net, "pooler", first, width, 0.02, true)?;
    let pooled = net.graph.add("pooler.tanh", "Tanh", &[pooled], Attributes::none())?;
    net.at = linear(net, "classifier", pooled, 2, 0.02, true)?;
    Ok(())
}

/// Of all rows those of the last token of each text, or of the last tokens that logits are wanted
/// for, [batch · last, width].
pub(super) fn last_tokens(net: &mut Builder, x: Id, batch: usize, config: Config) -> Result<Id, Problem> {
    let Config { width, tokens, .. } = config;
    let wanted = net.past.as_ref().map_or(1, |past| past.last);
    let last = reshape(net, "by-token", x, &[batch, tokens, width])?;
    let last = slice(net, "last", last, 1, tokens - wanted, tokens)?;
    reshape(net, "last-rows", last, &[batch * wanted, width])
}

/// Attention with several heads, on rows of tokens, up to the projection of its result. Heads of
/// queries that share a head of keys are rows of one matrix, so that nothing is repeated.
pub(super) fn attention(
    net: &mut Builder,
    name: &str,
    x: Id,
    batch: usize,
    config: Config,
    causal: bool,
) -> Result<Id, Problem> {
    let Config { width, heads, key_heads, tokens, .. } = config;
    let (size, group, seen) = (width / heads, heads / key_heads, net.seen());
    let part = |part: &str| format!("{name}.{part}");
    let widths = [width, key_heads * size, key_heads * size];
    let all = linear(net, &part("qkv"), x, widths.iter().sum(), 0.02, config.rotary.is_none())?;
    let mut by_head = [all; 3];
    let mut start = 0;
    for (i, role) in ["q", "k", "v"].into_iter().enumerate() {
        let of = |what: &str| part(&format!("{role}.{what}"));
        let own = slice(net, &part(role), all, 1, start, start + widths[i])?;
        start += widths[i];
        let (dims, order, rows) = match i {
            0 if group > 1 => (
                vec![batch, tokens, key_heads, group, size],
                vec![0, 2, 3, 1, 4],
                Some([batch, key_heads, group * tokens, size]),
            ),
            // Keys stand on their heads: [batch, heads, width, tokens].
            1 if config.rotary.is_none() => (vec![batch, tokens, key_heads, size], vec![0, 2, 3, 1], None),
            _ => (vec![batch, tokens, key_heads, size], vec![0, 2, 1, 3], None),
        };
        let own = reshape(net, &of("split"), own, &dims)?;
        let turned = Attributes::none().with("perm", order);
        let mut own = net.graph.add(&of("heads"), "Transpose", &[own], turned)?;
        if let Some(base) = config.rotary.filter(|_| i < 2) {
            let attributes = Positions { start: seen, base }.attributes();
            own = net.graph.add(&of("rotated"), ROTATION, &[own], attributes)?;
            if i == 1 {
                let turned = Attributes::none().with("perm", [0, 1, 3, 2]);
                own = net.graph.add(&of("columns"), "Transpose", &[own], turned)?;
            }
        }
        if let Some(rows) = rows {
            own = reshape(net, &of("rows"), own, &rows)?;
        }
        by_head[i] = own;
    }
    let [q, k, v] = by_head;
    let k = net.behind_the_past(&part("key"), k, 3)?;
    let v = net.behind_the_past(&part("value"), v, 2)?;
    let scores = net.graph.add(&part("scores"), "MatMul", &[q, k], Attributes::none())?;
    let root = Tensor::new([], vec![(size as f32).sqrt()]);
    let root = net.graph.constant(&part("root"), root);
    let mut scores = net.graph.add(&part("scaled"), "Div", &[scores, root], Attributes::none())?;
    if causal && tokens > 1 {
        let keys = seen + tokens;
        let hides = |i: usize| if i % keys > seen + i / keys % tokens { f32::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::new([group * tokens, keys], (0..group * tokens * keys).map(hides).collect());
        let mask = net.graph.constant(&part("mask"), mask);
        scores = net.graph.add(&part("masked"), "Add", &[scores, mask], Attributes::none())?;
    }
    let weights = net.graph.add(&part("softmax"), "Softmax", &[scores], Attributes::none())?;
    let mut y = net.graph.add(&part("values"), "MatMul", &[weights, v], Attributes::none())?;
    let mut order = vec![0, 2, 1, 3];
    if group > 1 {
        y = reshape(net, &part("groups"), y, &[batch, key_heads, group, tokens, size])?;
        order = vec![0, 3, 1, 2, 4];
    }
    let y = net.graph.add(&part("joined"), "Transpose", &[y], Attributes::none().with("perm", order))?;
    reshape(net, &part("rows"), y, &[batch * tokens, width])
}

/// GPT-2 draws what it adds to the residual stream smaller, the more layers add to it.
fn residual_deviation(config: Config) -> f64 {
    0.02 / (2.0 * config.layers as f64).sqrt()
}

/// x · weights, and a bias where there is one.
pub(super) fn linear(
    net: &mut Builder,
    name: &str,
    x: Id,
    outputs: usize,
    deviation: f64,
    biased: bool,
) -> Result<Id, Problem> {
    let inputs = net.graph.shape(x).dims()[1];
    let weight = net.normal(&format!("{name}.weight"), [inputs, outputs], deviation);
    let mut operands = vec![x, weight];
    if biased {
        operands.push(net.normal(&format!("{name}.bias"), [outputs], 0.02));
    }
    net.graph.add(name, "Gemm", &operands, Attributes::none())
}

fn norm(net: &mut Builder, name: &str, x: Id, config: Config) -> Result<Id, Problem> {
    let width = config.width;
    let scale = net.graph.constant(&format!("{name}.scale"), Tensor::filled([width], 1.0));
    let offset = net.normal(&format!("{name}.offset"), [width], 0.02);
    let attributes = Attributes::none().with("epsilon", config.epsilon);
    net.graph.add(name, "LayerNormalization", &[x, scale, offset], attributes)
}

pub(super) fn reshape(net: &mut Builder, name: &str, x: Id, dims: &[usize]) -> Result<Id, Problem> {
    let dims: Vec<i64> = dims.iter().map(|&d| d as i64).collect();
    let shape = net.graph.constant(&format!("{name}.shape"), Tensor::new([dims.len()], dims));
    net.graph.add(name, "Reshape", &[x, shape], Attributes::none())
}

fn slice(net: &mut Builder, name: &str, x: Id, axis: usize, start: usize, end: usize) -> Result<Id, Problem> {
    let attributes = Attributes::none()
        .with("axes", [axis as i64])
        .with("starts", [start as i64])
        .with("ends", [end as i64]);
    net.graph.add(name, "Slice", &[x], attributes)
}
