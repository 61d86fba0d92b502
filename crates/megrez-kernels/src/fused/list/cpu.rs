//! Masked lists in chunks of values that stay in cache: shares, multipliers, zero-shares and
//! rotations of a chunk are made from their streams or unpacked, combined, and packed for the wire;
//! nothing else of a list's size is ever in memory.
//!
//! What the protocol states plainly, and [`super::MaskedLists`] of the masks, is done here without
//! branches or memory indices that depend on masked values, shares, Δ, multipliers or rotations:
//! conditions are masks, sums over a digit's dealt elements run over all of them, and rotations are
//! permutations of a register or a row of conditional shifts.

#[cfg(target_arch = "x86_64")]
use super::avx512 as x86;
use super::rows::{Digit, Elements, ROW, Rows};
use super::{Entries, FieldShare, ListSpec, ListStreams};
use crate::Cpu;
use crate::cpu::field::{Unpacker, fold, pack};
use crate::cpu::work::{at_every_level, chunks};
use megrez_prg::{FieldSampler, Level, Stream};
use megrez_ring::{Word, bits};

/// About so many entries are in work at a time: a few arrays of them fill half of the nearest
/// cache.
const CHUNK: usize = 4096;
/// Lists of fewer entries than this are made on one thread (about half a millisecond).
const WORTH_A_THREAD: usize = 1 << 19;
/// How a message is cut: `unit` values of `per_value` elements are whole words, and chunks are
/// whole units.
fn chunk_values(digits: usize, per_value: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let unit = digits / gcd(digits, per_value);
    unit * (CHUNK / (unit * per_value)).max(1)
}

/// Runs `chunk(first value, words of the message)` over a message of `n` values, many chunks a
/// task.
fn for_chunks<S>(
    spec: &ListSpec,
    threads: usize,
    n: usize,
    per_value: usize,
    out: &mut [u64],
    scratch: impl Fn() -> S + Sync,
    chunk: impl Fn(&mut S, std::ops::Range<usize>, &mut [u64]) + Sync,
) {
    let threads = if n * per_value < WORTH_A_THREAD { 1 } else { threads };
    let digits = spec.prime.digits();
    let values = chunk_values(digits, per_value);
    let words = values * per_value / digits;
    let per_task = if threads == 1 { out.len().div_ceil(words).max(1) } else { 16 };
    chunks(threads, out, per_task * words, |task, out| {
        let mut scratch = scratch();
        for (i, out) in out.chunks_mut(words).enumerate() {
            let first = (task * per_task + i) * values;
            chunk(&mut scratch, first..n.min(first + values), out);
        }
    });
}

/// The low λ bits of the cut values.
fn cut<W: Word>(spec: &ListSpec, values: &[W], out: &mut Vec<u64>) {
    let mask = u64::MAX >> (64 - spec.width);
    out.clear();
    out.extend(values.iter().map(|v| (v.to_u64() >> spec.cut) & mask));
}

fn digits_of(widths: &[u32]) -> Vec<Digit> {
    let (mut shift, mut offset) = (widths.iter().sum::<u32>(), 0);
    widths
        .iter()
        .map(|w| {
            shift -= w;
            let digit = Digit { shift, largest: ((1u32 << w) - 1) as u8, offset };
            offset += usize::from(digit.largest);
            digit
        })
        .collect()
}

/// Buffers that one task uses for all its chunks.
#[derive(Default)]
struct Scratch {
    values: Vec<u64>,
    share: Vec<u8>,
    multiplier: Vec<u8>,
    zero_share: Vec<u8>,
    rotation: Vec<u8>,
    list: Vec<u8>,
}

/// The packed list of worker `j`.
pub fn masked_list<W: Word>(
    (level, threads): (Level, usize),
    spec: &ListSpec,
    j: usize,
    masked: &[W],
    share: &FieldShare<'_, Cpu>,
    flips: &[u64],
    streams: &ListStreams<'_>,
) -> Vec<u64> {
    let (field, length, dealt) = (spec.prime, spec.length(), spec.dealt());
    let digits = match &spec.entries {
        Entries::Bits => vec![],
        Entries::Digits(widths) => digits_of(widths),
    };
    let [in_field, nonzero, place] = [field.p(), field.p() - 1, length as u64].map(FieldSampler::new);
    let unpacker = Unpacker::new(level, field);
    let mut out = vec![0; field.words(masked.len() * length)];
    let chunk = |s: &mut Scratch, range: std::ops::Range<usize>, out: &mut [u64]| {
        let n = range.len();
        let samples =
            |sampler: &FieldSampler, stream: &Stream, per_value: usize, offset: u8, buffer| -> &[u8] {
                let first = (range.start * per_value) as u64;
                sampler.window(level, stream, first, n * per_value, offset, buffer)
            };
        cut(spec, &masked[range.clone()], &mut s.values);
        s.list.resize(n * length + ROW, 0);
        let rows = Rows {
            spec,
            digits: &digits,
            j,
            values: &s.values,
            flips,
            first: range.start,
            share: match share {
                FieldShare::Packed(words) => {
                    unpacker.window(words, range.start * dealt, n * dealt, &mut s.share)
                }
                FieldShare::Stream(stream) => samples(&in_field, stream, dealt, 0, &mut s.share),
            },
            multiplier: samples(&nonzero, streams.multiplier, length, 1, &mut s.multiplier),
            zero_share: samples(&in_field, streams.zero_share, length, 0, &mut s.zero_share),
            rotation: samples(&place, streams.rotation, 1, 0, &mut s.rotation),
        };
        fill_rows(level, &rows, &mut s.list);
        pack(level, field, &s.list[..n * length], out);
    };
    for_chunks(spec, threads, masked.len(), length, &mut out, Scratch::default, chunk);
    out
}

/// Writes the rotated lists of a chunk, one after another, and up to one row past the last.
fn fill_rows(level: Level, rows: &Rows<'_>, list: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() {
        if rows.digits.is_empty() {
            // SAFETY: the level is a witness that the machine has these instructions.
            return unsafe { x86::bit_rows(rows, list) };
        }
        if let Some(parts) = x86::Parts::new(rows.digits) {
            // SAFETY: as above.
            unsafe {
                let done = if x86::fits_eight(rows) { x86::short_digit_rows(rows, list) } else { 0 };
                let (rows, list) = (rows.from(done), &mut list[done * rows.spec.length()..]);
                match parts.vectors {
                    1 => x86::digit_rows::<1>(&rows, &parts, list),
                    2 => x86::digit_rows::<2>(&rows, &parts, list),
                    3 => x86::digit_rows::<3>(&rows, &parts, list),
                    _ => x86::digit_rows::<4>(&rows, &parts, list),
                }
            }
            return;
        }
    }
    plain_rows(level, rows, list);
}

/// The row, cyclically `by` places further, by conditional shifts.
#[inline(always)]
fn rotate(row: &[u8; ROW], by: u8, out: &mut [u8]) {
    let length = out.len();
    // Twice in a row, so that a rotation is a shift.
    let mut twice = [0u8; 3 * ROW];
    twice[..length].copy_from_slice(&row[..length]);
    twice[length..2 * length].copy_from_slice(&row[..length]);
    let shift = length as u8 - by;
    for step in (0..7).rev() {
        let take = mask((shift >> step) & 1 == 1);
        let (mut next, by) = ([0u8; 3 * ROW], 1 << step);
        for (i, next) in next[..2 * ROW].iter_mut().enumerate() {
            *next = (twice[i] & !take) | (twice[i + by] & take);
        }
        twice = next;
    }
    out.copy_from_slice(&twice[..length]);
}

/// As [`rotate`], of at most 16 entries, as one number.
#[inline(always)]
fn rotate_short(row: &[u8; ROW], by: u8, out: &mut [u8]) {
    let length = out.len();
    let bits = 8 * length as u32;
    let whole = u128::MAX >> (128 - bits);
    let first: &[u8; 16] = row.first_chunk().expect("a row is longer");
    let mut number = u128::from_le_bytes(*first) & whole;
    for step in (0..4).take_while(|step| 1 << step < length) {
        let take = 0u128.wrapping_sub(u128::from((by >> step) & 1));
        let far = 8 << step;
        let moved = ((number << far) | (number >> (bits - far))) & whole;
        number = (number & !take) | (moved & take);
    }
    out.copy_from_slice(&number.to_le_bytes()[..length]);
}

/// 255 if the condition holds: a mask, not a branch.
#[inline(always)]
fn mask(condition: bool) -> u8 {
    0u8.wrapping_sub(u8::from(condition))
}

at_every_level! {
    /// Rows without intrinsics.
    fn plain_rows<>(rows: &Rows<'_>, list: &mut [u8]) {
        let (p, length, dealt) = (rows.spec.prime.p() as u8, rows.spec.length(), rows.spec.dealt());
        let reciprocal = (1u32 << 16) / u32::from(p);
        for (e, &m) in rows.values.iter().enumerate() {
            let mut entries = [0u8; ROW];
            let share = &rows.share[e * dealt..][..dealt];
            let flip = bits::get(rows.flips, rows.first + e) as u8;
            let wanted = ((m >> (rows.spec.width - 1)) as u8 & 1) ^ flip;
            if rows.digits.is_empty() {
                bit_entries(rows, m, wanted, share, &mut entries);
            } else {
                digit_entries(rows, m, wanted, share, &mut entries);
            }
            let multiplier = &rows.multiplier[e * length..][..length];
            let zero_share = &rows.zero_share[e * length..][..length];
            for ((x, w), z) in entries[..length].iter_mut().zip(multiplier).zip(zero_share) {
                let product = u32::from(*x) * u32::from(*w);
                let rest = product - ((product * reciprocal) >> 16) * u32::from(p);
                let z = if rows.j == 0 { *z } else { p - *z };
                *x = fold(fold(rest as u8, p) + z, p);
            }
            let list = &mut list[e * length..][..length];
            let by = rows.rotation[e];
            if length <= 16 { rotate_short(&entries, by, list) } else { rotate(&entries, by, list) }
        }
    }
}

/// Entries of a bit list; `wanted` is sign ⊕ Δ.
#[inline(always)]
fn bit_entries(rows: &Rows<'_>, m: u64, wanted: u8, share: &[u8], entries: &mut [u8; ROW]) {
    let (p, one, width) = (rows.spec.prime.p() as u8, u8::from(rows.j == 0), rows.spec.width as usize);
    let mut sum = 0;
    for i in 0..width {
        let last = i == width - 1;
        let (bit, rho) = if last { (0, one) } else { (((m >> (width - 2 - i)) & 1) as u8, share[i]) };
        // s = [bit ≠ ρ], t = the sum of all before − s + 1 (+ β).
        let flipped = mask(bit == 1);
        let s = fold((rho & !flipped) | ((one + p - rho) & flipped), p);
        let t = fold(fold(sum + (p - s), p) + one + one * (wanted ^ bit), p);
        entries[i] = fold(t, p);
        sum = fold(sum + s, p);
    }
}

/// Entries of a digit list; `wanted` is sign ⊕ Δ.
#[inline(always)]
fn digit_entries(rows: &Rows<'_>, m: u64, wanted: u8, share: &[u8], entries: &mut [u8; ROW]) {
    let (p, one) = (rows.spec.prime.p() as u8, u8::from(rows.j == 0));
    let want_greater = mask(wanted == 1);
    let mut unequal = 0;
    for (d, digit) in rows.digits.iter().enumerate() {
        let mu = (m >> digit.shift) as u8 & digit.largest;
        let dealt = &share[digit.offset..][..usize::from(digit.largest)];
        // Sums of up to 255 elements below 127 fit 16 bits.
        let (mut below, mut equal, mut all) = (0u16, 0u8, 0u16);
        for (q, &e) in (0..digit.largest).zip(dealt) {
            below += u16::from(e & mask(q < mu));
            equal |= e & mask(q == mu);
            all += u16::from(e);
        }
        let field = rows.spec.prime;
        let [below, all] = [below, all].map(|sum| field.reduce(u32::from(sum)) as u8);
        // The indicator of the largest digit is one minus the others.
        let largest = mask(mu == digit.largest);
        let equal = (equal & !largest) | (fold(one + p - all, p) & largest);
        let last = mask(d + 1 == rows.digits.len());
        let less_or_equal = fold(one + p - below, p);
        let less = fold(less_or_equal + (p - equal), p);
        let other = (less_or_equal & last) | (less & !last);
        let direction = (below & want_greater) | (other & !want_greater);
        entries[d] = fold(fold(unequal + one, p) + (p - direction), p);
        unequal = fold(unequal + fold(one + p - equal, p), p);
    }
}

/// Bit e of the result is 1 if the sum of the two lists of value e holds no zero.
pub fn scan_lists(
    (level, threads): (Level, usize),
    spec: &ListSpec,
    lists: [&[u64]; 2],
    n: usize,
) -> Vec<u64> {
    let (field, length) = (spec.prime, spec.length());
    let threads = if n * length < WORTH_A_THREAD { 1 } else { threads };
    // Whole words of answers.
    let words = (CHUNK / 64 / length).max(1);
    let unpacker = Unpacker::new(level, field);
    let mut out = vec![0u64; bits::words(n)];
    let per_task = if threads == 1 { out.len().div_ceil(words).max(1) } else { 16 };
    chunks(threads, &mut out, per_task * words, |task, out| {
        let mut buffers = [vec![], vec![]];
        for (i, out) in out.chunks_mut(words).enumerate() {
            let first = (task * per_task + i) * words * 64;
            let count = (n - first).min(words * 64);
            let [a, b] = &mut buffers;
            let a = unpacker.window(lists[0], first * length, count * length, a);
            let b = unpacker.window(lists[1], first * length, count * length, b);
            scan(level, a, b, length, field.p() as u8, out);
        }
    });
    out
}

/// Bit e of `out` is 1 if no entry of row e sums to zero.
fn scan(level: Level, a: &[u8], b: &[u8], length: usize, p: u8, out: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() {
        // SAFETY: the level is a witness that the machine has these instructions.
        return unsafe { x86::scan(a, b, length, p, out) };
    }
    plain_scan(level, a, b, length, p, out);
}

at_every_level! {
    /// The scan without intrinsics.
    fn plain_scan<>(a: &[u8], b: &[u8], length: usize, p: u8, out: &mut [u64]) {
        for ((a, b), out) in a.chunks(64 * length).zip(b.chunks(64 * length)).zip(out) {
            let rows = a.chunks_exact(length).zip(b.chunks_exact(length));
            *out = rows.enumerate().fold(0, |word, (e, (a, b))| {
                // Zero stays zero: an entry below p is zero exactly if it is below 1.
                let smallest = a.iter().zip(b).fold(u8::MAX, |least, (a, b)| least.min(fold(a + b, p)));
                word | u64::from(smallest != 0) << e
            });
        }
    }
}

/// Worker 0's packed shares of the dealt elements, and the bits msb(−(r >> k) mod 2^λ).
pub fn deal_list<W: Word>(
    (level, threads): (Level, usize),
    spec: &ListSpec,
    masks: &[W],
    other: &Stream,
) -> (Vec<u64>, Vec<u64>) {
    let (field, dealt) = (spec.prime, spec.dealt());
    let p = field.p() as u8;
    let low = (u64::MAX >> (64 - spec.width)) >> 1;
    let elements = elements(spec);
    let sampler = FieldSampler::new(field.p());
    let mut out = vec![0; field.words(masks.len() * dealt)];
    let chunk = |s: &mut Scratch, range: std::ops::Range<usize>, out: &mut [u64]| {
        let n = range.len();
        // ρ = r̂ − 1 modulo 2^(λ−1).
        cut(spec, &masks[range.clone()], &mut s.values);
        s.values.iter_mut().for_each(|v| *v = v.wrapping_sub(1) & low);
        let share = sampler.window(level, other, (range.start * dealt) as u64, n * dealt, 0, &mut s.share);
        s.list.resize(n * dealt + ROW, 0);
        deal(level, &s.values, &elements, share, dealt, p, &mut s.list);
        pack(level, field, &s.list[..n * dealt], out);
    };
    for_chunks(spec, threads, masks.len(), dealt, &mut out, Scratch::default, chunk);
    let threads = if masks.len() < 1 << 20 { 1 } else { threads };
    let mut sign = vec![0; bits::words(masks.len())];
    chunks(threads, &mut sign, 1 << 10, |i, out| signs(level, spec, &masks[i << 16..], out));
    (out, sign)
}

at_every_level! {
    /// msb(−(r >> k) mod 2^λ), bit by bit.
    fn signs<W: Word>(spec: &ListSpec, masks: &[W], out: &mut [u64]) {
        for (out, masks) in out.iter_mut().zip(masks.chunks(64)) {
            *out = masks.iter().enumerate().fold(0, |word, (e, mask)| {
                word | ((mask.to_u64() >> spec.cut).wrapping_neg() >> (spec.width - 1) & 1) << e
            });
        }
    }
}

fn elements(spec: &ListSpec) -> Elements {
    let mut e = Elements { shift: vec![], largest: vec![], q: vec![] };
    match &spec.entries {
        Entries::Bits => {
            for i in (0..spec.width - 1).rev() {
                e.shift.push(i as u8);
                e.largest.push(1);
                e.q.push(1);
            }
        }
        Entries::Digits(widths) => {
            for digit in digits_of(widths) {
                for q in 0..digit.largest {
                    e.shift.push(digit.shift as u8);
                    e.largest.push(digit.largest);
                    e.q.push(q);
                }
            }
        }
    }
    let padded = e.shift.len().next_multiple_of(ROW);
    for row in [&mut e.shift, &mut e.largest, &mut e.q] {
        row.resize(padded, 0);
    }
    e
}

/// Worker 0's share of every row: the secret minus `share`; writes up to a row past the last.
fn deal(
    level: Level,
    values: &[u64],
    elements: &Elements,
    share: &[u8],
    dealt: usize,
    p: u8,
    out: &mut [u8],
) {
    #[cfg(target_arch = "x86_64")]
    if level.has_avx512() {
        // SAFETY: the level is a witness that the machine has these instructions.
        return unsafe { x86::deal(values, elements, share, dealt, p, out) };
    }
    plain_deal(level, values, elements, share, dealt, p, out);
}

at_every_level! {
    /// The dealer's rows without intrinsics.
    fn plain_deal<>(values: &[u64], elements: &Elements, share: &[u8], dealt: usize, p: u8, out: &mut [u8]) {
        for ((&rho, share), out) in values.iter().zip(share.chunks_exact(dealt)).zip(out.chunks_exact_mut(dealt)) {
            for (i, (out, share)) in out.iter_mut().zip(share).enumerate() {
                let secret = (rho >> elements.shift[i]) as u8 & elements.largest[i];
                *out = fold(u8::from(secret == elements.q[i]) + p - share, p);
            }
        }
    }
}
