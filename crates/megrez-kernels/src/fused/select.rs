//! The opening of a value times a bit, perhaps truncated in the same step (the selection of MIZAR's
//! ReLU, deviating).

use super::truncate::{Truncation, first, public, public_and_carries, truncated};
use crate::cpu::element::{and, mask};
use crate::cpu::work::at_every_level;
use crate::{Cpu, DeviceError, Memory, Reference};
use megrez_ring::{Word, bits};

/// The operands of a selected opening (see [`OpenSelected`]).
pub struct Selected<'a, W: Word, D: Memory> {
    /// Masked value, m.
    pub masked: &'a D::Buf<W>,
    /// [r]: the worker's share of its mask; unused with `truncation`.
    pub mask: &'a D::Buf<W>,
    /// The public bit f.
    pub choice: &'a D::Buf<u64>,
    /// The workers' bit δ, if there is one.
    pub flip: Option<&'a D::Buf<u64>>,
    /// [a]: a share of the dealer's bit.
    pub bit: &'a D::Buf<W>,
    /// [r·a], or [R·a] with `truncation`.
    pub mask_bit: &'a D::Buf<W>,
    /// With a truncation: its masks and [b·a].
    pub truncation: Option<(Truncation<'a, W, D>, &'a D::Buf<W>)>,
    /// [r_z]: a share of the output's mask.
    pub output_mask: &'a D::Buf<W>,
}

/// A masked value opens times a bit.
pub trait OpenSelected: Memory {
    /// Worker `j`'s share of the masked product of a value x and the bit f ⊕ σ, σ = a ⊕ δ:
    /// f·[x] + (1−2f)·[xσ] + [r_z]. With a truncation, x is replaced by the truncated value.
    fn open_selected<W: Word>(
        &self,
        j: usize,
        s: &Selected<'_, W, Self>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        let host = |x: &Self::Buf<W>| self.download(x.clone());
        let bits_of = |x: &Self::Buf<u64>| self.download(<Self::Buf<u64> as Clone>::clone(x));
        let (masked, bit, mask_bit) = (host(s.masked)?, host(s.bit)?, host(s.mask_bit)?);
        let (output_mask, choice) = (host(s.output_mask)?, bits_of(s.choice)?);
        let flip = s.flip.map(bits_of).transpose()?;
        // [r], or [R] with [b], [b·a] and f.
        let (mask, truncation) = match &s.truncation {
            None => (host(s.mask)?, None),
            Some((t, top_bit)) => (host(t.high)?, Some((t.bits, host(t.top)?, host(top_bit)?))),
        };
        let share = |i: usize| {
            let m = masked[i];
            let f = W::from_u64(bits::get(&choice, i));
            let delta = W::from_u64(flip.as_ref().map_or(0, |flip| bits::get(flip, i)));
            let epsilon = W::ONE.sub(delta.add(delta));
            // A share of σ times a dealt secret: δ·[secret] + ε·[secret·a].
            let flipped = |secret: W, secret_bit: W| delta.mul(secret).add(epsilon.mul(secret_bit));
            let sigma = first(j, delta).add(epsilon.mul(bit[i]));
            let (value, value_sigma) = match &truncation {
                None => (first(j, m).sub(mask[i]), m.mul(sigma).sub(flipped(mask[i], mask_bit[i]))),
                Some((bits, top, top_bit)) => {
                    let (public, factor) = public(m, *bits);
                    let masked_part = public.mul(sigma).sub(flipped(mask[i], mask_bit[i]));
                    let value_sigma = masked_part.add(factor.mul(flipped(top[i], top_bit[i])));
                    (truncated(j, m, *bits, mask[i], top[i]), value_sigma)
                }
            };
            let sign = W::ONE.sub(f.add(f));
            f.mul(value).add(sign.mul(value_sigma)).add(output_mask[i])
        };
        self.upload((0..masked.len()).map(share).collect())
    }
}

impl OpenSelected for Reference {}

impl OpenSelected for Cpu {
    fn open_selected<W: Word>(
        &self,
        j: usize,
        s: &Selected<'_, W, Self>,
    ) -> Result<Self::Buf<W>, DeviceError> {
        Ok(self.build(s.masked.len(), |start, out| {
            let value = match &s.truncation {
                None => Value::Plain { mask: &s.mask[start..] },
                Some((t, top_bit)) => Value::Truncated {
                    bits: t.bits,
                    high: &t.high[start..],
                    top: &t.top[start..],
                    top_bit: &top_bit[start..],
                },
            };
            let operands = Operands {
                masked: &s.masked[start..],
                bit: &s.bit[start..],
                mask_bit: &s.mask_bit[start..],
                output_mask: &s.output_mask[start..],
                choice: &s.choice[start / 64..],
                flip: s.flip.map(|flip| &flip[start / 64..]),
                value,
            };
            open(self.level, j, operands, out);
        }))
    }
}

/// The operands of a selected opening, as long as its result.
#[derive(Clone, Copy)]
struct Operands<'a, W> {
    masked: &'a [W],
    bit: &'a [W],
    mask_bit: &'a [W],
    output_mask: &'a [W],
    choice: &'a [u64],
    flip: Option<&'a [u64]>,
    value: Value<'a, W>,
}

/// What is selected: x = m − r, or its truncation by some bits with shares of the mask's high part,
/// its top bit, and that times the dealer's bit.
#[derive(Clone, Copy)]
enum Value<'a, W> {
    Plain { mask: &'a [W] },
    Truncated { bits: u32, high: &'a [W], top: &'a [W], top_bit: &'a [W] },
}

at_every_level! {
    /// See [`OpenSelected`].
    fn open<W: Word>(j: usize, s: Operands<'_, W>, out: &mut [W]) {
        let first = if j == 0 { W::ZERO.sub(W::ONE) } else { W::ZERO };
        for (w, out) in out.chunks_mut(64).enumerate() {
            let n = out.len();
            let range = w * 64..w * 64 + n;
            let [masked, bit, mask_bit, output_mask] =
                [s.masked, s.bit, s.mask_bit, s.output_mask].map(|x| &x[range.clone()]);
            let choice = s.choice[w];
            let flip = s.flip.map_or(0, |flip| flip[w]);
            // δ·a + (1 − 2δ)·b: a − b if the bit is set, b if not.
            let either = |delta: W, a: W, b: W| {
                let b_signed = W::from_u64(b.to_u64() ^ delta.to_u64()).sub(delta);
                and(a, delta).add(b_signed)
            };
            match s.value {
                Value::Plain { mask: r } => {
                    let r = &r[range];
                    for i in 0..n {
                        let (f, delta) = (mask(choice, i), mask::<W>(flip, i));
                        let m = masked[i];
                        let sigma = either(delta, and(W::ONE, first), bit[i]);
                        let value = and(m, first).sub(r[i]);
                        let value_sigma = m.mul(sigma).sub(either(delta, r[i], mask_bit[i]));
                        out[i] = either(f, value, value_sigma).add(output_mask[i]);
                    }
                }
                Value::Truncated { bits, high, top, top_bit } => {
                    let [high, top, top_bit] = [high, top, top_bit].map(|x| &x[range.clone()]);
                    for i in 0..n {
                        let (f, delta) = (mask(choice, i), mask::<W>(flip, i));
                        let (public, carries) = public_and_carries(masked[i], bits);
                        let carry = |x: W| and(x.shl(W::BITS - bits), carries);
                        let sigma = either(delta, and(W::ONE, first), bit[i]);
                        let value = and(public, first).sub(high[i]).add(carry(top[i]));
                        let high_sigma = either(delta, high[i], mask_bit[i]);
                        let top_sigma = either(delta, top[i], top_bit[i]);
                        let value_sigma = public.mul(sigma).sub(high_sigma).add(carry(top_sigma));
                        out[i] = either(f, value, value_sigma).add(output_mask[i]);
                    }
                }
            }
        }
    }
}
