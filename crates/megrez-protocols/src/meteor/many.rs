//! The product of three or four MRSS values, element by element: METEOR's N-MULT (§4.2, Fig. 5) on
//! the ring; [`super::gates`] has it over F_2.
//!
//! The product of x_t = m_t + ψ_t is Σ_S Π_{t∉S} m_t · ψ_S over all sets S of factors, with ψ_S =
//! Π_{t∈S} ψ_t. The ψ_S are made offline, those of two factors first, those of three and four from
//! them. With them the product is replicated without a message, and is opened under a fresh mask
//! ψ_z. The scale of the result is the sum of the scales, and the ring has to hold it.
//!
//! Deviates from the figure: Π m_t enters component 0 only.
//!
//! phase     rounds  bits per element, N factors   from → to
//! offline   2       3·ℓ·(2^N − 1 − N)             P_i → P_{i−1}, each i
//! online    1       3·ℓ                           P_i → P_{i+1}, each i
//!
//! Everybody sees uniform elements: components of the ψ_S made fresh by sharings of zero, and m_z.
//!
//! Security: `docs/security/meteor.md`.

use crate::local::Product;
use crate::mrss::{Data, MaskedReplicated, Masks, open, open_cost};
use crate::rss::Rss;
use crate::sharing::Variant;
use crate::steps::product;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, DeviceError, Placement, Tensor};
use megrez_plan::{Op, View};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// Factors of a product: bit t for factor t.
type Set = usize;

/// The sets whose products a round makes: those of two factors, then those of three and four.
fn rounds(factors: usize) -> [Vec<Set>; 2] {
    let of =
        |sizes: &[u32]| (0..1 << factors).filter(|set: &Set| sizes.contains(&set.count_ones())).collect();
    [of(&[2]), of(&[3, 4])]
}

/// A set as two that are there before it: the lowest factor or two, and the others.
fn halves(set: Set) -> [Set; 2] {
    let lowest = set & set.wrapping_neg();
    let low = match set.count_ones() {
        4 => lowest | (set ^ lowest) & (set ^ lowest).wrapping_neg(),
        _ => lowest,
    };
    [low, set ^ low]
}

/// `n` elements from part `at` of many that are joined.
fn part<W: Word, D: Device>(
    device: &D,
    all: &Tensor<W, D>,
    at: usize,
    n: usize,
) -> Result<D::Buf<W>, DeviceError> {
    device.view(&all.buf, &View { offset: at * n, ..View::whole([n].into()) })
}

/// Tensors of `n` elements, one after the other.
fn join<W: Word, D: Device>(device: &D, parts: &[&D::Buf<W>], n: usize) -> Result<Tensor<W, D>, DeviceError> {
    let place =
        |(at, &source)| Placement { source, target: View { offset: at * n, ..View::whole([n].into()) } };
    let places: Vec<_> = parts.iter().enumerate().map(place).collect();
    Ok(Tensor::new([parts.len() * n], device.place(&places, parts.len() * n)?))
}

fn cost(ring: u32, factors: usize, n: usize) -> Cost {
    let made = rounds(factors).map(|sets| product::cost(ring, sets.len() * n));
    let offline = made.into_iter().fold(Cost::LOCAL, Cost::then);
    open_cost(offline.made_offline(), 1, n, Unit::Bits(ring))
}

/// The product of three or four values.
pub struct Many<'a> {
    factors: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> Step<'a, MaskedReplicated<W, D, P>> for Many<'a> {
    /// ψ_S for every S of two and more factors, joined in the order of [`rounds`].
    type Material = Rss<Tensor<W, D>>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let factors = call.inputs.len();
        (*call.op == Op::Mul && factors > 2).then_some(Many { factors, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(W::BITS, self.factors, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (device, me, n) = (party.device().clone(), party.me(), self.shape.elements());
        let mut made: Vec<Option<Rss<D::Buf<W>>>> = vec![None; 1 << inputs.len()];
        for (t, masks) in inputs.iter().enumerate() {
            made[1 << t] = Some(masks.ring().map(me, |_, psi| Ok::<_, Error>(psi.buf.clone()))?);
        }
        let rounds = rounds(inputs.len());
        for (label, sets) in ["pairs", "larger"].into_iter().zip(&rounds) {
            let joined = |half: usize| {
                let parts: Vec<_> = sets.iter().filter_map(|&set| made[halves(set)[half]].as_ref()).collect();
                Rss::zip(me, &parts, |_, parts| join(&device, parts, n))
            };
            let (x, y) = (joined(0)?, joined(1)?);
            let all = party
                .scope(label, |party| product::online(party, &Product::Elements, &x, &y, &x.own.shape))?;
            for (at, &set) in sets.iter().enumerate() {
                made[set] = Some(all.map(me, |_, all| part(&device, all, at, n))?);
            }
        }
        let products: Vec<_> = rounds.iter().flatten().filter_map(|&set| made[set].as_ref()).collect();
        Ok(Rss::zip(me, &products, |_, parts| join(&device, parts, n))?)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        made: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let factors: Vec<_> = (0..self.factors).map(|i| operands.ring(i)).collect();
        let (device, me, n, mask) = (party.device(), party.me(), self.shape.elements(), operands.fresh());
        let (one, minus) = (W::ONE, W::ONE.neg());
        let places: Vec<Set> = rounds(factors.len()).concat();
        let z = Rss::of(me, |c| {
            // Component c of ψ_S at S; the empty product is 1, a public constant.
            let public = if c == 0 { one } else { W::ZERO };
            let mut terms = (0..1 << factors.len())
                .map(|set: Set| match (set, places.iter().position(|&s| s == set)) {
                    (0, _) => device.combine(&[], public, n),
                    (_, Some(at)) => part(device, made.component(me, c), at, n),
                    (single, None) => Ok(factors[single.ilog2() as usize].1.component(me, c).buf.clone()),
                })
                .collect::<Result<Vec<_>, _>>()?;
            // One factor after the other: the term at S becomes that of ψ_S times all factors from
            // t on.
            for (t, (m, _)) in factors.iter().enumerate().rev() {
                let with = terms.split_off(1 << t);
                let times = |(without, with)| device.products(&[(one, &m.buf, without)], &[(one, with)]);
                terms = terms.iter().zip(&with).map(times).collect::<Result<_, _>>()?;
            }
            device.combine(&[(one, &terms[0]), (minus, &mask.component(me, c).buf)], W::ZERO, n)
        })?;
        Ok((Data::of_ring(self.shape, open(party, "product", n, z)?), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_session::Phase::{Offline, Online};

    #[test]
    fn the_costs_are_those_of_the_head() {
        for (factors, products) in [(3, 4.0), (4, 11.0)] {
            let cost = cost(64, factors, 1);
            assert_eq!((cost.bits(Offline), cost.rounds(Offline)), (192.0 * products, 2));
            assert_eq!((cost.bits(Online), cost.rounds(Online)), (192.0, 1));
        }
    }

    #[test]
    fn every_product_is_made_of_two_that_are_there() {
        for factors in [3, 4] {
            let mut there: Vec<Set> = (0..factors).map(|t| 1 << t).collect();
            for sets in rounds(factors) {
                let disjoint = |set: &Set| halves(*set).iter().sum::<Set>() == *set;
                assert!(
                    sets.iter().all(|set| disjoint(set) && halves(*set).iter().all(|h| there.contains(h)))
                );
                there.extend(sets);
            }
            assert_eq!(there.len(), (1 << factors) - 1);
        }
    }
}
