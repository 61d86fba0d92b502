//! Ring arithmetic element by element, and packed bits: bound by memory, so every operand is read once and every result
//! written once, in blocks that stay in the nearest cache. No branch and no index depends on an element or a bit.

use super::work::{Shared, at_every_level, parallel};
use megrez_prg::{Level, Stream};
use megrez_ring::{Word, bits};

/// Elements in work at a time; a multiple of 64, so that blocks of elements are blocks of words of bits.
const BLOCK: usize = 512;
/// Elements of one task.
const TASK: usize = 1 << 15;
/// Fewer elements than this are one thread's work (a quarter of a millisecond or so).
const WORTH_A_THREAD: usize = 1 << 18;

/// A vector of `n` elements whose block from `start` on is written by `block(start, out)`. What `out` holds before is
/// unspecified.
pub fn build<T: bytemuck::Pod + Send>(
    threads: usize,
    n: usize,
    block: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    let mut out: Vec<T> = Vec::with_capacity(n);
    let threads = if n < WORTH_A_THREAD { 1 } else { threads };
    let room = Shared::new(&mut out.spare_capacity_mut()[..n]);
    parallel(threads, n.div_ceil(TASK), |task| {
        // The nearest cache holds this buffer; the result itself is written once and never cleared.
        let mut buffer = [T::zeroed(); BLOCK];
        for start in (task * TASK..n.min((task + 1) * TASK)).step_by(BLOCK) {
            let buffer = &mut buffer[..BLOCK.min(n - start)];
            block(start, buffer);
            // SAFETY: blocks are disjoint.
            let room = unsafe { room.part(start..start + buffer.len()) };
            // SAFETY: both have this length, and they are apart.
            unsafe {
                std::ptr::copy_nonoverlapping(buffer.as_ptr(), room.as_mut_ptr().cast::<T>(), buffer.len())
            };
        }
    });
    // SAFETY: the blocks of all tasks cover the first n elements.
    unsafe { out.set_len(n) };
    out
}

/// How a public coefficient acts: most are 1 or −1.
#[inline(always)]
fn add_times<W: Word>(out: &mut [W], c: W, x: impl Iterator<Item = W>) {
    if c == W::ONE {
        out.iter_mut().zip(x).for_each(|(o, x)| *o = o.add(x));
    } else if c == W::ONE.neg() {
        out.iter_mut().zip(x).for_each(|(o, x)| *o = o.sub(x));
    } else {
        out.iter_mut().zip(x).for_each(|(o, x)| *o = o.add(c.mul(x)));
    }
}

at_every_level! {
    /// out = Σ c·x + constant, from element `start` of the operands.
    pub fn combine<W: Word>(terms: &[(W, &[W])], constant: W, start: usize, out: &mut [W]) {
        out.fill(constant);
        for (c, x) in terms {
            let n = out.len();
            add_times(out, *c, x[start..start + n].iter().copied());
        }
    }
}

at_every_level! {
    /// out = Σ c·x·y + Σ d·t, from element `start` of the operands.
    pub fn products<W: Word>(products: &[(W, &[W], &[W])], terms: &[(W, &[W])], start: usize, out: &mut [W]) {
        let n = out.len();
        out.fill(W::ZERO);
        for (c, x, y) in products {
            let (x, y) = (&x[start..start + n], &y[start..start + n]);
            add_times(out, *c, x.iter().zip(y).map(|(x, y)| x.mul(*y)));
        }
        for (d, t) in terms {
            add_times(out, *d, t[start..start + n].iter().copied());
        }
    }
}

at_every_level! {
    /// out = x >> k.
    pub fn shift_right<W: Word>(x: &[W], k: u32, out: &mut [W]) {
        out.iter_mut().zip(x).for_each(|(o, x)| *o = x.shr(k));
    }
}

/// The stream's words in memory order from element `start` on; `start` is a multiple of 64.
pub fn random<W: Word>(level: Level, stream: &Stream, start: usize, out: &mut [W]) {
    let mut words = [0u64; BLOCK];
    let words = &mut words[..(out.len() * W::BITS as usize).div_ceil(64)];
    stream.fill_at_level(level, (start * W::BITS as usize / 512) as u64, words);
    out.copy_from_slice(&bytemuck::cast_slice(words)[..out.len()]);
}

at_every_level! {
    /// Most significant bits.
    pub fn msb<W: Word>(x: &[W], out: &mut [u64]) {
        for (out, x) in out.iter_mut().zip(x.chunks(64)) {
            *out = x.iter().enumerate().fold(0, |word, (i, x)| word | x.msb() << i);
        }
    }
}

/// Bit i < 64 of `word` as an element that is all zeros or all ones.
#[inline(always)]
fn mask<W: Word>(word: u64, i: usize) -> W {
    W::from_u64(0u64.wrapping_sub((word >> (i % 64)) & 1))
}

/// x & mask.
#[inline(always)]
fn and<W: Word>(x: W, mask: W) -> W {
    W::from_u64(x.to_u64() & mask.to_u64())
}

at_every_level! {
    /// bit · x, or the bit.
    pub fn bit_times<W: Word>(packed: &[u64], x: Option<&[W]>, out: &mut [W]) {
        for (w, (out, &word)) in out.chunks_mut(64).zip(packed).enumerate() {
            match x {
                Some(x) => {
                    for (i, (out, x)) in out.iter_mut().zip(&x[w * 64..]).enumerate() {
                        *out = and(*x, mask(word, i));
                    }
                }
                None => out.iter_mut().enumerate().for_each(|(i, o)| *o = and(W::ONE, mask(word, i))),
            }
        }
    }
}

at_every_level! {
    /// The low `width` bits of each of 64 elements (fewer at the end of all), in `width` words.
    pub fn pack_low<W: Word>(x: &[W], width: u32, out: &mut [u64]) {
        let keep = u64::MAX >> (64 - width);
        // Widths of whole bytes, where elements do not straddle words, are plain conversions.
        macro_rules! convert {
            ($t:ty) => {{
                let out: &mut [$t] = bytemuck::cast_slice_mut(out);
                out.iter_mut().zip(x).for_each(|(o, x)| *o = x.to_u64() as $t);
                out[x.len()..].fill(0);
            }};
        }
        match width {
            8 => return convert!(u8),
            16 => return convert!(u16),
            32 => return convert!(u32),
            64 => return convert!(u64),
            _ => {}
        }
        for (x, out) in x.chunks(64).zip(out.chunks_mut(width as usize)) {
            let (mut acc, mut filled, mut words) = (0u128, 0, out.iter_mut());
            for x in x {
                acc |= u128::from(x.to_u64() & keep) << filled;
                filled += width;
                if filled >= 64 {
                    *words.next().expect("64 elements fill `width` words") = acc as u64;
                    acc >>= 64;
                    filled -= 64;
                }
            }
            if filled > 0 {
                *words.next().expect("there is a word for the rest") = acc as u64;
            }
        }
    }
}

at_every_level! {
    /// Undoes [`pack_low`], from element `start` on.
    pub fn unpack_low<W: Word>(x: &[u64], width: u32, start: usize, out: &mut [W]) {
        macro_rules! convert {
            ($t:ty) => {{
                let x: &[$t] = bytemuck::cast_slice(x);
                out.iter_mut().zip(&x[start..]).for_each(|(o, x)| *o = W::from_u64(u64::from(*x)));
            }};
        }
        match width {
            8 => return convert!(u8),
            16 => return convert!(u16),
            32 => return convert!(u32),
            64 => return convert!(u64),
            _ => {}
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = W::from_u64(bits::get_low(x, start + i, width));
        }
    }
}

/// What is public about a truncation of m: (m'>>f) − 2^(ℓ−2−f), and all ones where [b]·2^(ℓ−f) is to be added.
#[inline(always)]
fn truncated<W: Word>(m: W, f: u32) -> (W, W) {
    let shifted = m.add(W::ONE.shl(W::BITS - 2));
    (shifted.shr(f).sub(W::ONE.shl(W::BITS - 2 - f)), W::from_u64(shifted.msb().wrapping_sub(1)))
}

at_every_level! {
    /// See [`crate::Device::open_truncated`]; operands are masked, high, top and output mask, all as long as `out`.
    pub fn open_truncated<W: Word>(j: usize, f: u32, operands: [&[W]; 4], out: &mut [W]) {
        let n = out.len();
        let [masked, high, top, output_mask] = operands.map(|x| &x[..n]);
        let first = if j == 0 { W::ZERO.sub(W::ONE) } else { W::ZERO };
        for i in 0..n {
            let (public, carries) = truncated(masked[i], f);
            out[i] = and(public, first).sub(high[i]).add(and(top[i].shl(W::BITS - f), carries)).add(output_mask[i]);
        }
    }
}

/// The operands of a selected opening, as long as its result.
#[derive(Clone, Copy)]
pub struct Selected<'a, W> {
    pub masked: &'a [W],
    pub bit: &'a [W],
    pub mask_bit: &'a [W],
    pub output_mask: &'a [W],
    pub choice: &'a [u64],
    pub flip: Option<&'a [u64]>,
    pub value: Value<'a, W>,
}

/// What is selected: x = m − r, or its truncation by some bits with shares of the mask's high part, its top bit, and that
/// times the dealer's bit.
#[derive(Clone, Copy)]
pub enum Value<'a, W> {
    Plain { mask: &'a [W] },
    Truncated { bits: u32, high: &'a [W], top: &'a [W], top_bit: &'a [W] },
}

at_every_level! {
    /// See [`crate::Device::open_selected`].
    pub fn open_selected<W: Word>(j: usize, s: Selected<'_, W>, out: &mut [W]) {
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
                        let (public, carries) = truncated(masked[i], bits);
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
