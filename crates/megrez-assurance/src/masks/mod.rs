//! Symbolic masks: a plan is walked by the very code of a protocol, on a device that computes with symbols. Streams yield labels, and
//! every message becomes a linear form in labels plus a rest. [`examine`] then shows for every party, and for every party that is
//! also an owner or a recipient, that what it sees is jointly masked, or names the message that is not.
//!
//! What is assumed: that streams are uniform and independent (ledger and keys see to it); lemmas for lists and tables, which are counted
//! in the report and proved in `docs/security/`; that a rest depends on no label but those it is registered with (the device's rules).

mod check;
mod device;
mod form;
mod session;
mod world;

pub use check::{Observer, Unmasked};
pub use session::WalkError;

use megrez_plan::{KEPT, Plan};
use std::collections::{BTreeMap, BTreeSet};
use world::Change;

/// What was found of a plan under a protocol.
#[derive(Debug, Default)]
pub struct Report {
    /// Messages between parties and to clients.
    pub messages: usize,
    /// Views: a party, or a party and a client, or a client.
    pub views: usize,
    /// Runs of elements of one form, over all views.
    pub rows: usize,
    /// How often each lemma was used.
    pub lemmas: BTreeMap<&'static str, usize>,
    /// Messages that are not masked.
    pub unmasked: Vec<Unmasked>,
    /// What the machine could not follow; nothing is shown then.
    pub trouble: Vec<String>,
}

impl Report {
    /// Whether every message of every view is masked.
    pub fn is_masked(&self) -> bool {
        self.unmasked.is_empty() && self.trouble.is_empty()
    }
}

/// Examines every view of a plan under a protocol of three parties.
///
/// # Errors
/// If the protocol lacks a step of the plan, or does not exist.
pub fn examine(protocol: &str, plan: &Plan) -> Result<Report, WalkError> {
    examine_changed(protocol, plan, None)
}

fn examine_changed(
    protocol: &str,
    plan: &Plan,
    change: Option<Box<dyn Change>>,
) -> Result<Report, WalkError> {
    let world = session::walk(protocol, plan, change)?;
    let mut report = Report::default();
    {
        let state = world.state();
        report.messages = state.messages.len();
        report.trouble.clone_from(&state.trouble);
    }
    for observer in observers(plan) {
        let counted = check::view(&world, &observer);
        report.views += 1;
        report.rows += counted.rows;
        counted.lemmas.into_iter().for_each(|(lemma, n)| *report.lemmas.entry(lemma).or_default() += n);
        report.unmasked.extend(counted.unmasked);
    }
    Ok(report)
}

/// Parties, clients, and parties that are clients.
fn observers(plan: &Plan) -> Vec<Observer> {
    let owners = plan.inputs.iter().map(|i| &i.owner);
    let clients: BTreeSet<&String> =
        owners.chain(plan.outputs.iter().map(|o| &o.recipient)).filter(|name| *name != KEPT).collect();
    let clients: Vec<Option<String>> = clients.into_iter().cloned().map(Some).chain([None]).collect();
    let parties = [Some(0), Some(1), Some(2), None];
    let pairs = parties.into_iter().flat_map(|party| clients.iter().map(move |client| (party, client)));
    let known = pairs.filter(|(party, client)| party.is_some() || client.is_some());
    known.map(|(party, client)| Observer { party, client: client.clone() }).collect()
}
