//! Local steps on MRSS: a linear map of m and of both components of ψ; public summands enter m
//! alone. Nothing is sent, so nothing is seen.

use super::{Data, MaskedReplicated, Masks, sum};
use crate::rss::Rss;
use crate::sharing::{Publics, Variant, linear_of_publics};
use crate::{Call, Made, OnlineStep, Operands, local};
use megrez_kernels::{Device, Tensor};
use megrez_plan::{Kind, Op, Value};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

impl<W: Word, D: Device, P: Variant> Publics for MaskedReplicated<W, D, P> {
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
        Data::Public(())
    }
}

/// A linear map of ring values, shared or left as sums.
pub struct Linear<'a> {
    op: &'a Op,
    output: &'a Value,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, MaskedReplicated<W, D, P>> for Linear<'a> {
    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let answers = call.op.is_linear() && !call.of_bits();
        answers.then_some(Linear { op: call.op, output: call.output })
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        if matches!(output.kind, Kind::Additive { .. }) {
            return Ok(Some(Masks::Sum(output.shape.clone())));
        }
        if let Some(public) = linear_of_publics::<MaskedReplicated<W, D, P>>(party, self.op, output, inputs)?
        {
            return Ok(Some(public));
        }
        let psi: Vec<_> = inputs.iter().flatten().map(|m| m.ring()).collect();
        let linear = |_, psi: &[&Tensor<W, D>]| local::linear(party.device(), self.op, psi, output, false);
        Ok(Some(Masks::Ring(Rss::zip(party.me(), &psi, linear)?)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let (device, op, output) = (party.device(), self.op, self.output);
        let data = match output.kind {
            Kind::Public { .. } => Data::Public(()),
            Kind::Additive { .. } => {
                let summand = |(psi, m): &(&Masks<W, D>, &Data<W, D>)| match m {
                    Data::Sum(z) => Ok(z.clone()),
                    m => sum::of(party, m.ring(), psi.ring()),
                };
                let z = operands.inputs.iter().map(summand).collect::<Result<Option<Vec<_>>, Error>>()?;
                let first = party.me() == 0;
                let linear = |z: Vec<Tensor<W, D>>| {
                    local::linear(device, op, &z.iter().collect::<Vec<_>>(), output, first)
                };
                Data::Sum(z.map(linear).transpose()?)
            }
            _ => {
                let m: Vec<_> = operands.inputs.iter().map(|(_, m)| m.ring()).collect();
                Data::Ring(local::linear(device, op, &m, output, true)?)
            }
        };
        Ok((data, None))
    }
}

/// A rearrangement, a negation or an exclusive or of bits.
pub struct BitLinear<'a>(local::BitLinear<'a>);

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, MaskedReplicated<W, D, P>> for BitLinear<'a> {
    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        local::BitLinear::of(call).map(BitLinear)
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        _: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let psi: Vec<_> = inputs.iter().flatten().map(|m| m.bit()).collect();
        // The negation is m's.
        let psi = Rss::zip(party.me(), &psi, |_, psi| self.0.apply(party.device(), psi, false))?;
        Ok(Some(Masks::Bit(psi)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let m: Vec<_> = (0..operands.inputs.len()).map(|i| operands.bit(i)).collect();
        Ok((Data::Bit(self.0.apply(party.device(), &m, true)?), None))
    }
}

/// A product of a shared value with a public operand.
pub struct PublicProduct<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, MaskedReplicated<W, D, P>> for PublicProduct<'a> {
    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let product = local::Product::with_public(call).filter(|_| !call.gives_sum())?;
        Some(PublicProduct { product, shape: call.shape() })
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        _: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let (device, me) = (party.device(), party.me());
        let apply = |x: &Tensor<W, D>, y: &Tensor<W, D>| self.product.apply(device, x, y, self.shape);
        Ok(Some(Masks::Ring(match inputs {
            [Some(Masks::Ring(x)), Some(Masks::Public(y))] => x.map(me, |_, x| apply(x, y))?,
            [Some(Masks::Public(x)), Some(Masks::Ring(y))] => y.map(me, |_, y| apply(x, y))?,
            _ => return party.refuse("multiplies by a public value, and has none"),
        })))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let operand = |i: usize| match operands.inputs[i].0 {
            Masks::Public(x) => x,
            _ => operands.ring(i).0,
        };
        let z = self.product.apply(party.device(), operand(0), operand(1), self.shape)?;
        Ok((Data::Ring(z), None))
    }
}
