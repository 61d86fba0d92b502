//! Comparisons of masked values, in one of two ways: METEOR's ([`super::sign`]), with the fewest
//! online bits, and ALKAID's ([`crate::alkaid_masked`]), with the fewest in total.
//!
//! | ℓ = 64 | offline bits / rounds | online bits / rounds |
//! | --- | --- | --- |
//! | METEOR | 1582 / 12 | 117 / 3 |
//! | ALKAID | 272 / 1 | 172 / 3 |
//!
//! Security: `docs/security/meteor.md`.

use super::truncate;
use crate::mrss::{Data, MaskedReplicated, Masks};
use crate::rss::Rss;
use crate::sharing::Variant;
use crate::{Call, Cost, Encode, Made, Operands, Step, Unsupported};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::{Op, Relu, SignBit};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// What a step compares, and one way to do it.
pub trait Comparison: Sized {
    /// What it takes from the offline phase.
    type Material<D: Device>: Send + Encode<D>;
    /// A comparison whose first messages are on their way.
    type Sent<D: Device>;
    /// Whether all parties take part with m of x; else P0 and P1 do with a, where x = a − r.
    const TAKES_M: bool;

    /// The comparison of a step, if it is one.
    fn of(op: &Op, ring: u32) -> Option<Self>;

    /// For `n` elements of x.
    fn cost(&self, n: usize) -> Cost;

    /// From the mask of x.
    fn offline<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        psi: &Rss<Tensor<W, D>>,
    ) -> Result<Self::Material<D>, Error>;

    /// Sends what is sent before anybody waits; `a` is there at P0 and P1, `mask` is the result's.
    fn send<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        a: Option<&D::Buf<W>>,
        mask: &Rss<Bits<D>>,
        material: &Self::Material<D>,
    ) -> Result<Self::Sent<D>, Error>;

    /// m of the bits [x ≥ t], threshold by threshold.
    fn receive<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        m: Option<&Tensor<W, D>>,
        mask: &Rss<Bits<D>>,
        sent: Self::Sent<D>,
        material: Self::Material<D>,
    ) -> Result<D::Buf<u64>, Error>;
}

/// The sign bit and the thresholds of a step that compares: a ReLU that truncates compares all bits
/// that the cut would drop too.
pub(super) fn compared(op: &Op, ring: u32) -> Option<(SignBit, &[i64])> {
    match op {
        Op::Relu(Relu { sign, truncate: 1.., .. }) => {
            Some((SignBit { cut: 0, bits: Some(sign.cut + sign.width(ring)), ..sign.clone() }, &[0]))
        }
        Op::NonNegative(sign) | Op::Relu(Relu { sign, .. }) => Some((sign.clone(), &[0])),
        Op::CompareMany { sign, thresholds } => Some((sign.clone(), thresholds)),
        _ => None,
    }
}

/// [x ≥ 0], or [x ≥ t] for every threshold.
pub struct Compare<'a, C> {
    comparison: C,
    /// Elements of x.
    n: usize,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device, P: Variant, C: Comparison> Step<'a, MaskedReplicated<W, D, P>>
    for Compare<'a, C>
{
    type Material = C::Material<D>;

    fn of(_: &MaskedReplicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        if !matches!(call.op, Op::NonNegative(_) | Op::CompareMany { .. }) {
            return None;
        }
        Some(Compare { comparison: C::of(call.op, W::BITS)?, n: call.of_elements(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(self.comparison.cost(self.n))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        self.comparison.offline(party, inputs[0].ring())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, MaskedReplicated<W, D, P>>,
        material: Self::Material,
    ) -> Result<Made<MaskedReplicated<W, D, P>>, Error> {
        let ((m, psi), mask) = (operands.ring(0), operands.fresh_bits());
        let a = truncate::known(party, m, psi)?;
        let sent = self.comparison.send(party, a.as_ref(), mask, &material)?;
        let m = self.comparison.receive(party, Some(m), mask, sent, material)?;
        Ok((Data::of_bits(self.shape, m), None))
    }
}
