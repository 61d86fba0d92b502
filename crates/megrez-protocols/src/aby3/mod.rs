//! ABY3: three equal parties on replicated sharing ([`crate::rss`]). Semi-honest, one corruption.
//! No offline phase, no masks.
//!
//! Source: ABY3 (the paper), §3.2 and §5; deviations stand in each file. Linear operations are
//! local. Products, truncation and selection are those of `steps`, common with
//! [`crate::alkaid`]. The bits of a value are found by an addition on Boolean replicated shares
//! with a tree of pairs, above digits of four positions where only the top bit is wanted; bits are
//! replicated.
//!
//! Security: `docs/security/replicated.md`.

pub(crate) mod adder;
mod bits;
pub(crate) mod compare;
mod family;
mod relu;
mod words;

pub use crate::rss::{Data, Masks};
pub use family::{Aby3, TopBit};

use crate::falcon::{Compare as CompareOpened, Relu as ReluOpened};
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
    "aby3",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted",
    "ABY3, with exact truncation",
)
.without_offline_phase()
.with_deferred_resharing()
.with_offload()
.with_floats(&crate::protocol::MIZAR_FLOAT)
.with_factors(4);

suite_of_steps! { Aby3, refuse =>
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
    15 = CompareOpened,
    16 = ReluOpened,
    17 = Noise,
}
