//! Products on MSS: element by element, of matrices, convolutions. MIZAR, §2.2.2, for any bilinear map B.
//!
//! x = m_x − r_x and y = m_y − r_y give B(x, y) = B(m_x, m_y) − B(m_x, r_y) − B(r_x, m_y) + Γ with Γ = B(r_x, r_y).
//! The scale of the result is the sum of the scales; truncation is a step of its own.
//!
//! phase     rounds  bits per output element   from → to
//! offline   1       ℓ                         dealer → worker 0
//! online    1       2ℓ                        worker ↔ worker
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh; worker 0 also a uniform share of Γ. The dealer sees nothing.
//!
//! Security: `docs/security/mizar.md`.

use crate::local::Product;
use crate::mss::{DEALER, RingMask, deal, open};
use crate::{Cost, Unit};
use megrez_kernels::{Device, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A worker's [Γ]; nothing at the dealer.
pub struct Material<W: Word, D: Device> {
    gamma: Option<Tensor<W, D>>,
}
store_struct!(Material[W, D] => gamma);

pub(super) fn cost(ring: u32, n: usize) -> Cost {
    Cost::LOCAL.offline(DEALER, 0, n, Unit::Bits(ring)).online_swap(1, 0, 1, n, Unit::Bits(ring))
}

pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    product: &Product<'_>,
    shape: &Shape,
    rx: &RingMask<W, D>,
    ry: &RingMask<W, D>,
) -> Result<Material<W, D>, Error> {
    let gamma = deal(party, "gamma", shape.elements(), |device| {
        Ok(product.apply(device, &rx.total(device)?, &ry.total(device)?, shape)?.buf)
    })?;
    Ok(Material { gamma: gamma.map(|gamma| Tensor::new(shape.clone(), gamma)) })
}

/// At worker `j`: m_z. `mask` is [r_z]; operands are (m, [r]_j).
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    product: &Product<'_>,
    mask: &Tensor<W, D>,
    (mx, rx): (&Tensor<W, D>, &Tensor<W, D>),
    (my, ry): (&Tensor<W, D>, &Tensor<W, D>),
    material: Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let shape = &mask.shape;
    let gamma = material.gamma.expect("workers hold shares");
    let device = party.device();
    let minus = W::ONE.neg();
    let public = if j == 0 { W::ONE } else { W::ZERO };
    let share = if let Product::Elements = product {
        let products = [(public, &mx.buf, &my.buf), (minus, &mx.buf, &ry.buf), (minus, &rx.buf, &my.buf)];
        let products = if j == 0 { &products[..] } else { &products[1..] };
        device.products(products, &[(W::ONE, &gamma.buf), (W::ONE, &mask.buf)])?
    } else {
        // B(m_x, [j=0]·m_y − [r_y]) − B([r_x], m_y): two products instead of three.
        let second = device.combine(&[(public, &my.buf), (minus, &ry.buf)], W::ZERO, my.elements())?;
        let left = product.apply(device, mx, &Tensor::new(my.shape.clone(), second), shape)?;
        let right = product.apply(device, rx, my, shape)?;
        let terms = [(W::ONE, &left.buf), (minus, &right.buf), (W::ONE, &gamma.buf), (W::ONE, &mask.buf)];
        device.combine(&terms, W::ZERO, shape.elements())?
    };
    open(party, j, "product", shape.elements(), share)
}
