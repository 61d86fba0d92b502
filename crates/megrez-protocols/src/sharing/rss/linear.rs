//! Local steps on RSS: a linear map of each component; public summands enter component 0. Nothing
//! is sent, so nothing is seen.

use super::{Data, Masks, Replicated, Rss, Summand};
use crate::sharing::{Publics, Variant, linear_of_publics};
use crate::{Call, Made, OnlineStep, Operands, Unsupported, local};
use megrez_kernels::{Device, Tensor};
use megrez_plan::{Kind, Op, Value};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// Why a protocol on RSS has no step for a call.
pub(crate) fn refuse(call: Call<'_>) -> Unsupported {
    Unsupported(match call.op {
        op if op.is_linear() && call.of_bits() => "bits are rearranged by views only".into(),
        Op::Mul if call.inputs.len() > 2 => local::two_at_a_time("a protocol on replicated shares"),
        Op::Select { truncate: 1.. } | Op::SelectSum { .. } => {
            local::selects_apart("a protocol on replicated shares")
        }
        Op::MulTruncated { .. } => local::multiplies_apart("a protocol on replicated shares"),
        op if local::is_of_bit_matrices(op) => local::no_bit_matrices("a protocol on replicated shares"),
        Op::Maximum(_) => "replicated shares have no maximum of all pairs: use --pool tournament".into(),
        op if local::is_table(op) => local::no_tables("a protocol on replicated shares"),
        other => format!("replicated shares have no {other:?}"),
    })
}

impl<W: Word, D: Device, P: Variant> Publics for Replicated<W, D, P> {
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

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for Linear<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let answers = call.op.is_linear() && !call.of_bits();
        answers.then_some(Linear { op: call.op, output: call.output })
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let public = linear_of_publics::<Replicated<W, D, P>>(party, self.op, output, inputs)?;
        Ok(Some(public.unwrap_or_else(|| Masks::Secret(output.shape.clone()))))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        let (device, me, count) = (party.device(), party.me(), operands.inputs.len());
        let data = match self.output.kind {
            Kind::Public { .. } => Data::Public(()),
            Kind::Additive { .. } => {
                let x: Vec<_> = operands.inputs.iter().map(|(_, x)| x.summand()).collect();
                Data::Sum(Summand::linear(device, me, self.op, &x, self.output)?)
            }
            _ => {
                let x: Vec<_> = (0..count).map(|i| operands.ring(i)).collect();
                Data::Ring(Rss::zip(me, &x, |c, x| local::linear(device, self.op, x, self.output, c == 0))?)
            }
        };
        Ok((data, None))
    }
}

/// A product of a shared value with a public operand.
pub struct PublicProduct<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for PublicProduct<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let product = local::Product::with_public(call).filter(|_| !call.gives_sum())?;
        Some(PublicProduct { product, shape: call.shape() })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        let (device, me) = (party.device(), party.me());
        let apply = |x: &Tensor<W, D>, y: &Tensor<W, D>| self.product.apply(device, x, y, self.shape);
        let z = match (operands.inputs[0].0, operands.inputs[1].0) {
            (Masks::Public(x), _) => operands.ring(1).map(me, |_, y| apply(x, y))?,
            (_, Masks::Public(y)) => operands.ring(0).map(me, |_, x| apply(x, y))?,
            _ => return party.refuse("multiplies by a public value, and has none"),
        };
        Ok((Data::Ring(z), None))
    }
}
