//! P-FALCON's comparison on `aby3`'s values, to compare its costs: FALCON's protocol as Piranha has
//! it for GPUs, which masks a value by a number whose bits are shared, opens it, and finds the
//! carry between what is public then and the shared bits. MIZAR measures it in its tables 5 to 8.
//!
//! With y = t − 1 − x, of which [x ≥ t] is the top bit, and a random r that nobody knows: u = y − r
//! is opened to all, and the top bit of u + r follows from the bits of r by a tree of pairs over
//! positions. All other rows are `aby3`'s ([`crate::aby3`]).
//!
//! Deviates from Piranha's code, whose r and its bits are constants, so that it opens y itself:
//! here r is drawn, a fresh one for every comparison and threshold, and its bits are those of its
//! three components' sum (`aby3/adder.rs`). Bits are sent as bits. A truncation is `aby3`'s,
//! exact up to the last bit, and runs before the comparison.
//!
//! phase     rounds           bits per value for λ bits above a cut of c    from → to
//! offline   2 + ⌈log2 w⌉     the bits of a sum of w + 1 bits, w = c+λ−1    P2 → P0, and P_i → P_{i−1}, each i
//! online    1                3·ℓ                                           P_i → P_{i−1}, each i
//!           ⌈log2 (λ−1)⌉     3 for each g, 3 for each p                    P_i → P_{i−1}, each i
//!
//! For λ = ℓ = 64 that is 546 bits in 7 rounds online. Where low bits are cut, a carry that the cut
//! loses errs on the side of x < t, as in `steps/compare.rs`.
//!
//! Everybody sees u, under a component of r that it lacks, and uniform bits. Security:
//! docs/security/replicated.md.

use crate::aby3::{Aby3, TopBit, adder, compare};
use crate::protocol::{self, Security};
use crate::rss::{self, Data, Masks, Replicated, Rss, after, before, reshare_cost};
use crate::steps::compare::Comparison;
use crate::steps::digits::signals;
use crate::steps::planes::Signal;
use crate::steps::tree::Tree;
use crate::steps::{select, sum, truncate};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Circuit, Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};

/// What the registry says of it.
pub const PROTOCOL: protocol::Protocol = protocol::Protocol::suite(
    "falcon",
    Security::SemiHonest,
    "semi-honest, one of three parties corrupted",
    "aby3 with P-FALCON's comparison, of real randomness, for comparison of costs",
)
.with_deferred_resharing()
.with_offload()
.with_factors(4);

/// The suite.
pub fn suite<W, D>() -> Aby3<W, D> {
    Replicated::with(TopBit::Opened)
}

/// r of comparisons, one lane for each threshold of each value, and the planes that are compared of
/// its bits.
pub struct Material<W: Word, D: Device> {
    r: Rss<Tensor<W, D>>,
    planes: Rss<Bits<D>>,
}
encode_struct!(Material[W, D] => r, planes);

/// The tree of the sum whose bits are those of r, up to the top one that is compared.
fn sum_tree(comparison: &Comparison) -> Tree {
    Tree::sklansky((comparison.cut() + comparison.width() - 1) as usize, 2)
}

fn cost(comparison: &Comparison, ring: u32, n: usize) -> Cost {
    let n = comparison.lanes(n).values();
    let opened = reshare_cost(Cost::LOCAL, 1, n, Unit::Bits(ring));
    let online = opened.then(adder::carry_cost(comparison.width() as usize - 1, n));
    adder::cost(&sum_tree(comparison), n).made_offline().beside(online)
}

/// Draws r and finds its bits.
fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    n: usize,
) -> Result<Material<W, D>, Error> {
    let (n, me) = (comparison.lanes(n).values(), party.me());
    let r = rss::random::<W, D>(party, "r", &Shape::from([n]))?;
    let (tree, words) = (sum_tree(comparison), bits::words(n));
    let known = sum::split(party, &r, tree.bits as u32 + 1)?;
    let planes = party.scope("bits", |party| adder::online(party, &tree, n, known))?;
    let compared: Vec<usize> = (comparison.cut() as usize..=tree.bits).collect();
    let planes = planes.map(me, |_, planes| {
        let planes = party.device().gather(planes, [1, tree.bits + 1, words], &compared)?;
        Ok::<_, Error>(Bits::new(Shape::from([compared.len() * words * 64]), planes))
    })?;
    Ok(Material { r, planes })
}

/// Shares of the signals of all positions below the top one, whose carry is the top bit of u + r:
/// the top bits themselves go into the signal of the highest position that no tree multiplies by
/// anything.
fn leaves<D: Device>(
    party: &Party<D>,
    width: usize,
    u: &D::Buf<u64>,
    r: &Rss<Bits<D>>,
    n: usize,
) -> Result<Rss<D::Buf<u64>>, Error> {
    r.map(party.me(), |c, r| {
        let mut circuit = Circuit::default();
        let wires = |circuit: &mut Circuit, i| (circuit.input(0, i), circuit.input(1, i));
        // u is public: it enters component 0 of a sum, and every component of a product.
        let sum = |circuit: &mut Circuit, i| {
            let (u, r) = wires(circuit, i);
            if c == 0 { circuit.xor(u, r) } else { r }
        };
        let top = sum(&mut circuit, width - 1);
        let planes = signals(width - 1).into_iter().map(|signal| match signal {
            Signal::Generate(span) => {
                let (u, r) = wires(&mut circuit, span.low);
                let generated = circuit.and(u, r);
                if span.high == width - 2 { circuit.xor(generated, top) } else { generated }
            }
            Signal::Propagate(span) => sum(&mut circuit, span.low),
            Signal::U(_) | Signal::V(_) => unreachable!("signals of positions"),
        });
        let planes = planes.collect();
        circuit.output(planes);
        let made = party.device().run_circuit(&circuit.compile(), &[u, &r.buf], bits::words(n))?;
        Ok(made.into_iter().next().expect("one output"))
    })
}

/// The bits, of this shape.
fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    x: &Rss<Tensor<W, D>>,
    shape: &Shape,
    material: &Material<W, D>,
) -> Result<Rss<Bits<D>>, Error> {
    let (me, n, width) = (party.me(), shape.elements(), comparison.width());
    let masked = x.map(me, |c, x| {
        let y = comparison.distances(party.device(), x, c == 0)?;
        let terms = [(W::ONE, &y), (W::ONE.neg(), &material.r.component(me, c).buf)];
        Ok::<_, Error>(party.device().combine(&terms, W::ZERO, n)?)
    })?;
    // Everybody sends the component that the party before it lacks.
    party.send_ring::<W>(before(me), "masked", masked.next.clone())?;
    let lacking = party.recv_ring::<W>(after(me), "masked", n)?;
    let terms = [(W::ONE, &masked.own), (W::ONE, &masked.next), (W::ONE, &lacking)];
    let u = party.device().combine(&terms, W::ZERO, n)?;
    let u = party.device().bit_planes(&u, comparison.cut(), width)?;
    let leaves = leaves(party, width as usize, &u, &material.planes, n)?;
    let top = adder::carry(party, width as usize - 1, n.into(), leaves)?;
    top.map(me, |_, plane| Ok(Bits::new(shape.clone(), party.device().xor(&[plane], false, n)?)))
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct Compare<'a> {
    comparison: Comparison,
    /// Elements of x.
    n: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Aby3<W, D>> for Compare<'a> {
    type Material = Material<W, D>;

    fn of(suite: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        if suite.variant != TopBit::Opened || !matches!(call.op, Op::NonNegative(_) | Op::CompareMany { .. })
        {
            return None;
        }
        Some(Compare {
            comparison: compare::of(call.op, W::BITS)?,
            n: call.of_elements(),
            shape: call.shape(),
        })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(&self.comparison, W::BITS, self.n))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        offline(party, &self.comparison, self.n)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let bit = online(party, &self.comparison, operands.ring(0), self.shape, &material)?;
        Ok((Data::Bit(bit), None))
    }
}

/// max(x, 0), with `f` fraction bits dropped; x is a replicated value or, for f > 0, a sum. The
/// truncation, the comparison of what it gives, and the product by the bit, one after
/// the other.
pub struct Relu<'a> {
    comparison: Comparison,
    f: u32,
    of_sum: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Aby3<W, D>> for Relu<'a> {
    type Material = Material<W, D>;

    fn of(suite: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        if suite.variant != TopBit::Opened {
            return None;
        }
        let comparison = compare::of(call.op, W::BITS)?;
        Some(Relu { comparison, f: relu.truncate, of_sum: call.of_sum(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        let truncated = match self.f {
            0 => Cost::LOCAL,
            f => truncate::cost(W::BITS, f, n, self.of_sum),
        };
        Ok(truncated.then(cost(&self.comparison, W::BITS, n)).then(select::cost(W::BITS, n, true)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        offline(party, &self.comparison, self.shape.elements())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let x = operands.inputs[0].1;
        let y = match self.f {
            0 => x.ring().clone(),
            f => party.scope("truncate", |party| truncate::online(party, f, x, self.shape))?,
        };
        let bit = online(party, &self.comparison, &y, self.shape, &material)?;
        Ok((Data::Ring(select::online(party, &bit, Some(&y))?), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Suite as _;
    use megrez_kernels::Reference;
    use megrez_plan::{Kind, SignBit, Value};
    use megrez_session::Phase::{Offline, Online};

    #[test]
    fn the_cost_of_a_sign_bit_is_that_of_the_head() {
        let value = |kind| Value { shape: [1].into(), kind };
        let (ring, bit) = (value(Kind::Ring { frac: 0 }), value(Kind::Bit));
        let of = |sign: SignBit| {
            let call = Call { op: &Op::NonNegative(sign), inputs: &[&ring], output: &bit };
            suite::<u64, Reference>().cost(call).unwrap()
        };
        let whole = of(SignBit::FULL);
        assert_eq!((whole.bits(Online), whole.rounds(Online), whole.rounds(Offline)), (546.0, 7, 8));
        // Fewer bits make the tree smaller, and a cut none of the sum whose bits are needed.
        let few = of(SignBit { cut: 4, bits: Some(8), ..SignBit::FULL });
        let nodes = f64::from(3 * (6 + 6 - 3));
        assert_eq!((few.bits(Online), few.rounds(Online)), (192.0 + nodes, 4));
        let sum = adder::cost(&Tree::sklansky(11, 2), 1).made_offline();
        assert_eq!(few.bits(Offline), sum.bits(Offline));
    }
}
