//! Values by their bits on MRSS: the bits of a ring value, the sum of two values in bits, and the
//! ring value of bits. Ours, from METEOR's N-MULT (Fig. 5), bit decomposition of masks (§C) and
//! Bit2A (§D); the paper has no such conversions. The bits of a value lie along the first
//! dimension, the lowest first.
//!
//! *Sums.* The carries of x + y come from a tree whose nodes have up to four parts
//! ([`crate::steps::tree`]). Masks are known offline, so a node is an N-MULT over F_2
//! ([`super::gates`]). Position i makes a carry by g = x·y and hands one on by p = x ⊕ y:
//!
//!   p = m_p ⊕ π,  m_p = m_x ⊕ m_y,  π = ψ_x ⊕ ψ_y,      g = m_x·m_y ⊕ m_y·π ⊕ m_p·ψ_y ⊕ ψ_x·ψ_y.
//!
//! With ψ_x·ψ_y made before, g is linear in what is replicated, so the first nodes take g and p of
//! four positions as they are, and nothing is opened for the positions alone. Spans that other
//! nodes read are opened under fresh masks. The carry into position i is opened once, under ψ_z ⊕ π
//! with ψ_z the mask of the result's bit z = p ⊕ carry: what is opened is m_z ⊕ m_p.
//!
//! *Bits of a ring value.* x = m + ψ: the sum above with x = ψ, whose bits are shared offline
//! ([`super::adder`]), and y = m, public.
//!
//! *Ring value of bits.* Σ 2^i·b_i with every ψ_i brought into the ring offline, as in
//! [`super::select`].
//!
//! phase     rounds               bits per value                                              from → to
//! offline   adder's + 2          adder's, and 3 for every product of masks                   (bits of a ring value)
//!           3                    3 for every product of masks                                (sum of n bits)
//!           2                    3·ℓ²                                                        (ring value of bits)
//! online    levels of the tree   3·(n + 2·spans of the tree that do not begin at 0)          P_i → P_{i+1} (sum)
//!           1                    3·ℓ                                                         P_i → P_{i+1} (ring value)
//!
//! Bits offline + online, and rounds:
//!
//! | ℓ = n | 8 | 16 | 32 | 64 |
//! | --- | --- | --- | --- | --- |
//! | bits of a ring value | 113 + 36, 8 + 2 | 412 + 96, 10 + 2 | 1043 + 282, 11 + 3 | 3004 + 444, 12 + 3 |
//! | sum | 165 + 36, 3 + 2 | 528 + 96, 3 + 2 | 1269 + 282, 3 + 3 | 3426 + 444, 3 + 3 |
//! | ring value of bits | 192 + 24, 2 + 1 | 768 + 48, 2 + 1 | 3072 + 96, 2 + 1 | 12288 + 192, 2 + 1 |
//!
//! Everybody sees uniform elements: components made fresh by sharings of zero, and signals under
//! masks of which one component is unknown to it.
//!
//! Security: `docs/security/meteor.md`.

use super::addition::Addition;
use crate::mrss::{Data, MaskedReplicated, Masks, open, open_cost};
use crate::rss::Rss;
use crate::sharing::Variant;
use crate::steps::select;
use crate::steps::words::{extent, planes};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};
use std::sync::Arc;

/// The cost of the ring values of `n` values in bits.
fn to_ring_cost(ring: u32, n: usize) -> Cost {
    let offline = select::cost(ring, ring as usize * n, false);
    open_cost(offline.made_offline(), 1, n, Unit::Bits(ring))
}

/// The bits of a ring value.
pub struct ToBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for ToBits<'a> {
    /// Products of masks.
    type Material = Rss<Bits<D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::ToBits).then_some(ToBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(Addition::of_value(W::BITS).cost(extent(self.shape).1))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        masks: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let mask = masks.expect("fresh and drawn before").bit();
        Addition::of_value(W::BITS).offline_of_value(party, inputs[0].ring(), mask)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        products: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let m = Addition::of_value(W::BITS).online_of_value(party, operands.ring(0).0, &products)?;
        Ok((Data::of_bits(self.shape, m), None))
    }
}

/// x + y of values in bits.
pub struct AddBits<'a> {
    shape: &'a Shape,
}

impl AddBits<'_> {
    fn addition(&self) -> Arc<Addition> {
        Addition::of_bits(extent(self.shape).0)
    }
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for AddBits<'a> {
    /// Products of masks.
    type Material = Rss<Bits<D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::AddBits).then_some(AddBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(self.addition().cost(extent(self.shape).1))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        masks: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let mask = masks.expect("fresh and drawn before").bit();
        self.addition().offline_of_bits(party, [inputs[0].bit(), inputs[1].bit()], mask)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        products: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let m = self.addition().online_of_bits(party, [operands.bit(0), operands.bit(1)], &products)?;
        Ok((Data::of_bits(self.shape, m), None))
    }
}

/// The ring value of bits.
pub struct FromBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for FromBits<'a> {
    /// The masks of the bits in the ring.
    type Material = Rss<Tensor<W, D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::FromBits).then_some(FromBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(to_ring_cost(W::BITS, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        select::online(party, inputs[0].bit(), None)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        bits: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let m = operands.bit(0);
        let (m_planes, width, n) = planes(party, m)?;
        let device = party.device();
        let whole = device.join_planes::<W>(&m_planes, n)?;
        let weights = device.upload((0..W::BITS).map(|i| W::ONE.shl(i)).collect())?;
        let weighted = |bits: &D::Buf<W>| device.matmul(&weights, bits, 1, [1, width, n]);
        let z = Rss::zip(party.me(), &[&bits, operands.fresh()], |c, parts| {
            // Σ 2^i·(m_i + ψ_i − 2·m_i·ψ_i) − ψ_z.
            let (psi, public) = (&parts[0].buf, if c == 0 { W::ONE } else { W::ZERO });
            let both = device.bit_times(&m.buf, Some(psi), width * n)?;
            let (psi, both) = (weighted(psi)?, weighted(&both)?);
            let terms =
                [(public, &whole), (W::ONE, &psi), (W::from_i64(-2), &both), (W::ONE.neg(), &parts[1].buf)];
            device.combine(&terms, W::ZERO, n)
        })?;
        Ok((Data::of_ring(self.shape, open(party, "value", n, z)?), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::{Offline, Online};

    fn of(cost: &Cost) -> [(f64, u32); 2] {
        [Offline, Online].map(|phase| (cost.bits(phase), cost.rounds(phase)))
    }

    #[test]
    fn the_costs_are_those_of_the_head() {
        for (ring, value, sum) in [
            (8, [(113.0, 8), (36.0, 2)], [(165.0, 3), (36.0, 2)]),
            (16, [(412.0, 10), (96.0, 2)], [(528.0, 3), (96.0, 2)]),
            (32, [(1043.0, 11), (282.0, 3)], [(1269.0, 3), (282.0, 3)]),
            (64, [(3004.0, 12), (444.0, 3)], [(3426.0, 3), (444.0, 3)]),
        ] {
            assert_eq!(of(&Addition::of_value(ring).cost(1)), value);
            assert_eq!(of(&Addition::of_bits(ring as usize).cost(1)), sum);
            let l = f64::from(ring);
            assert_eq!(of(&to_ring_cost(ring, 1)), [(3.0 * l * l, 2), (3.0 * l, 1)]);
        }
    }
}
