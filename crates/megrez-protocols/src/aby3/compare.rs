//! Comparisons under `aby3` ([`crate::steps::compare`]): the top bit is found by [`super::adder`]
//! and is replicated.

use super::adder;
use super::family::{Aby3, TopBit};
use crate::rss::{Data, Rss};
use crate::steps::compare::{Comparison, Dealt};
use crate::steps::truncate;
use crate::{Call, Cost, Made, OnlineStep, Operands, Unsupported};
use megrez_kernels::{Bits, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The comparison of a step, if it is one.
pub(crate) fn of(op: &Op, ring: u32) -> Option<Comparison> {
    Comparison::of(op, ring, adder::digits)
}

/// The cost for `n` values.
pub(super) fn cost(comparison: &Comparison, n: usize) -> Cost {
    comparison.cost(Phase::Online, n, adder::top_cost)
}

/// Sends the first messages; `a` is there at P0 and P1.
pub(super) fn send<W: Word, D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    n: usize,
    a: Option<&D::Buf<W>>,
    dealt: Dealt<D>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let dealt = comparison.take(party, n, dealt)?;
    let share = comparison.signals(party, n, a, dealt.as_ref())?;
    adder::top_send(party, &comparison.digits, comparison.lanes(n), share)
}

/// The bits, of this shape, once the first messages are on their way.
pub(super) fn receive<D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    shape: &Shape,
    sent: Rss<D::Buf<u64>>,
) -> Result<Rss<Bits<D>>, Error> {
    let top = adder::top(party, &comparison.digits, comparison.lanes_of(shape), sent)?;
    top.map(party.me(), |_, planes| comparison.joined(party.device(), planes, shape))
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct Compare<'a> {
    comparison: Comparison,
    /// Elements of x.
    n: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for Compare<'a> {
    fn of(suite: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        if suite.variant != TopBit::Digits || !matches!(call.op, Op::NonNegative(_) | Op::CompareMany { .. })
        {
            return None;
        }
        Some(Compare { comparison: of(call.op, W::BITS)?, n: call.of_elements(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(&self.comparison, self.n))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let (part, dealer) = (truncate::parts(party, operands.ring(0))?, party.me() == 2);
        let dealt = self.comparison.deal(party, self.n, dealer.then_some(&part))?;
        let sent = send(party, &self.comparison, self.n, (!dealer).then_some(&part), dealt)?;
        Ok((Data::Bit(receive(party, &self.comparison, self.shape, sent)?), None))
    }
}
