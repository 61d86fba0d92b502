//! ReLU on MRSS, possibly with a truncation: the sign bit and the selection by it. METEOR, Fig. 9.
//!
//! Deviates from the figure: fraction bits can be dropped in the same step. The value is truncated while its sign is found, and
//! the truncated value is selected. The sign is then that of all bits in the range, none is cut, or that of the truncated value: negative
//! values give exactly 0. A sum is opened first: to all where METEOR's comparison follows, else to P0 and P1 alone.
//!
//! phase     rounds                 bits per element
//! offline   one after the other    [truncation] + sign bit + selection
//! online    sign bit's + 1         [truncation] + sign bit + 3·ℓ
//!
//! Everybody sees what it sees in these steps; their masks are drawn for this step alone.
//!
//! Security: `docs/security/meteor.md`.

use super::compare::{self, Comparison};
use super::{select, sum, truncate};
use crate::rss::{self, Rss};
use crate::{Cost, Store, StoreError};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::Relu;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The bit's mask and what the steps need.
pub struct Material<W: Word, D: Device> {
    bit: Rss<Bits<D>>,
    sign: compare::Material<D>,
    select: select::Material<W, D>,
    /// The truncated value's mask, and its step's material.
    truncated: Option<(Rss<Tensor<W, D>>, truncate::Material<W, D>)>,
    /// The mask under which a sum is opened.
    opened: Option<Rss<Tensor<W, D>>>,
}

impl<W: Word, D: Device> Store<D> for Material<W, D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        self.bit.write(device, out)?;
        self.sign.write(device, out)?;
        Store::<D>::write(&self.select, device, out)?;
        Store::<D>::write(&self.truncated, device, out)?;
        Store::<D>::write(&self.opened, device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        Ok(Material {
            bit: Rss::read(device, input)?,
            sign: Store::<D>::read(device, input)?,
            select: Store::<D>::read(device, input)?,
            truncated: Store::<D>::read(device, input)?,
            opened: Store::<D>::read(device, input)?,
        })
    }
}

/// `of_sum` says that the value is a sum ([`super::sum`]), which is opened first.
pub(super) fn cost(relu: &Relu, comparison: &Comparison, ring: u32, n: usize, of_sum: bool) -> Cost {
    let sign = comparison.cost(n);
    let before = match relu.truncate {
        0 => sign,
        f => beside(truncate::cost(ring, f, n), sign),
    };
    let opened = match (of_sum, comparison) {
        (false, _) => Cost::LOCAL,
        (true, Comparison::Meteor(_)) => sum::open_cost(ring, n),
        (true, Comparison::Alkaid(_)) => sum::two_cost(ring, n),
    };
    opened.then(before).then(select::cost(ring, n))
}

/// Two steps: offline after each other, online beside each other.
fn beside(first: Cost, second: Cost) -> Cost {
    let of = |cost: &Cost, phase| Cost {
        transfers: cost.transfers.iter().filter(|t| t.phase == phase).copied().collect(),
    };
    let mut both = of(&first, Phase::Offline).then(of(&second, Phase::Offline));
    [first, second].iter().for_each(|cost| both.transfers.extend(of(cost, Phase::Online).transfers));
    both
}

/// From the value's mask; a sum has none.
pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Relu,
    comparison: &Comparison,
    shape: &Shape,
    psi: Option<&Rss<Tensor<W, D>>>,
) -> Result<Material<W, D>, Error> {
    let opened = match psi {
        Some(_) => None,
        None => Some(party.scope("open", |party| rss::random(party, "mask", shape))?),
    };
    let psi = psi.or(opened.as_ref()).expect("one of both");
    let truncated = match relu.truncate {
        0 => None,
        f => Some(party.scope("truncate", |party| {
            let mask = rss::random(party, "mask", shape)?;
            let material = truncate::offline(party, f, psi, &mask)?;
            Ok((mask, material))
        })?),
    };
    let value = truncated.as_ref().map_or(psi, |(mask, _)| mask);
    let (bit, sign) = party.scope("sign", |party| {
        let bit = rss::random_bits(party, "mask", shape)?;
        Ok((bit, comparison.offline(party, psi)?))
    })?;
    let select = party.scope("select", |party| select::offline(party, &bit, value))?;
    Ok(Material { bit, sign, select, truncated, opened })
}

/// What a ReLU is applied to.
pub(super) enum Operand<'a, W: Word, D: Device> {
    /// m and ψ.
    Masked(&'a Tensor<W, D>, &'a Rss<Tensor<W, D>>),
    /// A summand.
    Sum(&'a sum::Summand<W, D>),
}

/// m of the result under `mask`.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Relu,
    comparison: &Comparison,
    x: Operand<'_, W, D>,
    mask: &Rss<Tensor<W, D>>,
    material: Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let (shape, n, f) = (mask.own.shape.clone(), mask.own.elements(), relu.truncate);
    // m, if all know it, and ψ.
    let opened = match (&x, &material.opened, comparison) {
        (Operand::Sum(z), Some(psi), Comparison::Meteor(_)) => {
            Some(Tensor::new(shape.clone(), party.scope("open", |party| sum::open(party, n, z, psi))?))
        }
        _ => None,
    };
    let value = match (&x, &opened, &material.opened) {
        (Operand::Masked(m, psi), ..) => Some((*m, *psi)),
        (_, Some(m), Some(psi)) => Some((m, psi)),
        _ => None,
    };
    let a = match (value, &x, &material.opened) {
        (Some((m, psi)), ..) => truncate::known(party, m, psi)?,
        (None, Operand::Sum(z), Some(psi)) => party.scope("open", |party| sum::open_to_two(party, z, psi))?,
        _ => return party.refuse("a sum is opened under a mask of its own"),
    };
    let sent = match &material.truncated {
        None => None,
        Some((mask, material)) => {
            let a = a.clone();
            Some(party.scope("truncate", |party| truncate::send(party, f, a, mask, material))?)
        }
    };
    let compared =
        party.scope("sign", |party| comparison.send(party, a.as_ref(), &material.bit, &material.sign))?;
    let m = value.map(|(m, _)| m);
    let bit =
        party.scope("sign", |party| comparison.receive(party, m, &material.bit, compared, material.sign))?;
    let bit = Bits::new(shape.clone(), bit);
    let received = match sent {
        None => None,
        Some(sent) => {
            let m = party.scope("truncate", |party| truncate::receive(party, f, n, sent))?;
            Some(Tensor::new(shape, m))
        }
    };
    let value = match (&received, &material.truncated, value) {
        (Some(m), Some((mask, _)), _) => (m, mask),
        (_, _, Some(value)) => value,
        _ => return party.refuse("a sum is truncated before it is selected"),
    };
    party.scope("select", |party| select::online(party, &bit, value, mask, &material.select))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meteor::Comparisons;
    use Phase::{Offline, Online};
    use megrez_plan::{Op, ReluForm, SignBit};

    fn of(which: Comparisons, truncate: u32, of_sum: bool) -> [(f64, u32); 2] {
        let relu = Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate };
        let comparison = Comparison::of(which, &Op::Relu(relu.clone()), 64).unwrap();
        let cost = cost(&relu, &comparison, 64, 1, of_sum);
        [Offline, Online].map(|phase| (cost.bits(phase), cost.rounds(phase)))
    }

    #[test]
    fn costs_are_those_of_the_documentation() {
        let meteor = |f, of_sum| of(Comparisons::Meteor, f, of_sum);
        assert_eq!(meteor(0, false), [(1966.0, 14), (309.0, 4)]);
        assert_eq!(meteor(13, false), [(2107.0, 15), (412.0, 4)]);
        // 4·ℓ and a round more to open a sum, where a product would have been opened for 3·ℓ.
        assert_eq!(meteor(13, true), [(2107.0, 15), (668.0, 5)]);
    }

    #[test]
    fn alkaid_s_comparisons_take_a_sum_as_it_is() {
        let alkaid = |f, of_sum| of(Comparisons::Alkaid, f, of_sum);
        assert_eq!(alkaid(0, false), [(656.0, 4), (364.0, 4)]);
        assert_eq!(alkaid(13, false), [(693.0, 5), (467.0, 4)]);
        assert_eq!(alkaid(13, true), [(693.0, 5), (595.0, 5)]);
    }

    #[test]
    fn a_product_and_its_truncation_cost_what_one_opening_and_its_fractions_do() {
        let (ring, f) = (64, 13);
        let cost = sum::product_cost(ring, 1).then(sum::two_cost(ring, 1).then(truncate::cost(ring, f, 1)));
        assert_eq!((cost.bits(Offline), cost.bits(Online)), (3.0 * 64.0 + 13.0, 3.0 * (64.0 + 13.0)));
        assert_eq!((cost.rounds(Offline), cost.rounds(Online)), (1, 2));
    }
}
