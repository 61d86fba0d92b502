//! ALKAID's comparisons on METEOR's masked values: three equal parties on masked replicated sharing
//! ([`crate::mrss`]). Semi-honest, one corruption.
//!
//! All rows but those of comparisons are `meteor`'s ([`crate::meteor`]). A masked x = a − r has a =
//! m + ψ_1 at P0 and P1 and r = −ψ_2 − ψ_0 at P2, who deals r offline; what follows is `alkaid`'s
//! comparison ([`crate::alkaid`]), whose result is masked, too. 272 + 172 bits for ℓ = 64 where
//! METEOR's sign bit takes 1582 + 117.
//!
//! Security: `docs/security/meteor.md`.

mod compare;

pub use crate::mrss::{Data, Masks};

use crate::meteor::steps::{
    AddBits, Additive, And, BitToRing, Comparing, FromBits, Many, Product, Select, ToBits, Truncate, WithRelu,
};
use crate::mrss::{BitLinear, Linear, MaskedReplicated, PublicProduct};
use crate::protocol::{self, Security};
use crate::sharing::{Constant, Noise};
use crate::{Call, Unsupported, local};

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "alkaid-masked",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted",
    "ALKAID's comparisons, corrected, on METEOR's masked values",
)
.with_deferred_resharing()
.with_factors(4);

/// Tells this protocol from others on the same sharing.
#[derive(Clone, Copy, Default)]
pub struct Protocol;

/// The suite on the ring of `W` and device `D`.
pub type AlkaidMasked<W, D> = MaskedReplicated<W, D, Protocol>;

type Compare<'a> = Comparing<'a, compare::Comparison>;
type Relu<'a> = WithRelu<'a, compare::Comparison>;

suite_of_steps! { AlkaidMasked, refuse =>
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
