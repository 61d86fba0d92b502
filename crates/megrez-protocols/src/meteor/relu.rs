//! ReLU on MRSS, possibly with a truncation: the sign bit and the selection by it. METEOR, Fig. 9.
//!
//! Deviates from the figure: fraction bits can be dropped in the same step. The value is truncated while its sign is found, and
//! the truncated value is selected. The sign is then that of all bits in the range, none is cut: negative values give exactly 0.
//!
//! phase     rounds                 bits per element
//! offline   one after the other    [truncation] + sign bit + selection
//! online    sign bit's + 1         [truncation] + sign bit + 3·ℓ
//!
//! Everybody sees what it sees in these steps; their masks are drawn for this step alone.

use super::{select, sign, sum, truncate};
use crate::rss::{self, Rss};
use crate::{Cost, Store, StoreError};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::{Relu, SignBit};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The bit's mask and what the steps need.
pub struct Material<W: Word, D: Device> {
    bit: Rss<Bits<D>>,
    sign: sign::Material<D>,
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

/// The comparison in it.
fn comparison(relu: &Relu, ring: u32) -> sign::Comparison {
    let sign = match relu.truncate {
        0 => relu.sign.clone(),
        _ => SignBit { cut: 0, bits: Some(relu.sign.cut + relu.sign.width(ring)), ..relu.sign.clone() },
    };
    sign::Comparison::new(&sign, ring, &[0])
}

/// `of_sum` says that the value is a sum ([`super::sum`]), which is opened first.
pub(super) fn cost(relu: &Relu, ring: u32, n: usize, of_sum: bool) -> Cost {
    let sign = comparison(relu, ring).cost(n);
    let before = match relu.truncate {
        0 => sign,
        f => beside(truncate::cost(ring, f, n), sign),
    };
    let opened = if of_sum { sum::open_cost(ring, n) } else { Cost::LOCAL };
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
        Ok((bit, comparison(relu, W::BITS).offline(party, psi)?))
    })?;
    let select = party.scope("select", |party| select::offline(party, &bit, value))?;
    Ok(Material { bit, sign, select, truncated, opened })
}

/// m of the result under `mask`, for a sum.
pub(super) fn online_of_sum<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Relu,
    z: &sum::Summand<W, D>,
    mask: &Rss<Tensor<W, D>>,
    mut material: Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let shape = mask.own.shape.clone();
    let psi = material.opened.take().expect("drawn for a sum");
    let m = party.scope("open", |party| sum::open(party, shape.elements(), z, &psi))?;
    online(party, relu, (&Tensor::new(shape, m), &psi), mask, material)
}

/// m of the result under `mask`.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Relu,
    (m, psi): (&Tensor<W, D>, &Rss<Tensor<W, D>>),
    mask: &Rss<Tensor<W, D>>,
    material: Material<W, D>,
) -> Result<D::Buf<W>, Error> {
    let (shape, n, f) = (m.shape.clone(), m.elements(), relu.truncate);
    let sent = match &material.truncated {
        None => None,
        Some((mask, material)) => {
            let known = truncate::known(party, m, psi)?;
            Some(party.scope("truncate", |party| truncate::send(party, f, known, mask, material))?)
        }
    };
    let bit = party
        .scope("sign", |party| comparison(relu, W::BITS).online(party, m, &material.bit, material.sign))?;
    let bit = Bits::new(shape.clone(), bit);
    let received = match sent {
        None => None,
        Some(sent) => {
            let m = party.scope("truncate", |party| truncate::receive(party, f, n, sent))?;
            Some(Tensor::new(shape, m))
        }
    };
    let value = match (&received, &material.truncated) {
        (Some(m), Some((mask, _))) => (m, mask),
        _ => (m, psi),
    };
    party.scope("select", |party| select::online(party, &bit, value, mask, &material.select))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Phase::{Offline, Online};
    use megrez_plan::ReluForm;

    fn of(truncate: u32, of_sum: bool) -> [(f64, u32); 2] {
        let relu = Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate };
        let cost = cost(&relu, 64, 1, of_sum);
        [Offline, Online].map(|phase| (cost.bits(phase), cost.rounds(phase)))
    }

    #[test]
    fn costs_are_those_of_the_documentation() {
        assert_eq!(of(0, false), [(1966.0, 14), (309.0, 4)]);
        assert_eq!(of(13, false), [(2107.0, 15), (412.0, 4)]);
        // 4·ℓ and a round more to open a sum, where a product would have been opened for 3·ℓ.
        assert_eq!(of(13, true), [(2107.0, 15), (668.0, 5)]);
    }

    #[test]
    fn a_product_and_its_truncation_cost_what_one_opening_and_its_fractions_do() {
        let (ring, f) = (64, 13);
        let cost = sum::product_cost(ring, 1).then(sum::two_cost(ring, 1).then(truncate::cost(ring, f, 1)));
        assert_eq!((cost.bits(Offline), cost.bits(Online)), (3.0 * 64.0 + 13.0, 3.0 * (64.0 + 13.0)));
        assert_eq!((cost.rounds(Offline), cost.rounds(Online)), (1, 2));
    }
}
