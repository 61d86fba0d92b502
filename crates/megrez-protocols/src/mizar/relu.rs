//! ReLU on MSS in three rounds ("3R"), with a truncation in the same step if the plan asks for it.
//!
//! Deviates from MIZAR's ReLU (sign bit, conversion, product): the dealer deals a random bit a per element and the
//! product r·a, so the comparison's answer is one bit, f = b ⊕ a, and selects a value whose two halves the workers can
//! form alone. With Δ the workers' flip, δ = 1 ⊕ Δ, ε = 1 − 2δ:
//!   [σ]_j = (1−j)δ + ε[a]_j;  [rσ]_j = δ[r]_j + ε[ra]_j;  [xσ]_j = m[σ]_j − [rσ]_j;  [x ≥ 0] = σ ⊕ f,
//!   x·[x ≥ 0] = f·x + (1−2f)·xσ.
//! Fused with a truncation by f bits, x is replaced by y of the truncation step: the dealer deals the products of a with
//! the mask's parts, [R·a] and [b·a], instead. If the cut drops no more than the truncation (k ≤ f), negative values give
//! exactly 0 and others are rounded without bias: what the cut cannot see, the truncation drops.
//!
//! phase     rounds  bits per element                          from → to
//! offline   1       list + 2ℓ (plain), list + 3ℓ + 2f (fused)  dealer → worker 0
//! online    3       list + 2 + 2ℓ                              workers → dealer, dealer → workers, worker ↔ worker
//!
//! "list" as in the sign bit. Workers see f, uniform because a is, and the uniform m_z = z + r_z with r_z fresh. The
//! dealer sees what it sees in the sign bit.

use super::sign::{Dealt, compare, deal_list, list_cost};
use super::truncate::MaskParts;
use crate::mss::{DEALER, RingMask, Role, deal, deal_low, open};
use crate::{Cost, Unit};
use megrez_kernels::{Bits, Device, Selected, Tensor};
use megrez_plan::Relu;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

/// The list's material, and what selects.
pub struct Material<W: Word, D: Device> {
    dealt: Dealt<D>,
    /// Dealer: the bits a.
    bits: Option<Bits<D>>,
    worker: Option<Shares<W, D>>,
}
store_struct!(Material<W, D> { dealt, bits, worker });

/// A worker's shares.
struct Shares<W: Word, D: Device> {
    /// [a].
    bit: Tensor<W, D>,
    /// [r·a], or [R·a] when fused.
    mask_bit: Tensor<W, D>,
    /// Fused: the mask's parts and [b·a].
    truncation: Option<(MaskParts<W, D>, Tensor<W, D>)>,
    /// [r_z].
    output: Tensor<W, D>,
}
store_struct!(Shares<W, D> { bit, mask_bit, truncation, output });

pub(super) fn cost(relu: &Relu, ring: u32, n: usize) -> Cost {
    let mut cost = list_cost(&relu.sign, ring, n);
    cost.online_rounds += 2;
    let cost = cost
        .offline(DEALER, 0, n, Unit::Bits(ring))
        .offline(DEALER, 0, n, Unit::Bits(ring))
        .online(2, DEALER, 0, n, Unit::Bits(1))
        .online(2, DEALER, 1, n, Unit::Bits(1))
        .online_swap(3, 0, 1, n, Unit::Bits(ring));
    match relu.truncate {
        0 => cost,
        f => cost.offline(DEALER, 0, n, Unit::Bits(ring)).offline(DEALER, 0, n, Unit::Bits(f)).offline(
            DEALER,
            0,
            n,
            Unit::Bits(f),
        ),
    }
}

pub(super) fn offline<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Relu,
    shape: &Shape,
    mask: &RingMask<W, D>,
) -> Result<(Material<W, D>, RingMask<W, D>), Error> {
    let n = shape.elements();
    let tensor = |buf| Tensor::new(shape.clone(), buf);
    let output = RingMask::fresh(party, shape)?;
    let dealt = deal_list(party, &relu.sign, n, mask)?;
    let bits = match Role::of(party) {
        Role::Dealer => {
            let stream = party.stream(DEALER, "bit")?;
            Some(Bits::new(shape.clone(), party.device().random_bits(&stream, n)?))
        }
        Role::Worker(_) => None,
    };
    let a = || &bits.as_ref().expect("the dealer drew them").buf;
    let bit = deal(party, "bit", n, |device| Ok(device.bit_times::<W>(a(), None, n)?))?;
    let f = relu.truncate;
    let mask_bit = deal(party, "mask-bit", n, |device| {
        let high = device.shift_right(&mask.total(device)?.buf, f)?;
        Ok(device.bit_times(a(), Some(&high), n)?)
    })?;
    let truncation = if f == 0 {
        None
    } else {
        let parts = MaskParts::deal(party, f, shape, mask)?;
        let top_bit = deal_low(party, "top-bit", n, f, |device| {
            let top = device.shift_right(&mask.total(device)?.buf, W::BITS - 1)?;
            Ok(device.bit_times(a(), Some(&top), n)?)
        })?;
        parts.zip(top_bit.map(tensor))
    };
    let worker = bit.zip(mask_bit).map(|(bit, mask_bit)| Shares {
        bit: tensor(bit),
        mask_bit: tensor(mask_bit),
        truncation,
        output: output.share().clone(),
    });
    Ok((Material { dealt, bits, worker }, output))
}

/// m_z, at the workers.
pub(super) fn online<W: Word, D: Device>(
    party: &mut Party<D>,
    relu: &Relu,
    mask: &RingMask<W, D>,
    masked: Option<&Tensor<W, D>>,
    n: usize,
    material: Material<W, D>,
) -> Result<Option<D::Buf<W>>, Error> {
    let bit = compare(party, &relu.sign, masked, n, &material.dealt)?;
    match Role::of(party) {
        Role::Dealer => {
            let a = material.bits.expect("the dealer drew them");
            let choice = party.device().xor(&[&bit, &a.buf], false, n)?;
            party.send_bits(0, "choice", choice.clone(), n)?;
            party.send_bits(1, "choice", choice, n)?;
            Ok(None)
        }
        Role::Worker(j) => {
            let choice = party.recv_bits(DEALER, "choice", n)?;
            let flip = party.device().xor(&[&bit], true, n)?;
            let shares = material.worker.expect("workers hold shares");
            let selected = Selected {
                masked: &masked.expect("workers hold masked values online").buf,
                mask: &mask.share().buf,
                choice: &choice,
                flip: Some(&flip),
                bit: &shares.bit.buf,
                mask_bit: &shares.mask_bit.buf,
                truncation: shares
                    .truncation
                    .as_ref()
                    .map(|(parts, top_bit)| (parts.truncation(relu.truncate), &top_bit.buf)),
                output_mask: &shares.output.buf,
            };
            let share = party.device().open_selected(j, &selected)?;
            Ok(Some(open(party, j, "selected", n, share)?))
        }
    }
}
