//! Polynomials over F_2 of MSS bits, by dealt products of masks. Ours; a node of [`super::tree`] is
//! such a polynomial of what its parts have opened.
//!
//! A term is Π (m_f ⊕ r_f) = Σ_S Π_{f ∉ S} m_f · Π_{f ∈ S} r_f, over the sets S of its factors:
//! linear in products of masks, with coefficients that the workers know. The dealer deals shares of
//! the products of two masks and more, each set once, in however many terms it is; a term's sum
//! over all sets, and a polynomial's over all terms, is opened as one bit.
//!
//! phase     rounds  bits per element of a slice            from → to
//! offline   1       sets of two factors and more           dealer → worker 1
//! online    1       2 for each polynomial                  worker ↔ worker
//!
//! Workers see values masked by a fresh r_z, worker 1 also uniform shares.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use super::nodes::product_of_masks;
use crate::mss::{DEALER, Data, Masks, Role, open_bits};
use crate::steps::polynomial::{Set, Sum};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Circuit, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};
use std::collections::{BTreeSet, HashMap};

/// Polynomials of slices.
pub struct Polynomials<'a> {
    sums: &'a [Vec<Set>],
    slices: usize,
    shape: &'a Shape,
}

impl Polynomials<'_> {
    /// Bits of a slice.
    fn lanes(&self) -> usize {
        self.shape.elements() / self.sums.len()
    }

    /// The sets whose products are dealt, rising.
    fn sets(&self) -> Vec<Set> {
        let of = |term: &Set| {
            let subset = |chosen: u32| {
                let with = term.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1);
                with.map(|(_, &factor)| factor).collect::<Set>()
            };
            (0..1u32 << term.len()).filter(|chosen| chosen.count_ones() > 1).map(subset).collect::<Vec<_>>()
        };
        let all: BTreeSet<Set> = self.sums.iter().flatten().flat_map(of).collect();
        all.into_iter().collect()
    }
}

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Polynomials<'a> {
    /// A worker's shares of the products of masks; nothing at the dealer.
    type Material = Option<Bits<D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::BitPolynomials { sums } = call.op else { return None };
        Some(Polynomials { sums, slices: call.inputs[0].shape.dims()[0], shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (dealt, bit) = (self.sets().len() * self.lanes(), Unit::Bits(1));
        let online = Cost::LOCAL.online_swap(1, 0, 1, self.shape.elements(), bit);
        Ok(if dealt == 0 { online } else { online.offline(DEALER, 1, dealt, bit) })
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (sets, n) = (self.sets(), self.lanes());
        let dealt = sets.len() * n;
        let kept = |buf: D::Buf<u64>| Some(Bits::new([sets.len(), n], buf));
        if dealt == 0 {
            return Ok(match Role::of(party) {
                Role::Dealer => None,
                Role::Worker(_) => kept(party.device().upload(vec![])?),
            });
        }
        match Role::of(party) {
            Role::Worker(1) => Ok(kept(party.recv_bits(DEALER, "products", dealt)?)),
            Role::Worker(_) => {
                let stream = party.stream(DEALER, "products")?;
                Ok(kept(party.device().random_bits(&stream, dealt)?))
            }
            Role::Dealer => {
                let device = party.device();
                let planes = |r: &Bits<D>| device.unpack_planes(&r.buf, self.slices, n);
                let [first, second] = inputs[0].bit().both().map(planes);
                let mut circuit = Circuit::default();
                let products = sets.iter().map(|set| product_of_masks(&mut circuit, set)).collect();
                circuit.output(products);
                let words = bits::words(n);
                let made = device.run_circuit(&circuit.compile(), &[&first?, &second?], words)?.remove(0);
                let products = device.pack_planes(&made, sets.len(), n)?;
                let stream = party.stream(0, "products")?;
                let other = party.device().random_bits(&stream, dealt)?;
                let share = party.device().xor(&[&products, &other], false, dealt)?;
                party.send_bits(1, "products", share, dealt)?;
                Ok(None)
            }
        }
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let (device, n, sets) = (party.device(), self.lanes(), self.sets());
        if dealt.elements() != sets.len() * n {
            return party.refuse("a worker was given other polynomials' material");
        }
        let (m, r) = operands.bits(0);
        let (m, r) =
            (device.unpack_planes(&m.buf, self.slices, n)?, device.unpack_planes(&r.buf, self.slices, n)?);
        let products = device.unpack_planes(&dealt.buf, sets.len(), n)?;
        let place: HashMap<&Set, usize> = sets.iter().zip(0..).collect();
        // Buffers: masks, products of masks, masked bits.
        let mut circuit = Circuit::default();
        let mut shares = vec![];
        for terms in self.sums {
            let mut sum = Sum::default();
            for term in terms {
                let product = term.iter().fold(Sum::one(), |product, &factor| {
                    let m = circuit.input(2, factor);
                    product.times(&mut circuit, factor, m)
                });
                sum = sum.plus(&mut circuit, &product);
            }
            shares.push(sum.component(&mut circuit, j, |circuit, set| match set {
                &[factor] => circuit.input(0, factor),
                set => circuit.input(1, place[&set.to_vec()]),
            }));
        }
        circuit.output(shares);
        let made = device.run_circuit(&circuit.compile(), &[&r, &products, &m], bits::words(n))?.remove(0);
        let share = device.pack_planes(&made, self.sums.len(), n)?;
        let all = self.shape.elements();
        let share = device.xor(&[&share, &operands.fresh_bits().share().buf], false, all)?;
        let z = open_bits(party, j, "polynomials", all, share)?;
        Ok((Data::of_bits(self.shape, Some(z)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan};

    /// All values of four bits: terms of one to four factors, sets that several terms share.
    #[test]
    fn polynomials_of_four_bits_have_their_values() {
        let sums: Vec<Vec<Vec<usize>>> = vec![
            vec![vec![0]],
            vec![vec![0], vec![1, 2], vec![0, 1, 2, 3]],
            vec![vec![3], vec![2, 3], vec![1, 2, 3], vec![0, 1, 2]],
        ];
        for lanes in [16, 64, 80] {
            let mut plan = Plan::new(8);
            let x = plan.input("x", "owner", [4, lanes].into(), 0);
            let bits = plan.step("bits", Op::LowBit, &[x]).unwrap();
            let z = plan.step("z", Op::BitPolynomials { sums: sums.clone() }, &[bits]).unwrap();
            let z = plan.step("numbers", Op::BitToRing, &[z]).unwrap();
            plan.output("z", "owner", z);
            let x: Vec<u64> = (0..4 * lanes).map(|i| ((i % lanes) >> (i / lanes) & 1) as u64 + 6).collect();
            let z = World::new(Mizar::<u8, Reference>::default()).run(&plan, &[&x]).remove(0);
            for (at, z) in z.iter().enumerate() {
                let (sum, lane) = (at / lanes, at % lanes);
                let value = sums[sum].iter().filter(|term| term.iter().all(|f| lane >> f & 1 == 1)).count();
                assert_eq!(*z, value as u64 % 2, "{sum} of {lane}");
            }
        }
    }
}
