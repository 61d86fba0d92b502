//! Values by their bits under `alkaid` ([`crate::steps::words`]): additions on masked bits
//! ([`super::adder`]). The result of an addition is replicated, that is, masked by itself: m = 0
//! and a mask that is known only now.

use super::adder::{self, Entry};
use super::family::Alkaid;
use crate::rss::{Data, Masks, Rss};
use crate::steps::sum::{self, Known};
use crate::steps::tree::Tree;
use crate::steps::words::{Random, b2a_cost, extent, join, planes, random, receive_c, shared_planes, unmask};
use crate::{Call, Cost, Made, Operands, Step, Unsupported};
use megrez_kernels::{Bits, Device};
use megrez_plan::Op;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// The tree for all bits of `width`.
fn tree(width: usize) -> Tree {
    Tree::best(width - 1)
}

/// The offline phase of [`add`], from the masks of both.
fn add_offline<D: Device>(
    party: &mut Party<D>,
    x: &Rss<Bits<D>>,
    y: &Rss<Bits<D>>,
) -> Result<adder::Material<D>, Error> {
    let (width, n) = extent(&x.own.shape);
    let masks = [shared_planes(party, x)?, shared_planes(party, y)?];
    adder::offline(party, &tree(width), n, Some(masks))
}

/// x + y of masked bits, replicated; `x` and `y` are m.
fn add<D: Device>(
    party: &mut Party<D>,
    x: &Bits<D>,
    y: &Bits<D>,
    material: adder::Material<D>,
) -> Result<Rss<Bits<D>>, Error> {
    let (u, width, n) = planes(party, x)?;
    let known = Known { u: Some(u), v: Some(planes(party, y)?.0) };
    let sum = adder::online(party, &tree(width), n, known, material)?;
    join(party, sum, &x.shape)
}

/// Replicated bits as masked ones, by themselves.
fn self_masked<W: Word, D: Device>(
    party: &Party<D>,
    shape: &Shape,
    bits: Rss<Bits<D>>,
) -> Result<Made<Alkaid<W, D>>, Error> {
    let zeros = party.device().xor(&[], false, shape.elements())?;
    Ok((Data::Masked(Bits::new(shape.clone(), zeros)), Some(Masks::Bit(bits))))
}

/// The bits of a ring value.
pub struct ToBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for ToBits<'a> {
    type Material = adder::Material<D>;

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::ToBits).then_some(ToBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(adder::cost(&tree(W::BITS as usize), Entry::Replicated, extent(self.shape).1))
    }

    fn deferred(&self, _: bool) -> bool {
        true
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        adder::offline(party, &tree(W::BITS as usize), extent(self.shape).1, None)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let x = operands.ring(0);
        let known = sum::split(party, x, W::BITS)?;
        let sum = adder::online(party, &tree(W::BITS as usize), x.own.elements(), known, material)?;
        let sum = join(party, sum, self.shape)?;
        self_masked(party, self.shape, sum)
    }
}

/// x + y of values in bits.
pub struct AddBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for AddBits<'a> {
    type Material = adder::Material<D>;

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::AddBits).then_some(AddBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (width, n) = extent(self.shape);
        Ok(adder::cost(&tree(width), Entry::Bits, n))
    }

    fn deferred(&self, _: bool) -> bool {
        true
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        add_offline(party, inputs[0].bit(), inputs[1].bit())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let sum = add(party, operands.masked(0), operands.masked(1), material)?;
        self_masked(party, self.shape, sum)
    }
}

/// The ring value of bits.
pub struct FromBits<'a> {
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Alkaid<W, D>> for FromBits<'a> {
    /// y, which is masked by itself, and what its addition needs.
    type Material = (Random<W, D>, adder::Material<D>);

    fn of(_: &Alkaid<W, D>, call: Call<'a>) -> Option<Self> {
        (*call.op == Op::FromBits).then_some(FromBits { shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        let add = adder::cost(&tree(W::BITS as usize), Entry::Bits, n);
        Ok(b2a_cost(Phase::Offline, W::BITS, n, add))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let x = inputs[0].bit();
        let mut y = random::<W, D>(party, &x.own.shape)?;
        let sum = add_offline(party, x, &y.bits)?;
        receive_c(party, &mut y)?;
        Ok((y, sum))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Alkaid<W, D>>,
        (y, sum): Self::Material,
    ) -> Result<Made<Alkaid<W, D>>, Error> {
        let x = operands.masked(0);
        let nothing = Bits::new(x.shape.clone(), party.device().xor(&[], false, x.elements())?);
        let w = add(party, x, &nothing, sum)?;
        Ok((Data::Ring(unmask(party, w, y, self.shape)?), None))
    }
}
