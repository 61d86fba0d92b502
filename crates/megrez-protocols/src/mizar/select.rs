//! A secret bit times a secret ring value on MSS, truncated, added up, or neither.
//!
//! With the bit b = m_b ⊕ r_b, the dealer deals r_b and r_b·r_x in the ring, and the workers form
//! b·x = m_b·x + (1−2m_b)·(m_x·r_b − r_x·r_b): the ReLU's selection with f = m_b, a = r_b and no
//! flip.
//!
//! phase     rounds  bits per element   from → to
//! offline   1       ℓ and ℓ            dealer → worker 0, dealer → worker 1
//! online    1       2ℓ                 worker ↔ worker
//!
//! With a truncation by f bits y = x / 2^f takes x's place ([`super::truncate`], and its range): y
//! is public but for R = r_x>>f and t = msb(r_x), so R·r_b is dealt in place of r_x·r_b, and R, t
//! and t·r_b beside: the ReLU's selection again. One opening in place of two.
//!
//! offline   1       2ℓ and ℓ + 2f      dealer → worker 0, dealer → worker 1
//! online    1       2ℓ                 worker ↔ worker
//!
//! The workers' shares of b·x may be added up before a mask is put on them and they are opened, as
//! those of a product of matrices are: then 2ℓ are for each sum, however many values it is of.
//!
//! Workers see the uniform m_z = z + r_z, r_z fresh, and uniform shares.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::halves::DealtShares;
use super::truncate::{DealtParts, deal_cost};
use crate::local::group_sums;
use crate::mss::{DEALER, Data, Masks, Role, deal, deal_low, open};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Selected};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// b·x, b·(x / 2^f), or sums of b·x.
pub struct Select<'a> {
    f: u32,
    /// How many neighbours along the first dimension each sum is of.
    groups: Option<&'a [usize]>,
    /// The shape of b and x.
    shape: &'a Shape,
    output: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Select<'a> {
    /// A worker's shares; nothing at the dealer.
    type Material = Option<DealtShares<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let (f, groups) = match call.op {
            Op::Select { truncate } => (*truncate, None),
            Op::SelectSum { groups } => (0, Some(&groups[..])),
            _ => return None,
        };
        Some(Select { f, groups, shape: &call.inputs[0].shape, output: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word) = (self.shape.elements(), Unit::Bits(W::BITS));
        let mut dealt = Cost::LOCAL.offline(DEALER, 0, n, word).offline(DEALER, 1, n, word);
        if self.f > 0 {
            dealt = dealt.beside(deal_cost(W::BITS, self.f, n)).offline(DEALER, 1, n, Unit::Bits(self.f));
        }
        Ok(dealt.online_swap(1, 0, 1, self.output.elements(), word))
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
        let f = self.f;
        let mask_bit = deal(party, 1, "mask-bit", n, |device| {
            let high = device.shift_right(&x.total(device)?.buf, f)?;
            Ok(device.bit_times(&bit.total_bits(device)?.buf, Some(&high), n)?)
        })?;
        let truncation = match f {
            0 => None,
            _ => {
                let parts = DealtParts::deal(party, 0, f, self.shape, x)?;
                let top_bit = deal_low(party, 1, "top-bit", n, f, |device| {
                    let top = device.shift_right(&x.total(device)?.buf, W::BITS - 1)?;
                    Ok(device.bit_times(&bit.total_bits(device)?.buf, Some(&top), n)?)
                })?;
                parts.zip(top_bit)
            }
        };
        Ok(rb.zip(mask_bit).map(|(bit, mask_bit)| DealtShares { bit, mask_bit, truncation }))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let (m, r) = operands.ring(1);
        let (device, n) = (party.device(), self.shape.elements());
        let fresh = &operands.fresh().share().buf;
        // Sums are masked when they are made.
        let none = self.groups.map(|_| device.upload(vec![W::ZERO; n])).transpose()?;
        let shares = dealt.shares(device, self.f, n)?;
        let truncation =
            shares.truncation.as_ref().map(|(parts, top_bit)| (parts.truncation(self.f), top_bit));
        let selected = Selected {
            masked: &m.buf,
            mask: &r.buf,
            choice: &operands.masked_bits(0).buf,
            flip: None,
            bit: &shares.bit,
            mask_bit: &shares.mask_bit,
            truncation,
            output_mask: none.as_ref().unwrap_or(fresh),
        };
        let mut share = device.open_selected(j, &selected)?;
        let sums = self.output.elements();
        if let Some(groups) = self.groups {
            let added = group_sums(device, &share, groups, sums / groups.len())?;
            share = device.combine(&[(W::ONE, &added), (W::ONE, fresh)], W::ZERO, sums)?;
        }
        let mz = open(party, j, "selected", sums, share)?;
        Ok((Data::of_ring(self.output, Some(mz)), None))
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
        let z = plan.step("z", Op::SELECT, &[bit, x]).unwrap();
        plan.output("z", "owner", z);
        let b: Vec<u64> = (0..256).map(|i| i * 91 % 256).collect();
        let x: Vec<u64> = (0..256).collect();
        let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&b, &x]).remove(0);
        assert!((0..256).all(|i| z[i] == if b[i] < 128 { x[i] } else { 0 }));
    }

    #[test]
    fn what_the_bits_choose_is_added_up_by_groups() {
        for groups in [vec![1, 4, 3], vec![4, 4], vec![8]] {
            let mut plan = Plan::new(8);
            let [b, x] = ["b", "x"].map(|name| plan.input(name, "owner", [8, 32].into(), 0));
            let bit = plan.step("bit", Op::NonNegative(SignBit::FULL), &[b]).unwrap();
            let z = plan.step("z", Op::SelectSum { groups: groups.clone() }, &[bit, x]).unwrap();
            plan.output("z", "owner", z);
            let b: Vec<u64> = (0..256).map(|i| i * 91 % 256).collect();
            let x: Vec<u64> = (0..256).map(|i| i * 37 % 256).collect();
            let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&b, &x]).remove(0);
            let mut first = 0;
            for (i, n) in groups.iter().enumerate() {
                for row in 0..32 {
                    let chosen = (first..first + n).map(|k| k * 32 + row).filter(|&at| b[at] < 128);
                    assert_eq!(z[i * 32 + row], chosen.map(|at| x[at]).sum::<u64>() % 256, "{groups:?}");
                }
                first += n;
            }
        }
    }

    /// Every value that a truncation takes, many masks: a neighbour of x / 2^f, or nothing.
    #[test]
    fn the_bit_chooses_between_a_neighbour_and_nothing() {
        let x: Vec<i64> = (-64..64).cycle().take(8 * 128).collect();
        let words: Vec<u64> = x.iter().map(|x| *x as u8 as u64).collect();
        let bits: Vec<u64> = (0..x.len() as u64).map(|i| i * 91 % 256).collect();
        for f in [1, 3, 5] {
            let mut plan = Plan::new(8);
            let b = plan.input("b", "owner", [x.len()].into(), 0);
            let value = plan.input("x", "owner", [x.len()].into(), f);
            let bit = plan.step("bit", Op::NonNegative(SignBit::FULL), &[b]).unwrap();
            let z = plan.step("z", Op::Select { truncate: f }, &[bit, value]).unwrap();
            plan.output("z", "owner", z);
            let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&bits, &words]).remove(0);
            for ((x, b), z) in x.iter().zip(&bits).zip(z) {
                let (floor, z) = (x >> f, i64::from(z as u8 as i8));
                let exact = x & ((1 << f) - 1) == 0;
                let near = z == floor || z == floor + 1 && !exact;
                assert!(if *b < 128 { near } else { z == 0 }, "{x} / 2^{f} with {b} is not {z}");
            }
        }
    }
}
