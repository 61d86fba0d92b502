//! The party service: serves clients and takes part in sessions, several at a time; each may fail
//! without the others.

pub mod admin;
mod admission;
mod asked;
pub(crate) mod capacity;
mod chosen;
mod clients;
mod connections;
mod console;
mod float;
mod holdings;
mod host;
mod jobs;
mod joint;
mod kept;
mod meetings;
mod metrics;
mod models;
mod opened;
mod operator;
mod recent;
mod rights;
mod sealed;
mod service;
mod settings;
mod state;
mod stock;
mod stored;
mod traces;
mod training;
mod upkeep;
mod uses;

pub use capacity::Capacity;
pub use host::{Policy, limits, writable};
pub use models::Models;
pub use opened::check_models;
pub use rights::{Grant, Right, Rights};
pub use service::Service;
pub use settings::Settings;
pub use traces::TraceConfig;
pub use upkeep::RENEW_DAYS;
