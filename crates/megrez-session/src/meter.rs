//! The meter: payload bytes that this party sent, by phase, step and receiver.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The parts of a session; readings are kept apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Agreement on the plan and on keys.
    Setup,
    /// Correlated randomness, before the inputs exist.
    Offline,
    /// Inputs entering from their owners.
    Input,
    /// The computation on masked inputs.
    Online,
    /// Results leaving to their recipients.
    Output,
}

/// What one party sent in one phase of one step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reading {
    /// The phase.
    pub phase: Phase,
    /// The plan's step.
    pub step: String,
    /// Payload bytes to each party.
    pub sent: Vec<u64>,
    /// Messages to each party.
    pub messages: Vec<u64>,
}

/// Bytes and messages to each party.
type Counts = Vec<(u64, u64)>;

/// Counts what a party sends. Lanes of one party share it.
#[derive(Default)]
pub struct Meter {
    counts: Mutex<BTreeMap<(Phase, String), Counts>>,
}

impl Meter {
    pub(crate) fn count(&self, phase: Phase, step: &str, to: usize, parties: usize, bytes: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let entry = counts.entry((phase, step.to_owned())).or_insert_with(|| vec![(0, 0); parties]);
        entry[to].0 += bytes as u64;
        entry[to].1 += 1;
    }

    /// All readings so far, by phase and step.
    pub fn readings(&self) -> Vec<Reading> {
        let counts = self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let reading = |((phase, step), counts): (&(Phase, String), &Counts)| Reading {
            phase: *phase,
            step: step.clone(),
            sent: counts.iter().map(|c| c.0).collect(),
            messages: counts.iter().map(|c| c.1).collect(),
        };
        counts.iter().map(reading).collect()
    }

    /// Payload bytes sent to each party in a phase, over all steps.
    pub fn total(&self, phase: Phase, parties: usize) -> Vec<u64> {
        let mut total = vec![0; parties];
        for reading in self.readings().iter().filter(|r| r.phase == phase) {
            total.iter_mut().zip(&reading.sent).for_each(|(t, s)| *t += s);
        }
        total
    }

    /// Forgets all readings: a benchmark starts another repetition.
    pub fn reset(&self) {
        self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    }
}
