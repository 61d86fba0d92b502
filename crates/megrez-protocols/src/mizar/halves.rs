//! The two values of which a ReLU chooses one ([`super::relu`]): workers' shares of xσ and of x −
//! xσ, truncated or not, and the choice between what was opened.

use super::truncate::{DealtParts, MaskParts};
use crate::mss::{DealtShare, Mask, RingMask};
use megrez_kernels::{Device, Selected, Tensor};
use megrez_ring::Word;
use megrez_session::{Error, Party};

/// A worker's shares, as they wait.
pub struct DealtShares<W: Word, D: Device> {
    pub bit: DealtShare<W, D>,
    pub mask_bit: DealtShare<W, D>,
    pub truncation: Option<(DealtParts<W, D>, DealtShare<W, D>)>,
}
encode_struct!(DealtShares[W, D] => bit, mask_bit, truncation);

impl<W: Word, D: Device> DealtShares<W, D> {
    /// Of `n` values, to be used.
    pub fn shares(self, device: &D, f: u32, n: usize) -> Result<Shares<W, D>, Error> {
        let truncation = self
            .truncation
            .map(|(parts, top_bit)| Ok::<_, Error>((parts.parts(device, f, n)?, top_bit.low(device, f, n)?)));
        Ok(Shares {
            bit: self.bit.words(device, n)?,
            mask_bit: self.mask_bit.words(device, n)?,
            truncation: truncation.transpose()?,
        })
    }
}

/// The same, to be used.
pub struct Shares<W: Word, D: Device> {
    /// [a].
    pub bit: D::Buf<W>,
    /// [r·a], or [R·a] when fused.
    pub mask_bit: D::Buf<W>,
    /// Fused: the mask's parts and [b·a].
    pub truncation: Option<(MaskParts<W, D>, D::Buf<W>)>,
}

impl<W: Word, D: Device> Shares<W, D> {
    /// This worker's share of the half that `choice` selects, under `output`.
    pub fn half(
        &self,
        party: &Party<D>,
        f: u32,
        j: usize,
        (masked, mask): (&D::Buf<W>, &Tensor<W, D>),
        choice: &D::Buf<u64>,
        flip: &D::Buf<u64>,
        output: &Tensor<W, D>,
    ) -> Result<D::Buf<W>, Error> {
        let truncation = self.truncation.as_ref().map(|(parts, top_bit)| (parts.truncation(f), top_bit));
        let selected = Selected {
            masked,
            mask: &mask.buf,
            choice,
            flip: Some(flip),
            bit: &self.bit,
            mask_bit: &self.mask_bit,
            truncation,
            output_mask: &output.buf,
        };
        Ok(party.device().open_selected(j, &selected)?)
    }

    /// This worker's shares of the halves that are opened early.
    pub fn halves(
        &self,
        party: &Party<D>,
        f: u32,
        j: usize,
        value: (&D::Buf<W>, &Tensor<W, D>),
        flip: &D::Buf<u64>,
        zero: &RingMask<W, D>,
        one: Option<&RingMask<W, D>>,
    ) -> Result<Vec<D::Buf<W>>, Error> {
        let n = zero.share().elements();
        let none = party.device().xor(&[], false, n)?;
        let mut halves = vec![self.half(party, f, j, value, &none, flip, zero.share())?];
        if let Some(one) = one {
            let all = party.device().xor(&[], true, n)?;
            halves.push(self.half(party, f, j, value, &all, flip, one.share())?);
        }
        Ok(halves)
    }
}

/// a + f·(b − a): a where f is 0, b where it is 1.
fn choose<W: Word, D: Device>(
    device: &D,
    f: &D::Buf<u64>,
    a: &D::Buf<W>,
    b: &[(W, &D::Buf<W>)],
    n: usize,
) -> Result<D::Buf<W>, Error> {
    let mut difference = b.to_vec();
    difference.push((W::ONE.neg(), a));
    let difference = device.bit_times(f, Some(&device.combine(&difference, W::ZERO, n)?), n)?;
    Ok(device.combine(&[(W::ONE, a), (W::ONE, &difference)], W::ZERO, n)?)
}

/// m of the chosen half: e of f = 0, or e of f = 1, which is m − e where only one half was opened.
pub(super) fn chosen_value<W: Word, D: Device>(
    device: &D,
    f: &D::Buf<u64>,
    masked: &D::Buf<W>,
    halves: &[D::Buf<W>],
    n: usize,
) -> Result<D::Buf<W>, Error> {
    match halves {
        [zero, one] => choose(device, f, zero, &[(W::ONE, one)], n),
        [zero] => choose(device, f, zero, &[(W::ONE, masked), (W::ONE.neg(), zero)], n),
        _ => unreachable!("one or two halves are opened"),
    }
}

/// The mask of the chosen half: κ of f = 0, or κ of f = 1, which is r − κ where only one half was
/// opened.
pub(super) fn chosen_mask<W: Word, D: Device>(
    device: &D,
    f: &D::Buf<u64>,
    input: &RingMask<W, D>,
    zero: &RingMask<W, D>,
    one: Option<&RingMask<W, D>>,
) -> Result<RingMask<W, D>, Error> {
    Mask::zip(&[zero, one.unwrap_or(input)], |components| {
        let (zero, other) = (components[0], components[1]);
        let n = zero.elements();
        let buf = match one {
            Some(_) => choose(device, f, &zero.buf, &[(W::ONE, &other.buf)], n)?,
            None => choose(device, f, &zero.buf, &[(W::ONE, &other.buf), (W::ONE.neg(), &zero.buf)], n)?,
        };
        Ok(Tensor::new(zero.shape.clone(), buf))
    })
}
