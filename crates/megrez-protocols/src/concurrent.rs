//! The concurrent single list on MIZAR's sharing (MIZAR, Remark 1), to compare its costs: the bit
//! list's predecessor, whose entries are v_i = w_i·(t_i·(1 − β_i) + β_i), 0 iff t_i = β_i = 0.
//!
//! The rows are `mizar`'s ([`crate::mizar`]), and so are t_i and β_i, always of bits. The list
//! costs 2·λ·log p online, with p above λ − 1, which no entry before w_i exceeds; it is made on the
//! host, whatever the device. The dealer's view of it is that of `mizar`'s bit list, and so is the
//! security: semi-honest, one corruption.

use crate::mizar::{Lists, Mizar, SignList};
use crate::protocol::{self, Security};
use megrez_kernels::{Field, ListAlgebra, ListInput, ListSpec};
use megrez_plan::SignBit;
use megrez_ring::Prime;

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "concurrent",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted; party 2 deals",
    "mizar with the concurrent single list (MIZAR, Remark 1), for comparison",
)
.with_native_maximum()
.with_truncating_selection()
.with_truncating_products()
.with_resharing()
.with_bit_matrices()
.with_lookup();

/// The suite.
pub fn suite<W, D>() -> Mizar<W, D> {
    Mizar::with(Lists(|sign, ring| {
        let list = SignList(spec(sign, ring));
        (list.clone(), Box::new(SingleList(list)))
    }))
}

/// Bits, whatever list is asked for, in the smallest field that fits.
pub fn spec(sign: &SignBit, ring: u32) -> ListSpec {
    ListSpec { prime: Prime::above(sign.width(ring) - 1), ..crate::aegis::spec(sign, ring) }
}

/// The list v.
pub(crate) struct SingleList(pub SignList);

impl ListAlgebra for SingleList {
    fn field(&self) -> Field {
        self.0.field()
    }
    fn length(&self) -> usize {
        self.0.length()
    }
    fn dealt(&self) -> usize {
        self.0.dealt()
    }
    fn deal(&self, r: u64, secret: &mut dyn FnMut(u64)) -> u64 {
        self.0.deal(r, secret)
    }
    fn entries(&self, worker: &ListInput<'_>, entry: &mut dyn FnMut(i64)) {
        let (first, w) = (i64::from(worker.j == 0), worker.multipliers);
        self.0.first_differences(worker, |i, t, beta| {
            entry(w[i] * (t * (1 - beta) + first * beta));
        });
    }
}
