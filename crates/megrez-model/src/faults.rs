//! `megrez check --faults`: whether a party notices every bit that flips of what it keeps between
//! sessions.

use crate::fixed::FixedModel;
use megrez_engine::faults::{self, Faults};
use megrez_service::Result;
use serde_json::{Value, json};

/// How many bits of each thing are flipped.
const FLIPS: usize = 64;

/// Flips bits of all that the parties keep of a model: weights and results in shares, and the
/// randomness that is made ahead for its plan.
///
/// # Errors
/// If the protocol cannot run the plan.
pub fn examine(protocol: &str, model: &FixedModel) -> Result<Faults> {
    megrez_service::protocols::faults(protocol, &model.compiled.plan, FLIPS)
}

/// What is kept, by name.
fn parts(found: &Faults) -> [(&'static str, faults::Tried); 3] {
    [
        ("inputs kept in shares", found.inputs),
        ("outputs kept in shares", found.outputs),
        ("correlated randomness made ahead", found.material),
    ]
}

/// Whether all flips were noticed.
pub fn is_right(found: &Faults) -> bool {
    parts(found).iter().all(|(_, tried)| tried.missed == 0)
}

/// What is said of it, for people.
pub fn text(protocol: &str, found: &Faults) -> String {
    let line = |(what, tried): (&str, faults::Tried)| {
        let refused = tried.flips - tried.missed;
        format!("{what}: {refused} of {} flipped bits refused under {protocol}\n", tried.flips)
    };
    parts(found).into_iter().map(line).collect()
}

/// The same for programs: `megrez.faults/1`.
pub fn json(protocol: &str, found: &Faults) -> Value {
    let of = |tried: faults::Tried| json!({ "flips": tried.flips, "missed": tried.missed });
    json!({
        "schema": "megrez.faults/1", "protocol": protocol, "noticed": is_right(found),
        "inputs": of(found.inputs), "outputs": of(found.outputs), "material": of(found.material),
    })
}
