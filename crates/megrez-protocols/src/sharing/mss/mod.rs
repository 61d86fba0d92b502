//! Masked secret sharing with a dealer, (2+1)-MSS: x = m − r. The workers P0 and P1 know the masked
//! value m; worker j holds the share r_j of the mask; the dealer P2 holds r_0 and r_1, and never m.
//! For bits, x = m ⊕ r.
//!
//! As a replicated sharing it is (x0, x1, x2) = (−r0, m, −r1).
//!
//! Security: `docs/security/mizar.md`.

mod linear;
mod noise;
mod values;

pub use linear::{BitLinear, Linear, LowBit, PublicProduct, Reshare};
pub use values::{Data, Masked, Masks};

use crate::encode::take;
use crate::{Encode, EncodeError};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_prg::Key;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The dealer's number.
pub const DEALER: usize = 2;

/// Who a party is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// P0 or P1.
    Worker(usize),
    /// P2.
    Dealer,
}

impl Role {
    /// The role of this party.
    pub fn of<D: Device>(party: &Party<D>) -> Self {
        match party.me() {
            DEALER => Role::Dealer,
            j => Role::Worker(j),
        }
    }
}

/// What a party knows of a mask: a worker its share, the dealer both.
#[derive(Clone)]
pub enum Mask<T> {
    /// r_j.
    Worker(T),
    /// r_0 and r_1.
    Dealer([T; 2]),
}

/// The mask of a ring tensor.
pub type RingMask<W, D> = Mask<Tensor<W, D>>;
/// The mask of a bit tensor.
pub type BitMask<D> = Mask<Bits<D>>;

impl<T> Mask<T> {
    /// Applies a linear map to every component.
    pub fn map<U, E>(&self, mut f: impl FnMut(&T) -> Result<U, E>) -> Result<Mask<U>, E> {
        Ok(match self {
            Mask::Worker(share) => Mask::Worker(f(share)?),
            Mask::Dealer([a, b]) => Mask::Dealer([f(a)?, f(b)?]),
        })
    }

    /// Applies a linear map of several masks to every component.
    pub fn zip<U, E>(masks: &[&Self], mut f: impl FnMut(&[&T]) -> Result<U, E>) -> Result<Mask<U>, E> {
        Ok(match masks[0] {
            Mask::Worker(_) => Mask::Worker(f(&Self::components(masks, 0))?),
            Mask::Dealer(_) => {
                Mask::Dealer([f(&Self::components(masks, 0))?, f(&Self::components(masks, 1))?])
            }
        })
    }

    /// A worker's shares, or the dealer's of one worker.
    fn components<'a>(masks: &[&'a Self], c: usize) -> Vec<&'a T> {
        let one = |mask: &&'a Self| match mask {
            Mask::Worker(share) => share,
            Mask::Dealer(both) => &both[c],
        };
        masks.iter().map(one).collect()
    }

    /// The worker's share.
    ///
    /// # Panics
    /// At the dealer, which has no share of its own: a step that asks mixed up its roles.
    pub fn share(&self) -> &T {
        match self {
            Mask::Worker(share) => share,
            Mask::Dealer(_) => panic!("the dealer has no single share of a mask"),
        }
    }

    /// Both workers' shares, at the dealer.
    ///
    /// # Panics
    /// At a worker, which knows its own share only: a step that asks mixed up its roles.
    pub fn both(&self) -> [&T; 2] {
        match self {
            Mask::Dealer([a, b]) => [a, b],
            Mask::Worker(_) => panic!("a worker does not know the whole mask"),
        }
    }
}

impl<W: Word, D: Device> RingMask<W, D> {
    /// A uniform mask: r_j comes from the stream of worker j and the dealer.
    pub fn fresh(party: &mut Party<D>, shape: &Shape) -> Result<Self, Error> {
        draw(party, "mask", |party, stream| {
            Ok(Tensor::new(shape.clone(), party.device().random(&stream.stream(), shape.elements())?))
        })
    }

    /// r = r_0 + r_1, at the dealer.
    pub fn total(&self, device: &D) -> Result<Tensor<W, D>, Error> {
        let [a, b] = self.both();
        let sum = device.combine(&[(W::ONE, &a.buf), (W::ONE, &b.buf)], W::ZERO, a.elements())?;
        Ok(Tensor::new(a.shape.clone(), sum))
    }
}

impl<D: Device> BitMask<D> {
    /// A uniform mask of bits.
    pub fn fresh_bits(party: &mut Party<D>, shape: &Shape) -> Result<Self, Error> {
        draw(party, "mask", |party, stream| {
            Ok(Bits::new(shape.clone(), party.device().random_bits(&stream.stream(), shape.elements())?))
        })
    }

    /// r = r_0 ⊕ r_1, at the dealer.
    pub fn total_bits(&self, device: &D) -> Result<Bits<D>, Error> {
        let [a, b] = self.both();
        Ok(Bits::new(a.shape.clone(), device.xor(&[&a.buf, &b.buf], false, a.elements())?))
    }
}

/// The components of a mask from the workers' streams with the dealer.
pub(crate) fn draw<T, D: Device>(
    party: &mut Party<D>,
    purpose: &str,
    mut component: impl FnMut(&mut Party<D>, Key) -> Result<T, Error>,
) -> Result<Mask<T>, Error> {
    match Role::of(party) {
        Role::Worker(_) => {
            let key = party.stream_key(DEALER, purpose)?;
            Ok(Mask::Worker(component(party, key)?))
        }
        Role::Dealer => {
            let keys = [party.stream_key(0, purpose)?, party.stream_key(1, purpose)?];
            let [a, b] = keys.map(|key| component(party, key));
            Ok(Mask::Dealer([a?, b?]))
        }
    }
}

/// A worker's share of words that were dealt: as they came, or the key that it draws them from when
/// they are used, so that what waits to be used takes no memory.
pub enum DealtShare<W: Word, D: Device> {
    /// Words as they came.
    Words(Tensor<W, D>),
    /// Their low bits as they came, packed.
    Low(Bits<D>),
    /// The key of the others.
    Stream(Key),
}
encode_enum!(DealtShare[W: Word, D: Device] on D => 0 = Words, 1 = Low, 2 = Stream);

impl<W: Word, D: Device> DealtShare<W, D> {
    /// The share of `n` words.
    ///
    /// # Errors
    /// If it is of something else: material from a file may be another step's.
    pub(crate) fn words(self, device: &D, n: usize) -> Result<D::Buf<W>, Error> {
        match self {
            DealtShare::Words(words) if words.elements() == n => Ok(words.buf),
            DealtShare::Stream(key) => Ok(device.random(&key.stream(), n)?),
            _ => Err(another()),
        }
    }

    /// The share of `n` elements of Z_2^width; the low bits count.
    ///
    /// # Errors
    /// As [`DealtShare::words`].
    pub(crate) fn low(self, device: &D, width: u32, n: usize) -> Result<D::Buf<W>, Error> {
        match self {
            DealtShare::Low(packed) if packed.elements() == n * width as usize => {
                Ok(device.unpack_low(&packed.buf, width, n)?)
            }
            DealtShare::Stream(key) => Ok(device.random(&key.stream(), n)?),
            _ => Err(another()),
        }
    }
}

/// Why material is not used.
pub(crate) fn another() -> Error {
    Error::Refused("a worker was given another step's material".into())
}

/// Deals `n` ring elements that the dealer knows: worker `to` is sent its shares, those of the
/// other come from its stream with the dealer. ℓ bits per element, one round. Workers get their
/// share, the dealer nothing.
///
/// Which worker it is says the step, so that no link from the dealer carries it all: lists and what
/// is shifted go to worker 0, most products of masks and tables to worker 1.
pub(crate) fn deal<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
    secret: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
) -> Result<Option<DealtShare<W, D>>, Error> {
    if Role::of(party) == Role::Dealer {
        let secret = secret(party.device())?;
        let [share, _] = apart(party, to, label, n, secret)?;
        party.send_ring(to, label, share)?;
        return Ok(None);
    }
    Ok(Some(dealt(party, to, label, n)?))
}

/// What [`deal`] gives a worker.
fn dealt<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
) -> Result<DealtShare<W, D>, Error> {
    if party.me() != to {
        return Ok(DealtShare::Stream(party.stream_key(DEALER, label)?));
    }
    let words = party.recv_ring(DEALER, label, n)?;
    Ok(DealtShare::Words(Tensor::new([n], words)))
}

/// A mask that the dealer makes of what it knows, dealt as [`deal`] does; all parties have their
/// part at once.
pub(crate) fn deal_mask<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    shape: &Shape,
    mask: impl FnOnce(&mut Party<D>) -> Result<D::Buf<W>, Error>,
) -> Result<RingMask<W, D>, Error> {
    let n = shape.elements();
    let tensor = |words| Tensor::new(shape.clone(), words);
    match Role::of(party) {
        Role::Dealer => {
            let mask = mask(party)?;
            let [sent, drawn] = apart(party, to, label, n, mask)?;
            party.send_ring(to, label, sent.clone())?;
            let shares = if to == 0 { [sent, drawn] } else { [drawn, sent] };
            Ok(Mask::Dealer(shares.map(tensor)))
        }
        Role::Worker(j) if j == to => Ok(Mask::Worker(tensor(party.recv_ring(DEALER, label, n)?))),
        Role::Worker(_) => {
            let stream = party.stream(DEALER, label)?;
            Ok(Mask::Worker(tensor(party.device().random(&stream, n)?)))
        }
    }
}

/// As [`deal`], for shares that are used at once.
pub(crate) fn deal_words<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
    secret: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
) -> Result<Option<D::Buf<W>>, Error> {
    let share = deal(party, to, label, n, secret)?;
    share.map(|share| share.words(party.device(), n)).transpose()
}

/// At the dealer: the shares of what it deals, that of worker `to` first; the other worker draws
/// its own.
fn apart<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
    secret: D::Buf<W>,
) -> Result<[D::Buf<W>; 2], Error> {
    let stream = party.stream(1 - to, label)?;
    let other = party.device().random(&stream, n)?;
    let share = party.device().combine(&[(W::ONE, &secret), (W::ONE.neg(), &other)], W::ZERO, n)?;
    Ok([share, other])
}

/// As [`deal`] for elements of Z_2^width: only the low `width` bits of secret and shares count.
/// `width` bits per element.
pub(crate) fn deal_low<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
    width: u32,
    secret: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
) -> Result<Option<DealtShare<W, D>>, Error> {
    if Role::of(party) == Role::Worker(1 - to) {
        return Ok(Some(DealtShare::Stream(party.stream_key(DEALER, label)?)));
    }
    let packed = deal_packed(party, to, label, n, width, secret)?;
    Ok(packed.map(|packed| DealtShare::Low(Bits::new([n * width as usize], packed))))
}

/// As [`deal_low`] for shares that stay packed, `width` bits each.
pub(crate) fn deal_packed<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
    width: u32,
    secret: impl FnOnce(&D) -> Result<D::Buf<W>, Error>,
) -> Result<Option<D::Buf<u64>>, Error> {
    if Role::of(party) == Role::Dealer {
        let secret = secret(party.device())?;
        let [share, _] = apart(party, to, label, n, secret)?;
        let packed = party.device().pack_low(&share, width)?;
        party.send_bits(to, label, packed, n * width as usize)?;
        return Ok(None);
    }
    Ok(Some(dealt_packed::<W, D>(party, to, label, n, width)?))
}

/// What [`deal_packed`] gives a worker.
fn dealt_packed<W: Word, D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    n: usize,
    width: u32,
) -> Result<D::Buf<u64>, Error> {
    if party.me() == to {
        return party.recv_bits(DEALER, label, n * width as usize);
    }
    let stream = party.stream(DEALER, label)?;
    let share = party.device().random::<W>(&stream, n)?;
    Ok(party.device().pack_low(&share, width)?)
}

/// The workers open additive shares to each other: one round, ℓ bits each way per element.
pub(crate) fn open<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    label: &str,
    n: usize,
    share: D::Buf<W>,
) -> Result<D::Buf<W>, Error> {
    party.send_ring::<W>(1 - j, label, share.clone())?;
    let other = party.recv_ring::<W>(1 - j, label, n)?;
    Ok(party.device().combine(&[(W::ONE, &share), (W::ONE, &other)], W::ZERO, n)?)
}

/// As [`open`] for several tensors of shares in one round.
pub(crate) fn open_all<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    label: &str,
    n: usize,
    shares: Vec<D::Buf<W>>,
) -> Result<Vec<D::Buf<W>>, Error> {
    for (i, share) in shares.iter().enumerate() {
        party.send_ring::<W>(1 - j, &format!("{label}{i}"), share.clone())?;
    }
    let mut opened = Vec::new();
    for (i, share) in shares.iter().enumerate() {
        let other = party.recv_ring::<W>(1 - j, &format!("{label}{i}"), n)?;
        opened.push(party.device().combine(&[(W::ONE, share), (W::ONE, &other)], W::ZERO, n)?);
    }
    Ok(opened)
}

/// As [`open`] for elements of Z_2^width: only the low `width` bits of shares and result count.
pub(crate) fn open_low<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    label: &str,
    n: usize,
    width: u32,
    share: &D::Buf<W>,
) -> Result<D::Buf<W>, Error> {
    let packed = party.device().pack_low(share, width)?;
    party.send_bits(1 - j, label, packed, n * width as usize)?;
    let packed = party.recv_bits(1 - j, label, n * width as usize)?;
    let other = party.device().unpack_low(&packed, width, n)?;
    Ok(party.device().combine(&[(W::ONE, share), (W::ONE, &other)], W::ZERO, n)?)
}

/// As [`open`] for shares of bits.
pub(crate) fn open_bits<D: Device>(
    party: &mut Party<D>,
    j: usize,
    label: &str,
    n: usize,
    share: D::Buf<u64>,
) -> Result<D::Buf<u64>, Error> {
    party.send_bits(1 - j, label, share.clone(), n)?;
    let other = party.recv_bits(1 - j, label, n)?;
    Ok(party.device().xor(&[&share, &other], false, n)?)
}

impl<D: Device, T: Encode<D>> Encode<D> for Mask<T> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Mask::Worker(share) => {
                out.push(0);
                share.write(device, out)
            }
            Mask::Dealer([a, b]) => {
                out.push(1);
                a.write(device, out)?;
                b.write(device, out)
            }
        }
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        match take(input, 1)?[0] {
            0 => Ok(Mask::Worker(T::read(device, input)?)),
            1 => Ok(Mask::Dealer([T::read(device, input)?, T::read(device, input)?])),
            _ => Err(EncodeError::Damaged),
        }
    }
}
