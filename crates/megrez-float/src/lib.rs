//! Floating point from integer building blocks: SECFLOAT (Rathee et al., S&P 2022), corrected, with
//! an infinity and a NaN.
//!
//! The functionality is written once, against [`AnyBlocks`]. It runs in the clear on [`Clear`] and,
//! unchanged, on shares on whatever supplies the [`Blocks`] to two or three parties; bit for bit
//! the same by construction.

pub mod accuracy;
mod add;
mod any;
pub mod blocks;
mod clear;
mod compare;
mod convert;
mod div;
mod finish;
mod float;
mod folding;
mod format;
pub mod math;
mod mul;
pub mod ops;
pub mod programs;
mod reciprocal;
mod scaled;
mod single;
mod sqrt;
pub mod whole;

pub use add::{add, add_cheap, sub};
pub use any::{
    AnyBlocks, Bit, Failure, Int, Mixed, in_the_clear, on, plain_bits, plain_ints, secret_bits, secret_ints,
    supplied_bits, supplied_ints,
};
pub use blocks::Blocks;
pub use clear::{Bits, Clear, Ints};
pub use compare::{eq, le, lt, max, min, relu, truth};
pub use convert::{from_fixed, to_fixed};
pub use div::{div, div_cheap};
pub use float::{Float, choose};
pub use format::{Format, Plain};
pub use mul::{mul, square};
pub use sqrt::sqrt;
