//! Protocols: how the primitives of a plan are computed on shares.
//!
//! A protocol is a [`Suite`]: for every primitive an *offline* step, which sees masks only and may run before the inputs
//! exist, and an *online* step on masked data. [`clear`] is the plaintext suite, template for new ones and oracle for
//! tests; [`mizar`] is the dealer-based three-party suite, [`replicated`] and [`meteor`] are those of three equal parties, without
//! and with masks, [`bicoptor`] one without a dealer's masks, to compare with. [`registry`] lists them all.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "[x] is a share of x, as the field writes it; the compiler takes it for a link"
)]

#[macro_use]
mod store;
pub mod bicoptor;
pub mod clear;
mod cost;
mod local;
pub mod meteor;
pub mod mizar;
pub mod mrss;
pub mod mss;
pub mod registry;
pub mod replicated;
mod reveal;
#[cfg(test)]
mod reveals;
pub mod rss;
mod suite;
#[cfg(test)]
mod testing;

pub use cost::{Clocks, Cost, Path, Transfer, Unit, Wires, last, later};
pub use store::{Store, StoreError};
pub use suite::{Suite, Unsupported};
