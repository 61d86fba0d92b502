//! Steps on MSS bits, x = m ⊕ r: AND by a dealt product, and the conversion to the ring.
//!
//! AND: x∧y = m_x m_y ⊕ m_x r_y ⊕ m_y r_x ⊕ r_x r_y, the product step in F_2.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       1                  dealer → worker 1
//! online    1       2                  worker ↔ worker
//!
//! Conversion: b = m + (1−2m)·r with r dealt in the ring.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       ℓ                  dealer → worker 1
//! online    1       2ℓ                 worker ↔ worker
//!
//! Workers see values masked by a fresh r_z, worker 1 also a uniform share.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, DealtShare, Masks, Role, deal, open, open_bits};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// x∧y.
pub struct And<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for And<'a> {
    /// A worker's [r_x r_y]; nothing at the dealer.
    type Material = Option<Bits<D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::And && call.inputs.len() == 2).then_some(And { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, bit) = (self.shape.elements(), Unit::Bits(1));
        Ok(Cost::LOCAL.offline(DEALER, 1, n, bit).online_swap(1, 0, 1, n, bit))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let n = self.shape.elements();
        let product = match Role::of(party) {
            Role::Dealer => {
                let [rx, ry] = [inputs[0], inputs[1]].map(|m| m.bit().total_bits(party.device()));
                let (rx, ry) = (rx?, ry?);
                let stream = party.stream(0, "product")?;
                let other = party.device().random_bits(&stream, n)?;
                let product = party.device().and(&rx.buf, &ry.buf)?;
                let share = party.device().xor(&[&product, &other], false, n)?;
                party.send_bits(1, "product", share, n)?;
                None
            }
            Role::Worker(1) => Some(party.recv_bits(DEALER, "product", n)?),
            Role::Worker(_) => {
                let stream = party.stream(DEALER, "product")?;
                Some(party.device().random_bits(&stream, n)?)
            }
        };
        Ok(product.map(|product| Bits::new(self.shape.clone(), product)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        product: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(product)) = (Role::of(party), product) else {
            return Ok((Data::None, None));
        };
        let ((mx, rx), (my, ry)) = (operands.bits(0), operands.bits(1));
        let (device, n, rz) = (party.device(), mx.elements(), operands.fresh_bits().share());
        // [j=0]·m_x m_y ⊕ m_x r_y = m_x ∧ ([j=0]·m_y ⊕ r_y).
        let second = if j == 0 { device.xor(&[&my.buf, &ry.buf], false, n)? } else { ry.buf.clone() };
        let left = device.and(&mx.buf, &second)?;
        let right = device.and(&my.buf, &rx.buf)?;
        let share = device.xor(&[&left, &right, &product.buf, &rz.buf], false, n)?;
        let mz = open_bits(party, j, "and", n, share)?;
        Ok((Data::of_bits(self.shape, Some(mz)), None))
    }
}

/// A bit as 0 or 1.
pub struct BitToRing<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for BitToRing<'a> {
    /// A worker's [r] in the ring; nothing at the dealer.
    type Material = Option<DealtShare<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::BitToRing).then_some(BitToRing { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word) = (self.shape.elements(), Unit::Bits(W::BITS));
        Ok(Cost::LOCAL.offline(DEALER, 1, n, word).online_swap(1, 0, 1, n, word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (bit, n) = (inputs[0].bit(), self.shape.elements());
        deal(party, 1, "bit", n, |device| Ok(device.bit_times::<W>(&bit.total_bits(device)?.buf, None, n)?))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        r: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(r)) = (Role::of(party), r) else { return Ok((Data::None, None)) };
        let (device, bit, n) = (party.device(), operands.masked_bits(0), self.shape.elements());
        let (r, rz) = (r.words(device, n)?, operands.fresh().share());
        let m = device.bit_times::<W>(&bit.buf, None, n)?;
        let m_times_r = device.bit_times(&bit.buf, Some(&r), n)?;
        let public = if j == 0 { W::ONE } else { W::ZERO };
        let terms = [(public, &m), (W::ONE, &r), (W::from_i64(-2), &m_times_r), (W::ONE, &rz.buf)];
        let share = device.combine(&terms, W::ZERO, n)?;
        let mz = open(party, j, "ring", n, share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}
