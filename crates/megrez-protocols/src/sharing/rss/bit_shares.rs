//! Shared bits, as both protocols on replicated values have them: replicated, b = b_0 ⊕ b_1 ⊕ b_2,
//! or masked, b = m ⊕ r with m known to all and r replicated. What is here sends nothing.

use super::Rss;
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// Adds a public term to a replicated bit: it enters component 0.
pub(crate) fn plus_public<D: Device>(
    party: &Party<D>,
    r: &Rss<D::Buf<u64>>,
    public: &D::Buf<u64>,
    n: usize,
) -> Result<Rss<D::Buf<u64>>, Error> {
    r.map(party.me(), |c, r| match c {
        0 => Ok(party.device().xor(&[r, public], false, n)?),
        _ => Ok(r.clone()),
    })
}

/// A masked bit as a replicated one: no message.
pub(crate) fn to_replicated<D: Device>(
    party: &Party<D>,
    m: &Bits<D>,
    r: &Rss<Bits<D>>,
) -> Result<Rss<Bits<D>>, Error> {
    let buffers = Rss { own: r.own.buf.clone(), next: r.next.buf.clone() };
    let sum = plus_public(party, &buffers, &m.buf, m.elements())?;
    Ok(Rss { own: Bits::new(m.shape.clone(), sum.own), next: Bits::new(m.shape.clone(), sum.next) })
}

/// The bit as a replicated ring value from m and its mask as one: m + (1−2m)·r. No message.
pub(crate) fn to_ring<W: Word, D: Device>(
    party: &Party<D>,
    m: &Bits<D>,
    r: &Rss<Tensor<W, D>>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let (device, n) = (party.device(), m.elements());
    r.map(party.me(), |c, r| {
        let product = device.bit_times(&m.buf, Some(&r.buf), n)?;
        let mut terms = vec![(W::ONE, &r.buf), (W::from_i64(-2), &product)];
        let public = device.bit_times::<W>(&m.buf, None, n)?;
        if c == 0 {
            terms.push((W::ONE, &public));
        }
        Ok(Tensor::new(r.shape.clone(), device.combine(&terms, W::ZERO, n)?))
    })
}

/// This party's additive share of a·b.
pub(crate) fn additive<D: Device>(
    party: &Party<D>,
    a: &Rss<D::Buf<u64>>,
    b: &Rss<D::Buf<u64>>,
    n: usize,
) -> Result<D::Buf<u64>, Error> {
    let device = party.device();
    let both = device.xor(&[&a.own, &a.next], false, n)?;
    let products = [device.and(&both, &b.own)?, device.and(&a.own, &b.next)?];
    Ok(device.xor(&[&products[0], &products[1]], false, n)?)
}

/// Both components without their shapes.
pub(crate) fn buffers<D: Device>(x: &Rss<Bits<D>>) -> Rss<D::Buf<u64>> {
    Rss { own: x.own.buf.clone(), next: x.next.buf.clone() }
}
