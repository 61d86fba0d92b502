//! The concurrent single list on MIZAR's sharing (MIZAR, Remark 1), to compare its costs: the bit list's predecessor, whose entries are
//! w_i·(t_i·(1 − β_i) + β_i).
//!
//! The rows are `mizar`'s ([`crate::mizar`]); what differs is the list ([`Baseline::Concurrent`]), which costs 2·λ·log p online.
//! The dealer's view of it is that of `mizar`'s bit list, and so is the security: semi-honest, one corruption.

use crate::mizar::Mizar;
use megrez_kernels::Baseline;

/// The suite.
pub fn suite<W, D>() -> Mizar<W, D> {
    Mizar::with(Some(Baseline::Concurrent))
}
