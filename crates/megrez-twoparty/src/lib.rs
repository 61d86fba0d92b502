//! Integer arithmetic between two parties who trust nobody else: the blocks of SIRNN (Rathee et
//! al., S&P 2021) and of SECFLOAT's Table I, from oblivious transfer. Party 0 and party 1,
//! semi-honest, no dealer.
//!
//! And the same blocks between two parties who have a dealer of correlated randomness: [`dealt`].
//! Both compute between two, and share the dense bits of messages, clients' shares and test data;
//! what differs is where randomness comes from.
//!
//! Security: `docs/security/secfloat.md`, `docs/security/float-dealer.md`.

mod blocks;
pub mod client;
mod compare;
#[cfg(test)]
mod conformance;
mod convert;
mod cost;
pub mod costing;
mod cot;
pub mod dealt;
mod io;
mod leading;
mod link;
mod lookup;
mod multiply;
pub mod ops;
pub mod ot;
#[cfg(test)]
mod programs;
mod share;
mod sizes;
mod supplier;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod triple;
#[cfg(test)]
mod views;
mod wire;

pub use link::Sirnn;
pub use share::{Bits, Ints};
pub use supplier::Supplier;
