//! METEOR: three equal parties on masked replicated sharing ([`crate::mrss`]). Semi-honest, one
//! corruption.
//!
//! Source: METEOR (the paper), §4 and the appendices; deviations stand in each file. Linear
//! operations are local, on m and on both components of ψ. All masks are fresh or follow from masks
//! known offline, so nothing is ever deferred.
//!
//! Security: `docs/security/meteor.md`.

mod adder;
mod addition;
mod bits;
mod compare;
mod gates;
mod many;
pub mod printed;
mod product;
mod relu;
mod select;
mod sign;
mod sum;
mod truncate;
mod words;

pub use crate::mrss::{Data, Masks};
pub(crate) use compare::Comparison;

use crate::mrss::{BitLinear, Linear, MaskedReplicated, PublicProduct};
use crate::protocol::{self, Security};
use crate::sharing::{Constant, Noise};
use crate::{Call, Unsupported, local};
use steps::{AddBits, Additive, And, BitToRing, FromBits, Many, Product, Select, ToBits, Truncate};

/// The steps of this protocol that others on the same sharing take; those that compare do it in any
/// way.
pub(crate) mod steps {
    pub use super::bits::And;
    pub use super::compare::Compare as Comparing;
    pub use super::many::Many;
    pub use super::product::Product;
    pub use super::relu::Relu as WithRelu;
    pub use super::select::{BitToRing, Select};
    pub use super::sum::Additive;
    pub use super::truncate::Truncate;
    pub use super::words::{AddBits, FromBits, ToBits};
}

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "meteor",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted",
    "METEOR, corrected, with exact truncation and carries of digits",
)
.with_deferred_resharing()
.with_factors(4);

/// Tells this protocol from others on the same sharing.
#[derive(Clone, Copy, Default)]
pub struct Protocol;

/// The suite on the ring of `W` and device `D`.
pub type Meteor<W, D> = MaskedReplicated<W, D, Protocol>;

type Compare<'a> = compare::Compare<'a, sign::Comparison>;
type Relu<'a> = relu::Relu<'a, sign::Comparison>;

suite_of_steps! { Meteor, refuse =>
    0 = Constant,
    1 = Linear,
    2 = BitLinear,
    3 = PublicProduct,
    4 = Product,
    5 = Many,
    6 = Additive,
    7 = Truncate,
    8 = Compare,
    9 = Relu,
    10 = Select,
    11 = BitToRing,
    12 = And,
    13 = ToBits,
    14 = AddBits,
    15 = FromBits,
    16 = Noise,
}

fn refuse(call: Call<'_>) -> Unsupported {
    local::refuse(PROTOCOL.name, call)
}
