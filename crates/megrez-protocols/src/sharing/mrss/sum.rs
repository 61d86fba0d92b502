//! A masked value as a sum of one summand of P0 and one of P1: what a product is left as until it
//! is truncated ([`crate::meteor`]). Of the mask P0 takes two components, P1 the third.

use crate::rss::Rss;
use megrez_kernels::{Device, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// The summand of P0 or P1.
pub type Summand<W, D> = Option<Tensor<W, D>>;

/// This party's part of a masked value's mask: P0 takes two components, P1 the third.
pub(crate) fn part<W: Word, D: Device>(
    party: &Party<D>,
    psi: &Rss<Tensor<W, D>>,
) -> Result<Tensor<W, D>, Error> {
    Ok(match party.me() {
        0 => {
            let terms = [(W::ONE, &psi.own.buf), (W::ONE, &psi.next.buf)];
            let both = party.device().combine(&terms, W::ZERO, psi.own.elements())?;
            Tensor::new(psi.own.shape.clone(), both)
        }
        _ => psi.component(party.me(), 2).clone(),
    })
}

/// A masked value as a sum.
pub(crate) fn of<W: Word, D: Device>(
    party: &Party<D>,
    m: &Tensor<W, D>,
    psi: &Rss<Tensor<W, D>>,
) -> Result<Summand<W, D>, Error> {
    if party.me() == 2 {
        return Ok(None);
    }
    let part = part(party, psi)?;
    let public = if party.me() == 0 { W::ONE } else { W::ZERO };
    let terms = [(public, &m.buf), (W::ONE, &part.buf)];
    Ok(Some(Tensor::new(m.shape.clone(), party.device().combine(&terms, W::ZERO, m.elements())?)))
}
