//! ReLU and truncation on additive shares with a helper.
//!
//! ReLU: beside the lists of the sign, the workers open m = x + r, r from their streams with the
//! helper. The helper learns b' = [x ≥ 0] ⊕ t with the lists, and deals b' and r·b'; then x·[x ≥
//! 0] = t·x + (1−2t)·(m·b' − r·b'), which is the selection of the masked sharing with the coin t
//! for the flip and b' for the bit.
//!
//! Deviates from the paper, which multiplies by the sign with a triple: 4ℓ + ℓ bits beside the
//! lists there (448 at λ = 7 with its uncorrected lists, 704 with its interactive scaling), 4ℓ here
//! (418 with corrected ones, scaling included).
//!
//! phase     rounds  bits per element          from → to
//! online    2       2·(λ+2)² + 2ℓ + 2ℓ        workers → helper and worker ↔ worker, helper → worker 0
//!
//! Truncation by f bits as in the masked sharing (exact up to the last bit), on the opened m:
//!
//! offline   1       ℓ and f                   helper → worker 0, helper → worker 1
//! online    1       2ℓ                        worker ↔ worker
//!
//! With a truncation the ReLU runs on the truncated value, one round later, with a cut of k − f
//! bits; for k ≤ f nothing is left to cut, and negative values give exactly 0. The lists are then
//! k + bits − f + 1 bits wide.
//!
//! Workers see m, masked by a fresh r, and worker 0 shares of b', r·b' and r >> f, worker 1
//! of msb(r), all uniform. The helper sees the lists of the sign.
//!
//! Security: `docs/security/bicoptor.md`.

use super::family::Bicoptor;
use super::sign;
use crate::mizar::truncate::DealtParts;
use crate::mss::{DEALER, RingMask, Role, deal_words, open};
use crate::sharing::additive::Masks;
use crate::{Call, Cost, Made, Operands, Step, Unit, Unsupported};
use megrez_kernels::{Device, Selected, Tensor};
use megrez_plan::{List, Op, Relu as Spec, SignBit};
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The comparison that is left after the truncation.
fn after(relu: &Spec, ring: u32) -> SignBit {
    let (sign, f) = (&relu.sign, relu.truncate);
    if f == 0 || sign.cut >= f {
        return SignBit { list: List::Bits, cut: sign.cut - f, bits: Some(sign.width(ring)) };
    }
    // The truncated value may be rounded up to the first power of two outside.
    let bits = (sign.cut + sign.width(ring) + 1).saturating_sub(f).max(3);
    SignBit { list: List::Bits, cut: 0, bits: Some(bits) }
}

fn truncate_cost(ring: u32, f: u32, n: usize) -> Cost {
    let word = Unit::Bits(ring);
    Cost::LOCAL.offline(DEALER, 0, n, word).offline(DEALER, 1, n, Unit::Bits(f)).online_swap(1, 0, 1, n, word)
}

/// The mask of a truncation and its parts, which workers hold shares of.
pub struct Material<W: Word, D: Device> {
    mask: RingMask<W, D>,
    parts: Option<DealtParts<W, D>>,
}
encode_struct!(Material[W, D] => mask, parts);

fn truncate_offline<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    shape: &Shape,
) -> Result<Material<W, D>, Error> {
    let mask = RingMask::fresh(party, shape)?;
    let parts = DealtParts::deal(party, 0, f, shape, &mask)?;
    Ok(Material { mask, parts })
}

/// m = x + r, at worker `j`.
fn open_masked<W: Word, D: Device>(
    party: &mut Party<D>,
    j: usize,
    share: &Tensor<W, D>,
    mask: &RingMask<W, D>,
) -> Result<D::Buf<W>, Error> {
    let n = share.elements();
    let terms = [(W::ONE, &share.buf), (W::ONE, &mask.share().buf)];
    let masked = party.device().combine(&terms, W::ZERO, n)?;
    open(party, j, "masked", n, masked)
}

/// Shares of the truncated value, at the workers.
fn truncate<W: Word, D: Device>(
    party: &mut Party<D>,
    f: u32,
    share: Option<&Tensor<W, D>>,
    material: Material<W, D>,
) -> Result<Option<Tensor<W, D>>, Error> {
    let (Role::Worker(j), Some(share)) = (Role::of(party), share) else { return Ok(None) };
    let m = open_masked(party, j, share, &material.mask)?;
    let device = party.device();
    let parts = material.parts.expect("workers hold shares").parts(device, f, share.elements())?;
    let none = device.combine(&[], W::ZERO, share.elements())?;
    let truncated = device.open_truncated(j, &m, &parts.truncation(f), &none)?;
    Ok(Some(Tensor::new(share.shape.clone(), truncated)))
}

/// Shares of max(x, 0), truncated if the step says so, at the workers. `material` is the
/// truncation's.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Spec,
    share: Option<&Tensor<W, D>>,
    shape: &Shape,
    material: Option<Material<W, D>>,
) -> Result<Option<D::Buf<W>>, Error> {
    let truncated = match material {
        Some(material) => party.scope("truncate", |party| truncate(party, relu.truncate, share, material))?,
        None => share.cloned(),
    };
    let (share, n) = (truncated.as_ref(), shape.elements());
    let mask = RingMask::fresh(party, shape)?;
    let coin = sign::compare(party, &after(relu, W::BITS), share, n)?;
    let m = match (Role::of(party), share) {
        (Role::Worker(j), Some(share)) => Some((j, open_masked(party, j, share, &mask)?)),
        _ => None,
    };
    // At the helper, `coin` is b'.
    let bit = deal_words(party, 0, "bit", n, |device| Ok(device.bit_times::<W>(&coin, None, n)?))?;
    let mask_bit = deal_words(party, 0, "mask-bit", n, |device| {
        Ok(device.bit_times(&coin, Some(&mask.total(device)?.buf), n)?)
    })?;
    let (Some((j, m)), Some((bit, mask_bit))) = (m, bit.zip(mask_bit)) else { return Ok(None) };
    let device = party.device();
    let (no_choice, no_mask) = (device.xor(&[], false, n)?, device.combine(&[], W::ZERO, n)?);
    let selected = Selected {
        masked: &m,
        mask: &mask.share().buf,
        choice: &no_choice,
        flip: Some(&coin),
        bit: &bit,
        mask_bit: &mask_bit,
        truncation: None,
        output_mask: &no_mask,
    };
    Ok(Some(device.open_selected(j, &selected)?))
}

/// x / 2^f.
pub struct Truncate<'a> {
    f: u32,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Bicoptor<W, D>> for Truncate<'a> {
    type Material = Material<W, D>;

    fn of(_: &Bicoptor<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Truncate { bits } = *call.op else { return None };
        Some(Truncate { f: bits, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        Ok(truncate_cost(W::BITS, self.f, self.shape.elements()))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        truncate_offline(party, self.f, self.shape)
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Bicoptor<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Bicoptor<W, D>>, Error> {
        Ok((truncate(party, self.f, operands.share(0), material)?, None))
    }
}

/// max(x, 0), perhaps truncated.
pub struct Relu<'a> {
    relu: &'a Spec,
    shape: &'a Shape,
}

impl<'a, W: Word, D: Device> Step<'a, Bicoptor<W, D>> for Relu<'a> {
    /// Of its truncation, if there is one.
    type Material = Option<Material<W, D>>;

    fn of(_: &Bicoptor<W, D>, call: Call<'a>) -> Option<Self> {
        let Op::Relu(relu) = call.op else { return None };
        Some(Relu { relu, shape: call.shape() })
    }

    fn cost(&self) -> Result<Cost, Unsupported> {
        let (n, word, sign) = (self.shape.elements(), Unit::Bits(W::BITS), after(self.relu, W::BITS));
        sign::check(&sign, W::BITS)?;
        let (mut cost, first) = match self.relu.truncate {
            0 => (Cost::LOCAL, 1),
            f => (truncate_cost(W::BITS, f, n), 2),
        };
        cost.transfers.extend(sign::list_cost(&sign, W::BITS, n, first).transfers);
        let dealt = cost.online_swap(first, 0, 1, n, word).online(first + 1, DEALER, 0, n, word);
        Ok(dealt.online(first + 1, DEALER, 0, n, word))
    }

    fn offline(
        &self,
        party: &mut Party<D>,
        _: &[&Masks<W, D>],
        _: Option<&Masks<W, D>>,
    ) -> Result<Self::Material, Error> {
        match self.relu.truncate {
            0 => Ok(None),
            f => truncate_offline(party, f, self.shape).map(Some),
        }
    }

    fn online(
        &self,
        party: &mut Party<D>,
        operands: Operands<'_, Bicoptor<W, D>>,
        material: Self::Material,
    ) -> Result<Made<Bicoptor<W, D>>, Error> {
        let share = online(party, self.relu, operands.share(0), self.shape, material)?;
        Ok((share.map(|share| Tensor::new(self.shape.clone(), share)), None))
    }
}
