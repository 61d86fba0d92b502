//! Local steps on MSS: workers apply a linear map to m and to their share of r, the dealer to both
//! shares of r. Public summands enter m alone. Nothing is sent, so nothing is seen.

use super::{BitMask, Data, Mask, Masked, Masks, RingMask, Role};
use crate::sharing::{Publics, Variant, linear_of_publics};
use crate::{Call, Made, OnlineStep, Operands, local};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::{Kind, Op, Value};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

impl<W: Word, D: Device, P: Variant> Publics for Masked<W, D, P> {
    fn public(words: Tensor<W, D>) -> Masks<W, D> {
        Masks::Public(words)
    }
    fn words(masks: &Masks<W, D>) -> Option<&Tensor<W, D>> {
        match masks {
            Masks::Public(words) => Some(words),
            _ => None,
        }
    }
    fn nothing() -> Data<W, D> {
        Data::None
    }
}

/// A linear map of ring values.
pub struct Linear<'a> {
    op: &'a Op,
    output: &'a Value,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for Linear<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        let answers = local::is_linear(call.op) && !call.of_bits();
        answers.then_some(Linear { op: call.op, output: call.output })
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        if let Some(public) = linear_of_publics::<Masked<W, D, P>>(party, self.op, output, inputs)? {
            return Ok(Some(public));
        }
        let Some(inputs) = inputs.iter().copied().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let masks: Vec<&RingMask<W, D>> = inputs.iter().map(|m| m.ring()).collect();
        let linear = |r: &[&Tensor<W, D>]| local::linear(party.device(), self.op, r, output, false);
        Ok(Some(Masks::Ring(Mask::zip(&masks, linear)?)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Masked<W, D, P>>,
    ) -> Result<Made<Masked<W, D, P>>, Error> {
        if Role::of(party) == Role::Dealer || matches!(self.output.kind, Kind::Public { .. }) {
            return Ok((Data::None, None));
        }
        let m: Vec<_> = (0..operands.inputs.len()).map(|i| operands.ring(i).0).collect();
        Ok((Data::Ring(local::linear(party.device(), self.op, &m, self.output, true)?), None))
    }
}

/// A rearrangement, a negation or an exclusive or of bits.
pub struct BitLinear<'a>(local::BitLinear<'a>);

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for BitLinear<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        local::BitLinear::of(call).map(BitLinear)
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        _: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let Some(inputs) = inputs.iter().copied().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let masks: Vec<&BitMask<D>> = inputs.iter().map(|m| m.bit()).collect();
        // The negation is m's.
        Ok(Some(Masks::Bit(Mask::zip(&masks, |r| self.0.apply(party.device(), r, false))?)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Masked<W, D, P>>,
    ) -> Result<Made<Masked<W, D, P>>, Error> {
        if Role::of(party) == Role::Dealer {
            return Ok((Data::None, None));
        }
        let m: Vec<&Bits<D>> = (0..operands.inputs.len()).map(|i| operands.masked_bits(i)).collect();
        Ok((Data::Bit(self.0.apply(party.device(), &m, true)?), None))
    }
}

/// A product with a public operand.
pub struct PublicProduct<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for PublicProduct<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        let product = local::Product::with_public(call)?;
        Some(PublicProduct { product, shape: call.shape() })
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        _: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let apply = |x: &Tensor<W, D>, y: &Tensor<W, D>| self.product.apply(party.device(), x, y, self.shape);
        Ok(match inputs {
            [Some(Masks::Ring(x)), Some(Masks::Public(y))] => Some(Masks::Ring(x.map(|x| apply(x, y))?)),
            [Some(Masks::Public(x)), Some(Masks::Ring(y))] => Some(Masks::Ring(y.map(|y| apply(x, y))?)),
            // Public values are never deferred: the other one is.
            _ => None,
        })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Masked<W, D, P>>,
    ) -> Result<Made<Masked<W, D, P>>, Error> {
        if Role::of(party) == Role::Dealer {
            return Ok((Data::None, None));
        }
        let operand = |i: usize| match operands.inputs[i].0 {
            Masks::Public(x) => x,
            _ => operands.ring(i).0,
        };
        let z = self.product.apply(party.device(), operand(0), operand(1), self.shape)?;
        Ok((Data::Ring(z), None))
    }
}
