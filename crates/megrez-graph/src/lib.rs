//! From a model to a plan: a frontend for ONNX, the [`Graph`], its layers, the passes that rewrite it, and the lowering
//! to the primitive steps of [`megrez_plan::Plan`]. No protocol and no share in here.
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
//! One file in `layers/` with its import rule, its plain reference and its secure forward, and one line in the registry
//! of `layers/mod.rs`. Ranges follow from the steps that the layer emits.

pub mod calibrate;
mod compile;
mod data;
#[doc(hidden)]
pub mod faults;
mod float;
mod graph;
pub mod layers;
pub mod lower;
pub mod models;
pub mod npy;
pub mod onnx;
pub mod passes;
pub mod plain;
mod problem;
pub mod range;

pub use calibrate::Calibration;
pub use compile::{
    Activations, Comparison, CompileOptions, Compiled, DataInput, Declared, LayerInfo, LayerRange, ListStyle,
    ModelInput, PoolForm, Revealed, compile,
};
pub use data::{check_rows, check_shape};
pub use float::{FloatCompiled, FloatLayer, FloatLowering, FloatOperand, FloatOptions, compile_floats};
pub use graph::{Attribute, Attributes, Constant, Graph, Id, MAX_ELEMENTS, Node, Output, Tensor, Value};
pub use problem::{Cause, Problem, Problems, Refusal};
pub use range::{Interval, RangePolicy};
