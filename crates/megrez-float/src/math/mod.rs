//! Math functions of single precision: range reduction, a spline in fixed point, and one rounding.
//! SECFLOAT, §VI.

mod arc;
mod atan;
mod erf;
mod exp;
mod fmod;
mod hyperbolic;
mod hypot;
mod log;
mod pow;
mod radians;
mod sigmoid;
pub(crate) mod slide;
mod spline;
mod tables;
mod trig;

pub use arc::{acos, asin};
pub use atan::{atan, atan2};
pub use erf::erf;
pub use exp::{exp, exp2};
pub use fmod::fmod;
pub use hyperbolic::{cosh, expm1, sinh};
pub use hypot::hypot;
pub use log::{ln, log1p, log2, log10};
pub use pow::pow;
pub use radians::{cos, sin, tan};
pub use sigmoid::{sigmoid, tanh};
pub use trig::{cospi, sinpi, tanpi};
