//! ReLU under `alkaid`, with a truncation in the same step: the comparison ([`super::compare`]) and
//! the truncation ([`truncate`]) run beside each other, on the same two parts of the value
//! ([`crate::steps::relu`]), and the bit is multiplied by what is truncated. Ours.
//!
//! phase     rounds                    bits per element
//! offline   the comparison's, then 2  the comparison's and 3·ℓ, the bit's mask as a ring value ([`select`])
//! online    the comparison's, and 1   the comparison's, the truncation's, and 3·ℓ ([`product`])
//!
//! All steps mask what they send; see there what each party sees. Security:
//! docs/security/replicated.md.

use super::bits::select_cost;
use super::family::Alkaid;
use super::{compare, top};
use crate::local::Product;
use crate::rss::bit_shares::to_ring;
use crate::rss::{self, Data, Masks, Rss};
use crate::steps::compare::Comparison;
use crate::steps::relu::Parts;
use crate::steps::{product, select, truncate};
use crate::{Call, Cost, Made, Operands, Step, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The comparison's material, its bit's mask, and that mask as a ring value.
pub struct Material<W: Word, D: Device> {
    top: top::Material<D>,
    mask: Rss<Bits<D>>,
    ring: Rss<Tensor<W, D>>,
}
encode_struct!(Material[W, D] => top, mask, ring);

/// max(x, 0), with `f` fraction bits dropped; x is a replicated value or, for f > 0, a sum.
pub struct Relu<'a> {
    comparison: Comparison,
    f: u32,
    of_sum: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for Relu<'a> {
    type Material = Material<W, D>;

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        let comparison = compare::of(call.op, W::BITS)?;
        Some(Relu { comparison, f: relu.truncate, of_sum: call.of_sum(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        let truncated = match self.f {
            0 => Cost::LOCAL,
            f => truncate::cost(W::BITS, f, n, self.of_sum),
        };
        let compared = compare::cost(&self.comparison, Phase::Online, n);
        Ok(truncated.beside(compared).then(select_cost(W::BITS, n, true)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let top = compare::offline(party, &self.comparison, self.shape.elements())?;
        let mask = rss::random_bits(party, "mask", self.shape)?;
        let ring = party.scope("mask", |party| select::online(party, &mask, None))?;
        Ok(Material { top, mask, ring })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        Material { top, mask, ring }: Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let (n, comparison) = (self.shape.elements(), &self.comparison);
        let Parts { dealt, worker, truncation } =
            Parts::send(party, comparison, self.f, operands.inputs[0].1, self.shape)?;
        let dealt = comparison.take(party, n, dealt)?;
        let sent = compare::send(party, comparison, n, worker.as_ref(), dealt.as_ref(), (&top, &mask))?;
        let y = truncation.receive(party, self.f)?;
        let m = compare::receive(party, comparison, self.shape, sent, top)?;
        let bit = to_ring(party, &m, &ring)?;
        Ok((Data::Ring(product::online(party, &Product::Elements, &bit, &y, self.shape)?), None))
    }
}
