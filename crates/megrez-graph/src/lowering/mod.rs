//! Lowering: the plan under construction, as layers see it. Every step's range is checked as it is
//! emitted.

mod affine;
mod bits;
mod comparisons;
mod guard;
mod inputs;
mod operand;
mod plan;
mod private;
mod products;
mod shapes;
mod spared;
mod sums;
mod truncation;

pub(crate) use inputs::SPARE_BITS;
pub use operand::{Above, Operand, Secret, Weight};
pub use plan::Lowering;
pub(crate) use spared::rounds_of;
