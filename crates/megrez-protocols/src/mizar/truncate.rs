//! Truncation on MSS, exact up to the last bit and unbiased.
//!
//! Deviates from MIZAR, Fig. 10, which shifts m and r separately and is wrong by ±2^(ℓ−f) with
//! probability |x|/2^ℓ. Here, for −2^(ℓ−2) ≤ x < 2^(ℓ−2), with m' = m + 2^(ℓ−2) and μ = msb(m'):
//!
//!   y = (m'>>f) − 2^(ℓ−2−f) − (r>>f) + (1−μ)·msb(r)·2^(ℓ−f) = floor(x/2^f) + e,   P(e = 1) = frac(x/2^f).
//!
//! m' = x + 2^(ℓ−2) + r wraps exactly when r has its top bit set and m' has not, because x +
//! 2^(ℓ−2) < 2^(ℓ−1). The functionality is "floor plus the carry of the masks' low bits", e =
//! [(m mod 2^f) < (r mod 2^f)]: it is a function of m and r, not an independent coin.
//!
//! All of y but the last summand is public up to R = r>>f, which has ℓ − f bits. So y gets the mask
//!
//!   r_y = R + u·2^(ℓ−f),   u uniform in Z_2^f,
//!
//! and m_y = y + r_y = (m'>>f) − 2^(ℓ−2−f) + ((1−μ)·msb(r) + u)·2^(ℓ−f): only the f bits in
//! brackets are opened, under u. The dealer deals r_y, of which worker 1 draws its share, and
//! msb(r).
//!
//! phase     rounds  bits per element   from → to
//! offline   1       ℓ and f            dealer → worker 0, dealer → worker 1
//! online    1       2f                 worker ↔ worker
//!
//! Workers see each other's f bits, each under the u_j that only the sender and the dealer hold;
//! worker 0 also a uniform share of r_y, worker 1 of msb(r). Where r is known online only, so is
//! r_y.
//!
//! Security: `docs/security/mizar.md`.

use super::family::Mizar;
use crate::mss::{DEALER, Data, DealtShare, Masks, RingMask, Role, deal, deal_low, deal_mask};
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Truncation};
use megrez_plan::{Op, Value};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// A worker's shares of the two parts of a mask that truncation needs, as they wait.
pub struct DealtParts<W: Word, D: Device> {
    high: DealtShare<W, D>,
    top: DealtShare<W, D>,
}
encode_struct!(DealtParts[W, D] => high, top);

/// The same, to be used.
pub struct MaskParts<W: Word, D: Device> {
    /// [r>>f].
    pub high: D::Buf<W>,
    /// [msb(r)]; its low f bits count.
    pub top: D::Buf<W>,
}

impl<W: Word, D: Device> DealtParts<W, D> {
    /// The dealer deals both parts of its mask, r>>f to worker `to` and its top bit to worker 1: ℓ
    /// + f bits per element.
    pub fn deal(
        party: &mut Party<D>,
        to: usize,
        f: u32,
        shape: &Shape,
        mask: &RingMask<W, D>,
    ) -> Result<Option<Self>, Error> {
        let n = shape.elements();
        let high = deal(party, to, "high", n, |device| Ok(device.shift_right(&mask.total(device)?.buf, f)?))?;
        let top = deal_top(party, f, n, mask)?;
        Ok(high.zip(top).map(|(high, top)| DealtParts { high, top }))
    }

    /// Of `n` masks, to be used.
    pub fn parts(self, device: &D, f: u32, n: usize) -> Result<MaskParts<W, D>, Error> {
        Ok(MaskParts { high: self.high.words(device, n)?, top: self.top.low(device, f, n)? })
    }
}

impl<W: Word, D: Device> MaskParts<W, D> {
    pub fn truncation(&self, f: u32) -> Truncation<'_, W, D> {
        Truncation { bits: f, high: &self.high, top: &self.top }
    }
}

/// The dealer deals the top bits of a mask to worker 1, to be multiplied by 2^(ℓ−f): f bits per
/// element.
fn deal_top<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    n: usize,
    mask: &RingMask<W, D>,
) -> Result<Option<DealtShare<W, D>>, Error> {
    deal_low(party, 1, "top", n, f, |device| Ok(device.shift_right(&mask.total(device)?.buf, W::BITS - 1)?))
}

/// What [`DealtParts::deal`] sends, and what a truncation does, which deals the result's mask for
/// r>>f.
pub(crate) fn deal_cost(ring: u32, f: u32, n: usize) -> Cost {
    Cost::LOCAL.offline(DEALER, 0, n, Unit::Bits(ring)).offline(DEALER, 1, n, Unit::Bits(f))
}

/// x / 2^f.
pub struct Truncate<'a> {
    f: u32,
    shape: &'a Shape,
}

/// A worker's shares of msb(r) and of u; the low f bits of both count.
pub struct DealtCarry<W: Word, D: Device> {
    top: DealtShare<W, D>,
    mask: DealtShare<W, D>,
}
encode_struct!(DealtCarry[W, D] => top, mask);

impl<'a, W: Word, D: Device> Step<'a, Mizar<W, D>> for Truncate<'a> {
    /// Nothing at the dealer.
    type Material = Option<DealtCarry<W, D>>;

    fn of(_: &Mizar<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Truncate { bits } = *call.op else { return None };
        if call.of_sum() {
            return None;
        }
        Some(Truncate { f: bits, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let n = self.shape.elements();
        Ok(deal_cost(W::BITS, self.f, n).online_swap(1, 0, 1, n, Unit::Bits(self.f)))
    }

    fn deferred(&self, deferred_inputs: bool) -> bool {
        deferred_inputs
    }

    fn masks(
        &self,
        party: &mut Party<D>,
        _: &Value,
        inputs: &[Option<&Masks<W, D>>],
    ) -> Result<Option<Masks<W, D>>, Error> {
        let &[Some(mask)] = inputs else { return Ok(None) };
        let n = self.shape.elements();
        let made = deal_mask(party, 0, "mask", self.shape, |party| {
            let carries = [party.stream(0, "carry")?, party.stream(1, "carry")?];
            let device = party.device();
            let high = device.shift_right(&mask.ring().total(device)?.buf, self.f)?;
            let [a, b] = carries.map(|stream| device.random(&stream, n));
            let place = W::ONE.shl(W::BITS - self.f);
            Ok(device.combine(&[(W::ONE, &high), (place, &a?), (place, &b?)], W::ZERO, n)?)
        })?;
        Ok(Some(Masks::Ring(made)))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        inputs: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        let Some(top) = deal_top(party, self.f, self.shape.elements(), inputs[0].ring())? else {
            return Ok(None);
        };
        Ok(Some(DealtCarry { top, mask: DealtShare::Stream(party.stream_key(DEALER, "carry")?) }))
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Mizar<W, D>>,
        dealt: Self::Material,
    ) -> Result<Made<Mizar<W, D>>, Error> {
        let (Role::Worker(j), Some(dealt)) = (Role::of(party), dealt) else { return Ok((Data::None, None)) };
        let (m, _) = operands.ring(0);
        let (n, f, device) = (m.elements(), self.f, party.device());
        let (top, mask) = (dealt.top.low(device, f, n)?, dealt.mask.low(device, f, n)?);
        let own = device.truncation_carry(&m.buf, &top, &mask)?;
        let packed = device.pack_low(&own, f)?;
        party.send_bits(1 - j, "carry", packed, n * f as usize)?;
        let other = party.recv_bits(1 - j, "carry", n * f as usize)?;
        let other = party.device().unpack_low(&other, f, n)?;
        let my = party.device().close_truncated(&m.buf, f, [&own, &other])?;
        Ok((Data::of_ring(self.shape, Some(my)), None))
    }
}

#[cfg(test)]
mod tests {
    use crate::mizar::Mizar;
    use crate::testing::World;
    use megrez_kernels::Reference;
    use megrez_plan::{Op, Plan, Relu, ReluForm, SignBit};

    /// The masks of a ReLU in two rounds are known online, so that of what is truncated is, and
    /// what reads it is dealt then: `World` holds both phases to the formulas.
    #[test]
    fn a_mask_that_is_known_late_is_truncated_late() {
        let mut plan = Plan::new(32);
        let x = plan.input("x", "owner", [4].into(), 3);
        let relu = Relu { sign: SignBit::FULL, form: ReluForm::TwoRounds, truncate: 0 };
        let y = plan.step("relu", Op::Relu(relu), &[x]).unwrap();
        let y = plan.step("truncate", Op::Truncate { bits: 3 }, &[y]).unwrap();
        let z = plan.step("square", Op::Mul, &[y, y]).unwrap();
        plan.output("z", "owner", z);
        for _ in 0..20 {
            let world = World::new(Mizar::<u32, Reference>::default());
            let z = world.run(&plan, &[&[0x1000, 24, 0xffff_fff0, 12]]).remove(0);
            assert_eq!(z[..3], [0x200 * 0x200, 9, 0]);
            assert!([1, 4].contains(&z[3]), "12 / 8 is neither 1 nor 2: {}", z[3]);
        }
    }

    #[test]
    fn every_value_in_range_is_rounded_to_a_neighbour() {
        // −2^(ℓ−2) ≤ x < 2^(ℓ−2), several times, since the masks decide which neighbour it is.
        let x: Vec<i64> = (-64..64).cycle().take(4 * 128).collect();
        let words: Vec<u64> = x.iter().map(|x| *x as u8 as u64).collect();
        for f in [1, 3, 5] {
            let world = World::new(Mizar::<u8, Reference>::default());
            let y = world.step(Op::Truncate { bits: f }, f, &[&words]);
            for (x, y) in x.iter().zip(y) {
                let (floor, y) = (x >> f, i64::from(y as u8 as i8));
                let exact = x & ((1 << f) - 1) == 0;
                assert!(y == floor || y == floor + 1 && !exact, "{x} / 2^{f} is not {y}");
            }
        }
    }
}
