//! The protocols of the registry by name, with errors for users.

use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{PlanCost, check};
use megrez_plan::Plan;
use megrez_protocols::Suite;
use megrez_protocols::registry::{self, Numbers, Protocol};
pub use megrez_protocols::registry::{SECFLOAT, all};

/// The protocol of this name.
pub fn find(name: &str) -> Result<&'static Protocol> {
    registry::find_any(name).ok_or_else(|| unknown(name))
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
    registry::find_any(protocol).is_some_and(|protocol| protocol.numbers == Numbers::Float32)
}
