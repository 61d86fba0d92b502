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
//! of 3 (4)    offline  1       3 (6)             products of two masks: P_i → P_{i−1}, each i
//!             online   1       6                 each to both others
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

/// The cost of [`masked_and`] of `factors` bits.
pub(crate) fn and_cost(factors: usize, n: usize) -> Cost {
    let offline = |cost: Cost, i| cost.in_round(Phase::Offline, 1, i, before(i), n, Unit::Bits(1));
    let pairs = (0..factors / 2).fold(Cost::LOCAL, |cost, _| (0..3).fold(cost, offline));
    (0..3).fold(pairs, |cost, i| match factors {
        2 => cost.online(1, i, after(i), n, Unit::Bits(1)),
        _ => cost.online(1, i, after(i), n, Unit::Bits(1)).online(1, i, before(i), n, Unit::Bits(1)),
    })
}

/// This party's additive share of a·b.
fn additive<D: Device>(
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

fn buffers<D: Device>(x: &Rss<Bits<D>>) -> Rss<D::Buf<u64>> {
    Rss { own: x.own.buf.clone(), next: x.next.buf.clone() }
}

/// The conjunction of replicated bits, two at a time: ABY3's product. 3 bits for every product, ⌈log2 N⌉ rounds for N bits.
pub(crate) fn and<D: Device>(
    party: &mut Party<D>,
    bits: &[&Rss<Bits<D>>],
    shape: &Shape,
) -> Result<Rss<Bits<D>>, Error> {
    let n = shape.elements();
    let mut factors: Vec<Rss<D::Buf<u64>>> = bits.iter().map(|x| buffers(x)).collect();
    let mut level = 0;
    while factors.len() > 1 {
        let odd = if factors.len() % 2 == 1 { factors.pop() } else { None };
        let mut shares = vec![];
        // All products of a level are sent before anybody waits.
        for (i, pair) in factors.chunks_exact(2).enumerate() {
            let [plus, minus] = rss::zero::<u64, D>(party, &format!("zero{level}-{i}"), bits::words(n))?;
            let share = additive(party, &pair[0], &pair[1], n)?;
            let share = party.device().xor(&[&share, &plus, &minus], false, n)?;
            party.send_bits(before(party.me()), &format!("share{level}-{i}"), share.clone(), n)?;
            shares.push(share);
        }
        factors.clear();
        for (i, own) in shares.into_iter().enumerate() {
            let next = party.recv_bits(after(party.me()), &format!("share{level}-{i}"), n)?;
            factors.push(Rss { own, next });
        }
        factors.extend(odd);
        level += 1;
    }
    let product = factors.pop().expect("at least two bits");
    product.map(party.me(), |_, buf| Ok(Bits::new(shape.clone(), buf.clone())))
}

/// The online cost of [`and`] of `factors` bits.
pub(crate) fn replicated_and_cost(factors: usize, n: usize) -> Cost {
    let (mut cost, mut left, mut round) = (Cost::LOCAL, factors, 1);
    while left > 1 {
        cost = (0..left / 2).fold(cost, |cost, _| reshare_cost(cost, round, n, Unit::Bits(1)));
        (left, round) = (left.div_ceil(2), round + 1);
    }
    cost
}

/// The products of masks that [`masked_and`] takes: of the first two bits, and of the last two of four.
pub(crate) fn and_offline<D: Device>(
    party: &mut Party<D>,
    masks: &[&Rss<Bits<D>>],
    shape: &Shape,
) -> Result<Pairs<D>, Error> {
    let n = shape.elements();
    let mut shares = vec![];
    for (i, pair) in masks.chunks_exact(2).enumerate() {
        let [plus, minus] = rss::zero::<u64, D>(party, &format!("zero{i}"), bits::words(n))?;
        let share = additive(party, &buffers(pair[0]), &buffers(pair[1]), n)?;
        let share = party.device().xor(&[&share, &plus, &minus], false, n)?;
        party.send_bits(before(party.me()), &format!("share{i}"), share.clone(), n)?;
        shares.push(share);
    }
    let mut products = vec![];
    for (i, own) in shares.into_iter().enumerate() {
        let next = party.recv_bits(after(party.me()), &format!("share{i}"), n)?;
        products.push(Rss { own: Bits::new(shape.clone(), own), next: Bits::new(shape.clone(), next) });
    }
    let second = if products.len() > 1 { products.pop() } else { None };
    Ok((products.pop().expect("at least one pair"), second))
}

/// See [`and_offline`].
pub(crate) type Pairs<D> = (Rss<Bits<D>>, Option<Rss<Bits<D>>>);

/// m and mask of a bit.
type Masked<'a, D> = (&'a Bits<D>, &'a Rss<Bits<D>>);

/// a·b of masked bits as a replicated bit: m_a·m_b ⊕ m_a·r_b ⊕ m_b·r_a ⊕ r_a·r_b. No message.
fn pair<D: Device>(
    party: &Party<D>,
    (m_a, r_a): Masked<'_, D>,
    (m_b, r_b): Masked<'_, D>,
    product: &Rss<Bits<D>>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (n, device) = (m_a.elements(), party.device());
    let share = Rss::zip(party.me(), &[r_a, r_b, product], |_, x| {
        let terms = [device.and(&m_a.buf, &x[1].buf)?, device.and(&m_b.buf, &x[0].buf)?];
        Ok::<_, Error>(device.xor(&[&terms[0], &terms[1], &x[2].buf], false, n)?)
    })?;
    let both = device.and(&m_a.buf, &m_b.buf)?;
    plus_public(party, &share, &both, n)
}

/// m of the conjunction of two to four masked bits under the mask `r`: ALKAID's AND2, with a pair made before, AND3 and AND4.
pub(crate) fn masked_and<D: Device>(
    party: &mut Party<D>,
    bits: &[Masked<'_, D>],
    (first, second): &Pairs<D>,
    r: &Rss<Bits<D>>,
) -> Result<D::Buf<u64>, Error> {
    let (n, me) = (bits[0].0.elements(), party.me());
    let upper = pair(party, bits[0], bits[1], first)?;
    let lower = match (&bits[2..], second) {
        ([], _) => {
            let share = Rss::zip(me, &[&upper, &buffers(r)], |_, x| party.device().xor(x, false, n))?;
            party.send_bits(after(me), "share", share.own.clone(), n)?;
            let missing = party.recv_bits(before(me), "share", n)?;
            return Ok(party.device().xor(&[&share.own, &share.next, &missing], false, n)?);
        }
        ([c, d], Some(second)) => pair(party, *c, *d, second)?,
        (rest, _) => buffers(&to_replicated(party, rest[0].0, rest[0].1)?),
    };
    // The product's summands, each under one component of r, go to both others.
    let [plus, minus] = rss::zero::<u64, D>(party, "zero", bits::words(n))?;
    let share = additive(party, &upper, &lower, n)?;
    let share = party.device().xor(&[&share, &plus, &minus, &r.own.buf], false, n)?;
    for to in [before(me), after(me)] {
        party.send_bits(to, "share", share.clone(), n)?;
    }
    let others = [before(me), after(me)].map(|from| party.recv_bits(from, "share", n));
    let [a, b] = others;
    Ok(party.device().xor(&[&share, &a?, &b?], false, n)?)
}
