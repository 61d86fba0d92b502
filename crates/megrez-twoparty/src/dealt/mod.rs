//! The blocks of floating point between two workers and a dealer of correlated randomness: no
//! oblivious transfer, few rounds. Three parties, semi-honest, one of them corrupted. Design:
//! `docs/protocols/float-dealer.md`.
//!
//! Values are m − r: the workers know m and hold shares of the mask r, the dealer knows r. A block
//! deals functions of masks, computes shares of its result from these and from m, and opens the
//! result under a fresh mask.
//!
//! Security: `docs/security/float-dealer.md`.

mod blocks;
pub mod costing;
mod digits;
mod form;
mod io;
mod joins;
mod leading;
mod link;
mod lookup;
mod multiply;
mod share;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod views;

pub use link::{DEALER, Dealt};
pub use share::{Bits, Ints};
