//! The engine: walks a plan with a protocol.
//!
//! [`check`] says beforehand what a protocol lacks and what everything costs; [`offline`] makes a
//! plan's correlated randomness, which [`store`] can keep; [`online`] consumes it. [`serve`] is one
//! party's whole run with its clients, [`local`] runs all parties of a session inside one process.

pub mod client;
mod clients;
mod cost;
pub mod faults;
pub mod files;
pub mod float;
mod hash;
mod inputs;
pub mod local;
mod memory;
mod report;
mod serve;
mod steps;
pub mod store;
mod streamed;
mod walk;
mod waves;

pub use clients::Clients;
pub use cost::{PlanCost, StepCost, Unsupported, check};
pub use hash::hash;
pub use inputs::{Arrivals, Stored};
pub use report::{PartyReport, PhaseReport, StepReport, peak_rss_mib};
pub use serve::{
    Options, Turn, agree, agree_or, all_say, common_name, derive, run_again, serve, serve_from, told_by_first,
};
pub use streamed::{AHEAD_BYTES, Made, may_stream};
pub use walk::{Prepared, Values, offline, online};
