//! The concurrent single list on MIZAR's sharing (MIZAR, Remark 1), to compare its costs: the bit
//! list's predecessor, whose entries are w_i·(t_i·(1 − β_i) + β_i).
//!
//! The rows are `mizar`'s ([`crate::mizar`]); what differs is the list ([`Baseline::Concurrent`]),
//! which costs 2·λ·log p online. The dealer's view of it is that of `mizar`'s bit list, and so is
//! the security: semi-honest, one corruption.

use crate::mizar::Mizar;
use crate::protocol::{self, Security};
use megrez_kernels::Baseline;

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "concurrent",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted; party 2 deals",
    "mizar with the concurrent single list (MIZAR, Remark 1), for comparison",
)
.with_native_maximum();

/// The suite.
pub fn suite<W, D>() -> Mizar<W, D> {
    Mizar::with(Some(Baseline::Concurrent))
}
