//! Values on RSS: what each party holds of them, and how they come and go.

use super::bit_shares::to_replicated;
use super::{Rss, Summand};
use crate::sharing::{Variant, input, reveal};
use crate::{Operands, Sharing, Verified, WordsHeld};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::Value;
use megrez_prg::Key;
use megrez_ring::{Shape, Word, bits, to_wire};
use megrez_session::{Error, Party};
use std::marker::PhantomData;

/// Bytes of a key that a component of an input is drawn from.
const KEY_BYTES: usize = 32;

/// The sharing on the ring of `W` and device `D`; protocols on it differ in `P`.
pub struct Replicated<W, D, P> {
    pub(crate) variant: P,
    of: PhantomData<fn() -> (W, D)>,
}

impl<W, D, P> Replicated<W, D, P> {
    /// The protocol with these choices.
    pub(crate) fn with(variant: P) -> Self {
        Replicated { variant, of: PhantomData }
    }
}

impl<W, D, P: Default> Default for Replicated<W, D, P> {
    fn default() -> Self {
        Replicated::with(P::default())
    }
}

impl<W, D, P: Clone> Clone for Replicated<W, D, P> {
    fn clone(&self) -> Self {
        Replicated::with(self.variant.clone())
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// A secret value without a mask: its shape.
    Secret(Shape),
    /// A masked bit.
    Bit(Rss<Bits<D>>),
}
encode_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Secret, 2 = Bit);

impl<W: Word, D: Device> Masks<W, D> {
    pub(crate) fn bit(&self) -> &Rss<Bits<D>> {
        match self {
            Masks::Bit(r) => r,
            _ => panic!("the plan's types say that this is a masked bit"),
        }
    }
    /// A uniform mask of bits.
    pub(crate) fn fresh_bits(party: &mut Party<D>, shape: &Shape) -> Result<Option<Self>, Error> {
        Ok(Some(Masks::Bit(super::random_bits(party, "mask", shape)?)))
    }
}

/// A party's share of a value.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// A public value, which the masks hold.
    Public(()),
    /// A ring value.
    Ring(Rss<Tensor<W, D>>),
    /// This party's summand of a ring value whose resharing is deferred.
    Sum(Summand<W, D>),
    /// Replicated bits.
    Bit(Rss<Bits<D>>),
    /// m of masked bits.
    Masked(Bits<D>),
}
encode_enum!(Data[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Sum, 3 = Bit, 4 = Masked);

impl<W: Word, D: Device> Data<W, D> {
    pub(crate) fn ring(&self) -> &Rss<Tensor<W, D>> {
        match self {
            Data::Ring(x) => x,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    pub(crate) fn bit(&self) -> &Rss<Bits<D>> {
        match self {
            Data::Bit(x) => x,
            _ => panic!("the plan's types say that this is a replicated bit"),
        }
    }
    pub(crate) fn summand(&self) -> Summand<W, D> {
        match self {
            Data::Sum(z) => z.clone(),
            x => Summand::of(x.ring()),
        }
    }
    pub(crate) fn masked(&self) -> &Bits<D> {
        match self {
            Data::Masked(m) => m,
            _ => panic!("the plan's types say that this is a masked bit"),
        }
    }
}

impl<'a, W: Word, D: Device, P: Variant> Operands<'a, Replicated<W, D, P>> {
    /// A ring input.
    pub(crate) fn ring(&self, i: usize) -> &'a Rss<Tensor<W, D>> {
        self.inputs[i].1.ring()
    }
    /// A replicated bit input.
    pub(crate) fn bit(&self, i: usize) -> &'a Rss<Bits<D>> {
        self.inputs[i].1.bit()
    }
    /// m of a masked bit input.
    pub(crate) fn masked(&self, i: usize) -> &'a Bits<D> {
        self.inputs[i].1.masked()
    }
    /// The fresh mask of a result in bits.
    pub(crate) fn fresh_bits(&self) -> &'a Rss<Bits<D>> {
        self.masks.expect("bits have masks, drawn offline").bit()
    }
}

impl<W: Word, D: Device, P: Variant> Sharing for Replicated<W, D, P> {
    type Word = W;
    type Device = D;
    type Masks = Masks<W, D>;
    type Data = Data<W, D>;
    const PARTIES: usize = 3;

    fn words_held(_: usize) -> WordsHeld {
        WordsHeld { masks: 0, kept: 0, data: 2 }
    }

    fn input(&self, _: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        Ok((Masks::Secret(value.shape.clone()), vec![]))
    }

    fn share(&self, _: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        // Components 0 and 2 come from keys that the owner draws, so only component 1 is sent in
        // words.
        let key = || Key::random().map_err(|e| Error::Randomness(e.to_string()));
        let keys = [key()?, key()?];
        let mut rest = input.to_vec();
        for key in &keys {
            let drawn = input::drawn::<W>(key, rest.len());
            rest.iter_mut().zip(drawn).for_each(|(x, share)| *x = x.sub(share));
        }
        let with_words = |key: &Key| {
            let mut bytes = key.expose().to_vec();
            bytes.extend_from_slice(&to_wire(&rest));
            Payload::from_bytes(&bytes)
        };
        let both = [keys[1].expose().as_slice(), keys[0].expose().as_slice()].concat();
        Ok(vec![with_words(&keys[0]), with_words(&keys[1]), Payload::from_bytes(&both)])
    }

    fn share_bytes(&self, value: &Value) -> usize {
        (KEY_BYTES + value.shape.elements() * W::BYTES).max(2 * KEY_BYTES)
    }

    fn common<'a>(&self, me: usize, message: &'a [u8]) -> Vec<(usize, &'a [u8])> {
        // Every component is held twice, component 1 in words and the others as keys: P0 is sent
        // key 0 and component 1, P1 key 2 and component 1, P2 keys 2 and 0.
        let Some((key, rest)) = message.split_at_checked(KEY_BYTES) else { return vec![] };
        match me {
            0 => vec![(2, key), (1, rest)],
            1 => vec![(2, key), (0, rest)],
            _ => vec![(1, key), (0, rest)],
        }
    }

    fn fresh(_: &mut Party<D>, value: &Value) -> Result<Masks<W, D>, Error> {
        Ok(Masks::Secret(value.shape.clone()))
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let n = value.shape.elements();
        let words = KEY_BYTES + n * W::BYTES;
        let expected = if party.me() == 2 { 2 * KEY_BYTES } else { words };
        input::check_size(party, value, &payload, expected)?;
        let (first, rest) = payload.as_bytes().split_at(KEY_BYTES);
        let drawn = |key: &[u8]| -> Result<Tensor<W, D>, Error> {
            let key = Key::from_bytes(key.try_into().expect("32 bytes"));
            Ok(Tensor::new(value.shape.clone(), party.device().random(&key.stream(), n)?))
        };
        Ok(Data::Ring(match party.me() {
            2 => Rss { own: drawn(first)?, next: drawn(rest)? },
            me => {
                let words = input::words(party, value, rest)?;
                match me {
                    0 => Rss { own: drawn(first)?, next: words },
                    _ => Rss { own: words, next: drawn(first)? },
                }
            }
        }))
    }

    fn reveal(
        &self,
        party: &mut Party<D>,
        masks: &Masks<W, D>,
        data: &Data<W, D>,
        _: &Verified,
    ) -> Result<Payload, Error> {
        let device = party.device().clone();
        let packed = |party: &mut Party<D>, x: &Rss<Bits<D>>| -> Result<Payload, Error> {
            let n = x.own.elements();
            let words = device.download(reveal::bits_of_three(party, &x.own.buf, n)?)?;
            Ok(Payload::from_bytes(&bytemuck::cast_slice(&words)[..bits::bytes(n)]))
        };
        Ok(match (masks, data) {
            (Masks::Public(x), _) if party.me() == 0 => input::payload(&device.download(x.buf.clone())?),
            (_, Data::Ring(x)) => {
                let share = reveal::of_three::<W, D>(party, &x.own.buf, x.own.elements())?;
                input::payload(&device.download(share)?)
            }
            (_, Data::Bit(x)) => packed(party, x)?,
            (Masks::Bit(r), Data::Masked(m)) => {
                let bit = to_replicated(party, m, r)?;
                packed(party, &bit)?
            }
            _ => Payload::zeroed(0),
        })
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        super::reconstruct(value, messages)
    }
}
