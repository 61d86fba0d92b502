//! Aegis's comparison on MIZAR's sharing (MIZAR, Fig. 3), to compare its costs: two lists for a
//! sign bit in place of one.
//!
//! The rows are `mizar`'s ([`crate::mizar`]); what differs is the list ([`Baseline::Aegis`]), which
//! costs 4·λ·log p online.
//!
//! It is *not secure*: both lists together tell the dealer how many entries of the value's bit list
//! are ones. It runs only where the caller says `insecure`.

use crate::mizar::Mizar;
use crate::protocol::{self, Security};
use megrez_kernels::Baseline;

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "aegis",
    Security::None,
    "none against party 2: its two lists tell the dealer about the values compared",
    "mizar with Aegis's two lists (MIZAR, Fig. 3), for comparison of costs",
)
.with_native_maximum();

/// The suite.
pub fn suite<W, D>() -> Mizar<W, D> {
    Mizar::with(Some(Baseline::Aegis))
}
