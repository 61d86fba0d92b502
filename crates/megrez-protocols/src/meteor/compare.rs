//! Comparisons of masked values, in one of two ways: METEOR's ([`super::sign`]), with the fewest online bits, and ALKAID's
//! ([`crate::replicated::compare`]), with the fewest in total. For the latter x = a − r with a = m + ψ_1 at P0 and P1 and r = −ψ_2 − ψ_0 at
//! P2, who deals it offline.
//!
//! | ℓ = 64 | offline bits / rounds | online bits / rounds |
//! | --- | --- | --- |
//! | METEOR | 1582 / 12 | 117 / 3 |
//! | ALKAID | 272 / 1 | 172 / 3 |
//!
//! Security: `docs/security/meteor.md`.

use super::sign;
use crate::replicated::{Adder, compare};
use crate::rss::Rss;
use crate::{Cost, Store, StoreError};
use megrez_kernels::{Bits, Device, Tensor};
use megrez_plan::{Op, Relu, SignBit};
use megrez_ring::Word;
use megrez_session::{Error, Party, Phase};

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Comparisons {
    /// METEOR's.
    #[default]
    Meteor,
    /// ALKAID's.
    Alkaid,
}

/// A comparison of a step.
pub(super) enum Comparison {
    Meteor(sign::Comparison),
    Alkaid(compare::Comparison),
}

/// What a comparison takes from the offline phase.
pub enum Material<D: Device> {
    /// METEOR's.
    Meteor(sign::Material<D>),
    /// ALKAID's.
    Alkaid(compare::Material<D>),
}

impl<D: Device> Store<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        match self {
            Material::Meteor(material) => {
                out.push(0);
                material.write(device, out)
            }
            Material::Alkaid(material) => {
                out.push(1);
                material.write(device, out)
            }
        }
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        match crate::store::take(input, 1)?[0] {
            0 => Ok(Material::Meteor(Store::<D>::read(device, input)?)),
            1 => Ok(Material::Alkaid(Store::<D>::read(device, input)?)),
            _ => Err(StoreError::Damaged),
        }
    }
}

impl Comparison {
    /// The comparison of a step, if it is one: a ReLU that truncates compares all bits that the cut would drop too.
    pub(super) fn of(which: Comparisons, op: &Op, ring: u32) -> Option<Self> {
        let sign = match op {
            Op::Relu(Relu { sign, truncate: 1.., .. }) => {
                Some(SignBit { cut: 0, bits: Some(sign.cut + sign.width(ring)), ..sign.clone() })
            }
            Op::NonNegative(sign) | Op::CompareMany { sign, .. } | Op::Relu(Relu { sign, .. }) => {
                Some(sign.clone())
            }
            _ => None,
        }?;
        let thresholds = match op {
            Op::CompareMany { thresholds, .. } => thresholds.as_slice(),
            _ => &[0],
        };
        Some(match which {
            Comparisons::Meteor => Comparison::Meteor(sign::Comparison::new(&sign, ring, thresholds)),
            Comparisons::Alkaid => {
                Comparison::Alkaid(compare::Comparison::of(Adder::Alkaid, op, ring).expect("as above"))
            }
        })
    }

    /// For `n` elements of x.
    pub(super) fn cost(&self, n: usize) -> Cost {
        match self {
            Comparison::Meteor(comparison) => comparison.cost(n),
            Comparison::Alkaid(comparison) => comparison.cost(Phase::Offline, n),
        }
    }

    pub(super) fn offline<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        psi: &Rss<Tensor<W, D>>,
    ) -> Result<Material<D>, Error> {
        let comparison = match self {
            Comparison::Meteor(comparison) => {
                return Ok(Material::Meteor(comparison.offline(party, psi)?));
            }
            Comparison::Alkaid(comparison) => comparison,
        };
        let n = psi.own.elements();
        let r = match party.me() {
            2 => Some(crate::replicated::truncate::parts(party, psi)?),
            _ => None,
        };
        let dealt = comparison.deal(party, n, r.as_ref())?;
        let top = comparison.offline(party, n)?;
        let dealt = comparison.take(party, n, dealt)?;
        Ok(Material::Alkaid(compare::Material { top, dealt }))
    }

    /// Sends what a comparison sends before it waits, if it is of that kind; `a` is there at P0 and P1.
    pub(super) fn send<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        a: Option<&D::Buf<W>>,
        mask: &Rss<Bits<D>>,
        material: &Material<D>,
    ) -> Result<Option<compare::Sent<D>>, Error> {
        let (Comparison::Alkaid(comparison), Material::Alkaid(compare::Material { top, dealt })) =
            (self, material)
        else {
            return Ok(None);
        };
        let n = mask.own.elements() / comparison.thresholds();
        comparison.masked_send(party, n, a, dealt.as_ref(), (top, mask)).map(Some)
    }

    /// m of the bits [x ≥ t], threshold by threshold, under `mask`; METEOR's way takes m of x.
    pub(super) fn receive<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        m: Option<&Tensor<W, D>>,
        mask: &Rss<Bits<D>>,
        sent: Option<compare::Sent<D>>,
        material: Material<D>,
    ) -> Result<D::Buf<u64>, Error> {
        match (self, material, m, sent) {
            (Comparison::Meteor(comparison), Material::Meteor(material), Some(m), _) => {
                comparison.online(party, m, mask, material)
            }
            (Comparison::Alkaid(comparison), Material::Alkaid(material), _, Some(sent)) => {
                Ok(comparison.masked(party, &mask.own.shape, sent, material.top)?.buf)
            }
            _ => party.refuse("the material is of another protocol: make it again"),
        }
    }
}
