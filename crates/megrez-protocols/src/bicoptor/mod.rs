//! Improved Bicoptor: additive shares between two workers, and a helper who learns masked lists.
//! Semi-honest, one corruption.
//!
//! Source: Probabilistic truncation (the paper), Alg. 3-7; the deviations stand in each file.
//! Values are shared as in [`crate::sharing::additive`]. Bits are shared as ring elements 0 and 1,
//! as the paper's DReLU gives them: a conversion costs nothing, a logical operation is a product.
//! The sharing is of no use to a dealer, so values have no masks that are known before.
//!
//! Security: `docs/security/bicoptor.md`.

mod family;
mod product;
mod relu;
mod sign;
#[cfg(test)]
mod tests;

pub use crate::sharing::additive::{Data, Masks};
pub use family::{Bicoptor, Protocol};

use crate::protocol::{self, Security};
use crate::sharing::Constant;
use crate::sharing::additive::{Linear, PublicProduct};
use crate::{Call, Unsupported, local};
use megrez_plan::Op;
use product::Product;
use relu::{Relu, Truncate};
use sign::Sign;

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "bicoptor",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted, while values stay in the compared range; party 2 helps",
    "improved Bicoptor (probabilistic truncation), corrected",
)
.on_words();

suite_of_steps! { Bicoptor, refuse =>
    0 = Constant,
    1 = Linear,
    2 = PublicProduct,
    3 = Product,
    4 = Truncate,
    5 = Sign,
    6 = Relu,
}

fn refuse(call: Call<'_>) -> Unsupported {
    match call.op {
        Op::CompareMany { .. } => {
            Unsupported("bicoptor compares with one threshold at a time: subtract it first".into())
        }
        _ => local::refuse("bicoptor", call),
    }
}
