//! What is asked of whoever runs the tapes, and what comes back.

use megrez_float::programs::tape::{Entry, Name};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What to do next.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Request {
    /// Entries with their names, which are new.
    pub tape: Vec<(Name, Entry)>,
    /// The numbers of the tape's inputs, as bits of single precision.
    pub numbers: HashMap<Name, Vec<u32>>,
    /// Values that are used no more.
    pub forget: Vec<Name>,
    /// Values to open, of this tape or earlier ones.
    pub open: Vec<Name>,
    /// Who brings inputs: an input's owner is a place here. Earlier places do not change. Empty
    /// where parties bring them.
    #[serde(default)]
    pub clients: Vec<String>,
    /// The clients who learn what is opened; of no meaning where parties bring inputs.
    #[serde(default)]
    pub to: Vec<String>,
}

/// What was opened, and what the tape cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Numbers as bits of single precision; truth values as 0 and 1. Nothing of what is for other
    /// clients.
    pub opened: Vec<Vec<u32>>,
    /// Of the tape, without opening.
    pub seconds: f64,
    /// Messages on the longest chain.
    pub rounds: u32,
    /// Payload bytes that each party sent, a dealer's included.
    pub sent_bytes: Vec<u64>,
}
