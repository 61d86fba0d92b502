//! Masked bits, b = m ⊕ r with m known to all and r replicated: METEOR, §4, and ALKAID, §II-B. What
//! a bit multiplies takes one round, since all that involves r alone is made before the inputs
//! exist.
//!
//! step        phase    rounds  bits per element  from → to
//! ⊕, ¬, view           0       0                 on m and on r
//! b as value  offline  2       3·ℓ               r as a ring value ([`select`])
//!             online   0       0
//! b·x         offline  2       3·ℓ               the same
//!             online   1       3·ℓ               see [`product`]
//! a ∧ b       offline  1       3                 r_a·r_b: P_i → P_{i−1}, each i
//!             online   1       3                 P_i → P_{i+1}, each i: the component of m that it lacks
//! of 3 (4)    offline  1       3 (6)             products of two masks: P_i → P_{i−1}, each i
//!             online   1       6                 each to both others
//!
//! Everybody sees uniform elements.

use super::family::Alkaid;
use crate::local::{self, Product};
use crate::rss::bit_shares::{additive, buffers, plus_public, to_replicated, to_ring};
use crate::rss::{self, Data, Masks, Rss, after, before};
use crate::steps::{product, select};
use crate::{Call, Cost, Made, OnlineStep, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::{Op, Value};
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party, Phase};

/// A rearrangement, a negation or an exclusive or.
pub struct BitLinear<'a>(local::BitLinear<'a>);

impl<'a, W: Word, D: Device> OnlineStep<'a, Alkaid<W, D>> for BitLinear<'a> {
    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        local::BitLinear::of(call).map(BitLinear)
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        _: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let Some(inputs) = inputs.iter().copied().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let masks: Vec<_> = inputs.iter().map(|m| m.bit()).collect();
        // The negation is m's.
        let mask = Rss::zip(party.me(), &masks, |_, r| self.0.apply(party.device(), r, false))?;
        Ok(Some(Masks::Bit(mask)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let m: Vec<_> = (0..operands.inputs.len()).map(|i| operands.masked(i)).collect();
        Ok((Data::Masked(self.0.apply(party.device(), &m, true)?), None))
    }
}

/// b·x, or the bit as 0 or 1.
pub struct Select<'a> {
    with_value: bool,
    shape: &'a Shape,
}

/// What a selection costs: the conversion of the mask offline, and the product.
pub(super) fn select_cost(ring: u32, n: usize, with_value: bool) -> Cost {
    let converted = select::cost(ring, n, false).made_offline();
    if with_value { converted.then(product::cost(ring, n)) } else { converted }
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for Select<'a> {
    /// The bit's mask as a ring value.
    type Material = Rss<Tensor<W, D>>;

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        let answers = matches!(call.op, Op::Select { truncate: 0 } | Op::BitToRing);
        answers.then_some(Select { with_value: *call.op != Op::BitToRing, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(select_cost(W::BITS, self.shape.elements(), self.with_value))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        select::online(party, inputs[0].bit(), None)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        r: Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let bit = to_ring(party, operands.masked(0), &r)?;
        let z = match self.with_value {
            true => product::online(party, &Product::Elements, &bit, operands.ring(1), self.shape)?,
            false => bit,
        };
        Ok((Data::Ring(z), None))
    }
}

/// Products of two bits' masks: of the first two bits, and of the last two of four.
type Pairs<D> = (Rss<Bits<D>>, Option<Rss<Bits<D>>>);

/// The conjunction of two to four bits: ALKAID's AND2, with a pair made before, AND3 and AND4.
pub struct And<'a> {
    factors: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for And<'a> {
    type Material = Pairs<D>;

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::And).then_some(And { factors: call.inputs.len(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, bit) = (self.shape.elements(), Unit::Bits(1));
        let offline = |cost: Cost, i| cost.in_round(Phase::Offline, 1, i, before(i), n, bit);
        let pairs = (0..self.factors / 2).fold(Cost::LOCAL, |cost, _| (0..3).fold(cost, offline));
        Ok((0..3).fold(pairs, |cost, i| match self.factors {
            2 => cost.online(1, i, after(i), n, bit),
            _ => cost.online(1, i, after(i), n, bit).online(1, i, before(i), n, bit),
        }))
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        output: &Value,
        _: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        Masks::fresh_bits(party, &output.shape)
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let (shape, n) = (self.shape, self.shape.elements());
        let mut shares = vec![];
        for (i, pair) in inputs.chunks_exact(2).enumerate() {
            let [plus, minus] = rss::zero::<u64, D>(party, &format!("zero{i}"), bits::words(n))?;
            let share = additive(party, &buffers(pair[0].bit()), &buffers(pair[1].bit()), n)?;
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

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        pairs: Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let factors: Vec<_> = operands.inputs.iter().map(|(r, m)| (m.masked(), r.bit())).collect();
        let m = masked_and(party, &factors, &pairs, operands.fresh_bits())?;
        Ok((Data::Masked(Bits::new(self.shape.clone(), m)), None))
    }
}

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

/// m of the conjunction of masked bits under the mask `r`.
fn masked_and<D: Device>(
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
