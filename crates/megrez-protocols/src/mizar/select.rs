//! A secret bit times a secret ring value on MSS.
//!
//! With the bit b = m_b ⊕ r_b, the dealer deals r_b and r_b·r_x in the ring, and the workers form
//! b·x = m_b·x + (1−2m_b)·(m_x·r_b − r_x·r_b): the ReLU's selection with f = m_b, a = r_b and no
//! flip.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       ℓ and ℓ            dealer → worker 0, dealer → worker 1
//! online    1       2ℓ                 worker ↔ worker
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh, and one uniform share each.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, DealtShare, Masks, Role, deal, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Selected};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// b·x.
pub struct Select<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Select<'a> {
    /// A worker's [r_b] and [r_b·r_x]; nothing at the dealer.
    type Material = Option<(DealtShare<W, D>, DealtShare<W, D>)>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::Select).then_some(Select { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word) = (self.shape.elements(), Unit::Bits(W::BITS));
        let dealt = Cost::LOCAL.offline(DEALER, 0, n, word).offline(DEALER, 1, n, word);
        Ok(dealt.online_swap(1, 0, 1, n, word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (bit, x, n) = (inputs[0].bit(), inputs[1].ring(), self.shape.elements());
        let rb = deal(party, 0, "bit", n, |device| {
            Ok(device.bit_times::<W>(&bit.total_bits(device)?.buf, None, n)?)
        })?;
        let product = deal(party, 1, "mask-bit", n, |device| {
            Ok(device.bit_times(&bit.total_bits(device)?.buf, Some(&x.total(device)?.buf), n)?)
        })?;
        Ok(rb.zip(product))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let ((m, r), (rb, product)) = (operands.ring(1), dealt);
        let (device, n) = (party.device(), self.shape.elements());
        let (rb, product) = (rb.words(device, n)?, product.words(device, n)?);
        let selected = Selected {
            masked: &m.buf,
            mask: &r.buf,
            choice: &operands.masked_bits(0).buf,
            flip: None,
            bit: &rb,
            mask_bit: &product,
            truncation: None,
            output_mask: &operands.fresh().share().buf,
        };
        let share = party.device().open_selected(j, &selected)?;
        let mz = open(party, j, "selected", m.elements(), share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan, SignBit};

    #[test]
    fn the_bit_chooses_between_the_value_and_nothing() {
        let mut plan = Plan::new(8);
        let [b, x] = ["b", "x"].map(|name| plan.input(name, "owner", [256].into(), 0));
        let bit = plan.step("bit", Op::NonNegative(SignBit::FULL), &[b]).unwrap();
        let z = plan.step("z", Op::Select, &[bit, x]).unwrap();
        plan.output("z", "owner", z);
        let b: Vec<u64> = (0..256).map(|i| i * 91 % 256).collect();
        let x: Vec<u64> = (0..256).collect();
        let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&b, &x]).remove(0);
        assert!((0..256).all(|i| z[i] == if b[i] < 128 { x[i] } else { 0 }));
    }
}
