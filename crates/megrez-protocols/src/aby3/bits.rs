//! Replicated bits: what is local on them, conjunctions, and what a bit multiplies. ABY3, §5.
//!
//! step        rounds      bits per element       from → to
//! ⊕, ¬, view  0           0
//! a ∧ b, of N ⌈log2 N⌉    3·(N − 1)              P_i → P_{i−1}, each i: two at a time, every product reshared
//! b·x         2           4·ℓ                    see [`select`]
//! b as value  2           3·ℓ                    see [`select`]
//!
//! Everybody sees uniform bits and elements. Security: docs/security/replicated.md.

use super::family::Aby3;
use crate::rss::bit_shares::{additive, buffers};
use crate::rss::{self, Data, Rss, after, before, reshare_cost};
use crate::steps::select;
use crate::{Call, Cost, Made, OnlineStep, Operands, Unit, Unsupported, local};
use megrez_kernels::{Bits, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word, bits};
use megrez_session::{Error, Party};

/// A rearrangement, a negation or an exclusive or.
pub struct BitLinear<'a>(local::BitLinear<'a>);

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for BitLinear<'a> {
    fn of(_: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        local::BitLinear::of(call).map(BitLinear)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let x: Vec<_> = (0..operands.inputs.len()).map(|i| operands.bit(i)).collect();
        // The negation enters component 0.
        let z = Rss::zip(party.me(), &x, |c, x| self.0.apply(party.device(), x, c == 0))?;
        Ok((Data::Bit(z), None))
    }
}

/// The conjunction of replicated bits, two at a time.
pub struct And<'a> {
    factors: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for And<'a> {
    fn of(_: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::And).then_some(And { factors: call.inputs.len(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        let (mut cost, mut left, mut round) = (Cost::LOCAL, self.factors, 1);
        while left > 1 {
            cost = (0..left / 2).fold(cost, |cost, _| reshare_cost(cost, round, n, Unit::Bits(1)));
            (left, round) = (left.div_ceil(2), round + 1);
        }
        Ok(cost)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let n = self.shape.elements();
        let mut factors: Vec<Rss<D::Buf<u64>>> =
            (0..self.factors).map(|i| buffers(operands.bit(i))).collect();
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
        let product =
            product.map(party.me(), |_, buf| Ok::<_, Error>(Bits::new(self.shape.clone(), buf.clone())))?;
        Ok((Data::Bit(product), None))
    }
}

/// b·x, or the bit as 0 or 1.
pub struct Select<'a> {
    with_value: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for Select<'a> {
    fn of(_: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        let answers = matches!(call.op, Op::Select { truncate: 0 } | Op::BitToRing);
        answers.then_some(Select { with_value: *call.op != Op::BitToRing, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(select::cost(W::BITS, self.shape.elements(), self.with_value))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let value = self.with_value.then(|| operands.ring(1));
        Ok((Data::Ring(select::online(party, operands.bit(0), value)?), None))
    }
}
