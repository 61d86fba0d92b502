//! The beginning of a ReLU on a replicated value or on a deferred sum: its two parts, dealt for the
//! comparison ([`super::compare`]) and sent for the truncation ([`super::truncate`]). A sum
//! ([`crate::rss::Summand`]) is opened once for both; P2 deals its part while P0 and P1 open theirs
//! to each other.

use super::compare::{Comparison, Dealt};
use super::truncate;
use crate::rss::{Data, Rss};
use megrez_kernels::{Device, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A ReLU whose first messages are on their way.
pub(crate) struct Parts<W: Word, D: Device> {
    /// What P2 deals for the comparison.
    pub dealt: Dealt<D>,
    /// a, at P0 and P1.
    pub worker: Option<D::Buf<W>>,
    /// What the bit is multiplied by.
    pub truncation: Truncation<W, D>,
}

/// The value, to be truncated or not.
pub(crate) enum Truncation<W: Word, D: Device> {
    /// As it is.
    None(Rss<Tensor<W, D>>),
    /// Its truncation is on its way.
    Sent(truncate::Sent<W, D>),
}

impl<W: Word, D: Device> Parts<W, D> {
    pub(crate) fn send(
        party: &mut Party<D>,
        comparison: &Comparison,
        f: u32,
        x: &Data<W, D>,
        shape: &Shape,
    ) -> Result<Self, Error> {
        let (n, dealer) = (shape.elements(), party.me() == 2);
        let part = |party: &mut Party<D>| match x {
            Data::Sum(z) => party.scope("truncate", |party| z.open(party)),
            x => truncate::parts(party, x.ring()),
        };
        // P2's part takes no message, so it deals while P0 and P1 open theirs.
        let early = if dealer { Some(part(party)?) } else { None };
        let dealt = comparison.deal(party, n, early.as_ref())?;
        let part = match early {
            Some(part) => part,
            None => part(party)?,
        };
        let truncation = match f {
            0 => Truncation::None(x.ring().clone()),
            f => Truncation::Sent(party.scope("truncate", |party| truncate::send(party, f, shape, &part))?),
        };
        Ok(Parts { dealt, worker: (!dealer).then_some(part), truncation })
    }
}

impl<W: Word, D: Device> Truncation<W, D> {
    /// The value, once the others' messages are there.
    pub(crate) fn receive(self, party: &mut Party<D>, f: u32) -> Result<Rss<Tensor<W, D>>, Error> {
        match self {
            Truncation::None(x) => Ok(x),
            Truncation::Sent(sent) => party.scope("truncate", |party| truncate::receive(party, f, sent)),
        }
    }
}
