//! The networks of the field's tables, with seeded random weights: for costs, which do not depend
//! on the weights.

mod builder;
mod decoder;
mod llama;
mod relevance;
mod residual;
mod transformer;

pub use decoder::{DECODERS, Decoder};
pub use relevance::relevance_features;

use crate::graph::Graph;
use crate::problem::{Problem, Refusal};
use builder::Builder;
use transformer::{BERT_BASE, BERT_TINY, Config, GPT2};

/// The names that [`build`] knows, but for those of [`LARGE`].
pub const NAMES: [&str; 16] = [
    "net-a",
    "net-b",
    "net-c",
    "lenet",
    "alexnet-cifar",
    "vgg16-cifar",
    "vgg16-cifar-max",
    "resnet18",
    "resnet50",
    "bert-tiny",
    "bert-base",
    "gpt2",
    "gpt2-block",
    "gpt2-tiny",
    "llama-tiny",
    "relevance",
];

/// Names that [`build`] knows as well, of networks that take gigabytes.
pub const LARGE: [&str; 1] = ["llama-1b"];

/// A network by name for a batch of inputs, with weights and biases drawn from `seed` as such
/// networks are initialised.
///
/// | name | input | layers |
/// | --- | --- | --- |
/// | `net-a` | 784 | FC 128-128-10 |
/// | `net-b` | 1×28×28 | conv 5@5×5 stride 2 pad 2, FC 100-10 |
/// | `net-c` | 1×28×28 | conv 16@5, max-pool 2, conv 16@5, max-pool 2, FC 100-10 |
/// | `lenet` | 1×28×28 | conv 20@5, max-pool 2, conv 50@5, max-pool 2, FC 500-10 |
/// | `alexnet-cifar` | 3×32×32 | conv 96@11 stride 4 pad 9, 256@5, 384@3, 384@3, 256@3 pad 1, FC 256-256-10 |
/// | `vgg16-cifar` | 3×32×32 | 13 convs 3×3, average pools after the ReLUs, FC 256-256-10 |
/// | `vgg16-cifar-max` | 3×32×32 | the same convs, max-pools before the ReLUs, FC 4096-4096-1000 |
/// | `resnet18`, `resnet50` | 3×224×224 | torchvision's: stem 7×7/2, max-pool 3/2, stages 2-2-2-2 or 3-4-6-3, average, FC 1000 |
/// | `bert-tiny`, `bert-base` | 128 tokens | 2 layers of 128 or 12 of 768, the first token's state, FC 2 |
/// | `gpt2` | 8 tokens | 12 layers of 768, 12 heads; logits of one token of 50257 |
/// | `gpt2-block` | 8×768 | one layer of it |
/// | `gpt2-tiny` | 8 tokens | 2 layers of 64, 4 heads; logits of one token of 256 |
/// | `llama-tiny` | 8 tokens | 2 layers of 64, 8 heads on 2 of keys, SwiGLU of 176; logits of one token of 256 |
/// | `llama-1b` | 8 tokens | 22 layers of 2048, 32 heads on 4, SwiGLU of 5632; logits of one token of 32000 |
/// | `relevance` | 874 | FC 300-200-100-4, weights between 10^-7 and 10 in magnitude: see [`relevance_features`] |
pub fn build(name: &str, batch: usize, seed: u64) -> Result<Graph, Problem> {
    let mut net = Builder::new(name, seed);
    match name {
        "net-a" => {
            net.input([batch, 784])?;
            net.dense(&[128, 128, 10])?;
        }
        "net-b" => {
            net.input([batch, 1, 28, 28])?;
            net.conv(5, 5, 2, 2)?;
            net.relu()?;
            net.dense(&[100, 10])?;
        }
        "net-c" => {
            net.input([batch, 1, 28, 28])?;
            net.conv_relu_pool(16)?;
            net.conv_relu_pool(16)?;
            net.dense(&[100, 10])?;
        }
        "lenet" => {
            net.input([batch, 1, 28, 28])?;
            net.conv_relu_pool(20)?;
            net.conv_relu_pool(50)?;
            net.dense(&[500, 10])?;
        }
        "alexnet-cifar" => {
            net.input([batch, 3, 32, 32])?;
            net.conv(96, 11, 4, 9)?;
            net.relu()?;
            net.pool("MaxPool", 3, 2)?;
            net.conv(256, 5, 1, 1)?;
            net.relu()?;
            net.pool("MaxPool", 2, 1)?;
            for filters in [384, 384, 256] {
                net.conv(filters, 3, 1, 1)?;
                net.relu()?;
            }
            net.dense(&[256, 256, 10])?;
        }
        "vgg16-cifar" | "vgg16-cifar-max" => {
            net.input([batch, 3, 32, 32])?;
            let average = name == "vgg16-cifar";
            for (convs, filters) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
                for i in 0..convs {
                    net.conv(filters, 3, 1, 1)?;
                    match (i + 1 == convs, average) {
                        (true, true) => {
                            net.relu()?;
                            net.pool("AveragePool", 2, 2)?;
                        }
                        (true, false) => {
                            net.pool("MaxPool", 2, 2)?;
                            net.relu()?;
                        }
                        _ => net.relu()?,
                    }
                }
            }
            net.dense(if average { &[256, 256, 10] } else { &[4096, 4096, 1000] })?;
        }
        "resnet18" | "resnet50" => {
            net.input([batch, 3, 224, 224])?;
            match name {
                "resnet18" => residual::residual(&mut net, [2, 2, 2, 2], false)?,
                _ => residual::residual(&mut net, [3, 4, 6, 3], true)?,
            }
        }
        "bert-tiny" => transformer::bert(&mut net, batch, BERT_TINY)?,
        "bert-base" => transformer::bert(&mut net, batch, BERT_BASE)?,
        "gpt2-block" => {
            let Config { width, tokens, .. } = GPT2;
            net.input([batch * tokens, width])?;
            let x = net.at;
            net.at = transformer::gpt2_block(&mut net, "h0", x, batch, GPT2)?;
        }
        "relevance" => {
            net.input([batch, 874])?;
            relevance::relevance(&mut net)?;
        }
        _ => {
            if let Some(config) = decoder::config(name) {
                decoder::decoder(&mut net, batch, seed, config)?;
                return Ok(net.finish());
            }
            let known = [&NAMES[..], &LARGE].concat().join(", ");
            return Err(
                Refusal::new("there is no such network", format!("choose one of {known}")).at(name, "")
            );
        }
    }
    Ok(net.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(graph: &Graph, op: &str) -> usize {
        graph.nodes.iter().filter(|n| n.op == op).map(|n| n.layer.shape().elements()).sum()
    }

    fn weights(graph: &Graph) -> usize {
        graph
            .values
            .iter()
            .filter(|v| v.constant.is_some() && v.name.ends_with("weight"))
            .map(|v| v.shape.elements())
            .sum()
    }

    #[test]
    fn the_networks_have_the_sizes_of_the_papers() {
        let net = |name: &str| build(name, 1, 0).unwrap();
        for name in &NAMES[..7] {
            let net = net(name);
            assert_eq!(net.nodes.last().unwrap().op, "Gemm", "{name}");
        }
        assert_eq!(weights(&net("lenet")), 430_500);
        assert_eq!(elements(&net("vgg16-cifar"), "Relu"), 276_992);
        assert_eq!(elements(&net("net-a"), "Relu"), 256);
        assert_eq!(
            net("net-b").nodes.iter().find(|n| n.op == "Flatten").unwrap().layer.shape().dims(),
            [1, 980]
        );
        assert_eq!(
            net("net-c").nodes.iter().find(|n| n.op == "Flatten").unwrap().layer.shape().dims(),
            [1, 256]
        );
        // torchvision's 11,689,512 and 25,557,032 parameters, less 1000 biases and two per
        // normalised channel.
        assert_eq!(weights(&net("resnet18")), 11_678_912);
        assert_eq!(weights(&net("resnet50")), 25_502_912);
        assert_eq!(weights(&net("gpt2-block")), 12 * 768 * 768);
        assert_eq!(net("bert-tiny").nodes.last().unwrap().layer.shape().dims(), [1, 2]);
        assert!(build("resnet", 1, 0).unwrap_err().to_string().contains("lenet"));
    }
}
