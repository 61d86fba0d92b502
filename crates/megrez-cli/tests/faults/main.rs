//! Faults: what is damaged, stale, mismatched or sent by somebody who deviates gives an error that says who and what, at once
//! and at every party, and never a number.
#![cfg(unix)]

mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod generated;
mod material;
mod stored;
