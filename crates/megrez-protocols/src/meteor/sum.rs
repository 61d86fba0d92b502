//! Products that are left as sums until they are truncated or compared: P0 holds one summand, P1
//! the other, P2 none. Ours; the paper opens every product.
//!
//! Of the product's components, B(m_x, ψ_y) + B(ψ_x, m_y) + Γ with B(m_x, m_y), P0 knows 0 and 1,
//! P1 knows 1 and 2. So P0 takes those two together and P1 the third, P2 computes nothing, and Γ
//! need only be a sum of theirs: it takes ℓ bits, not 3·ℓ.
//!
//! A sum z is opened in one round under a fresh mask ψ, as m = z − ψ, or to P0 and P1 alone as M =
//! m + ψ_1, which is all that a truncation wants ([`super::truncate`]): P0 sends a = z_0 − ψ_0, P1
//! sends b = z_1 − ψ_2, and M is their sum. For P2, P0 sends a − ψ_1 + ζ and P1 b − ζ, ζ from a
//! common stream of theirs.
//!
//! phase     rounds  bits per element                from → to
//! offline   1       ℓ for the product               P2 → P1
//! online    1       2·ℓ, to P0 and P1               P0 ↔ P1
//!                   4·ℓ, to all                     P0 ↔ P1, P0 → P2, P1 → P2
//!
//! A product that is truncated, in all: 3·ℓ + f bits offline, 3·ℓ + 3·f online in 2 rounds. P1 sees
//! P2's summand of Γ under a stream of P0 and P2, and a under ψ_0; P0 sees b under ψ_2; P2 sees two
//! summands of m under ψ_1 and ζ.
//!
//! Security: `docs/security/meteor.md`.

use crate::local::{Product, is_rarely_used, sum};
use crate::mrss::sum::{Summand, part};
use crate::mrss::{Data, MaskedReplicated, Masks};
use crate::rss::{Rss, draw};
use crate::sharing::Variant;
use crate::steps::product::summand;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

pub(super) fn product_cost(ring: u32, n: usize) -> Cost {
    Cost::LOCAL.offline(2, 1, n, Unit::Bits(ring))
}

/// What opening to P0 and P1 sends.
pub(super) fn two_cost(ring: u32, n: usize) -> Cost {
    Cost::LOCAL.online_swap(1, 0, 1, n, Unit::Bits(ring))
}

/// What opening to all sends.
pub(super) fn open_cost(ring: u32, n: usize) -> Cost {
    two_cost(ring, n).online(1, 0, 2, n, Unit::Bits(ring)).online(1, 1, 2, n, Unit::Bits(ring))
}

/// Γ as a sum.
fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    product: &Product<'_>,
    shape: &Shape,
    x: &Rss<Tensor<W, D>>,
    y: &Rss<Tensor<W, D>>,
) -> Result<Summand<W, D>, Error> {
    let (n, one, minus) = (shape.elements(), W::ONE, W::ONE.neg());
    let share =
        |party: &Party<D>, masks: &[(W, &D::Buf<W>)]| summand(party.device(), product, x, y, shape, masks);
    let tensor = |buf| Some(Tensor::new(shape.clone(), buf));
    // P2's summand goes to P1 under a stream of P2 and P0, who takes it off again.
    Ok(match party.me() {
        0 => {
            let mask = draw::<W, D>(party, 0, "zero", n)?;
            tensor(share(party, &[(minus, &mask)])?)
        }
        1 => {
            let other = party.recv_ring::<W>(2, "gamma", n)?;
            tensor(share(party, &[(one, &other)])?)
        }
        _ => {
            let mask = draw::<W, D>(party, 0, "zero", n)?;
            let masked = share(party, &[(one, &mask)])?;
            party.send_ring::<W>(1, "gamma", masked)?;
            None
        }
    })
}

/// The product as a sum, without a message. Operands are (m, ψ).
fn product<W: Word, D: Device>(
    party: &Party<D>,
    product: &Product<'_>,
    (m_x, psi_x): (&Tensor<W, D>, &Rss<Tensor<W, D>>),
    (m_y, psi_y): (&Tensor<W, D>, &Rss<Tensor<W, D>>),
    gamma: &Summand<W, D>,
) -> Result<Summand<W, D>, Error> {
    let Some(gamma) = gamma else { return Ok(None) };
    let (device, shape, one) = (party.device(), &gamma.shape, W::ONE);
    let first = party.me() == 0;
    let summands = if !first {
        product.cross(device, (m_x, &psi_x.next), (m_y, &psi_y.next), W::ZERO, shape)?.into()
    } else if is_rarely_used(m_x, m_y, shape) {
        let ((x, more_x), (y, more_y)) = ((&psi_x.own, &psi_x.next), (&psi_y.own, &psi_y.next));
        if m_x.elements() <= m_y.elements() {
            let x = sum(device, x, more_x)?;
            let mut summands = Vec::from(product.cross(device, (m_x, &x), (m_y, y), one, shape)?);
            summands.push(product.apply(device, m_x, more_y, shape)?);
            summands
        } else {
            let y = sum(device, y, more_y)?;
            let mut summands = Vec::from(product.cross(device, (m_x, x), (m_y, &y), one, shape)?);
            summands.push(product.apply(device, more_x, m_y, shape)?);
            summands
        }
    } else {
        let (x, y) = (part(party, psi_x)?, part(party, psi_y)?);
        product.cross(device, (m_x, &x), (m_y, &y), one, shape)?.into()
    };
    let terms: Vec<_> = summands.iter().chain([gamma]).map(|z| (one, &z.buf)).collect();
    Ok(Some(Tensor::new(shape.clone(), device.combine(&terms, W::ZERO, shape.elements())?)))
}

/// M at P0 and P1, nothing at P2.
pub(super) fn open_to_two<W: Word, D: Device>(
    party: &mut Party<D>,
    z: &Summand<W, D>,
    psi: &Rss<Tensor<W, D>>,
) -> Result<Option<D::Buf<W>>, Error> {
    let Some(z) = z else { return Ok(None) };
    let (j, n) = (party.me(), z.elements());
    let masked = party.device().combine(&masked_terms(party, z, psi), W::ZERO, n)?;
    party.send_ring::<W>(1 - j, "sum", masked.clone())?;
    let other = party.recv_ring::<W>(1 - j, "sum", n)?;
    Ok(Some(party.device().combine(&[(W::ONE, &masked), (W::ONE, &other)], W::ZERO, n)?))
}

/// a = z_0 − ψ_0 or b = z_1 − ψ_2.
fn masked_terms<'a, W: Word, D: Device>(
    party: &Party<D>,
    z: &'a Tensor<W, D>,
    psi: &'a Rss<Tensor<W, D>>,
) -> [(W, &'a D::Buf<W>); 2] {
    [(W::ONE, &z.buf), (W::ONE.neg(), &psi.component(party.me(), 2 * party.me()).buf)]
}

/// m at all; `n` elements.
pub(super) fn open<W: Word, D: Device>(
    party: &mut Party<D>,
    n: usize,
    z: &Summand<W, D>,
    psi: &Rss<Tensor<W, D>>,
) -> Result<D::Buf<W>, Error> {
    let (one, minus) = (W::ONE, W::ONE.neg());
    let Some(z) = z else {
        let summands = [party.recv_ring::<W>(0, "m", n)?, party.recv_ring::<W>(1, "m", n)?];
        return Ok(party.device().combine(&[(one, &summands[0]), (one, &summands[1])], W::ZERO, n)?);
    };
    let j = party.me();
    let zeta = party.stream(1 - j, "zeta")?;
    let device = party.device();
    let zeta = device.random::<W>(&zeta, n)?;
    let common = &psi.component(j, 1).buf;
    let masked = device.combine(&masked_terms(party, z, psi), W::ZERO, n)?;
    let for_third = match j {
        0 => device.combine(&[(one, &masked), (minus, common), (one, &zeta)], W::ZERO, n)?,
        _ => device.combine(&[(one, &masked), (minus, &zeta)], W::ZERO, n)?,
    };
    party.send_ring::<W>(1 - j, "sum", masked.clone())?;
    party.send_ring::<W>(2, "m", for_third)?;
    let other = party.recv_ring::<W>(1 - j, "sum", n)?;
    Ok(party.device().combine(&[(one, &masked), (one, &other), (minus, common)], W::ZERO, n)?)
}

/// A product that is left as a sum.
pub struct Additive<'a> {
    product: Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for Additive<'a> {
    /// Γ.
    type Material = Summand<W, D>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let Op::Additive(product) = call.op else { return None };
        Some(Additive { product: Product::of(product)?, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(product_cost(W::BITS, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        offline(party, &self.product, self.shape, inputs[0].ring(), inputs[1].ring())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        gamma: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let z = product(party, &self.product, operands.ring(0), operands.ring(1), &gamma)?;
        Ok((Data::Sum(z), None))
    }
}
