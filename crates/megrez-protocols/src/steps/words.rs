//! Values by their bits: what the conversions of `aby3` and `alkaid` have in common. ABY3,
//! §5.3-5.4; ALKAID, Fig. 7, 8 and 10. The bits of a value lie along the first dimension, the
//! lowest first.
//!
//! step        what it is                                                      cost
//! a2b         u + v for u = x_1 and v = x_2 + x_0                             an addition
//! adder       x + y                                                           an addition of shared bits
//! b2a         w = x + y for a random y = y_1 ⊕ y_2, y_1 known to P0 and P1    an addition of shared bits,
//!             and y_2 to P1 and P2; w is opened to P0 and P2, and             P1 → P2: ℓ (c),
//!             x = w − y = (w, −b, −c) with b of P0 and P1, c = y − b          P1 → P0, P2: ℓ each (w)
//!
//! Deviates from ALKAID's B2A: the result is replicated, so its last step, w + a to P1, falls away;
//! and the carries of the last level are reshared and then opened (5 bits, one round more) where
//! the figure opens their shares (4 bits).
//!
//! Everybody sees uniform bits; P0 and P2 see w, which y makes uniform to them.

use crate::rss::{Rss, draw};
use crate::{Cost, Encode, EncodeError, Unit};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party, Phase};

/// The cost of a ring value from bits, for n values: y is made in a phase, in which `add` ends, the
/// sum x + y.
pub(crate) fn b2a_cost(phase: Phase, ring: u32, n: usize, add: Cost) -> Cost {
    let element = Unit::Bits(ring);
    let open = Cost::LOCAL.online(1, 1, 0, n, element).online(1, 1, 2, n, element);
    // c is on its way beside the addition, and taken at its end.
    let end = add.transfers.iter().filter(|t| t.phase == phase).map(|t| t.round).max().unwrap_or(1);
    Cost::LOCAL.in_round(phase, end, 1, 2, n, element).beside(add).then(open)
}

/// A value in bits as its planes.
pub(crate) fn planes<D: Device>(party: &Party<D>, x: &Bits<D>) -> Result<(D::Buf<u64>, usize, usize), Error> {
    let (width, n) = extent(&x.shape);
    Ok((party.device().unpack_planes(&x.buf, width, n)?, width, n))
}

/// How many bits, of how many values.
pub(crate) fn extent(shape: &Shape) -> (usize, usize) {
    let dims = shape.dims();
    (dims[0], dims[1..].iter().product())
}

/// Both components as planes.
pub(crate) fn shared_planes<D: Device>(
    party: &Party<D>,
    x: &Rss<Bits<D>>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    x.map(party.me(), |_, x| Ok(planes(party, x)?.0))
}

/// Planes as a value in bits.
pub(crate) fn join<D: Device>(
    party: &Party<D>,
    x: Rss<D::Buf<u64>>,
    shape: &Shape,
) -> Result<Rss<Bits<D>>, Error> {
    let (width, n) = extent(shape);
    x.map(party.me(), |_, x| {
        let packed = party.device().pack_planes(x, width, n)?;
        Ok(Bits::new(shape.clone(), party.device().xor(&[&packed], false, width * n)?))
    })
}

/// A random y in both kinds of shares.
pub struct Random<W: Word, D: Device> {
    /// (0, y_1, y_2), y = y_1 ⊕ y_2.
    pub bits: Rss<Bits<D>>,
    /// The parts of −y that this party holds: −b at P0 and P1, −c at P1 and P2.
    b: Option<Tensor<W, D>>,
    c: Option<Tensor<W, D>>,
}

impl<W: Word, D: Device> Encode<D> for Random<W, D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.bits.write(device, out)?;
        self.b.write(device, out)?;
        self.c.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Random {
            bits: Encode::<D>::read(device, input)?,
            b: Encode::<D>::read(device, input)?,
            c: Encode::<D>::read(device, input)?,
        })
    }
}

/// Draws y; P1 sends c to P2, who takes it with [`receive_c`] once it has nothing left to send.
pub(crate) fn random<W: Word, D: Device>(party: &mut Party<D>, shape: &Shape) -> Result<Random<W, D>, Error> {
    let (width, n) = extent(shape);
    let (me, words) = (party.me(), bits::words(width * n));
    let component = |party: &mut Party<D>, c: usize| -> Result<Bits<D>, Error> {
        let buf = match c {
            0 => party.device().xor(&[], false, width * n)?,
            c => {
                let drawn = draw::<u64, D>(party, c, "y", words)?;
                party.device().xor(&[&drawn], false, width * n)?
            }
        };
        Ok(Bits::new(shape.clone(), buf))
    };
    let bits = Rss::of(me, |c| component(party, c))?;
    let b = if me == 2 { None } else { Some(draw::<W, D>(party, 1, "b", n)?) };
    let c = match me {
        0 => None,
        1 => {
            let y = party.device().xor(&[&bits.own.buf, &bits.next.buf], false, width * n)?;
            let planes = party.device().unpack_planes(&y, width, n)?;
            let y = party.device().join_planes::<W>(&planes, n)?;
            let b = b.as_ref().expect("P1 holds b");
            let c = party.device().combine(&[(W::ONE, &y), (W::ONE.neg(), b)], W::ZERO, n)?;
            party.send_ring::<W>(2, "c", c.clone())?;
            Some(c)
        }
        _ => None,
    };
    Ok(Random { bits, b: negative(party, b, n)?, c: negative(party, c, n)? })
}

/// −x, where there is one.
fn negative<W: Word, D: Device>(
    party: &Party<D>,
    x: Option<D::Buf<W>>,
    n: usize,
) -> Result<Option<Tensor<W, D>>, Error> {
    let negated = x.map(|x| party.device().combine(&[(W::ONE.neg(), &x)], W::ZERO, n)).transpose()?;
    Ok(negated.map(|buf| Tensor::new([n], buf)))
}

/// Completes y at P2.
pub(crate) fn receive_c<W: Word, D: Device>(party: &mut Party<D>, y: &mut Random<W, D>) -> Result<(), Error> {
    if party.me() == 2 {
        let n = extent(&y.bits.own.shape).1;
        let c = party.recv_ring::<W>(1, "c", n)?;
        y.c = negative(party, Some(c), n)?;
    }
    Ok(())
}

/// The ring value of bits, from w = x + y and y.
pub(crate) fn unmask<W: Word, D: Device>(
    party: &mut Party<D>,
    w: Rss<Bits<D>>,
    y: Random<W, D>,
    shape: &Shape,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let (width, n) = extent(&w.own.shape);
    let tensor = |x: Tensor<W, D>| x.reshaped(shape.clone());
    let held = |part: Option<Tensor<W, D>>| tensor(part.expect("the holders of a component have it"));
    if party.me() == 1 {
        party.send_bits(0, "w", w.next.buf, width * n)?;
        party.send_bits(2, "w", w.own.buf, width * n)?;
        return Ok(Rss { own: held(y.b), next: held(y.c) });
    }
    let missing = party.recv_bits(1, "w", width * n)?;
    let opened = party.device().xor(&[&w.own.buf, &w.next.buf, &missing], false, width * n)?;
    let planes = party.device().unpack_planes(&opened, width, n)?;
    let w = Tensor::new(shape.clone(), party.device().join_planes::<W>(&planes, n)?);
    Ok(match party.me() {
        0 => Rss { own: w, next: held(y.b) },
        _ => Rss { own: held(y.c), next: w },
    })
}
