//! Products of additive shares by a triple that the helper deals, for any bilinear map B: the workers open m_x = x + r_x and
//! m_y = y + r_y, r from their streams with the helper, and have B(x, y) = B(m_x, m_y) − B(m_x, r_y) − B(r_x, m_y) + Γ.
//!
//! phase     rounds  bits                                    from → to
//! offline   1       ℓ per output element                    helper → worker 0
//! online    1       2ℓ per element of either operand        worker ↔ worker
//!
//! Workers see both operands under fresh masks, and worker 0 a uniform share of Γ = B(r_x, r_y); the helper sees nothing.
//!
//! Security: `docs/security/bicoptor.md`.

use crate::local::Product;
use crate::mss::{DEALER, RingMask, deal};
use crate::{Cost, Unit};
use megrez_kernels::{Device, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The operands' masks and, at the workers, [Γ].
pub struct Material<W: Word, D: Device> {
    left: RingMask<W, D>,
    right: RingMask<W, D>,
    gamma: Option<Tensor<W, D>>,
}
store_struct!(Material[W, D] => left, right, gamma);

pub(super) fn cost(ring: u32, operands: [usize; 2], n: usize) -> Cost {
    let word = Unit::Bits(ring);
    Cost::LOCAL.offline(DEALER, 0, n, word).online_swap(1, 0, 1, operands[0], word).online_swap(
        1,
        0,
        1,
        operands[1],
        word,
    )
}

pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    product: &Product<'_>,
    operands: [&Shape; 2],
    output: &Shape,
) -> Result<Material<W, D>, Error> {
    let left = party.scope("left", |party| RingMask::fresh(party, operands[0]))?;
    let right = party.scope("right", |party| RingMask::fresh(party, operands[1]))?;
    let gamma = deal(party, "gamma", output.elements(), |device| {
        Ok(product.apply(device, &left.total(device)?, &right.total(device)?, output)?.buf)
    })?;
    Ok(Material { left, right, gamma: gamma.map(|gamma| Tensor::new(output.clone(), gamma)) })
}

/// Worker `j`'s share of B(x, y).
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    product: &Product<'_>,
    [x, y]: [&Tensor<W, D>; 2],
    material: &Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let gamma = material.gamma.as_ref().expect("workers hold shares");
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
    // B(m_x, [j=0]·m_y − [r_y]) − B([r_x], m_y) + [Γ].
    let second = device.combine(&[(public, &my.buf), (minus, &ry.buf)], W::ZERO, my.elements())?;
    let shape = &gamma.shape;
    let left = product.apply(device, mx, &Tensor::new(my.shape.clone(), second), shape)?;
    let right = product.apply(device, rx, my, shape)?;
    let terms = [(W::ONE, &left.buf), (minus, &right.buf), (W::ONE, &gamma.buf)];
    Ok(device.combine(&terms, W::ZERO, shape.elements())?)
}
