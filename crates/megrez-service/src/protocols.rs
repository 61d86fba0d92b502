//! The protocols of the registry by name, with errors for users.

use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::faults::{Examine, Faults};
use megrez_engine::local::LocalError;
use megrez_engine::{PlanCost, check};
use megrez_plan::Plan;
use megrez_protocols::AnySuite;
use megrez_protocols::registry::{self, Numbers};
pub use megrez_protocols::registry::{FLOAT_PROTOCOLS, MIZAR_FLOAT, Protocol, SECFLOAT, all};

/// A protocol on a ring, on whatever device.
pub(crate) type Suite = dyn AnySuite<AnyDevice>;

/// The suite of this protocol for a plan on this ring. Unit tests of this crate run no session, and
/// so compile none: that was a tenth of what `cargo test` compiles.
#[cfg(not(test))]
pub(crate) fn suite(name: &str, ring: u32) -> Result<Box<Suite>> {
    registry::suite(name, ring).ok_or_else(|| no_ring(name, ring))
}

#[cfg(test)]
pub(crate) fn suite(name: &str, ring: u32) -> Result<Box<Suite>> {
    Err(no_ring(name, ring))
}

/// The protocol of this name.
pub fn find(name: &str) -> Result<&'static Protocol> {
    registry::find_any(name).ok_or_else(|| unknown(name))
}

pub(crate) fn unknown(name: &str) -> Error {
    let meant = near(name, all().map(|protocol| protocol.name));
    let meant = meant.map_or_else(String::new, |meant| format!(" did you mean `{meant}`?"));
    Error::Refused(format!("there is no protocol `{name}`;{meant} `megrez protocols` lists them"))
}

/// The name that was most likely meant, if one is like enough.
pub fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    // A third of the letters may be wrong, or missing.
    let distance = |known: &str| strsim::damerau_levenshtein(&name, known);
    known
        .map(|known| (distance(known), known))
        .filter(|(d, known)| 3 * d <= known.len())
        .min()
        .map(|(_, known)| known)
}

/// Why there is no suite of this name for a plan on this ring.
pub(crate) fn no_ring(name: &str, ring: u32) -> Error {
    let Some(protocol) = registry::find_any(name) else { return unknown(name) };
    let rings: Vec<String> = protocol.rings.iter().map(u32::to_string).collect();
    let what = match protocol.numbers {
        Numbers::Float32 => format!(
            "`{name}` computes in floating point, the plan is on a ring of {ring} bits: compile it for `{name}`"
        ),
        Numbers::Fixed => format!(
            "`{name}` has no ring of {ring} bits, it has rings of {}: compile the plan on one of them",
            rings.join(", ")
        ),
    };
    Error::of(ErrorKind::Unsupported, what)
}

/// The exact cost of a plan, or all steps that the protocol lacks.
pub fn cost(protocol: &str, plan: &Plan) -> Result<PlanCost> {
    check(&*suite(protocol, plan.ring)?, plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))
}

/// How many flipped bits a party notices of what it keeps between sessions, of `flips` of each
/// thing: [`Examine`].
///
/// # Errors
/// If the protocol cannot run the plan.
pub fn faults(protocol: &str, plan: &Plan, flips: usize) -> Result<Faults> {
    let examine = Examine { protocol, plan, most: flips, device: AnyDevice::default() };
    examine.run(&*suite(protocol, plan.ring)?).map_err(|e| {
        let kind = match &e {
            LocalError::Unknown(..) | LocalError::Unsupported(_) => ErrorKind::Unsupported,
            LocalError::Session(_) => ErrorKind::Internal,
        };
        Error::of(kind, e)
    })
}

/// Whether a protocol computes in floating point.
pub fn is_float(protocol: &str) -> bool {
    registry::find_any(protocol).is_some_and(|protocol| protocol.numbers == Numbers::Float32)
}

/// The protocol under which a plan in floating point runs when it is asked for under this one: the
/// protocol itself, or the one that computes floats between the same parties.
///
/// # Errors
/// If there is no such protocol, or it has no floats.
pub fn in_floats(protocol: &str) -> Result<&'static str> {
    let found = find(protocol)?;
    match (found.numbers, found.floats) {
        (Numbers::Float32, _) => Ok(found.name),
        (Numbers::Fixed, Some(floats)) => Ok(floats),
        (Numbers::Fixed, None) => {
            let with: Vec<&str> = all().filter(|p| p.floats.is_some()).map(|p| p.name).collect();
            Err(Error::of(
                ErrorKind::Unsupported,
                format!(
                    "`{protocol}` does not compute in floating point: say --protocol {} (two parties), {} (three, one \
                     deals), or {}, whose floats are the same",
                    SECFLOAT.name,
                    MIZAR_FLOAT.name,
                    with.join(", ")
                ),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_run_between_the_same_parties_or_are_refused() {
        for (asked, runs) in [
            ("mizar", "mizar-float"),
            ("aby3", "mizar-float"),
            ("alkaid", "mizar-float"),
            ("mizar-float", "mizar-float"),
            ("secfloat", "secfloat"),
        ] {
            assert_eq!(in_floats(asked).unwrap(), runs);
            let [asked, runs] = [asked, runs].map(|name| find(name).unwrap());
            assert_eq!((asked.parties, asked.level), (runs.parties, runs.level));
        }
        let said = in_floats("meteor").unwrap_err().to_string();
        assert!(said.contains("secfloat") && said.contains("mizar, aby3, alkaid"), "{said}");
    }

    #[test]
    fn a_ring_that_a_protocol_lacks_is_refused_with_those_that_it_has() {
        let error = cost("mizar", &Plan::new(24)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let words = error.to_string();
        assert!(words.contains("`mizar` has no ring of 24 bits, it has rings of 32, 40, 48, 64"), "{words}");
        assert!(no_ring("secfloat", 64).to_string().contains("computes in floating point"));
        assert!(find("mizzar").unwrap_err().to_string().contains("did you mean `mizar`?"));
        assert!(find("Alkaid_masked").unwrap_err().to_string().contains("did you mean `alkaid-masked`?"));
        assert!(!find("spdz").unwrap_err().to_string().contains("did you mean"));
        assert_eq!(cost("nonsense", &Plan::new(64)).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
