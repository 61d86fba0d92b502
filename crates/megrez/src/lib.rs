//! megrez runs machine-learning models on data that nobody in the computation may see.
//!
//! This crate is the face: the [`party`] service that computes, the [`client`] that owns data or a model, [`embedded`]
//! parties for one machine, and the reports. The `megrez` command is a thin shell over it.

// The command line says `megrez::`, as any other user of this crate.
extern crate self as megrez;

pub mod bench;
pub mod bench_float;
pub mod bench_kernel;
mod bench_layer;
pub mod check;
pub mod cli;
pub mod client;
pub mod config;
pub mod device;
pub mod embedded;
pub mod float;
pub mod float32;
pub mod generate;
pub mod heap;
pub mod infer;
pub mod inference;
pub mod inputs;
mod kept;
pub mod masks;
pub mod memory;
pub mod pair;
pub mod party;
pub mod proximity;
pub mod report;
mod rows;
pub mod secfloat;
pub mod study;
pub mod tables;
pub mod wire;

/// What went wrong, in words for the person who has to mend it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A run failed.
    #[error(transparent)]
    Session(#[from] megrez_session::Error),
    /// The network.
    #[error(transparent)]
    Net(#[from] megrez_net::NetError),
    /// A party refused or failed, in its own words.
    #[error("party {party}: {reason}")]
    Party {
        /// Which party.
        party: usize,
        /// Its words.
        reason: String,
    },
    /// The model.
    #[error("{0}")]
    Model(#[from] megrez_graph::Problems),
    /// A file.
    #[error("{path}: {what}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// Anything else that the caller can mend.
    #[error("{0}")]
    Refused(String),
}

impl From<megrez_graph::Problem> for Error {
    fn from(problem: megrez_graph::Problem) -> Self {
        Error::Model(megrez_graph::Problems(vec![problem]))
    }
}

impl From<megrez_ring::FixedError> for Error {
    fn from(e: megrez_ring::FixedError) -> Self {
        Error::Refused(e.to_string())
    }
}

impl Error {
    /// An error about a file.
    pub fn file(path: &std::path::Path, what: impl std::fmt::Display) -> Self {
        Error::File { path: path.display().to_string(), what: what.to_string() }
    }
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;
