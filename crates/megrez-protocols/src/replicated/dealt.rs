//! Steps of [`crate::mizar`] on replicated values: a plan mixes both families, step by step, without a message between them. With P0 and
//! P1 as workers and P2 as dealer, x = x_0 + x_1 + x_2 has the masked value m = x_1 and the mask r = r_0 + r_1 = −x_0 − x_2; and back.
//!
//! The mask is there only when x is, so what `mizar` deals offline is dealt first, online; P2, who waits for nobody in most steps, does that
//! while the workers finish what was before.
//!
//! phase     rounds                      bits per element
//! online    1, and the step's online    the step's offline and online
//!
//! Everybody sees what it sees in the step; the conversions show nothing.

use crate::mizar::{Data, Masks, Mizar};
use crate::mss::Mask;
use crate::rss::Rss;
use crate::{Cost, Suite, Unsupported};
use megrez_kernels::{Device, Tensor};
use megrez_plan::{Op, Value};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// The cost of a step; `D` is any device.
pub(super) fn cost<W: Word, D: Device>(
    step: &Op,
    inputs: &[&Value],
    output: &Value,
) -> Result<Cost, Unsupported> {
    Ok(Mizar::<W, D>::default().cost(step, inputs, output)?.made_online())
}

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
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    step: &Op,
    output: &Value,
    inputs: &[&Rss<Tensor<W, D>>],
) -> Result<Rss<Tensor<W, D>>, Error> {
    let suite = Mizar::<W, D>::default();
    let inputs = inputs.iter().map(|x| masked(party, x)).collect::<Result<Vec<_>, Error>>()?;
    let known: Vec<_> = inputs.iter().map(|(masks, _)| Some(masks)).collect();
    let masks = suite.masks(party, step, output, &known)?;
    let known: Vec<_> = inputs.iter().map(|(masks, _)| masks).collect();
    let material = suite.offline(party, step, output, &known, masks.as_ref())?;
    let inputs: Vec<_> = inputs.iter().map(|(masks, data)| (masks, data)).collect();
    let (data, late) = suite.online(party, step, output, &inputs, masks.as_ref(), material)?;
    match late.or(masks) {
        Some(masks) => replicated(party, &masks, data),
        None => party.refuse("a step ends with masks that are known"),
    }
}
