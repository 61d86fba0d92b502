//! Values on MRSS: what each party holds of them, and how they come and go.

use super::keys;
use super::sum::Summand;
use crate::rss::{self, Rss};
use crate::sharing::{Variant, input, reveal};
use crate::{Operands, Sharing, Verified, WordsHeld};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Value};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};
use std::marker::PhantomData;

/// The sharing on the ring of `W` and device `D`; protocols on it differ in `P`.
pub struct MaskedReplicated<W, D, P>(PhantomData<fn() -> (W, D, P)>);

impl<W, D, P> Default for MaskedReplicated<W, D, P> {
    fn default() -> Self {
        MaskedReplicated(PhantomData)
    }
}

impl<W, D, P> Clone for MaskedReplicated<W, D, P> {
    fn clone(&self) -> Self {
        MaskedReplicated(PhantomData)
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// Two components of a ring value's mask.
    Ring(Rss<Tensor<W, D>>),
    /// Two components of a mask of bits.
    Bit(Rss<Bits<D>>),
    /// A sum has no mask: its shape.
    Sum(Shape),
}
encode_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Bit, 3 = Sum);

/// What a party learns of a value online: the masked value.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// A public value, which the masks hold.
    Public(()),
    /// m of a ring value.
    Ring(Tensor<W, D>),
    /// m of bits.
    Bit(Bits<D>),
    /// This party's summand of a sum.
    Sum(Summand<W, D>),
}
encode_enum!(Data[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Bit, 3 = Sum);

impl<W: Word, D: Device> Masks<W, D> {
    pub(crate) fn ring(&self) -> &Rss<Tensor<W, D>> {
        match self {
            Masks::Ring(mask) => mask,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    pub(crate) fn bit(&self) -> &Rss<Bits<D>> {
        match self {
            Masks::Bit(mask) => mask,
            _ => panic!("the plan's types say that this is a secret bit"),
        }
    }
}

impl<W: Word, D: Device> Data<W, D> {
    pub(crate) fn ring(&self) -> &Tensor<W, D> {
        match self {
            Data::Ring(m) => m,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    pub(crate) fn bit(&self) -> &Bits<D> {
        match self {
            Data::Bit(m) => m,
            _ => panic!("the plan's types say that this is a secret bit"),
        }
    }
    /// m of a ring value of this shape.
    pub(crate) fn of_ring(shape: &Shape, m: D::Buf<W>) -> Self {
        Data::Ring(Tensor::new(shape.clone(), m))
    }
    /// m of bits of this shape.
    pub(crate) fn of_bits(shape: &Shape, m: D::Buf<u64>) -> Self {
        Data::Bit(Bits::new(shape.clone(), m))
    }
}

impl<'a, W: Word, D: Device, P: Variant> Operands<'a, MaskedReplicated<W, D, P>> {
    /// m and ψ of a ring input.
    pub(crate) fn ring(&self, i: usize) -> (&'a Tensor<W, D>, &'a Rss<Tensor<W, D>>) {
        (self.inputs[i].1.ring(), self.inputs[i].0.ring())
    }
    /// m of a bit input.
    pub(crate) fn bit(&self, i: usize) -> &'a Bits<D> {
        self.inputs[i].1.bit()
    }
    /// The fresh mask of a ring result.
    pub(crate) fn fresh(&self) -> &'a Rss<Tensor<W, D>> {
        self.masks.expect("fresh and drawn offline").ring()
    }
    /// The fresh mask of a result in bits.
    pub(crate) fn fresh_bits(&self) -> &'a Rss<Bits<D>> {
        self.masks.expect("fresh and drawn offline").bit()
    }
}

impl<W: Word, D: Device, P: Variant> Sharing for MaskedReplicated<W, D, P> {
    type Word = W;
    type Device = D;
    type Masks = Masks<W, D>;
    type Data = Data<W, D>;
    const PARTIES: usize = 3;

    fn words_held(_: usize) -> WordsHeld {
        WordsHeld { masks: 2, kept: 2, data: 1 }
    }

    fn input(&self, party: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        // The input-mask key is the key of the party's own component: with all three the owner
        // computes ψ, and nothing else.
        let keys = keys(party, "input")?;
        let mask_key = keys.own.expose().to_vec();
        let mask = keys.map(party.me(), |_, key| {
            let drawn = party.device().random::<W>(&key.stream(), value.shape.elements())?;
            Ok::<_, Error>(Tensor::new(value.shape.clone(), drawn))
        })?;
        Ok((Masks::Ring(mask), mask_key))
    }

    fn share(&self, mask_keys: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        let mut m = input.to_vec();
        for i in 0..3 {
            let component = input::drawn::<W>(&input::key_of(mask_keys, i)?, input.len());
            m.iter_mut().zip(component).for_each(|(m, psi)| *m = m.sub(psi));
        }
        let payload = input::payload(&m);
        Ok(vec![payload.clone(), payload.clone(), payload])
    }

    fn common<'a>(&self, me: usize, message: &'a [u8]) -> Vec<(usize, &'a [u8])> {
        // All hold m.
        (0..3).filter(|&peer| peer != me).map(|peer| (peer, message)).collect()
    }

    fn fresh(party: &mut Party<D>, value: &Value) -> Result<Masks<W, D>, Error> {
        Ok(match value.kind {
            Kind::Bit => Masks::Bit(rss::random_bits(party, "mask", &value.shape)?),
            Kind::Additive { .. } => Masks::Sum(value.shape.clone()),
            _ => Masks::Ring(rss::random(party, "mask", &value.shape)?),
        })
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        input::check_size(party, value, &payload, value.shape.elements() * W::BYTES)?;
        Ok(Data::Ring(input::words(party, value, payload.as_bytes())?))
    }

    fn reveal(
        &self,
        party: &mut Party<D>,
        masks: &Masks<W, D>,
        data: &Data<W, D>,
        _: &Verified,
    ) -> Result<Payload, Error> {
        // Everybody's own component; P0's with m.
        let (device, first) = (party.device().clone(), party.me() == 0);
        Ok(match (masks, data) {
            (Masks::Ring(psi), Data::Ring(m)) => {
                let public = if first { W::ONE } else { W::ZERO };
                let terms = [(public, &m.buf), (W::ONE, &psi.own.buf)];
                let share = device.combine(&terms, W::ZERO, m.elements())?;
                let share = reveal::of_three::<W, D>(party, &share, m.elements())?;
                input::payload(&device.download(share)?)
            }
            (Masks::Bit(psi), Data::Bit(m)) => {
                let terms: &[_] = if first { &[&m.buf, &psi.own.buf] } else { &[&psi.own.buf] };
                let share = device.xor(terms, false, m.elements())?;
                let words = device.download(reveal::bits_of_three(party, &share, m.elements())?)?;
                Payload::from_bytes(&bytemuck::cast_slice(&words)[..bits::bytes(m.elements())])
            }
            (Masks::Public(x), _) if first => input::payload(&device.download(x.buf.clone())?),
            _ => Payload::zeroed(0),
        })
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        rss::reconstruct(value, messages)
    }
}
