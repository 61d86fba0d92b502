//! The party service: serves clients and takes part in sessions, several at a time; each may fail
//! without the others.

mod asked;
mod clients;
mod float;
mod host;
mod jobs;
mod kept;
mod service;
mod stored;

pub use host::{Policy, limits};
pub use service::Service;
