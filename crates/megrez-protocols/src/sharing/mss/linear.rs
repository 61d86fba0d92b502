//! Local steps on MSS: workers apply a linear map to m and to their share of r, the dealer to both
//! shares of r; of what is left as a sum, workers to their summands. Public summands enter m, or
//! worker 0's summand. Nothing is sent, so nothing is seen.
//!
//! And how a sum is shared: the workers open it under a fresh mask.

use super::{BitMask, Data, Mask, Masked, Masks, RingMask, Role, open};
use crate::sharing::{Publics, Variant, linear_of_publics};
use crate::{Call, Cost, Made, OnlineStep, Operands, Sharing, Unit, Unsupported, local};
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

/// A linear map of ring values, shared or left as sums.
pub struct Linear<'a> {
    op: &'a Op,
    output: &'a Value,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for Linear<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        let answers = call.op.is_linear() && !call.of_bits();
        answers.then_some(Linear { op: call.op, output: call.output })
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs && !is_sum(self.output)
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        if is_sum(output) {
            return Masked::<W, D, P>::fresh(party, output).map(Some);
        }
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
        let Role::Worker(j) = Role::of(party) else { return Ok((Data::None, None)) };
        if matches!(self.output.kind, Kind::Public { .. }) {
            return Ok((Data::None, None));
        }
        if is_sum(self.output) {
            let summand = |i| operands.summand(party.device(), j, i);
            let x = (0..operands.inputs.len()).map(summand).collect::<Result<Vec<_>, Error>>()?;
            let x: Vec<&Tensor<W, D>> = x.iter().map(|x| &**x).collect();
            return Ok((Data::Sum(local::linear(party.device(), self.op, &x, self.output, j == 0)?), None));
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

/// The lowest bit of a ring value: x = m − r is m ⊕ r modulo 2.
pub struct LowBit<'a>(&'a Shape);

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for LowBit<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::LowBit).then_some(LowBit(call.shape()))
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
        let Some(r) = inputs[0] else { return Ok(None) };
        Ok(Some(Masks::Bit(r.ring().map(|r| local::low_bits(party.device(), r))?)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Masked<W, D, P>>,
    ) -> Result<Made<Masked<W, D, P>>, Error> {
        let m = operands.masked(0).map(|m| party.device().pack_low(&m.buf, 1)).transpose()?;
        Ok((Data::of_bits(self.0, m), None))
    }
}

fn is_sum(value: &Value) -> bool {
    matches!(value.kind, Kind::Additive { .. })
}

/// A product with a public operand.
pub struct PublicProduct<'a> {
    product: local::Product<'a>,
    output: &'a Value,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for PublicProduct<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        let product = local::Product::with_public(call)?;
        Some(PublicProduct { product, output: call.output })
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs && !is_sum(self.output)
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        if is_sum(output) {
            return Masked::<W, D, P>::fresh(party, output).map(Some);
        }
        let apply =
            |x: &Tensor<W, D>, y: &Tensor<W, D>| self.product.apply(party.device(), x, y, &output.shape);
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
        let operand = |i: usize| match operands.inputs[i] {
            (Masks::Public(x), _) | (_, Data::Sum(x)) => x,
            _ => operands.ring(i).0,
        };
        let z = self.product.apply(party.device(), operand(0), operand(1), &self.output.shape)?;
        Ok((if is_sum(self.output) { Data::Sum(z) } else { Data::Ring(z) }, None))
    }
}

/// A sum that is shared: opened under a fresh mask. One round, 2ℓ bits an element; each worker sees
/// the other's summand under that one's half of the mask, and the uniform m.
pub struct Reshare<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Masked<W, D, P>> for Reshare<'a> {
    fn of(_: &Masked<W, D, P>, call: Call<'a>) -> Option<Self> {
        matches!(call.op, Op::Reshare).then_some(Reshare { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(Cost::LOCAL.online_swap(1, 0, 1, self.shape.elements(), Unit::Bits(W::BITS)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Masked<W, D, P>>,
    ) -> Result<Made<Masked<W, D, P>>, Error> {
        let Role::Worker(j) = Role::of(party) else { return Ok((Data::None, None)) };
        let (device, n) = (party.device(), self.shape.elements());
        let (z, r) = (operands.summand(device, j, 0)?, operands.fresh().share());
        let share = device.combine(&[(W::ONE, &z.buf), (W::ONE, &r.buf)], W::ZERO, n)?;
        let m = open(party, j, "reshared", n, share)?;
        Ok((Data::of_ring(self.shape, Some(m)), None))
    }
}
