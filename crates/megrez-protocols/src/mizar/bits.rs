//! Steps on MSS bits, x = m ⊕ r: products over F_2 by a dealt product, and the conversion to the
//! ring.
//!
//! AND: x∧y = m_x m_y ⊕ m_x r_y ⊕ m_y r_x ⊕ r_x r_y, the product step in F_2; and as there, for any
//! bilinear map: products of matrices of bits cost as much for each bit of the result, however many
//! conjunctions it is the exclusive or of.
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
//! Left as a sum ([`Op::Additive`]) nothing is opened: the workers keep their summands of b.
//!
//! Workers see values masked by a fresh r_z, worker 1 also a uniform share.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, DealtShare, Masks, Role, deal, open, open_bits};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported, local};
use megrez_kernels::{Bits, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};

/// x∧y, or a product of matrices of bits.
pub struct And<'a> {
    product: local::BitProduct,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for And<'a> {
    /// A worker's [B(r_x, r_y)]; nothing at the dealer.
    type Material = Option<Bits<D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        Some(And { product: local::BitProduct::of_two(call)?, shape: call.shape() })
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
                let product = self.product.apply(party.device(), &rx.buf, &ry.buf)?;
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
        let (device, n, rz) = (party.device(), self.shape.elements(), operands.fresh_bits().share());
        // [j=0]·B(m_x, m_y) ⊕ B(m_x, r_y) = B(m_x, [j=0]·m_y ⊕ r_y).
        let public = |m: &Bits<D>, r: &Bits<D>| match j {
            0 => device.xor(&[&m.buf, &r.buf], false, m.elements()),
            _ => Ok(r.buf.clone()),
        };
        let (left, right) = if my.elements() <= mx.elements() {
            let second = public(my, ry)?;
            (self.product.apply(device, &mx.buf, &second)?, self.product.apply(device, &rx.buf, &my.buf)?)
        } else {
            let first = public(mx, rx)?;
            (self.product.apply(device, &mx.buf, &ry.buf)?, self.product.apply(device, &first, &my.buf)?)
        };
        let share = device.xor(&[&left, &right, &product.buf, &rz.buf], false, n)?;
        let mz = open_bits(party, j, "and", n, share)?;
        Ok((Data::of_bits(self.shape, Some(mz)), None))
    }
}

/// A bit as 0 or 1.
pub struct BitToRing<'a> {
    shape: &'a Shape,
    /// Whether it is left as a sum.
    left: bool,
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for BitToRing<'a> {
    /// A worker's [r] in the ring; nothing at the dealer.
    type Material = Option<DealtShare<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let (call, left) = call.unshared();
        (*call.op == Op::BitToRing).then_some(BitToRing { shape: call.shape(), left })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word) = (self.shape.elements(), Unit::Bits(W::BITS));
        let dealt = Cost::LOCAL.offline(DEALER, 1, n, word);
        Ok(if self.left { dealt } else { dealt.online_swap(1, 0, 1, n, word) })
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
        let r = r.words(device, n)?;
        // m's summand, worker 0's, and the result's mask; r is taken off where m is set.
        let m = if j == 0 { Some(device.bit_times::<W>(&bit.buf, None, n)?) } else { None };
        let mask = if self.left { None } else { Some(&operands.fresh().share().buf) };
        let base: Vec<_> = m.iter().chain(mask).map(|x| (W::ONE, x)).collect();
        let base = device.combine(&base, W::ZERO, n)?;
        let lanes = bits::words(n) * 64;
        let all = device.xor(&[], true, lanes)?;
        let signs = device.join_bits(&[(&all, lanes), (&bit.buf, lanes)])?;
        let share = device.signed_sum(&base, &r, &[0], &signs)?;
        if self.left {
            return Ok((Data::of_sum(self.shape, share), None));
        }
        let mz = open(party, j, "ring", n, share)?;
        Ok((Data::of_ring(self.shape, Some(mz)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan, SignBit, View};

    /// Lowest bits as matrices, of one lane and of three, and their products as numbers.
    #[test]
    fn matrices_of_bits_are_multiplied_modulo_two() {
        for lanes in [1, 3] {
            let mut plan = Plan::new(8);
            let x = plan.input("x", "owner", [2, 3, 5, 1].into(), 0);
            let y = plan.input("y", "owner", [2, 5, 4, lanes].into(), 0);
            let [a, b] = [("a", x), ("b", y)].map(|(name, x)| plan.step(name, Op::LowBit, &[x]).unwrap());
            let z = plan.step("z", Op::BitMatMul, &[a, b]).unwrap();
            let z = plan.step("number", Op::BitToRing, &[z]).unwrap();
            plan.output("z", "owner", z);
            let x: Vec<u64> = (0..30).map(|i| i * 91 / 7 % 256).collect();
            let y: Vec<u64> = (0..40 * lanes as u64).map(|i| i * 57 / 5 % 256).collect();
            let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&x, &y]).remove(0);
            assert_eq!(z.len(), 24 * lanes);
            for (at, z) in z.iter().enumerate() {
                let (l, j, i, of) = (at % lanes, at / lanes % 4, at / lanes / 4 % 3, at / lanes / 12);
                let term = |k: usize| x[(of * 3 + i) * 5 + k] & y[((of * 5 + k) * 4 + j) * lanes + l];
                assert_eq!(*z, (0..5).fold(0, |sum, k| sum ^ term(k)) & 1, "{of} {i} {j} {l}");
            }
        }
    }

    #[test]
    fn bits_that_are_left_as_sums_are_counted() {
        let mut plan = Plan::new(8);
        let x = plan.input("x", "owner", [16, 16].into(), 0);
        let bits = plan.step("bits", Op::NonNegative(SignBit::FULL), &[x]).unwrap();
        let bits = plan.step("view", Op::View(View::transpose(&[16, 16].into(), &[1, 0])), &[bits]).unwrap();
        let numbers = plan.step("numbers", Op::Additive(Box::new(Op::BitToRing)), &[bits]).unwrap();
        let sums = plan.step("sums", Op::Sum { axis: 0 }, &[numbers]).unwrap();
        let sums = plan.step("shared", Op::Reshare, &[sums]).unwrap();
        plan.output("z", "owner", sums);
        let x: Vec<u64> = (0..256).map(|i| i * 91 % 256).collect();
        let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&x]).remove(0);
        let count = |row: usize| x[row * 16..][..16].iter().filter(|&&x| x < 128).count() as u64;
        assert_eq!(z, (0..16).map(count).collect::<Vec<_>>());
    }
}
