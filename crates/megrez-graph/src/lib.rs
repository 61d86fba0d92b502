//! From a model to a plan: a frontend for ONNX, the [`Graph`], its layers, the passes that rewrite
//! it, and the lowering to the primitive steps of [`megrez_plan::Plan`]. No protocol and no share
//! in here.
//!
//! ```text
//! model.onnx ── onnx::read ──► Graph ── compile ──► Compiled { plan, weights to share, ranges, … }
//! models::build, Graph::add ──►  │
//!                                └── plain::run ──► every layer's output in the clear: the oracle
//! ```
//!
//! ```
//! use megrez_graph::{CompileOptions, compile, models};
//!
//! let lenet = models::build("lenet", 1, 0)?;
//! let compiled = compile(&lenet, &CompileOptions::default())?;
//! assert_eq!(compiled.plan.steps[0].name, "conv1/product");
//! assert!(compiled.ranges.iter().all(|layer| layer.proven));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Adding a layer
//! One file in `layers/` with its import rule, its plain reference and its secure forward, and one
//! line in the registry of `layers/mod.rs`. Ranges follow from the steps that the layer emits.

mod after;
pub mod boosting;
pub mod calibrate;
mod calibration;
mod clients;
mod compile;
mod construct;
mod data;
mod decompose;
pub mod differentiate;
#[doc(hidden)]
pub mod faults;
mod float;
mod gradients;
mod graph;
mod held;
mod layer;
pub mod layers;
mod lowering;
pub mod models;
mod node;
pub mod npy;
pub mod onnx;
mod options;
pub mod passes;
pub mod plain;
mod problem;
mod publisher;
pub mod range;
mod scale;
mod tensor;
mod tokens;

pub use calibration::Calibration;
pub use clients::{DataInput, LayerRange, ModelInput, Named, Revealed};
pub use compile::{Compiled, LayerInfo, compile};
pub use data::{check_rows, check_shape};
pub use float::{FloatCompiled, FloatLayer, FloatLowering, FloatOperand, FloatOptions, compile_floats};
pub use graph::{Attribute, Attributes, Graph, Id, Node, Output, Value};
pub use held::HeldWeights;
pub use megrez_passes::SLICED_FROM;
pub use options::{Activations, Comparison, CompileOptions, Declared, ListStyle, PoolForm, TreeForm};
pub use problem::{Cause, Problem, Problems, Refusal};
pub use publisher::Publisher;
pub use range::{Interval, RangePolicy};
pub use tensor::{Constant, MAX_ELEMENTS, Public, Tensor};

/// The plan under construction, and what a compilation gives.
pub mod lower {
    pub use crate::after::After;
    pub use crate::clients::{DataInput, LayerRange, ModelInput, Revealed};
    pub use crate::compile::{Compiled, LayerInfo};
    pub use crate::lowering::{Above, Lowering, Operand, Secret, Weight};
    pub use crate::tokens::vocabularies;
}
