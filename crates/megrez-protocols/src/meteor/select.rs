//! b·x for a secret bit and a secret value, and the bit as a ring value, on MRSS. METEOR, Fig. 4
//! with y = 0, and §D.1.
//!
//! A bit b = m_b ⊕ ψ_b is m_b + (1 − 2·m_b)·ψ_b in the ring, linear in ψ_b; with Γ = ψ_x·ψ_b
//!   b·x = a + m_b·(m_x + ψ_x − 2·a),   a = m_x·ψ_b + Γ,
//! the figure's formula (3). Either is opened under a fresh mask.
//!
//! Deviates from the paper: ψ_b is brought into the ring by the cheaper conversion of
//! [`crate::steps::select`] (3·ℓ bits in 2 rounds; Fig. 7: 7·ℓ in 3, and its step 4 lacks a term);
//! public summands enter component 0; Fig. 4's −⟨ψ⟩ is the output's.
//!
//! phase     rounds       bits per element            from → to
//! offline   3 (2)        3·ℓ + 3·ℓ (3·ℓ)             P0 → P1, P1 ↔ P2, then P_i → P_{i−1}
//! online    1            3·ℓ                         P_i → P_{i+1}, each i
//!
//! In brackets: without x. Everybody sees uniform elements.
//!
//! Security: `docs/security/meteor.md`.

use crate::local::Product;
use crate::mrss::{Data, MaskedReplicated, Masks, open, open_cost};
use crate::rss::Rss;
use crate::sharing::Variant;
use crate::steps::{product, select};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// ψ_b in the ring, and Γ.
pub struct Material<W: Word, D: Device> {
    bit: Rss<Tensor<W, D>>,
    gamma: Rss<Tensor<W, D>>,
}
encode_struct!(Material[W, D] => bit, gamma);

fn to_ring_cost(ring: u32, n: usize) -> Cost {
    open_cost(select::cost(ring, n, false).made_offline(), 1, n, Unit::Bits(ring))
}

pub(super) fn cost(ring: u32, n: usize) -> Cost {
    let offline = select::cost(ring, n, false).then(product::cost(ring, n));
    open_cost(offline.made_offline(), 1, n, Unit::Bits(ring))
}

/// ψ_b in the ring.
pub(super) fn to_ring_offline<W: Word, D: Device>(
    party: &mut Party<D>,
    bit: &Rss<Bits<D>>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    select::online(party, bit, None)
}

pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    bit: &Rss<Bits<D>>,
    value: &Rss<Tensor<W, D>>,
) -> Result<Material<W, D>, Error> {
    let bit = to_ring_offline(party, bit)?;
    let gamma = product::online(party, &Product::Elements, &bit, value, &value.own.shape)?;
    Ok(Material { bit, gamma })
}

/// m of the bit as a ring value under `mask`.
fn to_ring_online<W: Word, D: Device>(
    party: &mut Party<D>,
    m: &Bits<D>,
    bit: &Rss<Tensor<W, D>>,
    mask: &Rss<Tensor<W, D>>,
) -> Result<D::Buf<W>, Error> {
    let (device, n) = (party.device(), m.elements());
    let z = Rss::zip(party.me(), &[bit, mask], |c, parts| {
        // ψ_b − ψ_z + m_b·([c=0] − 2·ψ_b).
        let public = if c == 0 { W::ONE } else { W::ZERO };
        let turned = device.combine(&[(W::from_i64(-2), &parts[0].buf)], public, n)?;
        let turned = device.bit_times(&m.buf, Some(&turned), n)?;
        let terms = [(W::ONE, &parts[0].buf), (W::ONE, &turned), (W::ONE.neg(), &parts[1].buf)];
        device.combine(&terms, W::ZERO, n)
    })?;
    open(party, "bit", n, z)
}

/// m of b·x under `mask`; operands are m_b and (m_x, ψ_x).
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    m_b: &Bits<D>,
    (m_x, psi_x): (&Tensor<W, D>, &Rss<Tensor<W, D>>),
    mask: &Rss<Tensor<W, D>>,
    material: &Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let (device, n) = (party.device(), m_b.elements());
    let (one, minus) = (W::ONE, W::ONE.neg());
    let z = Rss::zip(party.me(), &[psi_x, &material.bit, &material.gamma, mask], |c, parts| {
        let [x, bit, gamma, mask] = [&parts[0].buf, &parts[1].buf, &parts[2].buf, &parts[3].buf];
        let public = if c == 0 { one } else { W::ZERO };
        let a = device.products(&[(one, &m_x.buf, bit)], &[(one, gamma)])?;
        let turned = device.combine(&[(public, &m_x.buf), (one, x), (W::from_i64(-2), &a)], W::ZERO, n)?;
        let turned = device.bit_times(&m_b.buf, Some(&turned), n)?;
        device.combine(&[(one, &a), (one, &turned), (minus, mask)], W::ZERO, n)
    })?;
    open(party, "selected", n, z)
}

/// b·x.
pub struct Select<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for Select<'a> {
    type Material = Material<W, D>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::SELECT).then_some(Select { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(W::BITS, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        offline(party, inputs[0].bit(), inputs[1].ring())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        material: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let m = online(party, operands.bit(0), operands.ring(1), operands.fresh(), &material)?;
        Ok((Data::of_ring(self.shape, m), None))
    }
}

/// The bit as 0 or 1.
pub struct BitToRing<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for BitToRing<'a> {
    /// ψ_b in the ring.
    type Material = Rss<Tensor<W, D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::BitToRing).then_some(BitToRing { shape: call.shape() })
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
        to_ring_offline(party, inputs[0].bit())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        in_ring: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let m = to_ring_online(party, operands.bit(0), &in_ring, operands.fresh())?;
        Ok((Data::of_ring(self.shape, m), None))
    }
}
