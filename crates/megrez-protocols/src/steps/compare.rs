//! Comparisons with zero or with many public thresholds: [x ≥ t] is the top bit of t − 1 − x. Ours,
//! with the adders of `aby3` and `alkaid`.
//!
//! x = a − r with a at P0 and P1 and r at P2: a replicated x has a = x_1 and r = −x_2 − x_0, a sum
//! that is truncated has a = z_0 + z_1 and r = −z_2, a masked x has a = m + ψ_1 and r = −ψ_2 − ψ_0.
//! So u = t − 1 − a and v = r, bits `cut` to `cut` + λ − 1 of each; a carry that the cut loses errs
//! on the side of x < t. Beside a truncation by f bits, u = −1 − (a >> f) and v = r >> f: their sum
//! is exactly what the truncation makes of x, its rounding included, so a negative result gives 0
//! and no other.
//!
//! First the digits' signals ([`super::digits`]): v is dealt once for all thresholds. Then the tree
//! of the adder ([`crate::aby3`], [`crate::alkaid`]). λ = 64 takes 373 bits in 6 rounds under
//! `aby3`, 39 + 405 in 4 under `alkaid`, each threshold beyond the first 140 and 39 + 172. Where r
//! is known before the inputs are, v is dealt offline: 272 + 172 bits in 3 rounds.

use super::digits::Digits;
use super::planes::Lanes;
use crate::{Cost, Transfer};
use megrez_kernels::{Bits, Device, Placement, Tensor};
use megrez_plan::{Op, Relu, SignBit, View};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party, Phase};

/// What is compared with what, and how.
pub(crate) struct Comparison {
    /// Fraction bits that a truncation drops beside.
    drop: u32,
    cut: u32,
    /// The digits of both summands, as the protocol's adder wants them.
    pub digits: Digits,
    thresholds: Vec<i64>,
}

/// Shares of v as far as this party has them: P1's are drawn, P0's may be on their way.
pub(crate) struct Dealt<D: Device>(Option<D::Buf<u64>>);

impl Comparison {
    /// The comparison of a step, if it is one: a ReLU that truncates compares what it gives.
    /// `digits` are the adder's, of so many bits.
    pub(crate) fn of(op: &Op, ring: u32, digits: fn(usize) -> Digits) -> Option<Self> {
        let of = |drop: u32, cut: u32, width: u32, thresholds: &[i64]| {
            let digits = digits(width as usize);
            Comparison { drop, cut, digits, thresholds: thresholds.to_vec() }
        };
        let plain = |sign: &SignBit, thresholds: &[i64]| of(0, sign.cut, sign.width(ring), thresholds);
        Some(match op {
            Op::NonNegative(sign) => plain(sign, &[0]),
            Op::CompareMany { sign, thresholds } => plain(sign, thresholds),
            Op::Relu(Relu { sign, truncate: f, .. }) => {
                // One bit more than drops: rounding up may reach the power of two that bounds the
                // range.
                let width = match sign.cut.checked_sub(*f) {
                    Some(_) => sign.width(ring),
                    None => (sign.width(ring) + sign.cut + u32::from(*f > 0)).saturating_sub(*f),
                };
                let cut = sign.cut.saturating_sub(*f);
                of(*f, cut, width.clamp(2, ring - f - cut), &[0])
            }
            _ => return None,
        })
    }

    /// Low bits that are left out.
    pub(crate) fn cut(&self) -> u32 {
        self.cut
    }

    /// Bits that are compared, the sign among them.
    pub(crate) fn width(&self) -> u32 {
        self.digits.width()
    }

    /// The lanes of bits of this shape: that of the values behind the thresholds' dimension, if
    /// they have one.
    pub(crate) fn lanes_of(&self, shape: &Shape) -> Lanes {
        self.lanes(shape.elements() / self.thresholds.len())
    }

    /// `n` values against all thresholds.
    pub(crate) fn lanes(&self, n: usize) -> Lanes {
        Lanes { groups: self.thresholds.len(), n }
    }

    /// The cost for `n` values whose r is dealt in a phase; `top` is what finds the top bit of so
    /// many values from the digits' signals.
    pub(crate) fn cost(&self, dealt: Phase, n: usize, top: impl Fn(&Digits, usize) -> Cost) -> Cost {
        let top = top(&self.digits, self.lanes(n).values());
        let mut deal = self.digits.cost(dealt, n);
        match dealt {
            Phase::Online => {
                let made = |t: &Transfer| t.phase == Phase::Offline;
                let (offline, online) = top.transfers.into_iter().partition(made);
                deal = deal.then(Cost { transfers: online });
                Cost { transfers: offline }.beside(deal)
            }
            _ => deal.beside(top),
        }
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

    /// What P2 has dealt, once this party has nothing left to send, as it is kept until the inputs
    /// come.
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
    pub(crate) fn signals<W: Word, D: Device>(
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

    /// t − 1 − x for every threshold, the thresholds in front: of a share of x, the constants in
    /// one of the shares.
    pub(crate) fn distances<W: Word, D: Device>(
        &self,
        device: &D,
        x: &Tensor<W, D>,
        with_constants: bool,
    ) -> Result<D::Buf<W>, Error> {
        let n = x.elements();
        let of = |&t: &i64| {
            let constant = if with_constants { W::from_i64(t).sub(W::ONE) } else { W::ZERO };
            device.combine(&[(W::ONE.neg(), &x.buf)], constant, n)
        };
        let groups = self.thresholds.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        let place = |(i, source)| {
            let target = View { shape: [n].into(), strides: vec![1], offset: i * n };
            Placement { source, target }
        };
        let parts: Vec<_> = groups.iter().enumerate().map(place).collect();
        Ok(device.place(&parts, groups.len() * n)?)
    }

    /// One plane for every group of lanes as bits of this shape.
    pub(crate) fn joined<D: Device>(
        &self,
        device: &D,
        planes: &D::Buf<u64>,
        shape: &Shape,
    ) -> Result<Bits<D>, Error> {
        let lanes = self.lanes_of(shape);
        let packed = device.pack_planes(planes, lanes.groups, lanes.n)?;
        Ok(Bits::new(shape.clone(), device.xor(&[&packed], false, lanes.values())?))
    }
}
