//! One value against many public thresholds on MSS. MIZAR, Fig. 5, with the sign bit of this suite.
//!
//! x − t has the masked value m − t and the mask of x, so r, and with it the dealt [ρ] and the
//! dealer's bit s, serve all thresholds. Nothing else is shared: Δ, w, z and the rotation come from
//! streams of the threshold's own scope, and the output mask has a bit of its own per threshold.
//! Deviation from the figure: it says which part is prepared once, not what must be drawn again;
//! each of these leaks if it is reused (the same Δ gives the dealer b_i ⊕ b_j = [x between t_i and
//! t_j], the same z and w the ratio of two lists).
//!
//! phase     rounds  bits per element of x        from → to
//! offline   1       dealt·log p                  dealer → worker 0
//! online    2       t·(2·length·log p + 2)       workers → dealer, dealer → workers
//!
//! with t thresholds, and dealt, length and log p those of the sign bit. All lists are sent before
//! the one answer.
//!
//! Worker sees: what it sees in one comparison, with t uniform bits b_i ⊕ r_i. Dealer sees: t
//! lists, each as in one comparison and independent of the others, because their Δ, w, z and
//! rotations are.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::list::Lists;
use super::sign::{self, Dealt, List};
use crate::mss::{Data, Masks};
use crate::{Call, Cost, Made, Operands, Step, Transfer, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::{Op, SignBit};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The bits [x ≥ t].
pub struct CompareMany<'a> {
    lists: Lists,
    sign: &'a SignBit,
    thresholds: &'a [i64],
    shape: &'a Shape,
}

impl CompareMany<'_> {
    /// Elements of x.
    fn n(&self) -> usize {
        self.shape.elements() / self.thresholds.len()
    }

    fn list(&self, ring: u32) -> List {
        List::new(self.lists, self.sign, ring, self.n())
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for CompareMany<'a> {
    type Material = Dealt<D>;

    fn of(suite: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::CompareMany { sign, thresholds } = call.op else { return None };
        Some(CompareMany { lists: suite.variant, sign, thresholds, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        // One deal, and the lists of all.
        let one = self.list(W::BITS).cost();
        let mut cost = one.clone();
        let online: Vec<Transfer> = one.transfers.into_iter().filter(|t| t.phase == Phase::Online).collect();
        (1..self.thresholds.len()).for_each(|_| cost.transfers.extend(&online));
        Ok(sign::answer_cost(cost, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        self.list(W::BITS).deal(party, inputs[0].ring())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (n, list) = (self.n(), self.list(W::BITS));
        let mut bits = Vec::with_capacity(self.thresholds.len());
        for (i, &t) in self.thresholds.iter().enumerate() {
            let shifted = match operands.masked(0) {
                Some(m) => {
                    let buf = party.device().combine(&[(W::ONE, &m.buf)], W::from_i64(t).neg(), n)?;
                    Some(Tensor::new(m.shape.clone(), buf))
                }
                None => None,
            };
            let compare = |party: &mut Party<D>| list.compare(party, shifted.as_ref(), &dealt);
            bits.push(party.scope(&format!("threshold{i}"), compare)?);
        }
        let parts: Vec<_> = bits.iter().map(|b| (b, n)).collect();
        let all = party.device().join_bits(&parts)?;
        let m = sign::answer(party, &all, self.shape.elements(), operands.fresh_bits())?;
        Ok((Data::of_bits(self.shape, m), None))
    }
}
