//! ReLU on MRSS, possibly with a truncation: the sign bit and the selection by it. METEOR, Fig. 9.
//!
//! Deviates from the figure: fraction bits can be dropped in the same step. The value is truncated
//! while its sign is found, and the truncated value is selected. The sign is then that of all bits
//! in the range, none is cut, or that of the truncated value: negative values give exactly 0. A sum
//! is opened first: to all where METEOR's comparison follows, else to P0 and P1 alone.
//!
//! phase     rounds                 bits per element
//! offline   one after the other    [truncation] + sign bit + selection
//! online    sign bit's + 1         [truncation] + sign bit + 3·ℓ
//!
//! Everybody sees what it sees in these steps; their masks are drawn for this step alone.
//!
//! Security: `docs/security/meteor.md`.

use super::compare::Comparison;
use super::{select, sum, truncate};
use crate::mrss::{Data, MaskedReplicated, Masks};
use crate::rss::{self, Rss};
use crate::sharing::Variant;
use crate::{Call, Cost, Encode, EncodeError, Made, Operands, Step, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The bit's mask and what the steps need.
pub struct Material<W: Word, D: Device, C: Comparison> {
    bit: Rss<Bits<D>>,
    sign: C::Material<D>,
    select: select::Material<W, D>,
    /// The truncated value's mask, and its step's material.
    truncated: Option<(Rss<Tensor<W, D>>, truncate::Material<W, D>)>,
    /// The mask under which a sum is opened.
    opened: Option<Rss<Tensor<W, D>>>,
}

impl<W: Word, D: Device, C: Comparison> Encode<D> for Material<W, D, C> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.bit.write(device, out)?;
        self.sign.write(device, out)?;
        Encode::<D>::write(&self.select, device, out)?;
        Encode::<D>::write(&self.truncated, device, out)?;
        Encode::<D>::write(&self.opened, device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Material {
            bit: Rss::read(device, input)?,
            sign: Encode::<D>::read(device, input)?,
            select: Encode::<D>::read(device, input)?,
            truncated: Encode::<D>::read(device, input)?,
            opened: Encode::<D>::read(device, input)?,
        })
    }
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

/// max(x, 0), perhaps truncated, of a value or of a sum ([`super::sum`]).
pub struct Relu<'a, C> {
    comparison: C,
    f: u32,
    of_sum: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant, C: Comparison> Step<'a, MaskedReplicated<W, D, P>> for Relu<'a, C> {
    type Material = Material<W, D, C>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        let comparison = C::of(call.op, W::BITS)?;
        Some(Relu { comparison, f: relu.truncate, of_sum: call.of_sum(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (ring, n) = (W::BITS, self.shape.elements());
        let sign = self.comparison.cost(n);
        let before = match self.f {
            0 => sign,
            f => beside(truncate::cost(ring, f, n), sign),
        };
        let opened = match (self.of_sum, C::TAKES_M) {
            (false, _) => Cost::LOCAL,
            (true, true) => sum::open_cost(ring, n),
            (true, false) => sum::two_cost(ring, n),
        };
        Ok(opened.then(before).then(select::cost(ring, n)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let shape = self.shape;
        let opened = match self.of_sum {
            false => None,
            true => Some(party.scope("open", |party| rss::random(party, "mask", shape))?),
        };
        let psi = opened.as_ref().unwrap_or_else(|| inputs[0].ring());
        let truncated = match self.f {
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
            Ok((bit, self.comparison.offline(party, psi)?))
        })?;
        let select = party.scope("select", |party| select::offline(party, &bit, value))?;
        Ok(Material { bit, sign, select, truncated, opened })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        material: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let (shape, n, comparison) = (self.shape, self.shape.elements(), &self.comparison);
        let tensor = |m| Tensor::new(shape.clone(), m);
        let x = operands.inputs[0].1;
        // m, if all know it, and ψ.
        let opened = match (x, &material.opened) {
            (Data::Sum(z), Some(psi)) if C::TAKES_M => {
                Some(tensor(party.scope("open", |party| sum::open(party, n, z, psi))?))
            }
            _ => None,
        };
        let value = match (x, &opened, &material.opened) {
            (Data::Ring(m), ..) => Some((m, operands.inputs[0].0.ring())),
            (_, Some(m), Some(psi)) => Some((m, psi)),
            _ => None,
        };
        let a = match (value, x, &material.opened) {
            (Some((m, psi)), ..) => truncate::known(party, m, psi)?,
            (None, Data::Sum(z), Some(psi)) => {
                party.scope("open", |party| sum::open_to_two(party, z, psi))?
            }
            _ => return party.refuse("a sum is opened under a mask of its own"),
        };
        let sent = match &material.truncated {
            None => None,
            Some((mask, material)) => {
                let a = a.clone();
                Some(party.scope("truncate", |party| truncate::send(party, self.f, a, mask, material))?)
            }
        };
        let compared =
            party.scope("sign", |party| comparison.send(party, a.as_ref(), &material.bit, &material.sign))?;
        let m = value.map(|(m, _)| m);
        let bit = party
            .scope("sign", |party| comparison.receive(party, m, &material.bit, compared, material.sign))?;
        let bit = Bits::new(shape.clone(), bit);
        let received = match sent {
            None => None,
            Some(sent) => {
                let m = party.scope("truncate", |party| truncate::receive(party, self.f, n, sent))?;
                Some(tensor(m))
            }
        };
        let value = match (&received, &material.truncated, value) {
            (Some(m), Some((mask, _)), _) => (m, mask),
            (_, _, Some(value)) => value,
            _ => return party.refuse("a sum is truncated before it is selected"),
        };
        let m = party.scope("select", |party| {
            select::online(party, &bit, value, operands.fresh(), &material.select)
        })?;
        Ok((Data::of_ring(shape, m), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Suite;
    use crate::alkaid_masked::AlkaidMasked;
    use crate::meteor::Meteor;
    use Phase::{Offline, Online};
    use megrez_kernels::Reference;
    use megrez_plan::{Kind, Relu, ReluForm, SignBit, Value};

    fn of(suite: &impl Suite, truncate: u32, of_sum: bool) -> [(f64, u32); 2] {
        let op = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate });
        let kind = if of_sum { Kind::Additive { frac: 0 } } else { Kind::Ring { frac: 0 } };
        let value = |kind| Value { shape: [1].into(), kind };
        let (input, output) = (value(kind), value(Kind::Ring { frac: 0 }));
        let cost = suite.cost(Call { op: &op, inputs: &[&input], output: &output }).unwrap();
        [Offline, Online].map(|phase| (cost.bits(phase), cost.rounds(phase)))
    }

    #[test]
    fn costs_are_those_of_the_documentation() {
        let meteor = |f, of_sum| of(&Meteor::<u64, Reference>::default(), f, of_sum);
        assert_eq!(meteor(0, false), [(1966.0, 14), (309.0, 4)]);
        assert_eq!(meteor(13, false), [(2107.0, 15), (412.0, 4)]);
        // 4·ℓ and a round more to open a sum, where a product would have been opened for 3·ℓ.
        assert_eq!(meteor(13, true), [(2107.0, 15), (668.0, 5)]);
    }

    #[test]
    fn alkaid_s_comparisons_take_a_sum_as_it_is() {
        let alkaid = |f, of_sum| of(&AlkaidMasked::<u64, Reference>::default(), f, of_sum);
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
