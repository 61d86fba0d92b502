//! Mutants made by machine: a protocol whose randomness is weakened in one place, which a check of
//! masks must notice.
//!
//! The probe on every stream knows its phase, step, scope and purpose. For each stream of a walk:
//! it gives zeros; it is the stream of another address of the same size; it gives one value for all
//! elements; it gives the same values for both halves, for all thirds, … of its elements
//! (thresholds, pairs, branches); it gives the same values in every run of a session. A mutant
//! is *killed* if the checker names an unmasked message, and *harmless* if a reason on the list
//! below says why no view depends on what was weakened. Any other survivor is a hole: in the
//! protocol's proof, or in the checker.

use crate::cases::Case;
use crate::masks::{WalkError, hides, streams_of};
pub use crate::mutation::{Address, Mutation, Stream};

/// All mutations of a case's walk.
///
/// # Errors
/// If the protocol cannot walk the plan.
pub fn mutations(protocol: &str, case: &Case) -> Result<Vec<Mutation>, WalkError> {
    let streams = streams_of(protocol, &case.plan, case.options())?;
    let mut mutations = vec![];
    // What nobody draws from weakens nothing.
    let streams: Vec<Stream> = streams.into_iter().filter(|stream| stream.elements > 0).collect();
    for (at, stream) in streams.iter().enumerate() {
        let address = || stream.address.clone();
        mutations.push(Mutation::Zeros(address()));
        // What an input that lasts is shared with is drawn in the first run only.
        if case.runs > 1 && !case.lasting.iter().any(|name| stream.address.place == format!("input/{name}")) {
            mutations.push(Mutation::Again(address()));
        }
        if stream.elements > 1 {
            mutations.push(Mutation::One(address()));
        }
        let parts =
            [2, 3, 6].into_iter().filter(|k| stream.elements.is_multiple_of(*k) && stream.elements > *k);
        mutations.extend(parts.map(|parts| Mutation::Fold(address(), parts)));
        // Another address of the same pair and the same size.
        let alike = |other: &&Stream| {
            other.address.parties == stream.address.parties && other.elements == stream.elements
        };
        mutations.extend(
            streams[..at].iter().filter(alike).map(|other| Mutation::Same(address(), other.address.clone())),
        );
    }
    Ok(mutations)
}

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The checker named an unmasked message.
    Killed,
    /// No view depends on it, for this reason.
    Harmless(&'static str),
    /// Nothing noticed it.
    Survived,
}

/// Runs a mutant.
///
/// # Errors
/// If the protocol cannot walk the plan.
pub fn fate(protocol: &str, case: &Case, mutation: &Mutation) -> Result<Fate, WalkError> {
    if !hides(protocol, &case.plan, case.options(), mutation.clone())? {
        return Ok(Fate::Killed);
    }
    Ok(harmless(protocol, mutation).map_or(Fate::Survived, Fate::Harmless))
}

/// Why a mutation that no view shows is harmless, where it is: one of the streams that it weakens
/// hides nothing that is not known.
fn harmless(protocol: &str, mutation: &Mutation) -> Option<&'static str> {
    match mutation {
        Mutation::Zeros(a) | Mutation::One(a) | Mutation::Fold(a, _) | Mutation::Again(a) => {
            redundant(protocol, a)
        }
        Mutation::Same(a, b) => redundant(protocol, a).or_else(|| redundant(protocol, b)),
    }
}

/// Why no view depends on a stream.
fn redundant(protocol: &str, stream: &Address) -> Option<&'static str> {
    let of_open = || stream.place.ends_with("/open") && stream.purpose == "mask";
    match (stream.phase.as_str(), stream.purpose.as_str(), stream.parties) {
        ("Output", "zero", _) if protocol != "bicoptor" => Some(
            "an output's shares follow from its value and the recipient's own share, since the sharing is tight \
             (docs/security/composition.md): the sharing of zero is a second lock",
        ),
        (_, "level0", [0, 2]) => Some(
            "P2's summand of a product of a bit of P0 and P1 with one of its own is zero, so P1 is sent the mask alone",
        ),
        (_, _, [0, 1]) if of_open() => Some(
            "a sum that is opened to P0 and P1 alone shows them M = m + ψ_1, and ψ_1 is theirs \
             (docs/security/meteor.md)",
        ),
        (_, "zero", [0, 1]) if stream.place.ends_with("/renewed") => Some(
            "no message carries it: it makes what a cut loses a coin, and the test \
             `what_a_cut_loses_is_a_coin_and_no_function_of_earlier_shares` fails without it",
        ),
        _ => None,
    }
}
