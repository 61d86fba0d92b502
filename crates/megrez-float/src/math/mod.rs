//! Math functions of single precision: range reduction, a spline in fixed point, and one rounding. SECFLOAT, §VI.

mod exp;
mod log;
mod slide;
mod spline;
mod tables;
mod trig;

pub use exp::{exp, exp2};
pub use log::{ln, log2};
pub use trig::{cospi, sinpi, tanpi};
