//! Masked bits, b = m ⊕ r with m known to all and r replicated: METEOR, §4, and ALKAID, §II-B. What a bit multiplies takes one
//! round, since all that involves r alone is made before the inputs exist.
//!
//! step        phase    rounds  bits per element  from → to
//! b as value  offline  2       3·ℓ               r as a ring value ([`super::select`])
//!             online   0       0
//! b·x         offline  2       3·ℓ               the same
//!             online   1       3·ℓ               P_i → P_{i−1}, each i
//! a ∧ b       offline  1       3                 r_a·r_b: P_i → P_{i−1}, each i
//!             online   1       3                 P_i → P_{i+1}, each i: the component of m that it lacks
//!
//! Everybody sees uniform elements.

use crate::rss::{self, Rss, after, before, reshare_cost};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party, Phase};

/// Adds a public term to a replicated bit: it enters component 0.
fn plus_public<D: Device>(
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

pub(crate) fn and_cost(n: usize) -> Cost {
    let offline = |cost: Cost, i| cost.in_round(Phase::Offline, 1, i, before(i), n, Unit::Bits(1));
    let online = |cost: Cost, i| cost.online(1, i, after(i), n, Unit::Bits(1));
    (0..3).fold((0..3).fold(Cost::LOCAL, offline), online)
}

/// a ∧ b of replicated bits: ABY3's product. 3 bits, one round.
pub(crate) fn and<D: Device>(
    party: &mut Party<D>,
    a: &Rss<Bits<D>>,
    b: &Rss<Bits<D>>,
    shape: &Shape,
) -> Result<Rss<Bits<D>>, Error> {
    let n = shape.elements();
    let [plus, minus] = rss::zero::<u64, D>(party, "zero", bits::words(n))?;
    let device = party.device();
    let both = device.xor(&[&a.own.buf, &a.next.buf], false, n)?;
    let products = [device.and(&both, &b.own.buf)?, device.and(&a.own.buf, &b.next.buf)?];
    let share = device.xor(&[&products[0], &products[1], &plus, &minus], false, n)?;
    let z = rss::reshare_bits(party, "share", n, share)?;
    z.map(party.me(), |_, buf| Ok(Bits::new(shape.clone(), buf.clone())))
}

/// The online cost of [`and`].
pub(crate) fn replicated_and_cost(n: usize) -> Cost {
    reshare_cost(Cost::LOCAL, 1, n, Unit::Bits(1))
}

/// m of a ∧ b under the mask `r`, from m and masks of both and the product of their masks.
pub(crate) fn masked_and<D: Device>(
    party: &mut Party<D>,
    (m_a, r_a): (&Bits<D>, &Rss<Bits<D>>),
    (m_b, r_b): (&Bits<D>, &Rss<Bits<D>>),
    product: &Rss<Bits<D>>,
    r: &Rss<Bits<D>>,
) -> Result<D::Buf<u64>, Error> {
    let (n, me) = (m_a.elements(), party.me());
    let device = party.device();
    let share = Rss::zip(me, &[r_a, r_b, product, r], |_, x| {
        let terms = [device.and(&m_a.buf, &x[1].buf)?, device.and(&m_b.buf, &x[0].buf)?];
        Ok::<_, Error>(device.xor(&[&terms[0], &terms[1], &x[2].buf, &x[3].buf], false, n)?)
    })?;
    let both = device.and(&m_a.buf, &m_b.buf)?;
    let share = plus_public(party, &share, &both, n)?;
    party.send_bits(after(me), "share", share.own.clone(), n)?;
    let missing = party.recv_bits(before(me), "share", n)?;
    Ok(party.device().xor(&[&share.own, &share.next, &missing], false, n)?)
}
