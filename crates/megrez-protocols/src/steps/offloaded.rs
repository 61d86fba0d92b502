//! Steps of [`crate::mizar`] on replicated values: a plan mixes both families, step by step,
//! without a message between them. With P0 and P1 as workers and P2 as dealer, x = x_0 + x_1 + x_2
//! has the masked value m = x_1 and the mask r = r_0 + r_1 = −x_0 − x_2; and back.
//!
//! The mask is there only when x is, so what `mizar` deals offline is dealt first, online; P2, who
//! waits for nobody in most steps, does that while the workers finish what was before.
//!
//! A table ([`megrez_plan::Op::Lookup`]) and the tables of a winner ([`megrez_plan::Op::Winner`])
//! are such steps: P2 deals them while P0 and P1 finish what was before.
//!
//! phase     rounds                      bits per element
//! online    1, and the step's online    the step's offline and online
//!
//! Everybody sees what it sees in the step; the conversions show nothing.

use crate::mizar::{Data, Masks, Mizar};
use crate::mss::Mask;
use crate::rss::{self, Replicated, Rss};
use crate::sharing::Variant;
use crate::{Call, Cost, Made, OnlineStep, Operands, Suite, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::Op;
use megrez_ring::Word;
use megrez_session::{Error, Party};

fn negative<W: Word, D: Device>(party: &Party<D>, x: &Tensor<W, D>) -> Result<Tensor<W, D>, Error> {
    let buf = party.device().combine(&[(W::ONE.neg(), &x.buf)], W::ZERO, x.elements())?;
    Ok(Tensor::new(x.shape.clone(), buf))
}

/// A replicated value as a masked one.
fn masked<W: Word, D: Device>(
    party: &Party<D>,
    x: &Rss<Tensor<W, D>>,
) -> Result<(Masks<W, D>, Data<W, D>), Error> {
    Ok(match party.me() {
        0 => (Masks::Ring(Mask::Worker(negative(party, &x.own)?)), Data::Ring(x.next.clone())),
        1 => (Masks::Ring(Mask::Worker(negative(party, &x.next)?)), Data::Ring(x.own.clone())),
        _ => {
            let both = [negative(party, &x.next)?, negative(party, &x.own)?];
            (Masks::Ring(Mask::Dealer(both)), Data::None)
        }
    })
}

/// A masked value as a replicated one.
fn replicated<W: Word, D: Device>(
    party: &Party<D>,
    masks: &Masks<W, D>,
    data: Data<W, D>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    Ok(match (party.me(), masks, data) {
        (0, Masks::Ring(Mask::Worker(r_0)), Data::Ring(m)) => Rss { own: negative(party, r_0)?, next: m },
        (1, Masks::Ring(Mask::Worker(r_1)), Data::Ring(m)) => Rss { own: m, next: negative(party, r_1)? },
        (2, Masks::Ring(Mask::Dealer([r_0, r_1])), _) => {
            Rss { own: negative(party, r_1)?, next: negative(party, r_0)? }
        }
        _ => return party.refuse("a dealt step gives a secret ring value"),
    })
}

/// A step of `mizar`.
pub struct Offloaded<'a>(Call<'a>);

impl<'a, W: Word, D: Device, P: Variant> OnlineStep<'a, Replicated<W, D, P>> for Offloaded<'a> {
    fn of(_: &Replicated<W, D, P>, call: Call<'a>) -> Option<Self> {
        let Op::Offloaded(step) = call.op else { return None };
        Some(Offloaded(Call { op: step, ..call }))
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(Mizar::<W, D>::default().cost(self.0)?.made_online())
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Replicated<W, D, P>>,
    ) -> Result<Made<Replicated<W, D, P>>, Error> {
        let (suite, call, count) = (Mizar::<W, D>::default(), self.0, operands.inputs.len());
        let inputs =
            (0..count).map(|i| masked(party, operands.ring(i))).collect::<Result<Vec<_>, Error>>()?;
        let known: Vec<_> = inputs.iter().map(|(masks, _)| Some(masks)).collect();
        let masks = suite.masks(party, call, &known)?;
        let known: Vec<_> = inputs.iter().map(|(masks, _)| masks).collect();
        let material = suite.offline(party, call, &known, masks.as_ref())?;
        let inputs: Vec<_> = inputs.iter().map(|(masks, data)| (masks, data)).collect();
        let operands = Operands { inputs: &inputs, masks: masks.as_ref() };
        let (data, deferred) = suite.online(party, call, operands, material)?;
        match deferred.or(masks) {
            Some(masks) => Ok((rss::Data::Ring(replicated(party, &masks, data)?), None)),
            None => party.refuse("a step ends with masks that are known"),
        }
    }
}
