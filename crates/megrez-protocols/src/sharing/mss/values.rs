//! Values on MSS: what each party holds of them, and how they come and go.

use super::{BitMask, DEALER, Mask, RingMask, Role, draw};
use crate::encode::take;
use crate::sharing::{Variant, input, reveal};
use crate::{Encode, EncodeError, Operands, Sharing, Verified, WordsHeld};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Value};
use megrez_prg::Key;
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};
use std::borrow::Cow;
use std::marker::PhantomData;

/// The sharing on the ring of `W` and device `D`; protocols on it differ in `P`.
pub struct Masked<W, D, P> {
    pub(crate) variant: P,
    of: PhantomData<fn() -> (W, D)>,
}

impl<W, D, P> Masked<W, D, P> {
    /// The protocol with these choices.
    pub(crate) fn with(variant: P) -> Self {
        Masked { variant, of: PhantomData }
    }
}

impl<W, D, P: Default> Default for Masked<W, D, P> {
    fn default() -> Self {
        Masked::with(P::default())
    }
}

impl<W, D, P: Clone> Clone for Masked<W, D, P> {
    fn clone(&self) -> Self {
        Masked::with(self.variant.clone())
    }
}

/// What a party knows of a value before the inputs exist.
#[derive(Clone)]
pub enum Masks<W: Word, D: Device> {
    /// A public value: the words.
    Public(Tensor<W, D>),
    /// A secret ring value.
    Ring(RingMask<W, D>),
    /// A secret bit.
    Bit(BitMask<D>),
    /// A value that is left as a sum has no mask: its shape.
    Sum(Shape),
    /// The dealer has made of a ring value's mask all that follows from it: the value's shape.
    Spent(Shape),
}
encode_enum!(Masks[W: Word, D: Device] on D => 0 = Public, 1 = Ring, 2 = Bit, 3 = Sum, 4 = Spent);

/// What a party learns of a value online. The dealer learns nothing.
#[derive(Clone)]
pub enum Data<W: Word, D: Device> {
    /// The dealer's, or a public value, which the masks already hold.
    None,
    /// m of a ring value.
    Ring(Tensor<W, D>),
    /// m of a bit.
    Bit(Bits<D>),
    /// A worker's summand of a value that is left as a sum.
    Sum(Tensor<W, D>),
}

impl<W: Word, D: Device> Encode<D> for Data<W, D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Data::None => out.push(0),
            Data::Ring(m) => {
                out.push(1);
                m.write(device, out)?;
            }
            Data::Bit(m) => {
                out.push(2);
                m.write(device, out)?;
            }
            Data::Sum(z) => {
                out.push(3);
                z.write(device, out)?;
            }
        }
        Ok(())
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(match take(input, 1)?[0] {
            0 => Data::None,
            1 => Data::Ring(Encode::<D>::read(device, input)?),
            2 => Data::Bit(Encode::<D>::read(device, input)?),
            3 => Data::Sum(Encode::<D>::read(device, input)?),
            _ => return Err(EncodeError::Damaged),
        })
    }
}

impl<W: Word, D: Device> Masks<W, D> {
    pub(crate) fn ring(&self) -> &RingMask<W, D> {
        match self {
            Masks::Ring(mask) => mask,
            _ => panic!("the plan's types say that this is a secret ring value"),
        }
    }
    pub(crate) fn bit(&self) -> &BitMask<D> {
        match self {
            Masks::Bit(mask) => mask,
            _ => panic!("the plan's types say that this is a secret bit"),
        }
    }
}

impl<W: Word, D: Device> Data<W, D> {
    /// m of a ring value, where this party has it.
    pub(crate) fn of_ring(shape: &Shape, m: Option<D::Buf<W>>) -> Self {
        m.map_or(Data::None, |m| Data::Ring(Tensor::new(shape.clone(), m)))
    }
    /// A summand of this shape.
    pub(crate) fn of_sum(shape: &Shape, z: D::Buf<W>) -> Self {
        Data::Sum(Tensor::new(shape.clone(), z))
    }
    /// m of bits, where this party has it.
    pub(crate) fn of_bits(shape: &Shape, m: Option<D::Buf<u64>>) -> Self {
        m.map_or(Data::None, |m| Data::Bit(Bits::new(shape.clone(), m)))
    }
}

impl<'a, W: Word, D: Device, P: Variant> Operands<'a, Masked<W, D, P>> {
    /// m of a ring input; nothing at the dealer.
    pub(crate) fn masked(&self, i: usize) -> Option<&'a Tensor<W, D>> {
        match self.inputs[i].1 {
            Data::Ring(m) => Some(m),
            _ => None,
        }
    }
    /// A worker's m and [r] of a ring input.
    pub(crate) fn ring(&self, i: usize) -> (&'a Tensor<W, D>, &'a Tensor<W, D>) {
        let m = self.masked(i).expect("workers hold masked values online");
        (m, self.inputs[i].0.ring().share())
    }
    /// A worker's summand of an input: what it holds of one that is left as a sum, m − r_0 or −r_1
    /// of a ring value.
    pub(crate) fn summand(&self, device: &D, j: usize, i: usize) -> Result<Cow<'a, Tensor<W, D>>, Error> {
        if let Data::Sum(z) = self.inputs[i].1 {
            return Ok(Cow::Borrowed(z));
        }
        let (m, r) = self.ring(i);
        let public = if j == 0 { W::ONE } else { W::ZERO };
        let words = device.combine(&[(public, &m.buf), (W::ONE.neg(), &r.buf)], W::ZERO, m.elements())?;
        Ok(Cow::Owned(Tensor::new(m.shape.clone(), words)))
    }
    /// A worker's m of a bit input.
    pub(crate) fn masked_bits(&self, i: usize) -> &'a Bits<D> {
        match self.inputs[i].1 {
            Data::Bit(m) => m,
            _ => panic!("workers hold masked values online"),
        }
    }
    /// A worker's m and [r] of a bit input.
    pub(crate) fn bits(&self, i: usize) -> (&'a Bits<D>, &'a Bits<D>) {
        (self.masked_bits(i), self.inputs[i].0.bit().share())
    }
    /// The fresh mask of a ring result.
    pub(crate) fn fresh(&self) -> &'a RingMask<W, D> {
        self.masks.expect("fresh and drawn offline").ring()
    }
    /// The fresh mask of a result in bits.
    pub(crate) fn fresh_bits(&self) -> &'a BitMask<D> {
        self.masks.expect("fresh and drawn offline").bit()
    }
}

impl<W: Word, D: Device, P: Variant> Sharing for Masked<W, D, P> {
    type Word = W;
    type Device = D;
    type Masks = Masks<W, D>;
    type Data = Data<W, D>;
    const PARTIES: usize = 3;

    fn words_held(me: usize) -> WordsHeld {
        match me {
            DEALER => WordsHeld { masks: 2, kept: 0, data: 0 },
            _ => WordsHeld { masks: 1, kept: 1, data: 1 },
        }
    }

    fn input(&self, party: &mut Party<D>, value: &Value) -> Result<(Masks<W, D>, Vec<u8>), Error> {
        // A worker's input-mask key is the key of its share of the mask: the owner computes r, and
        // nothing else.
        let mut mask_key = Vec::new();
        let mask = draw(party, "input", |party, key: Key| {
            if Role::of(party) != Role::Dealer {
                mask_key = key.expose().to_vec();
            }
            let n = value.shape.elements();
            Ok(Tensor::new(value.shape.clone(), party.device().random::<W>(&key.stream(), n)?))
        })?;
        Ok((Masks::Ring(mask), mask_key))
    }

    fn share(&self, mask_keys: &[Vec<u8>], input: &[W]) -> Result<Vec<Payload>, Error> {
        let mut masked = input.to_vec();
        for j in 0..2 {
            let mask = input::drawn::<W>(&input::key_of(mask_keys, j)?, input.len());
            masked.iter_mut().zip(mask).for_each(|(m, r)| *m = m.add(r));
        }
        let payload = input::payload(&masked);
        Ok(vec![payload.clone(), payload, Payload::zeroed(0)])
    }

    fn common<'a>(&self, me: usize, message: &'a [u8]) -> Vec<(usize, &'a [u8])> {
        // Both workers hold m. If they did not, the dealer would see several zeros in a list.
        match me {
            DEALER => vec![],
            j => vec![(1 - j, message)],
        }
    }

    fn fresh(party: &mut Party<D>, value: &Value) -> Result<Masks<W, D>, Error> {
        Ok(match value.kind {
            Kind::Bit => Masks::Bit(BitMask::fresh_bits(party, &value.shape)?),
            Kind::Additive { .. } => Masks::Sum(value.shape.clone()),
            _ => Masks::Ring(RingMask::fresh(party, &value.shape)?),
        })
    }

    fn spent(masks: &Masks<W, D>) -> Option<Masks<W, D>> {
        match masks {
            Masks::Ring(Mask::Dealer([r_0, _])) => Some(Masks::Spent(r_0.shape.clone())),
            // The dealer answers comparisons under masks of bits, which take little room.
            _ => None,
        }
    }

    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<Data<W, D>, Error> {
        let n = if Role::of(party) == Role::Dealer { 0 } else { value.shape.elements() };
        input::check_size(party, value, &payload, n * W::BYTES)?;
        match Role::of(party) {
            Role::Dealer => Ok(Data::None),
            Role::Worker(_) => Ok(Data::Ring(input::words(party, value, payload.as_bytes())?)),
        }
    }

    fn reveal(
        &self,
        party: &mut Party<D>,
        masks: &Masks<W, D>,
        data: &Data<W, D>,
        _: &Verified,
    ) -> Result<Payload, Error> {
        // Worker 0's share is m − r_0, worker 1's −r_1.
        let device = party.device().clone();
        match (Role::of(party), masks, data) {
            (Role::Worker(j), Masks::Ring(Mask::Worker(r)), Data::Ring(m)) => {
                let public = if j == 0 { W::ONE } else { W::ZERO };
                let share =
                    device.combine(&[(public, &m.buf), (W::ONE.neg(), &r.buf)], W::ZERO, m.elements())?;
                let share = reveal::of_two(party, j, &share, m.elements())?;
                Ok(input::payload(&device.download(share)?))
            }
            (Role::Worker(j), Masks::Bit(Mask::Worker(r)), Data::Bit(m)) => {
                let terms: &[_] = if j == 0 { &[&m.buf, &r.buf] } else { &[&r.buf] };
                let share = device.xor(terms, false, m.elements())?;
                let share = reveal::bits_of_two(party, j, &share, m.elements())?;
                Ok(Payload::from_words(device.download(share)?))
            }
            (Role::Worker(0), Masks::Public(x), _) => Ok(input::payload(&device.download(x.buf.clone())?)),
            _ => Ok(Payload::zeroed(0)),
        }
    }

    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
        if value.kind != Kind::Bit {
            return reveal::sum_of_two(value, messages);
        }
        let n = value.shape.elements();
        let wrong = || Error::Refused("a party sent an output share of the wrong size".into());
        let words = |j: usize| messages.get(j).map(|m| m.words()).ok_or_else(wrong);
        let (a, b) = (words(0)?, words(1)?);
        if a.len() != bits::words(n) || b.len() != a.len() {
            return Err(wrong());
        }
        Ok((0..n).map(|i| W::from_u64(bits::get(a, i) ^ bits::get(b, i))).collect())
    }
}
