//! Programs on floating-point numbers that nobody sees: what numerical code becomes.

mod matrix;
mod mlp;
mod proximity;
pub mod tape;

pub use matrix::{Matrix, sum};
pub use mlp::{Layer, Mlp, Step, softmax};
pub use proximity::{FIXED, chord, half_vector, haversine, nearer, threshold};
