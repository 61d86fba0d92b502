//! `megrez bench`: an operation, a kernel, a model, a step of training, measured and verified.

pub mod float;
mod float_model;
pub mod kernel;
mod layer;
mod measure;
pub mod memory;
mod operation;
mod options;
mod sample;
mod step;
mod train;

pub use float::FloatBench;
pub use float_model::{ModelBench, bench_model as bench_float_model, price_rows};
pub use kernel::KernelBench;
pub use measure::{bench_model, bench_op};
pub use operation::{OPS, op_plan};
pub use options::BenchOptions;
pub use sample::{any_model, test_image};
pub use step::bench_step;
pub use train::{TrainBench, bench_training};
