//! Protocols: how the primitives of a plan are computed on shares.
//!
//! A protocol is a [`Suite`]: a [`Sharing`] and, for every primitive, a [`Step`] with an *offline*
//! phase, which sees masks only and may run before the inputs exist, and an *online* phase on
//! masked data. [`clear`] is the plaintext suite, template for new ones and oracle for tests;
//! [`mizar`] is the dealer-based three-party suite, [`aby3`], [`alkaid`], [`meteor`] and
//! [`alkaid_masked`] are those of three equal parties, without and with masks; [`falcon`],
//! [`concurrent`] and [`bicoptor`] are there to compare with, and so is [`aegis`], which leaks.
//! [`registry`] lists them all; what they have in common stands in [`sharing`] and `steps`.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "[x] is a share of x, as the field writes it; the compiler takes it for a link"
)]

#[macro_use]
mod encode;
#[macro_use]
mod suite;
pub mod aby3;
pub mod aegis;
pub mod alkaid;
pub mod alkaid_masked;
mod any;
pub mod bicoptor;
pub mod clear;
pub mod concurrent;
mod cost;
pub mod falcon;
mod local;
pub mod meteor;
pub mod mizar;
mod protocol;
pub mod registry;
#[cfg(test)]
mod reveals;
pub mod sharing;
mod steps;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use any::{AnyData, AnyMasks, AnyMaterial, AnyOperands, AnySuite, AnyValue};
pub use cost::{Clocks, Cost, Path, Transfer, Unit, Wires, last, later};
pub use encode::{Encode, EncodeError};
pub use sharing::{mrss, mss, rss};
pub use suite::{Call, Made, OnlineStep, Operands, Sharing, Step, Suite, Unsupported, Verified, WordsHeld};
