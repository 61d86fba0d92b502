//! ReLU, with a truncation in the same step: the comparison ([`super::compare`]) and the truncation ([`super::truncate`]) run beside each
//! other, on the same two parts of the value, and the bit is multiplied by what is truncated. Ours. Of a deferred sum
//! ([`super::deferred`]), which is opened once for both, P2 deals its part while P0 and P1 open theirs to each other.
//!
//! phase     rounds                                bits per element
//! offline   `alkaid`: the comparison's, then 2    the comparison's and 3·ℓ, the bit's mask as a ring value
//! online    the comparison's, and 1 (`aby3`) for  the comparison's, the truncation's, and 4·ℓ (`aby3`: [`super::select`]) or 3·ℓ
//!           the product                           (`alkaid`: [`super::bits`], [`super::product`])
//!
//! Both steps mask what they send; see there what each party sees. Security: docs/security/replicated.md.

use super::compare::Comparison;
use super::{Data, alkaid, bits, product, select, truncate};
use crate::local::Product;
use crate::rss::{self, Rss};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// Of a ReLU on masked bits: the comparison's, its bit's mask, and that mask as a ring value.
pub struct Material<W: Word, D: Device> {
    top: alkaid::TopMaterial<D>,
    mask: Rss<Bits<D>>,
    ring: Rss<Tensor<W, D>>,
}
store_struct!(Material[W, D] => top, mask, ring);

pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    shape: &Shape,
    top: alkaid::TopMaterial<D>,
) -> Result<Material<W, D>, Error> {
    let mask = rss::random_bits(party, "mask", shape)?;
    let ring = party.scope("mask", |party| select::online(party, &mask, None))?;
    Ok(Material { top, mask, ring })
}

/// max(x, 0), with `f` fraction bits dropped; `x` is a replicated value or, for f > 0, a sum.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    comparison: &Comparison,
    f: u32,
    x: &Data<W, D>,
    material: Option<Material<W, D>>,
) -> Result<Rss<Tensor<W, D>>, Error> {
    let dealer = party.me() == 2;
    let shape = match x {
        Data::Sum(z) => z.shape(),
        x => &x.ring().own.shape,
    };
    let n = shape.elements();
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
    let worker = (!dealer).then_some(&part);
    let truncation = match f {
        0 => None,
        f => Some(party.scope("truncate", |party| truncate::send(party, f, shape, &part))?),
    };
    let truncated = |party: &mut Party<D>| match truncation {
        None => Ok(x.ring().clone()),
        Some(sent) => party.scope("truncate", |party| truncate::receive(party, f, sent)),
    };
    match material {
        Some(Material { top, mask, ring }) => {
            let dealt = comparison.take(party, n, dealt)?;
            let sent = comparison.masked_send(party, n, worker, dealt.as_ref(), (&top, &mask))?;
            let y = truncated(party)?;
            let m = comparison.masked(party, shape, sent, top)?;
            let bit = bits::to_ring(party, &m, &ring)?;
            product::online(party, &Product::Elements, &bit, &y, shape)
        }
        None => {
            let sent = comparison.send(party, n, worker, dealt)?;
            let y = truncated(party)?;
            let bit = comparison.replicated(party, shape, sent)?;
            select::online(party, &bit, Some(&y))
        }
    }
}
