//! Parties as a service: what they and their clients say to each other ([`wire`]), the service that
//! computes ([`party`]), the [`client`] who owns data or a model, and both at once on one machine:
//! [`embedded`] parties, which serve as on hosts of their own, and [`pair`]s, which do one job.
//!
//! A [`Backend`] runs a plan on any of them. What is in a plan and where it comes from is none of
//! this crate's business.

pub mod approval;
pub mod audit;
pub mod backend;
pub mod client;
pub mod config;
pub mod embedded;
mod error;
mod failure;
pub mod heap;
pub mod launch;
pub mod log;
pub mod pair;
pub mod party;
mod pattern;
mod plans;
pub mod protocols;
pub mod training;
pub mod wire;

pub use backend::Backend;
pub use error::{Error, ErrorKind, Result};
