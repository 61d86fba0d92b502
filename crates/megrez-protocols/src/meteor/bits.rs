//! The conjunction of two to four MRSS bits: METEOR's 2-MULT (Fig. 2) and N-MULT (Fig. 5) over F_2
//! ([`super::gates`]).
//!
//! phase     rounds   bits per element, N bits   from → to
//! offline   1 (2)    3·(2^N − 1 − N)            P_i → P_{i−1}, each i
//! online    1        3                          P_i → P_{i+1}, each i
//!
//! In brackets: for more than two. Everybody sees uniform bits.
//!
//! Security: `docs/security/meteor.md`.

use super::gates::{Products, Sum, opening};
use crate::mrss::{Data, MaskedReplicated, Masks, open_bits};
use crate::rss::Rss;
use crate::rss::bit_shares::buffers;
use crate::sharing::Variant;
use crate::{Call, Cost, Made, Operands, Step, Unsupported};
use megrez_kernels::{Bits, Circuit, Device, Wire};
use megrez_plan::Op;
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};

/// The product of `factors` masked bits, whose public parts are given.
fn conjunction(circuit: &mut Circuit, factors: usize, public: impl Fn(&mut Circuit, usize) -> Wire) -> Sum {
    (0..factors).fold(Sum::one(), |product, factor| {
        let m = public(circuit, factor);
        product.times(circuit, factor, m)
    })
}

/// The products of masks in it.
fn products(factors: usize) -> Products {
    let sum = conjunction(&mut Circuit::default(), factors, |_, _| Circuit::ZERO);
    Products::new(factors, sum.sets())
}

fn cost(factors: usize, n: usize) -> Cost {
    products(factors).cost(n).made_offline().then(opening(1, n))
}

/// The conjunction of two to four bits.
pub struct And<'a> {
    factors: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for And<'a> {
    /// The products of the masks, as planes.
    type Material = Rss<Bits<D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::And).then_some(And { factors: call.inputs.len(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(self.factors, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (n, products) = (self.shape.elements(), products(self.factors));
        let masks = inputs.iter().map(|masks| (buffers(masks.bit()), 0..1)).collect();
        let planes = products.make(party, masks, n)?;
        let shape = Shape::from([products.planes() * bits::words(n) * 64]);
        planes.map(party.me(), |_, planes| Ok(Bits::new(shape.clone(), planes.clone())))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        made: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let (device, n, factors) = (party.device(), self.shape.elements(), self.factors);
        let m: Vec<&Bits<D>> = (0..factors).map(|i| operands.bit(i)).collect();
        let products = products(factors);
        let z = Rss::zip(party.me(), &[&made, operands.fresh_bits()], |c, parts| {
            let mut circuit = Circuit::default();
            let sum = conjunction(&mut circuit, factors, |circuit, factor| circuit.input(factor, 0));
            let share =
                sum.component(&mut circuit, c, |circuit, set| circuit.input(factors, products.place(set)));
            let psi = circuit.input(factors + 1, 0);
            let share = circuit.xor(share, psi);
            circuit.output(vec![share]);
            let inputs: Vec<_> = m.iter().map(|m| &m.buf).chain(parts.iter().map(|part| &part.buf)).collect();
            Ok::<_, Error>(device.run_circuit(&circuit.compile(), &inputs, bits::words(n))?.remove(0))
        })?;
        Ok((Data::of_bits(self.shape, open_bits(party, "and", n, z)?), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::{Offline, Online};

    #[test]
    fn the_costs_are_those_of_the_head() {
        for (factors, offline, rounds) in [(2, 3.0, 1), (3, 12.0, 2), (4, 33.0, 2)] {
            let cost = cost(factors, 1);
            assert_eq!((cost.bits(Offline), cost.rounds(Offline)), (offline, rounds));
            assert_eq!((cost.bits(Online), cost.rounds(Online)), (3.0, 1));
        }
    }
}
