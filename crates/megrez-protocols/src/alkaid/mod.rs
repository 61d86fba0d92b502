//! ALKAID: three equal parties on replicated sharing ([`crate::rss`]), with masked bits.
//! Semi-honest, one corruption.
//!
//! Source: ALKAID (the paper), Fig. 2-10; deviations stand in each file. Linear operations are
//! local. Products, truncation and selection are those of `steps`, common with
//! [`crate::aby3`]. The bits of a value are found by an addition on masked bits with nodes of four,
//! in half of `aby3`'s rounds, and stay masked, so that what they multiply takes one round.
//! Correlated randomness is made before the inputs exist; ring values have no masks, so only bits
//! are ever deferred.
//!
//! Security: `docs/security/replicated.md`.

mod adder;
mod bits;
pub(crate) mod compare;
mod family;
mod nodes;
mod relu;
mod schedule;
mod top;
mod words;

pub use crate::rss::{Data, Masks};
pub use family::{Alkaid, Protocol};

use crate::protocol::{self, Security};
use crate::rss::{Linear, PublicProduct, refuse};
use crate::sharing::{Constant, Noise};
use crate::steps::offloaded::Offloaded;
use crate::steps::product::{Additive, Product};
use crate::steps::truncate::Truncate;
use bits::{And, BitLinear, Select};
use compare::Compare;
use relu::Relu;
use words::{AddBits, FromBits, ToBits};

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "alkaid",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted",
    "ALKAID, corrected, on replicated values",
)
.with_deferred_resharing()
.with_offload()
.with_floats(&crate::protocol::MIZAR_FLOAT)
.with_factors(4);

suite_of_steps! { Alkaid, refuse =>
    0 = Constant,
    1 = Linear,
    2 = BitLinear,
    3 = PublicProduct,
    4 = Product,
    5 = Additive,
    6 = Truncate,
    7 = Compare,
    8 = Relu,
    9 = Offloaded,
    10 = Select,
    11 = And,
    12 = ToBits,
    13 = AddBits,
    14 = FromBits,
    15 = Noise,
}
