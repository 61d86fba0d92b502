//! Floating point: the plan as layers see it, and above the layers the compilation.

mod compile;
pub(crate) mod lowering;

pub use compile::{FloatCompiled, FloatLayer, FloatOptions, compile_floats};
pub use lowering::{FloatLowering, FloatOperand};
