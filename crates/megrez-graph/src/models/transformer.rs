//! GPT-2 and BERT as Hugging Face defines them, on tokens; and one block of GPT-2.

use super::builder::Builder;
use crate::graph::{Attributes, Id};
use crate::problem::Problem;
use crate::tensor::Tensor;

/// The sizes of a transformer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub tokens: usize,
    pub vocabulary: usize,
    /// ε of the normalisations.
    pub epsilon: f32,
}

/// GPT-2 with 124 million weights, 8 tokens.
pub(super) const GPT2: Config =
    Config { layers: 12, width: 768, heads: 12, tokens: 8, vocabulary: 50257, epsilon: 1e-5 };
/// BERT base, 128 tokens.
pub(super) const BERT_BASE: Config =
    Config { layers: 12, width: 768, heads: 12, tokens: 128, vocabulary: 30522, epsilon: 1e-12 };
/// BERT with two layers of width 128, 128 tokens.
pub(super) const BERT_TINY: Config = Config { layers: 2, width: 128, heads: 2, ..BERT_BASE };

/// Tokens in, the logits of what follows the last one out.
pub(super) fn gpt2(net: &mut Builder, batch: usize, config: Config) -> Result<(), Problem> {
    let Config { width, tokens, vocabulary, .. } = config;
    let ids = net.graph.input("tokens", [batch, tokens])?;
    let table = net.weights.normal_tensor([vocabulary, width].into(), 0.02);
    let table = net.graph.constant("token.weight", table);
    let x = net.graph.add("token", "Gather", &[table, ids], Attributes::none())?;
    let positions = net.weights.normal_tensor([tokens, width].into(), 0.01);
    let positions = net.graph.constant("position.weight", positions);
    let mut x = net.graph.add("position", "Add", &[x, positions], Attributes::none())?;
    x = reshape(net, "rows", x, &[batch * tokens, width])?;
    for layer in 0..config.layers {
        x = gpt2_block(net, &format!("h{layer}"), x, batch, config)?;
    }
    let last = reshape(net, "by-token", x, &[batch, tokens, width])?;
    let last = slice(net, "last", last, 1, tokens - 1, tokens)?;
    let last = reshape(net, "last-rows", last, &[batch, width])?;
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
    let y = norm(net, &format!("{name}.ln1"), x, config)?;
    let y = attention(net, &format!("{name}.attention"), y, batch, config, true)?;
    let x = net.graph.add(&format!("{name}.add1"), "Add", &[x, y], Attributes::none())?;
    let y = norm(net, &format!("{name}.ln2"), x, config)?;
    let y = linear(net, &format!("{name}.fc"), y, 4 * width, 0.02)?;
    let tanh = Attributes::none().with("approximate", "tanh");
    let y = net.graph.add(&format!("{name}.gelu"), "Gelu", &[y], tanh)?;
    let y = linear(net, &format!("{name}.fc2"), y, width, residual_deviation(config))?;
    net.graph.add(&format!("{name}.add2"), "Add", &[x, y], Attributes::none())
}

/// Tokens in, two logits of the first token's pooled state out.
pub(super) fn bert(net: &mut Builder, batch: usize, config: Config) -> Result<(), Problem> {
    let Config { width, tokens, vocabulary, .. } = config;
    let ids = net.graph.input("tokens", [batch, tokens])?;
    let table = net.weights.normal_tensor([vocabulary, width].into(), 0.02);
    let table = net.graph.constant("token.weight", table);
    let x = net.graph.add("token", "Gather", &[table, ids], Attributes::none())?;
    // Positions and the one segment are known.
    let known = net.weights.normal_tensor([tokens, width].into(), 0.03);
    let known = net.graph.constant("position.weight", known);
    let mut x = net.graph.add("position", "Add", &[x, known], Attributes::none())?;
    x = reshape(net, "rows", x, &[batch * tokens, width])?;
    x = norm(net, "ln", x, config)?;
    for layer in 0..config.layers {
        let name = |part: &str| format!("layer{layer}.{part}");
        let y = attention(net, &name("attention"), x, batch, config, false)?;
        let y = net.graph.add(&name("add1"), "Add", &[x, y], Attributes::none())?;
        let y = norm(net, &name("ln1"), y, config)?;
        let z = linear(net, &name("fc"), y, 4 * width, 0.02)?;
        let z = net.graph.add(&name("gelu"), "Gelu", &[z], Attributes::none())?;
        let z = linear(net, &name("fc2"), z, width, 0.02)?;
        let z = net.graph.add(&name("add2"), "Add", &[y, z], Attributes::none())?;
        x = norm(net, &name("ln2"), z, config)?;
    }
    let first = reshape(net, "by-token", x, &[batch, tokens, width])?;
    let first = slice(net, "first", first, 1, 0, 1)?;
    let first = reshape(net, "first-rows", first, &[batch, width])?;
    let pooled = linear(net, "pooler", first, width, 0.02)?;
    let pooled = net.graph.add("pooler.tanh", "Tanh", &[pooled], Attributes::none())?;
    net.at = linear(net, "classifier", pooled, 2, 0.02)?;
    Ok(())
}

/// Attention with several heads, on rows of tokens.
fn attention(
    net: &mut Builder,
    name: &str,
    x: Id,
    batch: usize,
    config: Config,
    causal: bool,
) -> Result<Id, Problem> {
    let Config { width, heads, tokens, .. } = config;
    let part = |part: &str| format!("{name}.{part}");
    let all = linear(net, &part("qkv"), x, 3 * width, 0.02)?;
    let mut by_head = [all; 3];
    // Keys stand on their heads: [batch, heads, width, tokens].
    for (i, (role, order)) in
        [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])].into_iter().enumerate()
    {
        let own = slice(net, &part(role), all, 1, i * width, (i + 1) * width)?;
        let own = reshape(net, &part(&format!("{role}.split")), own, &[batch, tokens, heads, width / heads])?;
        let turned = Attributes::none().with("perm", order);
        by_head[i] = net.graph.add(&part(&format!("{role}.heads")), "Transpose", &[own], turned)?;
    }
    let [q, k, v] = by_head;
    let scores = net.graph.add(&part("scores"), "MatMul", &[q, k], Attributes::none())?;
    let root = Tensor::new([], vec![((width / heads) as f32).sqrt()]);
    let root = net.graph.constant(&part("root"), root);
    let mut scores = net.graph.add(&part("scaled"), "Div", &[scores, root], Attributes::none())?;
    if causal && tokens > 1 {
        let hidden = |i: usize| if i % tokens > i / tokens { f32::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::new([tokens, tokens], (0..tokens * tokens).map(hidden).collect());
        let mask = net.graph.constant(&part("mask"), mask);
        scores = net.graph.add(&part("masked"), "Add", &[scores, mask], Attributes::none())?;
    }
    let weights = net.graph.add(&part("softmax"), "Softmax", &[scores], Attributes::none())?;
    let y = net.graph.add(&part("values"), "MatMul", &[weights, v], Attributes::none())?;
    let order = Attributes::none().with("perm", [0, 2, 1, 3]);
    let y = net.graph.add(&part("joined"), "Transpose", &[y], order)?;
    let y = reshape(net, &part("rows"), y, &[batch * tokens, width])?;
    let deviation = if causal { residual_deviation(config) } else { 0.02 };
    linear(net, &part("out"), y, width, deviation)
}

/// GPT-2 draws what it adds to the residual stream smaller, the more layers add to it.
fn residual_deviation(config: Config) -> f64 {
    0.02 / (2.0 * config.layers as f64).sqrt()
}

fn linear(net: &mut Builder, name: &str, x: Id, outputs: usize, deviation: f64) -> Result<Id, Problem> {
    let inputs = net.graph.shape(x).dims()[1];
    let weight = net.weights.normal_tensor([inputs, outputs].into(), deviation);
    let weight = net.graph.constant(&format!("{name}.weight"), weight);
    let bias = net.weights.normal_tensor([outputs].into(), 0.02);
    let bias = net.graph.constant(&format!("{name}.bias"), bias);
    net.graph.add(name, "Gemm", &[x, weight, bias], Attributes::none())
}

fn norm(net: &mut Builder, name: &str, x: Id, config: Config) -> Result<Id, Problem> {
    let width = config.width;
    let scale = net.graph.constant(&format!("{name}.scale"), Tensor::filled([width], 1.0));
    let offset = net.weights.normal_tensor([width].into(), 0.02);
    let offset = net.graph.constant(&format!("{name}.offset"), offset);
    let attributes = Attributes::none().with("epsilon", config.epsilon);
    net.graph.add(name, "LayerNormalization", &[x, scale, offset], attributes)
}

fn reshape(net: &mut Builder, name: &str, x: Id, dims: &[usize]) -> Result<Id, Problem> {
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
