//! Aegis's comparison on MIZAR's sharing (MIZAR, Fig. 3), to compare its costs: two lists for a
//! sign bit in place of one, u_i = w_i·t_i + β_i and u'_i = w'_i·(w_i·t_i + 1), under one rotation.
//! The wanted place has u_i = 0 and u'_i ≠ 0.
//!
//! The rows are `mizar`'s ([`crate::mizar`]), and so are t_i and β_i, always of bits. The lists
//! cost 4·λ·log p online; they are made on the host, whatever the device.
//!
//! It is *not secure*: both lists together tell the dealer how many entries of the value's bit list
//! are ones. It runs only where the caller says `insecure`.

use crate::mizar::{Lists, Mizar, SignList};
use crate::protocol::{self, Security};
use megrez_kernels::{Field, ListAlgebra, ListInput, ListSpec};
use megrez_plan::{List, SignBit};

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "aegis",
    Security::None,
    "none against party 2: its two lists tell the dealer about the values compared",
    "mizar with Aegis's two lists (MIZAR, Fig. 3), for comparison of costs",
)
.with_native_maximum()
.with_lookup();

/// The suite.
pub fn suite<W, D>() -> Mizar<W, D> {
    Mizar::with(Lists(|sign, ring| {
        let list = SignList(spec(sign, ring));
        (list.clone(), Box::new(TwoLists(list)))
    }))
}

/// Bits, whatever list is asked for.
pub(crate) fn spec(sign: &SignBit, ring: u32) -> ListSpec {
    ListSpec::new(&SignBit { list: List::Bits, ..sign.clone() }, ring)
}

/// The lists u and u'.
pub(crate) struct TwoLists(pub SignList);

impl ListAlgebra for TwoLists {
    fn field(&self) -> Field {
        self.0.field()
    }
    fn length(&self) -> usize {
        self.0.length()
    }
    fn lists(&self) -> usize {
        2
    }
    fn dealt(&self) -> usize {
        self.0.dealt()
    }
    fn deal(&self, r: u64, secret: &mut dyn FnMut(u64)) -> u64 {
        self.0.deal(r, secret)
    }
    fn entries(&self, worker: &ListInput<'_>, entry: &mut dyn FnMut(i64)) {
        let first = i64::from(worker.j == 0);
        let (w, w_second) = worker.multipliers.split_at(self.length());
        self.0.first_differences(worker, |i, t, beta| {
            entry(w[i] * t + first * beta);
            entry(w_second[i] * (w[i] * t + first));
        });
    }
    fn is_wanted(&self, entries: &[u32]) -> bool {
        (entries[0] == 0) & (entries[1] != 0)
    }
}
