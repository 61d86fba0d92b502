//! Products of additive shares by a triple that the helper deals, for any bilinear map B: the
//! workers open m_x = x + r_x and m_y = y + r_y, r from their streams with the helper, and have
//! B(x, y) = B(m_x, m_y) − B(m_x, r_y) − B(r_x, m_y) + Γ.
//!
//! phase     rounds  bits                                    from → to
//! offline   1       ℓ per output element                    helper → worker 0
//! online    1       2ℓ per element of either operand        worker ↔ worker
//!
//! Workers see both operands under fresh masks, and worker 0 a uniform share of Γ = B(r_x, r_y);
//! the helper sees nothing.
//!
//! Security: `docs/security/bicoptor.md`.

use super::family::Bicoptor;
use crate::local;
use crate::mss::{DEALER, DealtShare, RingMask, Role, deal};
use crate::sharing::additive::Masks;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The operands' masks and, at the workers, [Γ].
pub struct Material<W: Word, D: Device> {
    left: RingMask<W, D>,
    right: RingMask<W, D>,
    gamma: Option<DealtShare<W, D>>,
}
encode_struct!(Material[W, D] => left, right, gamma);

/// A product of two secrets: of ring values or of bits, or a ⊕ b = a + b − 2ab.
pub struct Product<'a> {
    product: local::Product<'a>,
    is_xor: bool,
    operands: [&'a Shape; 2],
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Bicoptor<W, D>> for Product<'a> {
    type Material = Material<W, D>;

    fn of(_: &Bicoptor<W, D>, call: Call<'a>) -> Option<Self> {
        let [x, y] = call.inputs else { return None };
        let product = match call.op {
            Op::Select { truncate: 0 } | Op::And | Op::Xor => local::Product::Elements,
            _ => local::Product::of_secrets(call)?,
        };
        let operands = [&x.shape, &y.shape];
        Some(Product { product, is_xor: *call.op == Op::Xor, operands, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (word, [x, y]) = (Unit::Bits(W::BITS), self.operands.map(Shape::elements));
        let dealt = Cost::LOCAL.offline(DEALER, 0, self.shape.elements(), word);
        Ok(dealt.online_swap(1, 0, 1, x, word).online_swap(1, 0, 1, y, word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let left = party.scope("left", |party| RingMask::fresh(party, self.operands[0]))?;
        let right = party.scope("right", |party| RingMask::fresh(party, self.operands[1]))?;
        let gamma = deal(party, 0, "gamma", self.shape.elements(), |device| {
            Ok(self.product.of_sums(device, left.both(), right.both(), self.shape)?.buf)
        })?;
        Ok(Material { left, right, gamma })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Bicoptor<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Bicoptor<W, D>>, Error> {
        let Role::Worker(j) = Role::of(party) else { return Ok((None, None)) };
        let [x, y] = [operands.worker(0), operands.worker(1)];
        let mut z = online(party, j, &self.product, [x, y], material, self.shape)?;
        if self.is_xor {
            let terms = [(W::ONE, &x.buf), (W::ONE, &y.buf), (W::from_i64(-2), &z)];
            z = party.device().combine(&terms, W::ZERO, self.shape.elements())?;
        }
        Ok((Some(Tensor::new(self.shape.clone(), z)), None))
    }
}

/// Worker `j`'s share of B(x, y).
fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    product: &local::Product<'_>,
    [x, y]: [&Tensor<W, D>; 2],
    material: Material<W, D>,
    shape: &Shape,
) -> Result<D::Buf<W>, Error> {
    let gamma = material.gamma.expect("workers hold shares").words(party.device(), shape.elements())?;
    let (rx, ry) = (material.left.share(), material.right.share());
    let operands = [(x, rx, "left"), (y, ry, "right")];
    let mut mine = Vec::new();
    for (share, mask, name) in operands {
        let terms = [(W::ONE, &share.buf), (W::ONE, &mask.buf)];
        let masked = party.device().combine(&terms, W::ZERO, share.elements())?;
        party.send_ring::<W>(1 - j, name, masked.clone())?;
        mine.push(masked);
    }
    let mut masked = Vec::new();
    for ((share, _, name), mine) in operands.into_iter().zip(mine) {
        let n = share.elements();
        let other = party.recv_ring::<W>(1 - j, name, n)?;
        let sum = party.device().combine(&[(W::ONE, &mine), (W::ONE, &other)], W::ZERO, n)?;
        masked.push(Tensor::new(share.shape.clone(), sum));
    }
    let [mx, my] = &masked[..] else { unreachable!("two operands") };
    let device = party.device();
    let (minus, public) = (W::ONE.neg(), if j == 0 { W::ONE } else { W::ZERO });
    // [Γ] − B(m_x, [r_y]) − B([r_x], m_y), and at worker 0 B(m_x, m_y).
    let [left, right] = product.cross(device, (mx, rx), (my, ry), public.neg(), shape)?;
    let terms = [(minus, &left.buf), (minus, &right.buf), (W::ONE, &gamma)];
    Ok(device.combine(&terms, W::ZERO, shape.elements())?)
}
