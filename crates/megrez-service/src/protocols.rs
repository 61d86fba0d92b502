//! The protocols by name: those on a ring, which the registry of `megrez-protocols` lists, and
//! floating point.

use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{PlanCost, check};
use megrez_plan::Plan;
use megrez_protocols::Suite;
use megrez_protocols::registry::{self, Protocol};

/// Floating point between two parties, which is no protocol on a ring: what users are told of it.
pub const SECFLOAT: Protocol = Protocol {
    name: "secfloat",
    parties: 2,
    security: "semi-honest, one of two parties corrupted; no dealer, oblivious transfer from Diffie-Hellman on Ristretto",
    source: "SECFLOAT on SIRNN's blocks, corrected; single precision, correctly rounded",
    insecure: false,
    sums: false,
    factors: 2,
};

/// All protocols, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static Protocol> {
    registry::PROTOCOLS.iter().chain([&SECFLOAT])
}

/// The protocol of this name.
pub fn find(name: &str) -> Result<&'static Protocol> {
    all().find(|protocol| protocol.name == name).ok_or_else(|| unknown(name))
}

pub(crate) fn unknown(name: &str) -> Error {
    Error::Refused(format!("there is no protocol `{name}`; `megrez protocols` lists them"))
}

/// The exact cost of a plan, or all steps that the protocol lacks.
pub fn price(protocol: &str, plan: &Plan) -> Result<PlanCost> {
    struct Price<'a>(&'a Plan);
    impl registry::Visitor<AnyDevice> for Price<'_> {
        type Output = Result<PlanCost>;
        fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
            check(&suite, self.0).map_err(|e| Error::of(ErrorKind::Unsupported, e))
        }
    }
    registry::dispatch(protocol, plan.ring, Price(plan)).ok_or_else(|| {
        Error::of(ErrorKind::Unsupported, format!("`{protocol}` has no ring of {} bits", plan.ring))
    })?
}

/// Whether a protocol computes in floating point.
pub fn is_float(protocol: &str) -> bool {
    protocol == SECFLOAT.name
}
