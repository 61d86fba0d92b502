//! What clients and reports need beside the plan: what owners share, what recipients open, what is
//! known of the ranges.

use crate::after::After;
use crate::range::Interval;
use crate::tensor::Tensor;
use megrez_ring::Shape;
use megrez_weights::Matrix;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Weights to share.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInput {
    /// The plan's name of the input.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// Fraction bits to encode with.
    pub frac: u32,
    /// Row-major.
    pub values: Vec<f32>,
}

/// Weights are secret and don't print.
impl fmt::Debug for ModelInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} with {} fraction bits", self.name, self.shape, self.frac)
    }
}

/// An input to share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataInput {
    /// The plan's name of the input.
    pub name: String,
    /// Its dimensions.
    pub shape: Shape,
    /// Fraction bits to encode with.
    pub frac: u32,
    /// What every element must lie in; its owner checks, because nobody else can.
    pub range: Interval,
    /// For tokens: the rows of their table. Each is shared as so many whole numbers, zeros and a
    /// one at its place.
    #[serde(default)]
    pub tokens: Option<usize>,
    /// The table, where their owner looks the rows up and shares those with `frac` fraction bits.
    /// It is no part of a description that parties keep.
    #[serde(skip)]
    pub table: Option<Arc<Matrix>>,
}

/// An output that the recipient opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Revealed {
    /// The plan's name of the output.
    pub name: String,
    /// The dimensions of what is opened.
    pub shape: Shape,
    /// Fraction bits to decode with.
    pub frac: u32,
    /// What the recipient does with what is opened, in order.
    pub after: Vec<After>,
}

impl Revealed {
    /// Whether this says that all values were in range, and is no output of the model's.
    pub fn guards(&self) -> bool {
        self.after == [After::InRange]
    }

    /// Applies `after` to the opened and decoded output.
    pub fn finish(&self, opened: Vec<f32>) -> Tensor {
        self.after.iter().fold(Tensor::new(self.shape.clone(), opened), |x, after| after.apply(&x))
    }

    /// What the finished numbers are called.
    pub fn named(&self) -> Named {
        let mut named = Named::default();
        for after in &self.after {
            match after {
                After::Labels { names } => named.classes.clone_from(names),
                After::Columns { names } => named.columns.clone_from(names),
                _ => {}
            }
        }
        named
    }
}

/// What the numbers of an output are called. The names belong to the architecture: they stand in
/// the model's description, for everybody to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The numbers are places in this list; empty where they are just numbers.
    pub classes: Vec<String>,
    /// The names of the columns of the last dimension, if they have any.
    pub columns: Vec<String>,
}

impl Named {
    /// The name of a number; `None` where it stands for itself.
    pub fn class(&self, number: f32) -> Option<&str> {
        let place = (number >= 0.0).then_some(number.round() as usize)?;
        self.classes.get(place).map(String::as_str)
    }
}

/// What is known about the numbers in a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerRange {
    /// The layer.
    pub layer: String,
    /// The bounds of its output, as real numbers.
    pub output: Interval,
    /// Of its steps, the one with the least room: its words are below 2^`bits` in magnitude, …
    pub bits: u32,
    /// … and must be below 2^`limit`.
    pub limit: u32,
    /// Whether this was proven, or assumed because it could not be.
    pub proven: bool,
    /// Whether it rests on what was measured on data, where it is not proven.
    #[serde(default)]
    pub calibrated: bool,
}

impl LayerRange {
    /// What all these layers' ranges rest on, weakest first: `assumed`, `calibrated` or `proven`.
    pub fn basis(ranges: &[LayerRange]) -> &'static str {
        match ranges.iter().map(|r| (r.proven, r.calibrated)).min() {
            Some((false, false)) => "assumed",
            Some((false, true)) => "calibrated",
            _ => "proven",
        }
    }
}
