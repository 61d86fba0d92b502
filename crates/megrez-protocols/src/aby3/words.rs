//! Values by their bits under `aby3` ([`crate::steps::words`]): additions on Boolean replicated
//! shares, with Sklansky's tree of pairs.

use super::adder;
use super::family::Aby3;
use crate::rss::{Data, Rss};
use crate::steps::sum;
use crate::steps::tree::Tree;
use crate::steps::words::{b2a_cost, extent, join, random, receive_c, shared_planes, unmask};
use crate::{Call, Cost, Made, OnlineStep, Operands, Unsupported};
use megrez_kernels::{Bits, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The tree for all bits of `width`.
fn tree(width: usize) -> Tree {
    Tree::sklansky(width - 1, 2)
}

/// x + y of replicated bits.
fn add<D: Device>(party: &mut Party<D>, x: &Rss<Bits<D>>, y: &Rss<Bits<D>>) -> Result<Rss<Bits<D>>, Error> {
    let (width, n) = extent(&x.own.shape);
    let summands = [shared_planes(party, x)?, shared_planes(party, y)?];
    let sum = adder::sum_of_bits(party, &tree(width), n, summands)?;
    join(party, sum, &x.own.shape)
}

/// The bits of a ring value.
pub struct ToBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for ToBits<'a> {
    fn of(_: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::ToBits).then_some(ToBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(adder::cost(&tree(W::BITS as usize), extent(self.shape).1))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let x = operands.ring(0);
        let known = sum::split(party, x, W::BITS)?;
        let sum = adder::online(party, &tree(W::BITS as usize), x.own.elements(), known)?;
        Ok((Data::Bit(join(party, sum, self.shape)?), None))
    }
}

/// x + y of values in bits.
pub struct AddBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for AddBits<'a> {
    fn of(_: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::AddBits).then_some(AddBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (width, n) = extent(self.shape);
        Ok(adder::sum_cost(&tree(width), n))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        Ok((Data::Bit(add(party, operands.bit(0), operands.bit(1))?), None))
    }
}

/// The ring value of bits.
pub struct FromBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> OnlineStep<'a, Aby3<W, D>> for FromBits<'a> {
    fn of(_: &Aby3<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::FromBits).then_some(FromBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        Ok(b2a_cost(Phase::Online, W::BITS, n, adder::sum_cost(&tree(W::BITS as usize), n)))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Aby3<W, D>>,
    ) -> Result<Made<Aby3<W, D>>, Error> {
        let x = operands.bit(0);
        let mut y = random::<W, D>(party, &x.own.shape)?;
        let w = add(party, x, &y.bits)?;
        receive_c(party, &mut y)?;
        Ok((Data::Ring(unmask(party, w, y, self.shape)?), None))
    }
}
