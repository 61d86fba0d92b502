//! ALKAID's comparison ([`crate::alkaid`]) of a masked value, whose r is known and dealt offline.

use crate::alkaid::compare::{self, Material, Sent};
use crate::rss::Rss;
use crate::steps::{self, truncate};
use crate::{Cost, meteor};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::Op;
use megrez_ring::Word;
use megrez_session::{Error, Party, Phase};

/// The comparison of a step.
pub struct Comparison(steps::compare::Comparison);

impl meteor::Comparison for Comparison {
    type Material<D: Device> = Material<D>;
    type Sent<D: Device> = Sent<D>;
    const TAKES_M: bool = false;

    fn of(op: &Op, ring: u32) -> Option<Self> {
        compare::of(op, ring).map(Comparison)
    }

    fn cost(&self, n: usize) -> Cost {
        compare::cost(&self.0, Phase::Offline, n)
    }

    fn offline<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        psi: &Rss<Tensor<W, D>>,
    ) -> Result<Material<D>, Error> {
        let n = psi.own.elements();
        let r = match party.me() {
            2 => Some(truncate::parts(party, psi)?),
            _ => None,
        };
        let dealt = self.0.deal(party, n, r.as_ref())?;
        let top = compare::offline(party, &self.0, n)?;
        let dealt = self.0.take(party, n, dealt)?;
        Ok(Material { top, dealt })
    }

    fn send<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        a: Option<&D::Buf<W>>,
        mask: &Rss<Bits<D>>,
        Material { top, dealt }: &Material<D>,
    ) -> Result<Sent<D>, Error> {
        let n = self.0.lanes_of(&mask.own.shape).n;
        compare::send(party, &self.0, n, a, dealt.as_ref(), (top, mask))
    }

    fn receive<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        _: Option<&Tensor<W, D>>,
        mask: &Rss<Bits<D>>,
        sent: Sent<D>,
        material: Material<D>,
    ) -> Result<D::Buf<u64>, Error> {
        Ok(compare::receive(party, &self.0, &mask.own.shape, sent, material.top)?.buf)
    }
}
