//! The networks of the field's tables, with seeded random weights: for costs, which do not depend on the weights.

mod relevance;
mod residual;
mod transformer;

pub use relevance::relevance_features;

use crate::graph::{Attributes, Graph, Id};
use crate::problem::{Problem, Refusal};
use crate::tensor::Tensor;
use megrez_ring::Shape;
use transformer::{BERT_BASE, BERT_TINY, Config, GPT2};

/// The names that [`build`] knows.
pub const NAMES: [&str; 14] = [
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
    "relevance",
];

/// A network by name for a batch of inputs, with weights and biases drawn from `seed` as such networks are initialised.
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
        "gpt2" => transformer::gpt2(&mut net, batch, GPT2)?,
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
            let known = NAMES.join(", ");
            return Err(
                Refusal::new("there is no such network", format!("choose one of {known}")).at(name, "")
            );
        }
    }
    Ok(net.finish())
}

struct Builder {
    graph: Graph,
    at: Id,
    weights: Weights,
    counts: [usize; 4],
}

impl Builder {
    fn new(name: &str, seed: u64) -> Self {
        Builder { graph: Graph::new(name), at: Id(0), weights: Weights::new(seed), counts: [0; 4] }
    }

    fn shape(&self) -> Vec<usize> {
        self.graph.shape(self.at).dims().to_vec()
    }

    /// conv1, conv2, … per kind of layer.
    fn name(&mut self, kind: usize) -> String {
        self.counts[kind] += 1;
        format!("{}{}", ["conv", "relu", "pool", "fc"][kind], self.counts[kind])
    }

    fn input(&mut self, shape: impl Into<Shape>) -> Result<(), Problem> {
        self.at = self.graph.input("input", shape)?;
        Ok(())
    }

    fn conv(&mut self, filters: usize, kernel: usize, stride: i64, pad: i64) -> Result<(), Problem> {
        let channels = self.shape()[1];
        let name = self.name(0);
        let weight = self.weights.he([filters, channels, kernel, kernel].into(), channels * kernel * kernel);
        let bias = self.weights.he([filters].into(), 200);
        let weight = self.graph.constant(&format!("{name}.weight"), weight);
        let bias = self.graph.constant(&format!("{name}.bias"), bias);
        let attributes = Attributes::none().with("strides", [stride; 2]).with("pads", [pad; 4]);
        self.at = self.graph.add(&name, "Conv", &[self.at, weight, bias], attributes)?;
        Ok(())
    }

    fn relu(&mut self) -> Result<(), Problem> {
        let name = self.name(1);
        self.at = self.graph.add(&name, "Relu", &[self.at], Attributes::none())?;
        Ok(())
    }

    fn pool(&mut self, op: &str, kernel: i64, stride: i64) -> Result<(), Problem> {
        let name = self.name(2);
        let attributes = Attributes::none().with("kernel_shape", [kernel; 2]).with("strides", [stride; 2]);
        self.at = self.graph.add(&name, op, &[self.at], attributes)?;
        Ok(())
    }

    fn conv_relu_pool(&mut self, filters: usize) -> Result<(), Problem> {
        self.conv(filters, 5, 1, 0)?;
        self.relu()?;
        self.pool("MaxPool", 2, 2)
    }

    /// Fully connected layers of these sizes, with a ReLU after each but the last; flattens first where needed.
    fn dense(&mut self, sizes: &[usize]) -> Result<(), Problem> {
        if self.shape().len() != 2 {
            self.at = self.graph.add("flatten", "Flatten", &[self.at], Attributes::none())?;
        }
        for (i, &size) in sizes.iter().enumerate() {
            let features = self.shape()[1];
            let name = self.name(3);
            let weight = self.weights.he([size, features].into(), features);
            let bias = self.weights.he([size].into(), 200);
            let weight = self.graph.constant(&format!("{name}.weight"), weight);
            let bias = self.graph.constant(&format!("{name}.bias"), bias);
            let attributes = Attributes::none().with("transB", 1);
            self.at = self.graph.add(&name, "Gemm", &[self.at, weight, bias], attributes)?;
            if i + 1 < sizes.len() {
                self.relu()?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Graph {
        self.graph.output("logits", self.at);
        self.graph
    }
}

/// Normally distributed weights that are the same on every machine and in every version.
struct Weights {
    stream: blake3::OutputReader,
    block: [u8; 4096],
    used: usize,
}

impl Weights {
    fn new(seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 random weights");
        hasher.update(&seed.to_le_bytes());
        Weights { stream: hasher.finalize_xof(), block: [0; 4096], used: 4096 }
    }

    /// Of variance 2 / `inputs`.
    fn he(&mut self, shape: Shape, inputs: usize) -> Tensor {
        self.normal_tensor(shape, (2.0 / inputs as f64).sqrt())
    }

    /// Of this standard deviation.
    fn normal_tensor(&mut self, shape: Shape, deviation: f64) -> Tensor {
        let data = (0..shape.elements()).map(|_| (self.normal() * deviation) as f32).collect();
        Tensor { shape, data }
    }

    /// One standard normal number: the sum of eight uniform ones, which needs no function whose last bit differs
    /// between machines. It stays below 5 in magnitude.
    fn normal(&mut self) -> f64 {
        if self.used == self.block.len() {
            self.stream.fill(&mut self.block);
            self.used = 0;
        }
        let bytes = &self.block[self.used..self.used + 16];
        self.used += 16;
        let sum: u32 = bytes.chunks_exact(2).map(|b| u32::from(u16::from_le_bytes([b[0], b[1]]))).sum();
        // Mean 8 · 0.5 and variance 8 / 12 in units of 2^16.
        (f64::from(sum) / 65536.0 - 4.0) * 1.224_744_871_391_589
    }
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
        // torchvision's 11,689,512 and 25,557,032 parameters, less 1000 biases and two per normalised channel.
        assert_eq!(weights(&net("resnet18")), 11_678_912);
        assert_eq!(weights(&net("resnet50")), 25_502_912);
        assert_eq!(weights(&net("gpt2-block")), 12 * 768 * 768);
        assert_eq!(net("bert-tiny").nodes.last().unwrap().layer.shape().dims(), [1, 2]);
        assert!(build("resnet", 1, 0).unwrap_err().to_string().contains("lenet"));
    }

    #[test]
    fn weights_follow_the_seed() {
        let mut a = Weights::new(1);
        let many = a.he([20000].into(), 2);
        let mean = many.data.iter().map(|&v| f64::from(v)).sum::<f64>() / 20000.0;
        let variance = many.data.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 20000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_eq!(Weights::new(1).he([20000].into(), 2), many);
        assert_ne!(Weights::new(2).he([20000].into(), 2), many);
    }
}
