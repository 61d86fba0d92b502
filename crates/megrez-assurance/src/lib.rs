//! Machines that check what the protocols promise about secrets; `docs/assurance.md` says what is
//! shown how, what is assumed and what is not covered.
//!
//! - [`masks`]: whole plans on symbols: every message is masked, jointly.
//! - [`views`]: single steps on tiny rings: everything that a party sees, enumerated.
//! - [`mutants`]: protocols with weakened randomness, which the checks must notice.

pub mod cases;
pub mod masks;
pub mod mutants;
mod mutation;
pub mod plans;
pub mod views;
pub mod zoo;
