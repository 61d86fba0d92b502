//! Programs on floating-point numbers that nobody sees: what numerical code becomes.

pub mod fused;
mod lookup;
mod matrix;
mod mlp;
mod parts;
mod proximity;
pub mod tape;

pub use fused::{BETWEEN, PRODUCTS, SORTED, TERMS, fused_dots, fused_sum};
pub use lookup::lookup;
pub use matrix::{Matrix, fold, sum};
pub use mlp::{Layer, Mlp, Step, softmax};
pub(crate) use parts::WORTH;
pub use parts::{LANES, each, in_parts, pairwise};
pub use proximity::{FIXED, chord, half_vector, haversine, nearer, threshold};
