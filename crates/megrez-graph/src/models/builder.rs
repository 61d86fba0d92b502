//! What networks are built with: layers one after the other, and seeded weights.

use crate::graph::{Attributes, Graph, Id};
use crate::problem::{Problem, Refusal};
use crate::publisher::Publisher;
use crate::tensor::{Constant, Tensor};
use megrez_ring::Shape;
use std::collections::HashMap;

/// The table of tokens.
pub(super) const TABLE: &str = "token.weight";

/// The tokens before those that are read, and what goes out for the next run.
#[derive(Default)]
pub(super) struct Past {
    /// How many tokens have been read.
    pub seen: usize,
    /// For how many of the tokens, the last ones, logits are wanted.
    pub last: usize,
    /// Outputs, by name.
    pub present: Vec<(String, Id)>,
}

pub(super) struct Builder {
    pub graph: Graph,
    pub at: Id,
    pub weights: Weights,
    pub counts: [usize; 4],
    /// Weights that are drawn already, by name, where a network is built again.
    pub drawn: HashMap<String, Constant>,
    /// Who makes its weights public as they are drawn, and what went wrong.
    pub publisher: Option<Publisher>,
    pub problem: Option<Refusal>,
    /// What its attention has seen before, of a network that is built to remember it.
    pub past: Option<Past>,
}

impl Builder {
    pub fn new(name: &str, seed: u64) -> Self {
        let (graph, weights) = (Graph::new(name), Weights::new(seed));
        Builder {
            graph,
            at: Id(0),
            weights,
            counts: [0; 4],
            drawn: HashMap::new(),
            publisher: None,
            problem: None,
            past: None,
        }
    }

    /// Weights of this standard deviation.
    pub fn normal(&mut self, name: &str, shape: impl Into<Shape>, deviation: f64) -> Id {
        let constant = match self.drawn.get(name) {
            Some(drawn) => drawn.clone(),
            None => {
                let drawn = self.weights.normal_tensor(shape.into(), deviation);
                self.published(name, drawn)
            }
        };
        self.graph.constant(name, constant)
    }

    /// Weights that were just drawn: public where they are to be, so that no network has to lie in
    /// memory as a whole.
    fn published(&mut self, name: &str, drawn: Tensor) -> Constant {
        let Some(publisher) = self.publisher.as_ref().filter(|_| self.problem.is_none()) else {
            return drawn.into();
        };
        match publisher.constant(&drawn, name == TABLE) {
            Ok(Some(public)) => public,
            Ok(None) => drawn.into(),
            Err(problem) => {
                self.problem = Some(problem);
                drawn.into()
            }
        }
    }

    /// How many tokens stand before the first that is read.
    pub fn seen(&self) -> usize {
        self.past.as_ref().map_or(0, |past| past.seen)
    }

    /// Keys or values behind those of earlier tokens, along an axis: the input `past.NAME` comes
    /// first, and all of them go out as `present.NAME`. In a network that does not remember, they
    /// themselves.
    pub fn behind_the_past(&mut self, name: &str, x: Id, axis: usize) -> Result<Id, Problem> {
        let seen = self.seen();
        let mut all = x;
        if seen > 0 {
            let mut dims = self.graph.shape(x).dims().to_vec();
            dims[axis] = seen;
            let past = self.graph.input(&format!("past.{name}"), dims)?;
            let along = Attributes::none().with("axis", axis as i64);
            all = self.graph.add(&format!("{name}.all"), "Concat", &[past, x], along)?;
        }
        if let Some(past) = &mut self.past {
            past.present.push((format!("present.{name}"), all));
        }
        Ok(all)
    }

    pub fn shape(&self) -> Vec<usize> {
        self.graph.shape(self.at).dims().to_vec()
    }

    /// conv1, conv2, … per kind of layer.
    pub fn name(&mut self, kind: usize) -> String {
        self.counts[kind] += 1;
        format!("{}{}", ["conv", "relu", "pool", "fc"][kind], self.counts[kind])
    }

    pub fn input(&mut self, shape: impl Into<Shape>) -> Result<(), Problem> {
        self.at = self.graph.input("input", shape)?;
        Ok(())
    }

    pub fn conv(&mut self, filters: usize, kernel: usize, stride: i64, pad: i64) -> Result<(), Problem> {
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

    pub fn relu(&mut self) -> Result<(), Problem> {
        let name = self.name(1);
        self.at = self.graph.add(&name, "Relu", &[self.at], Attributes::none())?;
        Ok(())
    }

    pub fn pool(&mut self, op: &str, kernel: i64, stride: i64) -> Result<(), Problem> {
        let name = self.name(2);
        let attributes = Attributes::none().with("kernel_shape", [kernel; 2]).with("strides", [stride; 2]);
        self.at = self.graph.add(&name, op, &[self.at], attributes)?;
        Ok(())
    }

    pub fn conv_relu_pool(&mut self, filters: usize) -> Result<(), Problem> {
        self.conv(filters, 5, 1, 0)?;
        self.relu()?;
        self.pool("MaxPool", 2, 2)
    }

    /// Fully connected layers of these sizes, with a ReLU after each but the last; flattens first
    /// where needed.
    pub fn dense(&mut self, sizes: &[usize]) -> Result<(), Problem> {
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

    pub fn finish(mut self) -> Graph {
        self.graph.output("logits", self.at);
        self.graph
    }
}

/// Normally distributed weights that are the same on every machine and in every version.
pub(super) struct Weights {
    stream: blake3::OutputReader,
    block: [u8; 4096],
    used: usize,
}

impl Weights {
    pub fn new(seed: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 random weights");
        hasher.update(&seed.to_le_bytes());
        Weights { stream: hasher.finalize_xof(), block: [0; 4096], used: 4096 }
    }

    /// A stream of its own for what stands alone: another number of it changes nothing else.
    pub fn named(seed: u64, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 random weights by name");
        hasher.update(&seed.to_le_bytes());
        hasher.update(name.as_bytes());
        Weights { stream: hasher.finalize_xof(), block: [0; 4096], used: 4096 }
    }

    /// Of variance 2 / `inputs`.
    pub fn he(&mut self, shape: Shape, inputs: usize) -> Tensor {
        self.normal_tensor(shape, (2.0 / inputs as f64).sqrt())
    }

    /// Of this standard deviation.
    pub fn normal_tensor(&mut self, shape: Shape, deviation: f64) -> Tensor {
        let data = (0..shape.elements()).map(|_| (self.normal() * deviation) as f32).collect();
        Tensor { shape, data }
    }

    /// One standard normal number: the sum of eight uniform ones, which needs no function whose
    /// last bit differs between machines. It stays below 5 in magnitude.
    pub fn normal(&mut self) -> f64 {
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
