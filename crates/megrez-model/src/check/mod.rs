//! The same model on shares and in the clear, compared layer by layer.

mod fixed;
mod float;

pub use fixed::LayerCheck;
pub use float::FloatLayerCheck;

use crate::model::Model;
use megrez_graph::Tensor;
use megrez_service::client::RunOptions;
use megrez_service::{Backend, Result};
use serde_json::{Value, json};

/// Every layer's numbers on shares against the clear.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// Of a model in fixed point.
    Fixed(Vec<LayerCheck>),
    /// Of a model in single precision.
    Float(Vec<FloatLayerCheck>),
}

impl Check {
    /// Whether every number was one that its layer can hold; in single precision, whether every bit
    /// was right.
    pub fn is_right(&self) -> bool {
        match self {
            Check::Fixed(layers) => layers.iter().all(|l| l.outside == 0),
            Check::Float(layers) => layers.iter().all(|l| l.different == 0),
        }
    }

    /// The layers, for programs.
    pub fn layers(&self) -> Value {
        match self {
            Check::Fixed(layers) => json!(layers),
            Check::Float(layers) => json!(layers),
        }
    }

    /// A table for people.
    pub fn table(&self) -> String {
        match self {
            Check::Fixed(layers) => fixed::table(layers),
            Check::Float(layers) => float::table(layers),
        }
    }
}

/// Runs `model` on one batch, a tensor per input of the model, with every layer's output opened to
/// the caller, and compares.
///
/// Opening inner layers reveals them to the caller: the caller must own model and data.
///
/// # Errors
/// If the data does not fit, or a party fails.
pub fn check(backend: &mut Backend, model: &Model, data: &[Tensor], options: &RunOptions) -> Result<Check> {
    let options = &model.options(options)?;
    match model {
        Model::Fixed(model) => fixed::check(backend, model, data, options).map(Check::Fixed),
        Model::Float(model) => float::check(backend, model, data, options).map(Check::Float),
    }
}
