//! Replicated secret sharing, (2,3)-RSS: x = x_0 + x_1 + x_2 in Z_2^ℓ, or x_0 ⊕ x_1 ⊕ x_2 for bits.
//! P_i holds x_i, its *own* component, and x_{i+1}, the *next* one; component i is so known to P_i
//! and P_{i−1}, and to nobody else. A public constant enters component 0.
//!
//! Between two steps a value may also be *additive*, z = z_0 + z_1 + z_2 with z_i at P_i alone:
//! what a product of two replicated values gives before it is reshared.

pub(crate) mod bit_shares;
pub(crate) mod deferred;
mod linear;
mod noise;
mod values;

pub use deferred::Summand;
pub(crate) use linear::refuse;
pub use linear::{Linear, PublicProduct};
pub use values::{Data, Masks, Replicated};

use crate::{Cost, Encode, EncodeError, Unit};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_net::Payload;
use megrez_plan::{Kind, Value};
use megrez_ring::{Shape, Word, bits, from_wire};
use megrez_session::{Error, Party};

/// A party's share of a replicated value: its own component and the next.
#[derive(Clone)]
pub struct Rss<T> {
    /// x_i at P_i.
    pub own: T,
    /// x_{i+1} at P_i.
    pub next: T,
}

/// The party after `i`.
pub fn after(i: usize) -> usize {
    (i + 1) % 3
}

/// The party before `i`.
pub fn before(i: usize) -> usize {
    (i + 2) % 3
}

/// The parties that hold component `c`: P_c and P_{c−1}.
pub fn holders(c: usize) -> [usize; 2] {
    [c, before(c)]
}

impl<T> Rss<T> {
    /// Both components by their number at party `me`.
    pub fn component(&self, me: usize, c: usize) -> &T {
        if c == me {
            return &self.own;
        }
        assert_eq!(c, after(me), "party {me} does not hold component {c}: a step mixed up its roles");
        &self.next
    }

    /// Applies a linear map to both components; the number of the component goes with it.
    pub fn map<U, E>(&self, me: usize, mut f: impl FnMut(usize, &T) -> Result<U, E>) -> Result<Rss<U>, E> {
        Ok(Rss { own: f(me, &self.own)?, next: f(after(me), &self.next)? })
    }

    /// Applies a linear map of several values to both components.
    pub fn zip<U, E>(
        me: usize,
        values: &[&Self],
        mut f: impl FnMut(usize, &[&T]) -> Result<U, E>,
    ) -> Result<Rss<U>, E> {
        let [own, next] = Self::components(values);
        Ok(Rss { own: f(me, &own)?, next: f(after(me), &next)? })
    }

    fn components<'a>(values: &[&'a Self]) -> [Vec<&'a T>; 2] {
        [values.iter().map(|x| &x.own).collect(), values.iter().map(|x| &x.next).collect()]
    }

    /// Makes both components, each by its number.
    pub fn of<E>(me: usize, mut f: impl FnMut(usize) -> Result<T, E>) -> Result<Self, E> {
        Ok(Rss { own: f(me)?, next: f(after(me))? })
    }
}

impl<D: Device, T: Encode<D>> Encode<D> for Rss<T> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.own.write(device, out)?;
        self.next.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Rss { own: T::read(device, input)?, next: T::read(device, input)? })
    }
}

/// `n` ring elements that both holders of component `c` draw from their common stream.
pub fn draw<W: Word, D: Device>(
    party: &mut Party<D>,
    c: usize,
    label: &str,
    n: usize,
) -> Result<D::Buf<W>, Error> {
    let [a, b] = holders(c);
    let peer = a + b - party.me();
    let stream = party.stream(peer, label)?;
    Ok(party.device().random(&stream, n)?)
}

/// A uniform replicated value that nobody knows.
pub fn random<W: Word, D: Device>(
    party: &mut Party<D>,
    label: &str,
    shape: &Shape,
) -> Result<Rss<Tensor<W, D>>, Error> {
    Rss::of(party.me(), |c| Ok(Tensor::new(shape.clone(), draw(party, c, label, shape.elements())?)))
}

/// A uniform replicated tensor of bits that nobody knows.
pub fn random_bits<D: Device>(
    party: &mut Party<D>,
    label: &str,
    shape: &Shape,
) -> Result<Rss<Bits<D>>, Error> {
    let words = bits::words(shape.elements());
    Rss::of(party.me(), |c| {
        let drawn = draw::<u64, D>(party, c, label, words)?;
        Ok(Bits::new(shape.clone(), party.device().xor(&[&drawn], false, shape.elements())?))
    })
}

/// The two streams whose difference is this party's share of zero: (added, subtracted). Over all
/// parties they cancel.
pub fn zero<W: Word, D: Device>(
    party: &mut Party<D>,
    label: &str,
    n: usize,
) -> Result<[D::Buf<W>; 2], Error> {
    let me = party.me();
    Ok([draw(party, after(me), label, n)?, draw(party, me, label, n)?])
}

/// Ring elements from P_i to P_{i−1}, for every i: additive shares, masked already, become
/// components. ℓ bits per element and party, one round.
pub fn reshare<W: Word, D: Device>(
    party: &mut Party<D>,
    label: &str,
    n: usize,
    share: D::Buf<W>,
) -> Result<Rss<D::Buf<W>>, Error> {
    let me = party.me();
    party.send_ring::<W>(before(me), label, share.clone())?;
    let next = party.recv_ring::<W>(after(me), label, n)?;
    Ok(Rss { own: share, next })
}

/// As [`reshare`] for packed bits: n bits per party.
pub fn reshare_bits<D: Device>(
    party: &mut Party<D>,
    label: &str,
    n: usize,
    share: D::Buf<u64>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let me = party.me();
    party.send_bits(before(me), label, share.clone(), n)?;
    let next = party.recv_bits(after(me), label, n)?;
    Ok(Rss { own: share, next })
}

/// What [`reshare`] sends in an online round.
pub fn reshare_cost(cost: Cost, round: u32, n: usize, unit: Unit) -> Cost {
    (0..3).fold(cost, |cost, i| cost.online(round, i, before(i), n, unit))
}

/// A value from every party's own component (or the words of a public one, from P0): what a
/// recipient of an output does. Bits come packed.
pub(crate) fn reconstruct<W: Word>(value: &Value, messages: &[Payload]) -> Result<Vec<W>, Error> {
    let n = value.shape.elements();
    let wrong = || Error::Refused("a party sent an output share of the wrong size".into());
    let message = |i: usize| messages.get(i).ok_or_else(wrong);
    let words = |i: usize| -> Result<Vec<W>, Error> {
        let bytes = message(i)?.as_bytes();
        if bytes.len() == n * W::BYTES { Ok(from_wire(bytes)) } else { Err(wrong()) }
    };
    Ok(match value.kind {
        Kind::Public { .. } => words(0)?,
        Kind::Ring { .. } | Kind::Additive { .. } => {
            let [a, b, c] = [words(0)?, words(1)?, words(2)?];
            (0..n).map(|i| a[i].add(b[i]).add(c[i])).collect()
        }
        Kind::Bit => {
            let shares = [message(0)?, message(1)?, message(2)?].map(|m| m.as_bytes());
            if shares.iter().any(|s| s.len() != megrez_ring::bits::bytes(n)) {
                return Err(wrong());
            }
            let bit = |i: usize| shares.iter().fold(0, |b, s| b ^ (s[i / 8] >> (i % 8)) & 1);
            (0..n).map(|i| W::from_u64(u64::from(bit(i)))).collect()
        }
    })
}
