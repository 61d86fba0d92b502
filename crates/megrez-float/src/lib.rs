//! Floating point from integer building blocks: SECFLOAT (Rathee et al., S&P 2022), corrected, with an infinity and a NaN.
//!
//! The functionality is written once, against [`Blocks`]. It runs in the clear on [`Clear`] and, unchanged, on shares on
//! whatever supplies the blocks to two or three parties; bit for bit the same by construction.

pub mod blocks;
mod clear;

pub use blocks::Blocks;
pub use clear::{Bits, Clear, Ints};
