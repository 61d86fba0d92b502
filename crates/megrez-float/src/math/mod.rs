//! Math functions of single precision: range reduction, a spline in fixed point, and one rounding.
//! SECFLOAT, §VI.

mod atan;
mod erf;
mod exp;
mod log;
mod pow;
mod radians;
mod sigmoid;
mod slide;
mod spline;
mod tables;
mod trig;

pub use atan::atan;
pub use erf::erf;
pub use exp::{exp, exp2};
pub use log::{ln, log2};
pub use pow::pow;
pub use radians::{cos, sin, tan};
pub use sigmoid::{sigmoid, tanh};
pub use trig::{cospi, sinpi, tanpi};
