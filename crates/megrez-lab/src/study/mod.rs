//! `megrez study`: what approximations do to the numbers, measured. Nothing in here is a protocol.
//!
//! One process does the local arithmetic of all parties of a step, on masks that it draws from the
//! operating system's randomness, and so sees everything; no share leaves it. The registry of
//! protocols does not know these forms, a plan cannot name them, and no party runs them: whoever
//! wants an inexact truncation has to write `megrez study truncation`.
//!
//! - [`forms`]: the truncations, as functions of a word and its masks.
//! - [`rules`]: how a walk truncates and compares, and what it counts.
//! - [`walk`]: a model's plan on plain words, with truncations and comparisons as a study wants
//!   them.
//! - [`truncation`]: how often each form errs, and what is left of a model's accuracy.
//! - [`relu_bits`]: accuracy and cost against the number of bits that a comparison looks at.
//! - [`training`]: what truncations, fraction bits and rings make of training.
//! - [`meteor_msb`]: METEOR's most significant bit as printed.

pub mod forms;
pub mod meteor_msb;
pub mod relu_bits;
pub mod rules;
mod subject;
pub mod training;
pub mod truncation;
pub mod walk;

pub use subject::{Score, Subject};
