//! Public weights: matrices that every party knows, of integers of 8 or 16 bits with a scale for
//! each column.
//!
//! The entry in row k and column n is the word q\[k\]\[n\] · scale\[n\] with [`Matrix::frac`]
//! fraction bits. A product with it is exact on shares: what is rounded is the matrix, once, by
//! whoever makes it.
//!
//! A matrix lies in a file named by the hash of its bytes ([`Digest`]). A plan names the hash, so
//! parties that agree on a plan agree on every weight in it, and each of them reads its own copy;
//! those of one host map the same file and share its memory.

mod bytes;
mod digest;
mod file;
mod folder;
mod matrix;

pub use digest::{Digest, Error, Result};
pub use folder::{EXTENSION, Folder, user_folder};
pub use matrix::{COLUMNS, EXACT_ROWS, MAX_COLUMNS, MAX_FRAC, MAX_ROWS, Matrix, ROWS, Width};
