//! The conjunction of two to four MRSS bits: METEOR's 2-MULT (Fig. 2) and N-MULT (Fig. 5) over F_2 ([`super::gates`]).
//!
//! phase     rounds   bits per element, N bits   from → to
//! offline   1 (2)    3·(2^N − 1 − N)            P_i → P_{i−1}, each i
//! online    1        3                          P_i → P_{i+1}, each i
//!
//! In brackets: for more than two. Everybody sees uniform bits.
//!
//! Security: `docs/security/meteor.md`.

use super::gates::{Products, Sum, opening};
use crate::Cost;
use crate::mrss::open_bits;
use crate::rss::Rss;
use megrez_kernels::{Bits, Circuit, Device, Wire};
use megrez_ring::{Shape, bits};
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

pub(super) fn cost(factors: usize, n: usize) -> Cost {
    products(factors).cost(n).made_offline().then(opening(1, n))
}

/// The products of the masks, as planes.
pub(super) fn offline<D: Device>(
    party: &mut Party<D>,
    masks: &[&Rss<Bits<D>>],
) -> Result<Rss<Bits<D>>, Error> {
    let n = masks[0].own.elements();
    let products = products(masks.len());
    let buffer = |psi: &Rss<Bits<D>>| Rss { own: psi.own.buf.clone(), next: psi.next.buf.clone() };
    let planes = products.make(party, masks.iter().map(|psi| (buffer(psi), 0..1)).collect(), n)?;
    let shape = Shape::from([products.planes() * bits::words(n) * 64]);
    planes.map(party.me(), |_, planes| Ok(Bits::new(shape.clone(), planes.clone())))
}

/// m of the conjunction under `mask`, from m of every factor.
pub(super) fn online<D: Device>(
    party: &mut Party<D>,
    m: &[&Bits<D>],
    mask: &Rss<Bits<D>>,
    made: &Rss<Bits<D>>,
) -> Result<D::Buf<u64>, Error> {
    let (device, n, factors) = (party.device(), m[0].elements(), m.len());
    let products = products(factors);
    let z = Rss::zip(party.me(), &[made, mask], |c, parts| {
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
    open_bits(party, "and", n, z)
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
