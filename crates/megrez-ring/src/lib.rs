//! The numbers that megrez computes on: words of the rings Z_2^8 … Z_2^64, prime fields with their
//! dense packing, bits, fixed point, and shapes. No threads, no sockets, no protocols.

#[cfg(target_endian = "big")]
compile_error!("megrez sends words in memory order and supports little-endian machines only");

pub mod bits;
pub mod field;
pub mod fixed;
mod shape;
pub mod sums;
mod word;

pub use field::Prime;
pub use fixed::{FixedError, decode, decode_words, encode, encode_words, integers};
pub use shape::{Shape, ShapeError};
pub use word::{U40, U48, Word, from_wire, to_wire};
