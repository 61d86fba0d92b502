//! Additive sharing between two workers, x = x_0 + x_1 in Z_2^ℓ, with a helper who holds nothing.
//! Bits are ring elements 0 and 1.
//!
//! Linear operations are local; a public summand enters worker 0's share.

use crate::mss::Role;
use crate::sharing::{Publics, Variant, input, linear_of_publics, reveal};
use crate::{Call, Made, OnlineStep, Operands, Sharing, Verified, WordsHeld, local};
use megrez_kernels::{Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Op, Value};
use megrez_prg::Key;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};
use std::marker::PhantomData;

/// The sharing on the ring of `W` and device `D`; protocols on it differ in `P`.
pub struct Additive<W, D, P>(PhantomData<fn() -> (W, D, P)>);

impl<W, D, P> Default for Additive<W, D, P> {
    fn default() -> Self {
        Additive(PhantomData)
    }
}

impl<W, D, P> Clone for Additive<W, D, P> {
    fn clone(&self) -> Self {
        Additive(PhantomData)
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// A secret value: its shape.
    Secret(Shape),
}
encode_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Secret);

/// A worker's share; nothing at the helper and for public values.
pub type Data<W, D> = Option<Tensor<W, D>>;

impl<'a, W: Word, D: Device, P: Variant> Operands<'a, Additive<W, D, P>> {
    /// A worker's share of an input.
    pub(crate) fn share(&self, i: usize) -> Option<&'a Tensor<W, D>> {
        self.inputs[i].1.as_ref()
    }
    /// The same, at a worker.
    pub(crate) fn worker(&self, i: usize) -> &'a Tensor<W, D> {
        self.share(i).expect("workers hold shares of secrets")
    }
}

impl<W: Word, D: Device, P: Variant> Sharing for Additive<W, D, P> {
    type Word = W;
    type Device = D;
    type Masks = Masks<W, D>;
    type Data = Data<W, D>;
    const PARTIES: usize = 3;

    fn words_held(_: usize) -> WordsHeld {
        WordsHeld { masks: 0, kept: 0, data: 1 }
    }

    fn input(&self, _: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        Ok((Masks::Secret(value.shape.clone()), vec![]))
    }

    fn share(&self, _: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        let key = Key::random().map_err(|e| Error::Randomness(e.to_string()))?;
        let zero: Vec<W> = input::drawn(&key, input.len());
        let one: Vec<W> = input.iter().zip(&zero).map(|(x, share)| x.sub(*share)).collect();
        Ok(vec![input::payload(&zero), input::payload(&one), Payload::zeroed(0)])
    }

    fn fresh(_: &mut Party<D>, value: &Value) -> Result<Masks<W, D>, Error> {
        Ok(Masks::Secret(value.shape.clone()))
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Self::Data, Error> {
        let worker = matches!(Role::of(party), Role::Worker(_));
        let expected = if worker { value.shape.elements() * W::BYTES } else { 0 };
        input::check_size(party, value, &payload, expected)?;
        if worker { Ok(Some(input::words(party, value, payload.as_bytes())?)) } else { Ok(None) }
    }

    fn reveal(
        &self,
        party: &mut Party<D>,
        masks: &Masks<W, D>,
        data: &Self::Data,
        _: &Verified,
    ) -> Result<Payload, Error> {
        let words = match (masks, data, Role::of(party)) {
            (Masks::Public(x), _, Role::Worker(0)) => x.buf.clone(),
            (Masks::Secret(_), Some(share), Role::Worker(j)) => {
                reveal::of_two(party, j, &share.buf, share.elements())?
            }
            _ => return Ok(Payload::zeroed(0)),
        };
        Ok(input::payload(&party.device().download(words)?))
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        reveal::sum_of_two(value, messages)
    }
}

impl<W: Word, D: Device, P: Variant> Publics for Additive<W, D, P> {
    fn public(words: Tensor<W, D>) -> Masks<W, D> {
        Masks::Public(words)
    }
    fn words(masks: &Masks<W, D>) -> Option<&Tensor<W, D>> {
        match masks {
            Masks::Public(words) => Some(words),
            Masks::Secret(_) => None,
        }
    }
    fn nothing() -> Data<W, D> {
        None
    }
}

/// A linear map. A bit is a ring value already; its negation is 1 − b.
pub struct Linear<'a> {
    op: &'a Op,
    output: &'a Value,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Additive<W, D, P>> for Linear<'a> {
    fn of(_: &Additive<W, D, P>, call: Call<'a>) -> Option<Self> {
        let answers = call.op.is_linear() || matches!(call.op, Op::Not | Op::BitToRing);
        answers.then_some(Linear { op: call.op, output: call.output })
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let public = linear_of_publics::<Additive<W, D, P>>(party, self.op, output, inputs)?;
        Ok(Some(public.unwrap_or_else(|| Masks::Secret(output.shape.clone()))))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Additive<W, D, P>>,
    ) -> Result<Made<Additive<W, D, P>>, Error> {
        let Role::Worker(j) = Role::of(party) else { return Ok((None, None)) };
        if matches!(self.output.kind, Kind::Public { .. }) {
            return Ok((None, None));
        }
        let data = match self.op {
            Op::BitToRing => operands.worker(0).clone(),
            Op::Not => {
                let (x, public) = (operands.worker(0), if j == 0 { W::ONE } else { W::ZERO });
                let negated = party.device().combine(&[(W::ONE.neg(), &x.buf)], public, x.elements())?;
                Tensor::new(self.output.shape.clone(), negated)
            }
            op => {
                let shares: Vec<_> = (0..operands.inputs.len()).map(|i| operands.worker(i)).collect();
                local::linear(party.device(), op, &shares, self.output, j == 0)?
            }
        };
        Ok((Some(data), None))
    }
}

/// A product with a public operand.
pub struct PublicProduct<'a> {
    product: local::Product<'a>,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Additive<W, D, P>> for PublicProduct<'a> {
    fn of(_: &Additive<W, D, P>, call: Call<'a>) -> Option<Self> {
        let product = local::Product::with_public(call)?;
        Some(PublicProduct { product, shape: call.shape() })
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Additive<W, D, P>>,
    ) -> Result<Made<Additive<W, D, P>>, Error> {
        if Role::of(party) == Role::Dealer {
            return Ok((None, None));
        }
        let operand = |i: usize| match operands.inputs[i].0 {
            Masks::Public(x) => x,
            Masks::Secret(_) => operands.worker(i),
        };
        Ok((Some(self.product.apply(party.device(), operand(0), operand(1), self.shape)?), None))
    }
}
