//! MIZAR: three parties, one of them a dealer, on masked sharing ([`crate::mss`]). Semi-honest, one
//! corruption.
//!
//! Sources: MIZAR (the paper), §2.2 for products, Fig. 4 for the sign bit; deviations stand in each
//! file. Linear operations are local: workers apply them to m and to their share of r, the dealer
//! to both shares of r.
//!
//! Security: `docs/security/mizar.md`.

mod bits;
mod digit_tables;
mod family;
mod half_tree;
mod halves;
mod key;
mod list;
mod lookup;
mod many;
mod maximum;
mod nodes;
mod polynomials;
mod product;
mod relu;
mod select;
mod sign;
mod tree;
pub(crate) mod truncate;
mod truncated_product;
mod winner;

pub use crate::mss::{Data, Masks};
pub use family::Mizar;
pub use list::{Lists, SignList};

use crate::mss::{BitLinear, Linear, LowBit, PublicProduct, Reshare};
use crate::protocol::{self, Security};
use crate::sharing::{Constant, Noise};
use crate::{Call, Unsupported, local};
use bits::{And, BitToRing};
use lookup::Lookup;
use many::CompareMany;
use maximum::Maximum;
use polynomials::Polynomials;
use product::Product;
use relu::Relu;
use select::Select;
use sign::Sign;
use tree::SignTree;
use truncate::Truncate;
use truncated_product::TruncatedProduct;
use winner::Winner;

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "mizar",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted; party 2 deals",
    "MIZAR, corrected",
)
.with_native_maximum()
.with_truncating_selection()
.with_truncating_products()
.with_resharing()
.with_bit_matrices()
.with_lookup()
.with_floats(&crate::protocol::MIZAR_FLOAT);

suite_of_steps! { Mizar, refuse =>
    0 = Constant,
    1 = Linear,
    2 = BitLinear,
    3 = PublicProduct,
    4 = Product,
    19 = SignTree,
    6 = Sign,
    7 = CompareMany,
    8 = Relu,
    9 = Maximum,
    10 = Select,
    11 = BitToRing,
    12 = And,
    13 = Lookup,
    14 = Winner,
    15 = Noise,
    16 = TruncatedProduct,
    // 5 opened the whole word.
    17 = Truncate,
    18 = Reshare,
    20 = LowBit,
    21 = Polynomials,
}

fn refuse(call: Call<'_>) -> Unsupported {
    local::refuse("mizar", call)
}
