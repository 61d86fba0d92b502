//! Steps on MSS bits, x = m ⊕ r: AND by a dealt product, and the conversion to the ring.
//!
//! AND: x∧y = m_x m_y ⊕ m_x r_y ⊕ m_y r_x ⊕ r_x r_y, the product step in F_2.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       1                  dealer → worker 0
//! online    1       2                  worker ↔ worker
//!
//! Conversion: b = m + (1−2m)·r with r dealt in the ring.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       ℓ                  dealer → worker 0
//! online    1       2ℓ                 worker ↔ worker
//!
//! Workers see values masked by a fresh r_z only.
//!
//! Security: `docs/security/mizar.md`.

use crate::mss::{BitMask, DEALER, Role, deal, open, open_bits};
use crate::{Cost, Store, StoreError, Unit};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A worker's [r_x r_y]; nothing at the dealer.
pub struct Material<D: Device> {
    worker: Option<Bits<D>>,
}

impl<D: Device> Store<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        self.worker.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        Ok(Material { worker: Store::<D>::read(device, input)? })
    }
}

pub(super) fn and_cost(n: usize) -> Cost {
    Cost::LOCAL.offline(DEALER, 0, n, Unit::Bits(1)).online_swap(1, 0, 1, n, Unit::Bits(1))
}

pub(super) fn and_offline<D: Device>(
    party: &mut Party<D>,
    shape: &Shape,
    x: &BitMask<D>,
    y: &BitMask<D>,
) -> Result<Material<D>, Error> {
    let n = shape.elements();
    let product = match Role::of(party) {
        Role::Dealer => {
            let (rx, ry) = (x.total_bits(party.device())?, y.total_bits(party.device())?);
            let stream = party.stream(1, "product")?;
            let other = party.device().random_bits(&stream, n)?;
            let product = party.device().and(&rx.buf, &ry.buf)?;
            let share = party.device().xor(&[&product, &other], false, n)?;
            party.send_bits(0, "product", share, n)?;
            None
        }
        Role::Worker(0) => Some(party.recv_bits(DEALER, "product", n)?),
        Role::Worker(_) => {
            let stream = party.stream(DEALER, "product")?;
            Some(party.device().random_bits(&stream, n)?)
        }
    };
    Ok(Material { worker: product.map(|product| Bits::new(shape.clone(), product)) })
}

/// At worker `j`: m_z. `mask` is [r_z]; operands are (m, [r]_j).
pub(super) fn and_online<D: Device>(
    party: &mut Party<D>,
    j: usize,
    (mx, rx): (&Bits<D>, &Bits<D>),
    (my, ry): (&Bits<D>, &Bits<D>),
    mask: &Bits<D>,
    material: Material<D>,
) -> Result<D::Buf<u64>, Error> {
    let n = mx.elements();
    let product = material.worker.expect("workers hold shares");
    let device = party.device();
    // [j=0]·m_x m_y ⊕ m_x r_y = m_x ∧ ([j=0]·m_y ⊕ r_y).
    let second = if j == 0 { device.xor(&[&my.buf, &ry.buf], false, n)? } else { ry.buf.clone() };
    let left = device.and(&mx.buf, &second)?;
    let right = device.and(&my.buf, &rx.buf)?;
    let share = device.xor(&[&left, &right, &product.buf, &mask.buf], false, n)?;
    open_bits(party, j, "and", n, share)
}

/// A worker's [r] in the ring; nothing at the dealer.
pub struct RingMaterial<W: Word, D: Device> {
    worker: Option<Tensor<W, D>>,
}
store_struct!(RingMaterial[W, D] => worker);

pub(super) fn to_ring_cost(ring: u32, n: usize) -> Cost {
    Cost::LOCAL.offline(DEALER, 0, n, Unit::Bits(ring)).online_swap(1, 0, 1, n, Unit::Bits(ring))
}

pub(super) fn to_ring_offline<W: Word, D: Device>(
    party: &mut Party<D>,
    shape: &Shape,
    bit: &BitMask<D>,
) -> Result<RingMaterial<W, D>, Error> {
    let n = shape.elements();
    let r =
        deal(party, "bit", n, |device| Ok(device.bit_times::<W>(&bit.total_bits(device)?.buf, None, n)?))?;
    Ok(RingMaterial { worker: r.map(|r| Tensor::new(shape.clone(), r)) })
}

/// At worker `j`: m_z. `mask` is [r_z].
pub(super) fn to_ring_online<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    bit: &Bits<D>,
    mask: &Tensor<W, D>,
    material: RingMaterial<W, D>,
) -> Result<D::Buf<W>, Error> {
    let n = bit.elements();
    let r = material.worker.expect("workers hold shares");
    let device = party.device();
    let m = device.bit_times::<W>(&bit.buf, None, n)?;
    let m_times_r = device.bit_times(&bit.buf, Some(&r.buf), n)?;
    let public = if j == 0 { W::ONE } else { W::ZERO };
    let minus_two = W::from_i64(-2);
    let terms = [(public, &m), (W::ONE, &r.buf), (minus_two, &m_times_r), (W::ONE, &mask.buf)];
    let share = device.combine(&terms, W::ZERO, n)?;
    open(party, j, "ring", n, share)
}
