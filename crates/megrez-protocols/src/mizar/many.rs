//! One value against many public thresholds on MSS. MIZAR, Fig. 5, with the sign bit of this suite.
//!
//! x − t has the masked value m − t and the mask of x, so r, and with it the dealt [ρ] and the dealer's bit s, serve all
//! thresholds. Nothing else is shared: Δ, w, z and the rotation come from streams of the threshold's own scope, and the
//! output mask has a bit of its own per threshold. Deviation from the figure: it says which part is prepared once, not
//! what must be drawn again; each of these leaks if it is reused (the same Δ gives the dealer b_i ⊕ b_j = [x between t_i and
//! t_j], the same z and w the ratio of two lists).
//!
//! phase     rounds  bits per element of x        from → to
//! offline   1       dealt·log p                  dealer → worker 0
//! online    2       t·(2·length·log p + 2)       workers → dealer, dealer → workers
//!
//! with t thresholds, and dealt, length and log p those of the sign bit. All lists are sent before the one answer.
//!
//! Worker sees: what it sees in one comparison, with t uniform bits b_i ⊕ r_i. Dealer sees: t lists, each as in one comparison
//! and independent of the others, because their Δ, w, z and rotations are.
//!
//! Security: `docs/security/mizar.md`.

use super::sign::{self, Dealt, Lists};
use crate::mss::{BitMask, DEALER};
use crate::{Cost, Transfer, Unit};
use megrez_kernels::{Device, Tensor};
use megrez_plan::SignBit;
use megrez_ring::Word;
use megrez_session::{Error, Party, Phase};

pub(super) fn cost(lists: Lists, sign: &SignBit, ring: u32, n: usize, thresholds: usize) -> Cost {
    // One deal, and the lists of all.
    let one = sign::list_cost(lists, sign, ring, n);
    let mut cost = one.clone();
    let online: Vec<Transfer> = one.transfers.into_iter().filter(|t| t.phase == Phase::Online).collect();
    (1..thresholds).for_each(|_| cost.transfers.extend(&online));
    cost.online(2, DEALER, 0, n * thresholds, Unit::Bits(1)).online(
        2,
        DEALER,
        1,
        n * thresholds,
        Unit::Bits(1),
    )
}

/// m of the bits [x ≥ t], threshold by threshold, at the workers; `n` elements of x. `mask` is the output's.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    (lists, sign): (Lists, &SignBit),
    thresholds: &[i64],
    masked: Option<&Tensor<W, D>>,
    n: usize,
    mask: &BitMask<D>,
    dealt: &Dealt<D>,
) -> Result<Option<D::Buf<u64>>, Error> {
    let mut bits = Vec::with_capacity(thresholds.len());
    for (i, &t) in thresholds.iter().enumerate() {
        let shifted = match masked {
            Some(m) => {
                let buf = party.device().combine(&[(W::ONE, &m.buf)], W::from_i64(t).neg(), n)?;
                Some(Tensor::new(m.shape.clone(), buf))
            }
            None => None,
        };
        let compare = |party: &mut Party<D>| sign::compare(party, lists, sign, shifted.as_ref(), n, dealt);
        bits.push(party.scope(&format!("threshold{i}"), compare)?);
    }
    let parts: Vec<_> = bits.iter().map(|b| (b, n)).collect();
    let all = party.device().join_bits(&parts)?;
    sign::answer(party, &all, n * thresholds.len(), mask)
}
