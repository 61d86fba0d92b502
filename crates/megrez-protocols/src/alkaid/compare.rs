//! Comparisons under `alkaid` ([`crate::steps::compare`]): the top bit is found by [`super::top`]
//! and is masked.

use super::family::Alkaid;
use super::top;
use crate::rss::{Data, Masks, Rss};
use crate::steps::compare::Comparison;
use crate::steps::truncate;
use crate::{Call, Cost, Encode, EncodeError, Made, Operands, Step, Unsupported};
use megrez_kernels::{Bits, Device};
use megrez_plan::{Op, Value};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The comparison of a step, if it is one.
pub(crate) fn of(op: &Op, ring: u32) -> Option<Comparison> {
    Comparison::of(op, ring, top::digits)
}

/// The cost for `n` values whose r is dealt in a phase.
pub(crate) fn cost(comparison: &Comparison, dealt: Phase, n: usize) -> Cost {
    comparison.cost(dealt, n, top::cost)
}

/// What is made offline for `n` values; the shares of v are dealt apart.
pub(crate) fn offline<D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    n: usize,
) -> Result<top::Material<D>, Error> {
    top::offline(party, &comparison.digits, comparison.lanes(n))
}

/// Of a comparison whose r is known offline: the adder's material, and the shares of v at P0 and
/// P1.
pub struct Material<D: Device> {
    pub(crate) top: top::Material<D>,
    pub(crate) dealt: Option<Bits<D>>,
}

impl<D: Device> Encode<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.top.write(device, out)?;
        self.dealt.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Material { top: Encode::<D>::read(device, input)?, dealt: Encode::<D>::read(device, input)? })
    }
}

/// A comparison whose first messages are on their way.
pub struct Sent<D: Device> {
    r: Rss<D::Buf<u64>>,
    sent: Option<D::Buf<u64>>,
}

/// Sends the first messages of a comparison whose result gets the mask `r`; `a` is there at P0 and
/// P1.
pub(crate) fn send<W: Word, D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    n: usize,
    a: Option<&D::Buf<W>>,
    dealt: Option<&Bits<D>>,
    (material, r): (&top::Material<D>, &Rss<Bits<D>>),
) -> Result<Sent<D>, Error> {
    let lanes = comparison.lanes(n);
    let share = comparison.signals(party, n, a, dealt)?;
    let planes = |_, r: &Bits<D>| party.device().unpack_planes(&r.buf, lanes.groups, lanes.n);
    let r = r.map(party.me(), planes)?;
    let sent = top::send(party, &comparison.digits, lanes, share, material, &r)?;
    Ok(Sent { r, sent })
}

/// m of the bits, of this shape.
pub(crate) fn receive<D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    shape: &Shape,
    Sent { r, sent }: Sent<D>,
    material: top::Material<D>,
) -> Result<Bits<D>, Error> {
    let m = top::receive(party, &comparison.digits, comparison.lanes_of(shape), sent, material, &r)?;
    comparison.joined(party.device(), &m, shape)
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct Compare<'a> {
    comparison: Comparison,
    /// Elements of x.
    n: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for Compare<'a> {
    type Material = top::Material<D>;

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        if !matches!(call.op, Op::NonNegative(_) | Op::CompareMany { .. }) {
            return None;
        }
        Some(Compare { comparison: of(call.op, W::BITS)?, n: call.of_elements(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(cost(&self.comparison, Phase::Online, self.n))
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
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        offline(party, &self.comparison, self.n)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let (n, comparison) = (self.n, &self.comparison);
        let (part, dealer) = (truncate::parts(party, operands.ring(0))?, party.me() == 2);
        let dealt = comparison.deal(party, n, dealer.then_some(&part))?;
        let dealt = comparison.take(party, n, dealt)?;
        let given = (&material, operands.fresh_bits());
        let sent = send(party, comparison, n, (!dealer).then_some(&part), dealt.as_ref(), given)?;
        Ok((Data::Masked(receive(party, comparison, self.shape, sent, material)?), None))
    }
}
