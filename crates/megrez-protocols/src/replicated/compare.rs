//! Comparisons with zero or with many public thresholds: [x ≥ t] is the top bit of t − 1 − x. Ours, with the adders of `aby3` and `alkaid`.
//!
//! x = a − r with a at P0 and P1 and r at P2: a replicated x has a = x_1 and r = −x_2 − x_0, a sum that is truncated has a = z_0 + z_1 and
//! r = −z_2, a masked x has a = m + ψ_1 and r = −ψ_2 − ψ_0. So u = t − 1 − a and v = r, bits `cut` to `cut` + λ − 1 of each; a carry that
//! the cut loses errs on the side of x < t. Beside a truncation by f bits, u = −1 − (a >> f) and v = r >> f: their sum is exactly what the
//! truncation makes of x, its rounding included, so a negative result gives 0 and no other.
//!
//! First the digits' signals ([`super::digits`]): v is dealt once for all thresholds. Then the tree of the adder ([`super::aby3::top`],
//! [`super::alkaid::top`]). λ = 64 takes 373 bits in 6 rounds under `aby3`, 39 + 405 in 4 under `alkaid`, each threshold beyond the first
//! 140 and 39 + 172. Where r is known before the inputs are, v is dealt offline: 272 + 172 bits in 3 rounds.

use super::{Adder, aby3, alkaid};
use crate::replicated::digits::Digits;
use crate::replicated::planes::Lanes;
use crate::rss::Rss;
use crate::{Cost, Store, StoreError};
use megrez_kernels::{Bits, Device};
use megrez_plan::{Op, Relu, SignBit};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// What is compared with what, and how.
pub(crate) struct Comparison {
    adder: Adder,
    /// Fraction bits that a truncation drops beside.
    drop: u32,
    cut: u32,
    digits: Digits,
    thresholds: Vec<i64>,
}

/// What [`Comparison::masked`] takes from the offline phase: the adder's, and the shares of v at P0 and P1 where it is dealt by then.
pub struct Material<D: Device> {
    pub(crate) top: alkaid::TopMaterial<D>,
    pub(crate) dealt: Option<Bits<D>>,
}

impl<D: Device> Store<D> for Material<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), StoreError> {
        self.top.write(device, out)?;
        self.dealt.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, StoreError> {
        Ok(Material { top: Store::<D>::read(device, input)?, dealt: Store::<D>::read(device, input)? })
    }
}

/// Shares of v as far as this party has them: P1's are drawn, P0's may be on their way.
pub(crate) struct Dealt<D: Device>(Option<D::Buf<u64>>);

impl Comparison {
    /// The comparison of a step, if it is one: a ReLU that truncates compares what it gives.
    pub(crate) fn of(adder: Adder, op: &Op, ring: u32) -> Option<Self> {
        let plain = |sign: &SignBit, thresholds: &[i64]| {
            Comparison::new(adder, 0, sign.cut, sign.width(ring), thresholds)
        };
        Some(match op {
            Op::NonNegative(sign) => plain(sign, &[0]),
            Op::CompareMany { sign, thresholds } => plain(sign, thresholds),
            Op::Relu(Relu { sign, truncate: f, .. }) => {
                // One bit more than drops: rounding up may reach the power of two that bounds the range.
                let width = match sign.cut.checked_sub(*f) {
                    Some(_) => sign.width(ring),
                    None => (sign.width(ring) + sign.cut + u32::from(*f > 0)).saturating_sub(*f),
                };
                let cut = sign.cut.saturating_sub(*f);
                Comparison::new(adder, *f, cut, width.clamp(2, ring - f - cut), &[0])
            }
            _ => return None,
        })
    }

    fn new(adder: Adder, drop: u32, cut: u32, width: u32, thresholds: &[i64]) -> Self {
        let digits = match adder {
            Adder::Aby3 => aby3::digits(width as usize),
            Adder::Alkaid => alkaid::digits(width as usize),
        };
        Comparison { adder, drop, cut, digits, thresholds: thresholds.to_vec() }
    }

    /// How many thresholds there are.
    pub(crate) fn thresholds(&self) -> usize {
        self.thresholds.len()
    }

    /// `n` values against all thresholds.
    fn lanes(&self, n: usize) -> Lanes {
        Lanes { groups: self.thresholds.len(), n }
    }

    /// The cost for `n` values whose r is dealt in a phase.
    pub(crate) fn cost(&self, dealt: Phase, n: usize) -> Cost {
        let values = self.lanes(n).values();
        let top = match self.adder {
            Adder::Aby3 => aby3::top_cost(&self.digits, values),
            Adder::Alkaid => alkaid::top_cost(&self.digits, values),
        };
        let mut deal = self.digits.cost(dealt, n);
        match dealt {
            Phase::Online => {
                let made = |t: &crate::Transfer| t.phase == Phase::Offline;
                let (offline, online) = top.transfers.into_iter().partition(made);
                deal = deal.then(Cost { transfers: online });
                Cost { transfers: offline }.beside(deal)
            }
            _ => deal.beside(top),
        }
    }

    /// What `alkaid` makes offline for `n` values; the shares of v are dealt apart.
    pub(crate) fn offline<D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
    ) -> Result<alkaid::TopMaterial<D>, Error> {
        alkaid::top_offline(party, &self.digits, self.lanes(n))
    }

    /// P2 deals v; `r` is there at P2.
    pub(crate) fn deal<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        r: Option<&D::Buf<W>>,
    ) -> Result<Dealt<D>, Error> {
        let device = party.device();
        let planes = |r: &D::Buf<W>| -> Result<_, Error> {
            let width = self.digits.width();
            Ok(match self.drop {
                0 => device.bit_planes(r, self.cut, width)?,
                f => device.bit_planes(&device.shift_right(r, f)?, self.cut, width)?,
            })
        };
        let v = r.map(planes).transpose()?;
        Ok(Dealt(self.digits.deal(party, n, v.as_ref())?))
    }

    /// What P2 has dealt, once this party has nothing left to send, as it is kept until the inputs come.
    pub(crate) fn take<D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        dealt: Dealt<D>,
    ) -> Result<Option<Bits<D>>, Error> {
        let taken = self.digits.take(party, n, dealt.0)?;
        let lanes = self.digits.entries() * Lanes::from(n).words() * 64;
        Ok(taken.map(|buf| Bits::new(Shape::from([lanes]), buf)))
    }

    /// This party's summands of the digits' signals, at P0 and P1 from a and what was dealt.
    fn signals<W: Word, D: Device>(
        &self,
        party: &Party<D>,
        n: usize,
        a: Option<&D::Buf<W>>,
        dealt: Option<&Bits<D>>,
    ) -> Result<Option<D::Buf<u64>>, Error> {
        let (Some(a), Some(dealt)) = (a, dealt) else { return Ok(None) };
        let (device, minus) = (party.device(), W::ONE.neg());
        let shifted = match self.drop {
            0 => a.clone(),
            f => device.shift_right(a, f)?,
        };
        let u = |i: usize| {
            let constant = W::from_i64(self.thresholds[i]).sub(W::ONE);
            let u = device.combine(&[(minus, &shifted)], constant, n)?;
            Ok(device.bit_planes(&u, self.cut, self.digits.width())?)
        };
        self.digits.signal_shares(party, self.lanes(n), u, &dealt.buf).map(Some)
    }

    /// Sends the first messages of a comparison under `aby3`; `a` is there at P0 and P1.
    pub(crate) fn send<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        a: Option<&D::Buf<W>>,
        dealt: Dealt<D>,
    ) -> Result<Rss<D::Buf<u64>>, Error> {
        let dealt = self.take(party, n, dealt)?;
        let share = self.signals(party, n, a, dealt.as_ref())?;
        aby3::top_send(party, &self.digits, self.lanes(n), share)
    }

    /// The bits under `aby3`, replicated, of this shape: that of the values behind the thresholds' dimension, if they have one.
    pub(crate) fn replicated<D: Device>(
        &self,
        party: &mut Party<D>,
        shape: &Shape,
        sent: Rss<D::Buf<u64>>,
    ) -> Result<Rss<Bits<D>>, Error> {
        let lanes = self.lanes(shape.elements() / self.thresholds.len());
        let top = aby3::top(party, &self.digits, lanes, sent)?;
        top.map(party.me(), |_, planes| joined(party.device(), planes, lanes, shape))
    }

    /// Sends the first messages of a comparison under `alkaid`, whose result gets the mask `r`.
    pub(crate) fn masked_send<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        n: usize,
        a: Option<&D::Buf<W>>,
        dealt: Option<&Bits<D>>,
        (material, r): (&alkaid::TopMaterial<D>, &Rss<Bits<D>>),
    ) -> Result<Sent<D>, Error> {
        let lanes = self.lanes(n);
        let share = self.signals(party, n, a, dealt)?;
        let planes = |_, r: &Bits<D>| party.device().unpack_planes(&r.buf, lanes.groups, lanes.n);
        let r = r.map(party.me(), planes)?;
        let sent = alkaid::top_send(party, &self.digits, lanes, share, material, &r)?;
        Ok(Sent { r, sent })
    }

    /// m of the bits under `alkaid`, of this shape, as for [`Comparison::replicated`].
    pub(crate) fn masked<D: Device>(
        &self,
        party: &mut Party<D>,
        shape: &Shape,
        Sent { r, sent }: Sent<D>,
        material: alkaid::TopMaterial<D>,
    ) -> Result<Bits<D>, Error> {
        let lanes = self.lanes(shape.elements() / self.thresholds.len());
        let m = alkaid::top(party, &self.digits, lanes, sent, material, &r)?;
        joined(party.device(), &m, lanes, shape)
    }
}

/// A comparison under `alkaid` whose first messages are on their way.
pub(crate) struct Sent<D: Device> {
    r: Rss<D::Buf<u64>>,
    sent: Option<D::Buf<u64>>,
}

/// One plane for every group of lanes as bits.
fn joined<D: Device>(
    device: &D,
    planes: &D::Buf<u64>,
    lanes: Lanes,
    shape: &Shape,
) -> Result<Bits<D>, Error> {
    let packed = device.pack_planes(planes, lanes.groups, lanes.n)?;
    Ok(Bits::new(shape.clone(), device.xor(&[&packed], false, lanes.values())?))
}
