//! Exact views: every operation in every form under every protocol, on rings of 2 to 5 bits, with
//! everything that a party does not know enumerated. What the party sees must be distributed the
//! same for all secrets that it may not tell apart: by counting.
//!
//! A session runs on *lanes* ([`draws`]): a tensor's element in each of them is an execution with
//! its own secret and its own randomness. The parties are the real ones, from the plan to the
//! messages; only the device is another ([`device`]): what it draws comes from the number of the
//! lane. What a party sees is the draws that it holds, its data and the messages to it
//! ([`session`]). Its own draws are fixed to values of which there are several blocks; masks that
//! only shift the view are taken out by algebra ([`cosets`]); all else is enumerated, and the
//! multisets of views are compared ([`judge`]).
//!
//! *What rests on more than counting.* Pads are found by trying: on some hundred random executions,
//! adding one to the variable must add the same to the view whatever all pads are; one that only
//! looks like a pad scatters the cosets, since pads are random in every execution that is compared,
//! and so makes an alarm, not a silence. A party's own draws are those of a few blocks, not all.
//! Where not all secrets fit, some of them are compared; where not even two do, the row says
//! [`Verdict::TooLarge`] and shows nothing: so it is with the helper's lists of `bicoptor`, which
//! the unit tests of its sign enumerate by the places of their zeros. A verdict of
//! [`Verdict::Unclear`] is neither: more room (`Limits::block`) decides it.

mod bench;
pub mod cases;
mod compare;
pub mod cosets;
pub mod device;
pub mod draws;
pub mod judge;
pub mod session;
pub mod word;

pub use cases::{Case, all_cases};
pub use draws::{Kind, Mutation};
pub use judge::{Finding, Limits, Role, Verdict};

use megrez_protocols::registry::PROTOCOLS;
use std::time::Instant;

/// One line of the table: a case under a protocol, seen by one party in one role.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The protocol.
    pub protocol: &'static str,
    /// The operation.
    pub op: &'static str,
    /// Its form.
    pub form: String,
    /// ℓ.
    pub ring: u32,
    /// The party.
    pub party: usize,
    /// What was found.
    pub finding: Finding,
    /// How long it took, all roles of the party together.
    pub seconds: f64,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Finding { role, lanes, secrets, enumerated, pads, verdict, .. } = &self.finding;
        write!(
            f,
            "{:<14} {:<12} {:<44} ℓ={} P{} {:<10} {lanes:>8} lanes {secrets:>3} secrets {enumerated:>3} digits {pads:>3} pads {:>6.2} s  {verdict:?}",
            self.protocol,
            self.op,
            self.form,
            self.ring,
            self.party,
            format!("{role:?}"),
            self.seconds
        )
    }
}

/// The protocols that compute on shares, those that are insecure among them.
pub fn protocols() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().filter(|p| p.parties == 3).map(|p| p.name)
}

/// Runs the cases that `wanted` accepts, by protocol and case, and hands every row to `each`.
pub fn run(limits: Limits, wanted: impl Fn(&str, &Case) -> bool, mut each: impl FnMut(&Row)) -> Vec<Row> {
    let cases = all_cases();
    let mut rows = vec![];
    for protocol in protocols() {
        for case in cases.iter().filter(|case| wanted(protocol, case)) {
            let roles: &[Role] = match case.inputs.len() {
                1 => &[Role::Party, Role::Recipient],
                _ => &[Role::Party, Role::Owner, Role::Recipient],
            };
            for party in 0..3 {
                let start = Instant::now();
                let Some(found) = judge::examine(case, protocol, &[party], roles, None, limits) else {
                    break;
                };
                let seconds = start.elapsed().as_secs_f64();
                for (party, finding) in found {
                    let (op, form, ring) = (case.op, case.form.clone(), case.ring);
                    let row = Row { protocol, op, form, ring, party, finding, seconds };
                    each(&row);
                    rows.push(row);
                }
            }
        }
    }
    rows
}

/// The mutations of a case: for every draw of its steps, nothing, another draw of the same size,
/// and one value for several places.
pub fn mutations(case: &Case, protocol: &str) -> Vec<Mutation> {
    let Some(Ok(draws)) = judge::draws(case, protocol) else { return vec![] };
    let mut mutations = vec![];
    for (name, draw) in draws.iter().filter(|(_, draw)| draw.count > 0 && draw.domain > 1) {
        let mut add = |kind| mutations.push(Mutation { draw: name.clone(), kind });
        add(Kind::Zero);
        let alike = draws
            .iter()
            .filter(|(other, of)| *other != name && of.domain == draw.domain && of.count == draw.count);
        alike.for_each(|(other, _)| add(Kind::SameAs(other.clone())));
        let parts = (1..draw.count).filter(|part| draw.count.is_multiple_of(*part));
        parts.for_each(|part| {
            add(Kind::Repeat { period: part });
            if part > 1 {
                add(Kind::Stretch { run: part });
            }
        });
    }
    mutations
}

/// What a mutation of a case does: [`Verdict::Same`] if no party, in no role, can tell secrets
/// apart, the output being right or not.
pub fn survives(case: &Case, protocol: &str, mutation: &Mutation, limits: Limits) -> Option<Verdict> {
    let roles = [Role::Party, Role::Recipient];
    let mut worst = Verdict::Same;
    for party in 0..3 {
        for (_, finding) in judge::examine(case, protocol, &[party], &roles, Some(mutation), limits)? {
            match finding.verdict {
                Verdict::Same => {}
                Verdict::TooLarge(_) | Verdict::Unclear(_) => worst = finding.verdict,
                noticed => return Some(noticed),
            }
        }
    }
    Some(worst)
}
