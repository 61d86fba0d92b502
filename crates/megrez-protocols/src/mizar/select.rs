//! A secret bit times a secret ring value on MSS.
//!
//! With the bit b = m_b ⊕ r_b, the dealer deals r_b and r_b·r_x in the ring, and the workers form
//! b·x = m_b·x + (1−2m_b)·(m_x·r_b − r_x·r_b): the ReLU's selection with f = m_b, a = r_b and no flip.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       2ℓ                 dealer → worker 0
//! online    1       2ℓ                 worker ↔ worker
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh.
//!
//! Security: `docs/security/mizar.md`.

use crate::mss::{BitMask, DEALER, RingMask, deal, open};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device, Selected, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A worker's [r_b] and [r_b·r_x]; nothing at the dealer.
pub struct Material<W: Word, D: Device> {
    worker: Option<(Tensor<W, D>, Tensor<W, D>)>,
}
store_struct!(Material[W, D] => worker);

pub(super) fn cost(ring: u32, n: usize) -> Cost {
    Cost::LOCAL.offline(DEALER, 0, n, Unit::Bits(ring)).offline(DEALER, 0, n, Unit::Bits(ring)).online_swap(
        1,
        0,
        1,
        n,
        Unit::Bits(ring),
    )
}

pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    shape: &Shape,
    bit: &BitMask<D>,
    x: &RingMask<W, D>,
) -> Result<Material<W, D>, Error> {
    let n = shape.elements();
    let tensor = |buf| Tensor::new(shape.clone(), buf);
    let rb =
        deal(party, "bit", n, |device| Ok(device.bit_times::<W>(&bit.total_bits(device)?.buf, None, n)?))?;
    let product = deal(party, "mask-bit", n, |device| {
        Ok(device.bit_times(&bit.total_bits(device)?.buf, Some(&x.total(device)?.buf), n)?)
    })?;
    Ok(Material { worker: rb.zip(product).map(|(rb, product)| (tensor(rb), tensor(product))) })
}

/// At worker `j`: m_z. `output` is [r_z].
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    bit: &Bits<D>,
    m: &Tensor<W, D>,
    mask: &Tensor<W, D>,
    output: &Tensor<W, D>,
    material: Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let (rb, product) = material.worker.expect("workers hold shares");
    let selected = Selected {
        masked: &m.buf,
        mask: &mask.buf,
        choice: &bit.buf,
        flip: None,
        bit: &rb.buf,
        mask_bit: &product.buf,
        truncation: None,
        output_mask: &output.buf,
    };
    let share = party.device().open_selected(j, &selected)?;
    open(party, j, "selected", m.elements(), share)
}
