//! ReLU under `aby3`, with a truncation in the same step: the comparison ([`super::compare`]) and
//! the truncation ([`truncate`]) run beside each other, on the same two parts of the value
//! ([`crate::steps::relu`]), and the bit is multiplied by what is truncated. Ours.
//!
//! phase     rounds                    bits per element
//! online    the comparison's, and 2   the comparison's, the truncation's, and 4·ℓ ([`select`])
//!
//! All steps mask what they send; see there what each party sees. Security:
//! docs/security/replicated.md.

use super::compare;
use super::family::{Aby3, TopBit};
use crate::rss::Data;
use crate::steps::compare::Comparison;
use crate::steps::relu::Parts;
use crate::steps::{select, truncate};
use crate::{Call, Cost, Made, OnlineStep, Operands, Unsupported};
use megrez_kernels::Device;
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// max(x, 0), with `f` fraction bits dropped; x is a replicated value or, for f > 0, a sum.
pub struct Relu<'a> {
    comparison: Comparison,
    f: u32,
    of_sum: bool,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for Relu<'a> {
    fn of(suite: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        if suite.variant != TopBit::Digits {
            return None;
        }
        let comparison = compare::of(call.op, W::BITS)?;
        Some(Relu { comparison, f: relu.truncate, of_sum: call.of_sum(), shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        let truncated = match self.f {
            0 => Cost::LOCAL,
            f => truncate::cost(W::BITS, f, n, self.of_sum),
        };
        Ok(truncated.beside(compare::cost(&self.comparison, n)).then(select::cost(W::BITS, n, true)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let n = self.shape.elements();
        let Parts { dealt, worker, truncation } =
            Parts::send(party, &self.comparison, self.f, operands.inputs[0].1, self.shape)?;
        let sent = compare::send(party, &self.comparison, n, worker.as_ref(), dealt)?;
        let y = truncation.receive(party, self.f)?;
        let bit = compare::receive(party, &self.comparison, self.shape, sent)?;
        Ok((Data::Ring(select::online(party, &bit, Some(&y))?), None))
    }
}
