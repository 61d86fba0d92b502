//! Symbolic masks: a plan is walked by the very code of a protocol, on a device that computes with
//! symbols. Streams yield labels, and every message becomes a linear form in labels plus a rest.
//! [`examine`] then shows for every party, and for every party that is also an owner or a
//! recipient, that what it sees is jointly masked, or names the message that is not.
//!
//! What is assumed: that streams are uniform and independent (ledger and keys see to it); lemmas
//! for lists and tables, which are counted in the report and proved in `docs/security/`; that a
//! rest depends on no label but those it is registered with (the device's rules).

mod check;
mod deps;
mod device;
mod form;
mod rests;
mod session;
mod world;

pub use check::{Observer, Unmasked};
pub use session::WalkError;

use crate::mutation::{Mutation, Stream};
use megrez_engine::Options;
use megrez_plan::{KEPT, Plan};
use std::collections::{BTreeMap, BTreeSet};

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
    examine_runs(protocol, plan, Options::default())
}

/// As [`examine`], of a session of several runs.
///
/// # Errors
/// As those of [`examine`].
pub fn examine_runs(protocol: &str, plan: &Plan, options: Options<'_>) -> Result<Report, WalkError> {
    report(protocol, std::slice::from_ref(plan), options)
}

/// As [`examine`], of plans that one client has run one after the other, each reading what those
/// before it have kept: the tokens of a text.
///
/// # Errors
/// As those of [`examine`].
pub fn examine_plans(protocol: &str, plans: &[Plan]) -> Result<Report, WalkError> {
    report(protocol, plans, Options::default())
}

/// Whether every view of a protocol whose randomness is weakened is masked: no view is looked at
/// after one that is not.
pub(crate) fn hides(
    protocol: &str,
    plan: &Plan,
    options: Options<'_>,
    mutation: Mutation,
) -> Result<bool, WalkError> {
    let plans = std::slice::from_ref(plan);
    let world = session::walk(protocol, plans, options, Some(mutation))?;
    let state = &*world.state();
    let masked = |observer: &Observer| check::view(state, observer).unmasked.is_empty();
    Ok(state.trouble.is_empty() && observers(plans).iter().all(masked))
}

fn report(protocol: &str, plans: &[Plan], options: Options<'_>) -> Result<Report, WalkError> {
    let world = session::walk(protocol, plans, options, None)?;
    let state = &*world.state();
    let mut report =
        Report { messages: state.messages.len(), trouble: state.trouble.clone(), ..Report::default() };
    // Views are examined on both cores.
    let observers = observers(plans);
    let examined: Vec<_> = std::thread::scope(|scope| {
        let halves = observers.chunks(observers.len().div_ceil(2));
        let parts: Vec<_> = halves
            .map(|half| scope.spawn(|| half.iter().map(|o| check::view(state, o)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("a check does not panic")).collect()
    });
    for counted in examined {
        report.views += 1;
        report.rows += counted.rows;
        counted.lemmas.into_iter().for_each(|(lemma, n)| *report.lemmas.entry(lemma).or_default() += n);
        report.unmasked.extend(counted.unmasked);
    }
    Ok(report)
}

/// The streams of a plan's walk, in a fixed order.
pub(crate) fn streams_of(
    protocol: &str,
    plan: &Plan,
    options: Options<'_>,
) -> Result<Vec<Stream>, WalkError> {
    let world = session::walk(protocol, std::slice::from_ref(plan), options, None)?;
    let state = world.state();
    let streams = state
        .draws
        .iter()
        .filter_map(|draw| Some(Stream { address: draw.address.clone()?, elements: draw.elements }));
    let mut streams: Vec<Stream> = streams.collect();
    // Every run draws anew at the same address.
    streams.sort_by(|a, b| a.address.cmp(&b.address));
    streams.dedup_by(|a, b| a.address == b.address);
    Ok(streams)
}

/// Parties, clients, and parties that are clients.
fn observers(plans: &[Plan]) -> Vec<Observer> {
    let owners = plans.iter().flat_map(|plan| &plan.inputs).map(|i| &i.owner);
    let recipients = plans.iter().flat_map(|plan| &plan.outputs).map(|o| &o.recipient);
    let clients: BTreeSet<&String> = owners.chain(recipients).filter(|name| *name != KEPT).collect();
    let clients: Vec<Option<String>> = clients.into_iter().cloned().map(Some).chain([None]).collect();
    let parties = [Some(0), Some(1), Some(2), None];
    let pairs = parties.into_iter().flat_map(|party| clients.iter().map(move |client| (party, client)));
    let known = pairs.filter(|(party, client)| party.is_some() || client.is_some());
    known.map(|(party, client)| Observer { party, client: client.clone() }).collect()
}
