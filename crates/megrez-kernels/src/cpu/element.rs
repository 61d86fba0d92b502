//! Ring arithmetic element by element, and packed bits: bound by memory, so every operand is read
//! once and every result written once, in blocks that stay in the nearest cache. No branch and no
//! index depends on an element or a bit.

use super::work::{Disjoint, at_every_level, parallel};
use megrez_prg::{Level, Stream};
use megrez_ring::{Word, bits};

/// Elements in work at a time; a multiple of 64, so that blocks of elements are blocks of words of
/// bits.
const BLOCK: usize = 512;
/// Elements of one task.
const TASK: usize = 1 << 15;
/// Fewer elements than this are one thread's work (a quarter of a millisecond or so).
const WORTH_A_THREAD: usize = 1 << 18;

/// A vector of `n` elements whose block from `start` on is written by `block(start, out)`. What
/// `out` holds before is unspecified.
pub fn build<T: bytemuck::Pod + Send>(
    threads: usize,
    n: usize,
    block: impl Fn(usize, &mut [T]) + Sync,
) -> Vec<T> {
    let mut out: Vec<T> = Vec::with_capacity(n);
    let threads = if n < WORTH_A_THREAD { 1 } else { threads };
    let room = Disjoint::new(&mut out.spare_capacity_mut()[..n]);
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
    let words = &mut words[..(out.len() * W::STORED as usize).div_ceil(64)];
    stream.fill_at_level(level, (start * W::STORED as usize / 512) as u64, words);
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
pub fn mask<W: Word>(word: u64, i: usize) -> W {
    W::from_u64(0u64.wrapping_sub((word >> (i % 64)) & 1))
}

/// x & mask.
#[inline(always)]
pub fn and<W: Word>(x: W, mask: W) -> W {
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

/// The low `N` bytes of each element.
#[inline(always)]
fn whole_bytes<W: Word, const N: usize>(x: &[W], out: &mut [u64]) {
    let out: &mut [u8] = bytemuck::cast_slice_mut(out);
    let (out, rest) = out.split_at_mut(N * x.len());
    for (out, x) in out.as_chunks_mut::<N>().0.iter_mut().zip(x) {
        out.copy_from_slice(&x.to_u64().to_le_bytes()[..N]);
    }
    rest.fill(0);
}

/// Undoes [`whole_bytes`], from element `start` on.
#[inline(always)]
fn from_whole_bytes<W: Word, const N: usize>(x: &[u64], start: usize, out: &mut [W]) {
    let x: &[u8] = bytemuck::cast_slice(x);
    for (out, x) in out.iter_mut().zip(&x.as_chunks::<N>().0[start..]) {
        let mut word = [0; 8];
        word[..N].copy_from_slice(x);
        *out = W::from_u64(u64::from_le_bytes(word));
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
            40 => return whole_bytes::<W, 5>(x, out),
            48 => return whole_bytes::<W, 6>(x, out),
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
            40 => return from_whole_bytes::<W, 5>(x, start, out),
            48 => return from_whole_bytes::<W, 6>(x, start, out),
            _ => {}
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = W::from_u64(bits::get_low(x, start + i, width));
        }
    }
}
