//! Rows of lists in AVX-512: a byte for each entry.

use super::rows::{Digit, Elements, ROW, Rows};
use megrez_ring::bits;
use std::arch::x86_64::*;

/// A row: one byte per entry.
type Row = __m512i;

#[inline(always)]
fn low_lanes(n: usize) -> u64 {
    if n == 0 { 0 } else { u64::MAX >> (64 - n) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(row: &[u8; ROW]) -> Row {
    // SAFETY: a row is one vector; the load is unaligned.
    unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
}

/// Up to 64 bytes into the lanes of `lanes`, the others from `rest`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_some(rest: Row, lanes: u64, bytes: &[u8]) -> Row {
    assert!(64 - lanes.leading_zeros() as usize <= bytes.len());
    // SAFETY: there are as many bytes as lanes, as just checked; lanes outside the mask are not
    // read.
    unsafe { _mm512_mask_loadu_epi8(rest, lanes, bytes.as_ptr().cast()) }
}

/// Writes a row; lanes past its entries are overwritten by the next one.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(list: &mut [u8], row: Row) {
    let list = &mut list[..ROW];
    // SAFETY: `list` is one vector now; the store is unaligned.
    unsafe { _mm512_storeu_si512(list.as_mut_ptr().cast(), row) };
}

/// x mod p for x < 2p.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn fold(x: Row, p: Row) -> Row {
    _mm512_min_epu8(x, _mm512_sub_epi8(x, p))
}

/// What ends every row: prefix sums, multiplier, zero-share, rotation.
struct Ends {
    p: Row,
    twice_p: Row,
    p16: Row,
    reciprocal: Row,
    low_bytes: Row,
    positions: Row,
    length: usize,
    length_row: Row,
    lanes: u64,
    second: bool,
    /// Distances of the prefix sums, with the lanes that they come from and go to.
    steps: [(u64, Row); 6],
    step_count: usize,
}

impl Ends {
    #[target_feature(enable = "avx512f,avx512bw")]
    fn new(rows: &Rows<'_>) -> Self {
        let (p, length) = (rows.spec.prime.p(), rows.spec.length());
        let positions: [u8; ROW] = std::array::from_fn(|i| i as u8);
        let step = |s: usize| {
            let from: [u8; ROW] = std::array::from_fn(|i| i.wrapping_sub(1 << s) as u8);
            (u64::MAX << (1 << s), load(&from))
        };
        Ends {
            p: _mm512_set1_epi8(p as i8),
            twice_p: _mm512_set1_epi8((2 * p) as i8),
            p16: _mm512_set1_epi16(p as i16),
            reciprocal: _mm512_set1_epi16(((1u64 << 16) / p) as i16),
            low_bytes: _mm512_set1_epi16(0xff),
            positions: load(&positions),
            length,
            length_row: _mm512_set1_epi8(length as i8),
            lanes: low_lanes(length),
            second: rows.j == 1,
            steps: [step(0), step(1), step(2), step(3), step(4), step(5)],
            step_count: length.next_power_of_two().trailing_zeros() as usize,
        }
    }

    /// Sums of all lanes up to each one, modulo p.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn prefix_sums(&self, mut x: Row) -> Row {
        for &(lanes, from) in &self.steps[..self.step_count] {
            x = fold(_mm512_add_epi8(x, _mm512_maskz_permutexvar_epi8(lanes, from, x)), self.p);
        }
        x
    }

    /// x mod p for x ≤ 3p + 1.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn fold3(&self, x: Row) -> Row {
        fold(fold(x, self.twice_p), self.p)
    }

    /// Entry times multiplier plus zero-share (minus, for worker 1), rotated; x < p.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn finish(&self, rows: &Rows<'_>, e: usize, x: Row, list: &mut [u8]) {
        let zero = _mm512_setzero_si512();
        let at = e * self.length;
        let w = load_some(zero, self.lanes, &rows.multiplier[at..]);
        let z = load_some(zero, self.lanes, &rows.zero_share[at..]);
        let masked = self.mask(x, w, z);
        // Lane i takes lane i − rotation modulo the length.
        let from = _mm512_sub_epi8(self.positions, _mm512_set1_epi8(rows.rotation[e] as i8));
        let from = _mm512_min_epu8(from, _mm512_add_epi8(from, self.length_row));
        store(&mut list[at..], _mm512_permutexvar_epi8(from, masked));
    }

    /// x·w + z, or x·w − z for worker 1; x, w, z < p.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn mask(&self, x: Row, w: Row, z: Row) -> Row {
        // Products of even and of odd bytes in 16-bit lanes, below p² < 2^13: the quotient is right
        // or one less.
        let rest = |x: Row, w: Row| {
            let product = _mm512_mullo_epi16(x, w);
            let quotient = _mm512_mulhi_epu16(product, self.reciprocal);
            _mm512_sub_epi16(product, _mm512_mullo_epi16(quotient, self.p16))
        };
        let even = rest(_mm512_and_si512(x, self.low_bytes), _mm512_and_si512(w, self.low_bytes));
        let odd = rest(_mm512_srli_epi16::<8>(x), _mm512_srli_epi16::<8>(w));
        let product = fold(_mm512_or_si512(even, _mm512_slli_epi16::<8>(odd)), self.p);
        let z = if self.second { _mm512_sub_epi8(self.p, z) } else { z };
        fold(_mm512_add_epi8(product, z), self.p)
    }
}

/// All ones if sign ⊕ Δ, else zero.
#[inline(always)]
fn wanted(rows: &Rows<'_>, e: usize, m: u64) -> u64 {
    let flip = bits::get(rows.flips, rows.first + e);
    0u64.wrapping_sub(((m >> (rows.spec.width - 1)) ^ flip) & 1)
}

/// Rows of bit lists: the entries of a value in the bytes of one vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn bit_rows(rows: &Rows<'_>, list: &mut [u8]) {
    let ends = Ends::new(rows);
    let (p, width, dealt) = (rows.spec.prime.p() as u8, rows.spec.width as usize, rows.spec.dealt());
    let one = u8::from(rows.j == 0);
    let data = low_lanes(dealt);
    let shifts: [u8; ROW] = std::array::from_fn(|i| (width - 2).wrapping_sub(i) as u8 & 63);
    let (shifts, one_bit) = (load(&shifts), _mm512_set1_epi8(1));
    // The padding entry compares 0 with 1.
    let padding = _mm512_maskz_set1_epi8(1 << (width - 1), one as i8);
    let one_plus_p = _mm512_set1_epi8((one + p) as i8);
    let ones = _mm512_set1_epi8(one as i8);
    for (e, &m) in rows.values.iter().enumerate() {
        let shifted = _mm512_multishift_epi64_epi8(shifts, _mm512_set1_epi64(m as i64));
        let bit = _mm512_mask_test_epi8_mask(data, shifted, one_bit);
        let rho = load_some(padding, data, &rows.share[e * dealt..]);
        let s = fold(_mm512_mask_sub_epi8(rho, bit, one_plus_p, rho), ends.p);
        // t = the sum of all before − s + 1 + β, with the sum of all before = that up to here − s.
        let minus_s = _mm512_sub_epi8(ends.p, s);
        let sum = _mm512_add_epi8(ends.prefix_sums(s), _mm512_add_epi8(minus_s, minus_s));
        let sum = _mm512_add_epi8(sum, ones);
        let t = _mm512_mask_add_epi8(sum, bit ^ wanted(rows, e, m), sum, ones);
        ends.finish(rows, e, ends.fold3(t), list);
    }
}

/// Dealt elements in up to four vectors, whole digits in each; `None` where they do not fit.
pub struct Parts {
    /// How many vectors there are.
    pub vectors: usize,
    /// How many elements each vector holds.
    counts: [usize; 4],
    /// Where each digit's element 0 stands: 0 … 63 in the first, 64 … 127 in the second vector, and
    /// so on.
    places: [u8; ROW],
    /// How far each element stands from its digit's first.
    ranks: [[u8; ROW]; 4],
}

impl Parts {
    pub fn new(digits: &[Digit]) -> Option<Parts> {
        let mut parts = Parts { vectors: 1, counts: [0; 4], places: [0; ROW], ranks: [[0; ROW]; 4] };
        for (place, digit) in parts.places.iter_mut().zip(digits) {
            let count = usize::from(digit.largest);
            if parts.counts[parts.vectors - 1] + count > ROW {
                parts.vectors += 1;
            }
            if parts.vectors > 4 || count > ROW {
                return None;
            }
            let part = parts.vectors - 1;
            let start = parts.counts[part];
            *place = (part * ROW + start) as u8;
            (0..count).for_each(|q| parts.ranks[part][start + q] = q as u8);
            parts.counts[part] += count;
        }
        Some(parts)
    }
}

/// Rows of digit lists: the digits of a value in the bytes of one vector, its dealt elements in
/// those of `VECTORS`.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn digit_rows<const VECTORS: usize>(rows: &Rows<'_>, parts: &Parts, list: &mut [u8]) {
    let ends = Ends::new(rows);
    let zero = _mm512_setzero_si512();
    let (p, dealt) = (rows.spec.prime.p() as u8, rows.spec.dealt());
    let one = u8::from(rows.j == 0);
    let (ones, one_plus_p) = (_mm512_set1_epi8(one as i8), _mm512_set1_epi8((one + p) as i8));
    let row = |f: &dyn Fn(&Digit) -> u8| {
        let mut bytes = [0; ROW];
        bytes.iter_mut().zip(rows.digits).for_each(|(byte, digit)| *byte = f(digit));
        load(&bytes)
    };
    let shifts = row(&|d| d.shift as u8);
    let largest = row(&|d| d.largest);
    let places = load(&parts.places);
    let before = _mm512_sub_epi8(places, _mm512_set1_epi8(1));
    let whole = _mm512_add_epi8(before, largest);
    let last = 1u64 << (rows.digits.len() - 1);
    let elements: [u64; VECTORS] = std::array::from_fn(|v| low_lanes(parts.counts[v]));
    let starts: [usize; VECTORS] = std::array::from_fn(|v| parts.counts[..v].iter().sum());
    // Steps of the sums within digits: the lanes that have an element so far to the left in their
    // digit.
    let widest = rows.digits.iter().map(|d| d.largest).max().unwrap_or(0);
    let step_count = (widest + 1).trailing_zeros() as usize;
    let mut steps = [[0u64; VECTORS]; 6];
    for (s, lanes) in steps.iter_mut().enumerate() {
        for (lanes, ranks) in lanes.iter_mut().zip(&parts.ranks) {
            *lanes = _mm512_cmpge_epu8_mask(load(ranks), _mm512_set1_epi8(1 << s));
        }
    }
    // Byte `at` of the vectors one after the other.
    let look_up = |tables: &[Row; VECTORS], at: Row| {
        let pair = |v: usize| _mm512_permutex2var_epi8(tables[v], at, tables[(v + 1).min(VECTORS - 1)]);
        if VECTORS > 2 { _mm512_mask_mov_epi8(pair(0), _mm512_movepi8_mask(at), pair(2)) } else { pair(0) }
    };
    for (e, &m) in rows.values.iter().enumerate() {
        let digit = _mm512_multishift_epi64_epi8(shifts, _mm512_set1_epi64(m as i64));
        let digit = _mm512_and_si512(digit, largest);
        let share = &rows.share[e * dealt..][..dealt];
        let mut dealt_here = [zero; VECTORS];
        for (v, row) in dealt_here.iter_mut().enumerate() {
            *row = load_some(zero, elements[v], &share[starts[v]..]);
        }
        // Sums of each digit's elements up to each one.
        let mut sums = dealt_here;
        for (lanes, (_, from)) in steps.iter().zip(&ends.steps).take(step_count) {
            for (sums, lanes) in sums.iter_mut().zip(lanes) {
                let left = _mm512_maskz_permutexvar_epi8(*lanes, *from, *sums);
                *sums = fold(_mm512_add_epi8(*sums, left), ends.p);
            }
        }
        let not_zero = _mm512_test_epi8_mask(digit, digit);
        let below = _mm512_maskz_mov_epi8(not_zero, look_up(&sums, _mm512_add_epi8(before, digit)));
        let all = look_up(&sums, whole);
        let equal = look_up(&dealt_here, _mm512_add_epi8(places, digit));
        // The indicator of the largest digit is one minus the others.
        let is_largest = _mm512_cmpeq_epi8_mask(digit, largest);
        let rest = fold(_mm512_sub_epi8(one_plus_p, all), ends.p);
        let equal = _mm512_mask_mov_epi8(equal, is_largest, rest);
        let less_or_equal = fold(_mm512_sub_epi8(one_plus_p, below), ends.p);
        let less = fold(_mm512_add_epi8(less_or_equal, _mm512_sub_epi8(ends.p, equal)), ends.p);
        let direction = _mm512_mask_mov_epi8(less, last, less_or_equal);
        let direction = _mm512_mask_mov_epi8(direction, wanted(rows, e, m), below);
        // Entry = the sum of all (1 − equal) before + 1 − direction.
        let unequal = fold(_mm512_sub_epi8(one_plus_p, equal), ends.p);
        let sum = _mm512_add_epi8(ends.prefix_sums(unequal), _mm512_sub_epi8(ends.p, unequal));
        let entry = _mm512_add_epi8(_mm512_add_epi8(sum, ones), _mm512_sub_epi8(ends.p, direction));
        ends.finish(rows, e, ends.fold3(entry), list);
    }
}

/// Whether [`short_digit_rows`] can make these lists: at most 8 digits and 32 dealt elements a
/// value.
pub fn fits_eight(rows: &Rows<'_>) -> bool {
    rows.digits.len() <= 8 && rows.spec.dealt() <= 32
}

/// Rows of short digit lists, eight values at a time: the digits of value v are the bytes of 64-bit
/// lane v, its dealt elements half v mod 2 of vector v / 2. Returns how many values it did: all but
/// less than eight.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
pub fn short_digit_rows(rows: &Rows<'_>, list: &mut [u8]) -> usize {
    let ends = Ends::new(rows);
    let (p, length, dealt) = (rows.spec.prime.p() as u8, rows.spec.length(), rows.spec.dealt());
    let one = u8::from(rows.j == 0);
    let (ones, one_plus_p) = (_mm512_set1_epi8(one as i8), _mm512_set1_epi8((one + p) as i8));
    let row = |f: &dyn Fn(usize, Option<&Digit>) -> u8| {
        load(&std::array::from_fn(|lane| f(lane / 8, rows.digits.get(lane % 8))))
    };
    let shifts = row(&|_, digit| digit.map_or(0, |d| d.shift as u8));
    let largest = row(&|_, digit| digit.map_or(0, |d| d.largest));
    // Element 0 of each digit, in the four halves of a pair of vectors.
    let places = row(&|v, digit| (v % 4 * 32) as u8 + digit.map_or(0, |d| d.offset as u8));
    let before = _mm512_sub_epi8(places, _mm512_set1_epi8(1));
    let whole = _mm512_add_epi8(before, largest);
    let last = 0x0101_0101_0101_0101 << (length - 1);
    let mut ranks = [0; ROW];
    for digit in rows.digits {
        for q in 0..digit.largest {
            ranks[digit.offset + usize::from(q)] = q;
            ranks[32 + digit.offset + usize::from(q)] = q;
        }
    }
    let ranks = load(&ranks);
    let steps: [u64; 5] = std::array::from_fn(|s| _mm512_cmpge_epu8_mask(ranks, _mm512_set1_epi8(1 << s)));
    let widest = rows.digits.iter().map(|d| d.largest).max().unwrap_or(0);
    let step_count = (widest + 1).trailing_zeros() as usize;
    // Multipliers and zero-shares stand in order, `length` a value; so does the result.
    let spread = row(&|v, _| (v * length) as u8);
    let spread = _mm512_add_epi8(spread, _mm512_and_si512(ends.positions, _mm512_set1_epi8(7)));
    let value_of: [u8; ROW] = std::array::from_fn(|i| (i / length).min(7) as u8);
    let entry_of: [u8; ROW] = std::array::from_fn(|i| (i % length) as u8);
    let (value_of, entry_of) = (load(&value_of), load(&entry_of));
    let lane_of = _mm512_slli_epi64::<3>(value_of);
    let contiguous = low_lanes(8 * length);
    let half = low_lanes(dealt) as u32;
    let zero = _mm512_setzero_si512();
    let sign = _mm512_set1_epi64(1 << (rows.spec.width - 1));
    let count = rows.values.len() / 8 * 8;
    for e in (0..count).step_by(8) {
        let values = &rows.values[e..e + 8];
        // SAFETY: eight values are one vector; the load is unaligned.
        let values = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
        let digit = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, values), largest);
        let share = &rows.share[e * dealt..(e + 8) * dealt];
        let mut elements = [zero; 4];
        for (elements, share) in elements.iter_mut().zip(share.chunks_exact(2 * dealt)) {
            // SAFETY: each of the two halves has `dealt` bytes; lanes outside the mask are not
            // read.
            let [low, high] = [0, dealt]
                .map(|at| unsafe { _mm256_maskz_loadu_epi8(half, share[at..at + dealt].as_ptr().cast()) });
            *elements = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
        }
        let mut sums = elements;
        for (&lanes, (_, from)) in steps.iter().zip(&ends.steps).take(step_count) {
            for sums in &mut sums {
                let left = _mm512_maskz_permutexvar_epi8(lanes, *from, *sums);
                *sums = fold(_mm512_add_epi8(*sums, left), ends.p);
            }
        }
        // Values 0 … 3 look their elements up in the first two vectors, the others in the last two.
        let look_up = |tables: &[Row; 4], at: Row| {
            let first = _mm512_permutex2var_epi8(tables[0], at, tables[1]);
            let second = _mm512_permutex2var_epi8(tables[2], at, tables[3]);
            _mm512_mask_mov_epi64(first, 0xf0, second)
        };
        let not_zero = _mm512_test_epi8_mask(digit, digit);
        let below = _mm512_maskz_mov_epi8(not_zero, look_up(&sums, _mm512_add_epi8(before, digit)));
        let all = look_up(&sums, whole);
        let equal = look_up(&elements, _mm512_add_epi8(places, digit));
        let is_largest = _mm512_cmpeq_epi8_mask(digit, largest);
        let rest = fold(_mm512_sub_epi8(one_plus_p, all), ends.p);
        let equal = _mm512_mask_mov_epi8(equal, is_largest, rest);
        let less_or_equal = fold(_mm512_sub_epi8(one_plus_p, below), ends.p);
        let less = fold(_mm512_add_epi8(less_or_equal, _mm512_sub_epi8(ends.p, equal)), ends.p);
        let direction = _mm512_mask_mov_epi8(less, last, less_or_equal);
        // Sign ⊕ Δ, a bit a value, then a byte a value.
        let flips = (0..8).fold(0, |flips, v| flips | bits::get(rows.flips, rows.first + e + v) << v) as u8;
        let wanted = _mm512_test_epi64_mask(values, sign) ^ flips;
        let direction = _mm512_mask_mov_epi64(direction, wanted, below);
        let unequal = fold(_mm512_sub_epi8(one_plus_p, equal), ends.p);
        let mut sum = unequal;
        sum = fold(_mm512_add_epi8(sum, _mm512_slli_epi64::<8>(sum)), ends.p);
        sum = fold(_mm512_add_epi8(sum, _mm512_slli_epi64::<16>(sum)), ends.p);
        sum = fold(_mm512_add_epi8(sum, _mm512_slli_epi64::<32>(sum)), ends.p);
        let sum = _mm512_add_epi8(sum, _mm512_sub_epi8(ends.p, unequal));
        let entry = _mm512_add_epi8(_mm512_add_epi8(sum, ones), _mm512_sub_epi8(ends.p, direction));
        let at = e * length;
        let spread_out = |bytes: &[u8]| {
            _mm512_permutexvar_epi8(spread, load_some(zero, contiguous, &bytes[at..at + 8 * length]))
        };
        let (w, z) = (spread_out(rows.multiplier), spread_out(rows.zero_share));
        let masked = ends.mask(ends.fold3(entry), w, z);
        // Entry i of a value takes entry i − rotation modulo the length.
        let rotation = load_some(zero, 0xff, &rows.rotation[e..e + 8]);
        let from = _mm512_sub_epi8(entry_of, _mm512_permutexvar_epi8(value_of, rotation));
        let from = _mm512_min_epu8(from, _mm512_add_epi8(from, ends.length_row));
        store(&mut list[at..], _mm512_permutexvar_epi8(_mm512_add_epi8(lane_of, from), masked));
    }
    count
}

/// Bit e of `out` is 1 if no entry of row e sums to zero.
#[target_feature(enable = "avx512f,avx512bw")]
pub fn scan(a: &[u8], b: &[u8], length: usize, p: u8, out: &mut [u64]) {
    let (zero, p) = (_mm512_setzero_si512(), _mm512_set1_epi8(p as i8));
    let lanes = low_lanes(length);
    for ((a, b), out) in a.chunks(64 * length).zip(b.chunks(64 * length)).zip(out) {
        let mut word = 0;
        for (e, (a, b)) in a.chunks_exact(length).zip(b.chunks_exact(length)).enumerate() {
            let sum = _mm512_add_epi8(load_some(zero, lanes, a), load_some(zero, lanes, b));
            let zeros = _mm512_cmpeq_epi8_mask(fold(sum, p), zero) & lanes;
            word |= u64::from(zeros == 0) << e;
        }
        *out = word;
    }
}

/// The dealer's rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub fn deal(values: &[u64], elements: &Elements, share: &[u8], dealt: usize, p: u8, out: &mut [u8]) {
    let (zero, one, p) = (_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_set1_epi8(p as i8));
    for (block, ((shift, largest), q)) in elements
        .shift
        .as_chunks::<ROW>()
        .0
        .iter()
        .zip(elements.largest.as_chunks::<ROW>().0)
        .zip(elements.q.as_chunks::<ROW>().0)
        .enumerate()
    {
        let (shift, largest, q) = (load(shift), load(largest), load(q));
        let count = (dealt - block * ROW).min(ROW);
        let lanes = low_lanes(count);
        for (e, &rho) in values.iter().enumerate() {
            let at = e * dealt + block * ROW;
            let secret = _mm512_multishift_epi64_epi8(shift, _mm512_set1_epi64(rho as i64));
            let hit = _mm512_cmpeq_epi8_mask(_mm512_and_si512(secret, largest), q);
            let share = _mm512_sub_epi8(p, load_some(zero, lanes, &share[at..]));
            let result = fold(_mm512_mask_add_epi8(share, hit, share, one), p);
            let out = &mut out[at..at + count];
            // SAFETY: exactly the bytes of `out` are written.
            unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), lanes, result) };
        }
    }
}
