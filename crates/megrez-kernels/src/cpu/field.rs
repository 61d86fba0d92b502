//! The dense wire form of field elements, packed and unpacked in chunks. Like everything that
//! touches shares, without branches, memory indices or divisions that depend on the elements.

use megrez_prg::Level;
use megrez_prg::digits::{Digits, OVERSHOOT};
use megrez_ring::Prime;

/// The widest vector code unpacks this many words at a time.
const VECTOR_WORDS: usize = 32;

/// x mod p for x < 2p ≤ 254.
#[inline(always)]
pub fn fold(x: u8, p: u8) -> u8 {
    x.min(x.wrapping_sub(p))
}

/// Packs elements into as many words as they need; the last word is filled with zeros.
pub fn pack(level: Level, field: Prime, elements: &[u8], out: &mut [u64]) {
    let digits = field.digits();
    assert_eq!(out.len(), field.words(elements.len()));
    let whole = elements.len() / digits;
    #[cfg(target_arch = "x86_64")]
    let done = if level.has_avx512() {
        let done = whole / 8 * 8;
        // SAFETY: the level is a witness that the machine has these instructions.
        unsafe { x86::pack(field, &elements[..done * digits], &mut out[..done]) };
        done
    } else {
        0
    };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    let _ = level;
    let p = field.p();
    for (word, elements) in out[done..whole].iter_mut().zip(elements[done * digits..].chunks_exact(digits)) {
        *word = elements.iter().fold(0, |word, &e| word * p + u64::from(e));
    }
    if whole < out.len() {
        let rest = &elements[whole * digits..];
        let word = rest.iter().fold(0u64, |word, &e| word * p + u64::from(e));
        out[whole] = (rest.len()..digits).fold(word, |word, _| word * p);
    }
}

/// Unpacks messages of one field, with its constants.
pub struct Unpacker {
    level: Level,
    field: Prime,
    /// floor(2^128 / p^digits) + 1: a word times this is the word / p^digits as a fraction, too
    /// large by less than a unit of the last digit, since words are below 2^64.
    reciprocal: u128,
    digits: Digits,
    #[cfg(target_arch = "x86_64")]
    wide: x86::Digits,
}

impl Unpacker {
    pub fn new(level: Level, field: Prime) -> Self {
        let (p, digits) = (field.p(), field.digits());
        Unpacker {
            level,
            field,
            reciprocal: u128::MAX / u128::from(p.pow(digits as u32)) + 1,
            digits: Digits::new(p, digits),
            #[cfg(target_arch = "x86_64")]
            wide: x86::Digits::new(field),
        }
    }

    /// Elements `first` … `first + n − 1` of a packed message, in `buffer`. Every one is < p,
    /// whatever the words hold.
    pub fn window<'a>(&self, words: &[u64], first: usize, n: usize, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let (field, level) = (self.field, self.level);
        let digits = field.digits();
        let (start, skip) = (first / digits, first % digits);
        let count = (skip + n).div_ceil(digits);
        let words = &words[start..start + count];
        let room = count.next_multiple_of(VECTOR_WORDS) * digits + OVERSHOOT;
        if buffer.len() < room {
            buffer.resize(room, 0);
        }
        #[cfg(target_arch = "x86_64")]
        if level.has_avx512() {
            for (i, words) in words.chunks(VECTOR_WORDS).enumerate() {
                let mut padded = [0; VECTOR_WORDS];
                padded[..words.len()].copy_from_slice(words);
                let out = &mut buffer[i * VECTOR_WORDS * digits..][..VECTOR_WORDS * digits + OVERSHOOT];
                // SAFETY: the level is a witness that the machine has these instructions.
                unsafe { x86::unpack32(&self.wide, &padded, out) };
            }
            return &buffer[skip..skip + n];
        }
        for (i, words) in words.chunks(VECTOR_WORDS).enumerate() {
            // A word of the wire may be larger than p^digits: only what is behind the point counts.
            let mut fractions = [[0; 2]; VECTOR_WORDS];
            for (fraction, &word) in fractions.iter_mut().zip(words) {
                let product = u128::from(word).wrapping_mul(self.reciprocal);
                *fraction = [product as u64, (product >> 64) as u64];
            }
            let out = &mut buffer[i * VECTOR_WORDS * digits..];
            self.digits.split(level, &fractions[..words.len()], 0, out);
        }
        &buffer[skip..skip + n]
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{OVERSHOOT, VECTOR_WORDS};
    use megrez_ring::Prime;
    use std::arch::x86_64::*;

    /// Packs whole words, eight at a time. A word's elements are taken in pieces of eight bytes,
    /// the first piece shorter: three rounds of pairwise multiply-and-add make one number of a
    /// piece, Horner's rule one of the pieces.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq")]
    pub fn pack(field: Prime, elements: &[u8], out: &mut [u64]) {
        let (p, digits) = (field.p(), field.digits());
        assert!(out.len().is_multiple_of(8) && elements.len() == out.len() * digits && digits >= 8);
        let pieces = digits.div_ceil(8);
        let head = digits - 8 * (pieces - 1);
        let pairs = _mm512_set1_epi16((p | (1 << 8)) as i16);
        let fours = _mm512_set1_epi32(((p * p) | (1 << 16)) as i32);
        let eights = _mm512_set1_epi64(p.pow(4) as i64);
        let piece_weight = _mm512_set1_epi64(p.pow(8) as i64);
        let d = digits as i64;
        let starts = _mm512_setr_epi64(0, d, 2 * d, 3 * d, 4 * d, 5 * d, 6 * d, 7 * d);
        // The bytes after a short first piece are shifted out; zeros take the highest places.
        let drop = _mm_cvtsi64_si128(8 * (8 - head as i64));
        for (out, elements) in out.chunks_exact_mut(8).zip(elements.chunks_exact(8 * digits)) {
            let value = |bytes: __m512i| {
                let twos = _mm512_maddubs_epi16(bytes, pairs);
                let fours = _mm512_madd_epi16(twos, fours);
                _mm512_add_epi64(_mm512_mul_epu32(fours, eights), _mm512_srli_epi64::<32>(fours))
            };
            let piece = |offset: usize| {
                // SAFETY: eight bytes from 7·digits + offset on are inside the 8·digits elements,
                // as offset ≤ digits − 8.
                unsafe { _mm512_i64gather_epi64::<1>(starts, elements.as_ptr().add(offset).cast()) }
            };
            let mut sum = value(_mm512_sll_epi64(piece(0), drop));
            for i in 1..pieces {
                sum =
                    _mm512_add_epi64(_mm512_mullo_epi64(sum, piece_weight), value(piece(head + 8 * (i - 1))));
            }
            // SAFETY: eight words are one vector; the store is unaligned.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), sum) };
        }
    }

    /// What unpacking needs. A word is cut into three numbers of at most h digits, where p^2h ≤
    /// 2^52: the top, the middle and the low ones. A number c < p^h becomes the 52-bit fraction
    /// c·(floor(2^52 / p^h) + 1), too large by less than one unit of its last digit, and
    /// multiplications by p give digit after digit.
    pub struct Digits {
        p: u64,
        digits: usize,
        /// Digits of the pieces, top first.
        counts: [usize; 3],
        /// p to the power of the counts of: the two lower pieces, a lower piece, the top piece.
        powers: [u64; 3],
        /// floor(2^52 / p^count) + 1 of the pieces.
        reciprocals: [u64; 3],
        /// With at most 16 digits a word: for every byte of the output of eight words, which byte
        /// of which accumulator.
        order: [[u8; 64]; 2],
    }

    impl Digits {
        pub fn new(field: Prime) -> Self {
            let (p, digits) = (field.p(), field.digits());
            let mut h = 1;
            while u128::from(p).pow(2 * (h as u32 + 1)) <= 1 << 52 {
                h += 1;
            }
            assert!(digits > 2 * h && digits <= 3 * h, "three pieces do for every prime below 128");
            let counts = [digits - 2 * h, h, h];
            let power = |count: usize| p.pow(count as u32);
            let mut order = [[0; 64]; 2];
            if digits <= 16 {
                for (at, byte) in order.as_flattened_mut().iter_mut().enumerate().take(8 * digits) {
                    let (lane, digit) = (at / digits, at % digits);
                    // An accumulator's first digit is the highest byte that is used.
                    let used = if digit < 8 { digits.min(8) } else { digits - 8 };
                    *byte = (digit / 8 * 64 + lane * 8 + used - 1 - digit % 8) as u8;
                }
            }
            Digits {
                p,
                digits,
                counts,
                powers: [power(2 * h), power(h), power(counts[0])],
                reciprocals: counts.map(|count| (1 << 52) / power(count) + 1),
                order,
            }
        }
    }

    /// So many vectors at a time.
    const WIDE: usize = VECTOR_WORDS / 8;

    /// Quotient and remainder by a constant `d` ≤ 2^52, for quotients below 2^32: the quotient by
    /// floating point is right or one off, and the remainder tells.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn divide(x: __m512i, d: u64) -> (__m512i, __m512i) {
        let (divisor, one) = (_mm512_set1_epi64(d as i64), _mm512_set1_epi64(1));
        let inverse = _mm512_set1_pd(1.0 / d as f64);
        let q = _mm512_cvttpd_epu64(_mm512_mul_pd(_mm512_cvtepu64_pd(x), inverse));
        let r = _mm512_sub_epi64(x, _mm512_mullo_epi64(q, divisor));
        let negative = _mm512_movepi64_mask(r);
        let r = _mm512_mask_add_epi64(r, negative, r, divisor);
        let q = _mm512_mask_sub_epi64(q, negative, q, one);
        let large = _mm512_cmpge_epu64_mask(r, divisor);
        (_mm512_mask_add_epi64(q, large, q, one), _mm512_mask_sub_epi64(r, large, r, divisor))
    }

    /// Unpacks 32 words; `out` has room for [`OVERSHOOT`] more bytes.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512ifma,avx512vbmi")]
    pub fn unpack32(constants: &Digits, words: &[u64; VECTOR_WORDS], out: &mut [u8]) {
        if constants.digits <= 16 {
            unpack::<2>(constants, words, out);
        } else {
            unpack::<5>(constants, words, out);
        }
    }

    /// Unpacks 32 words of at most 8·P digits.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512ifma,avx512vbmi")]
    fn unpack<const P: usize>(constants: &Digits, words: &[u64; VECTOR_WORDS], out: &mut [u8]) {
        let &Digits { p, digits, counts, powers, reciprocals, .. } = constants;
        assert!(out.len() >= words.len() * digits + OVERSHOOT && digits <= 8 * P);
        let zero = _mm512_setzero_si512();
        let mut fractions = [[zero; WIDE]; 3];
        for (wide, words) in words.chunks_exact(8).enumerate() {
            // SAFETY: eight words are one vector; the load is unaligned.
            let x = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
            let (top, rest) = divide(x, powers[0]);
            let (middle, low) = divide(rest, powers[1]);
            // A word of the wire may be larger than p^digits: its top is cut to the field as all
            // the rest is.
            let (_, top) = divide(top, powers[2]);
            for (i, piece) in [top, middle, low].into_iter().enumerate() {
                fractions[i][wide] = _mm512_mullo_epi64(piece, _mm512_set1_epi64(reciprocals[i] as i64));
            }
        }
        let base = _mm512_set1_epi64(p as i64);
        let mut bytes = [[zero; WIDE]; P];
        let mut acc = [zero; WIDE];
        let mut i = 0;
        for (fraction, count) in fractions.iter_mut().zip(counts) {
            for _ in 0..count {
                for (acc, fraction) in acc.iter_mut().zip(fraction.iter_mut()) {
                    *acc = _mm512_madd52hi_epu64(_mm512_slli_epi64::<8>(*acc), *fraction, base);
                    *fraction = _mm512_madd52lo_epu64(zero, *fraction, base);
                }
                i += 1;
                if i % 8 == 0 {
                    bytes[i / 8 - 1] = acc;
                    acc = [zero; WIDE];
                }
            }
        }
        if !digits.is_multiple_of(8) {
            bytes[digits / 8] = acc;
        }
        if P == 2 {
            for (wide, out) in out[..VECTOR_WORDS * digits].chunks_exact_mut(8 * digits).enumerate() {
                for (part, order) in out.chunks_mut(64).zip(&constants.order) {
                    // SAFETY: a table is 64 bytes; the load is unaligned.
                    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
                    let elements = _mm512_permutex2var_epi8(bytes[0][wide], order, bytes[P - 1][wide]);
                    let lanes = u64::MAX >> (64 - part.len());
                    // SAFETY: exactly the bytes of `part` are written.
                    unsafe { _mm512_mask_storeu_epi8(part.as_mut_ptr().cast(), lanes, elements) };
                }
            }
            return;
        }
        // Many digits a word: eight bytes at a time, in order, so that what is written too much is
        // overwritten. The first digit of a lane is to be its lowest byte; in the last piece it is
        // not the highest yet.
        let pieces = digits.div_ceil(8);
        let align = _mm_cvtsi64_si128(((8 * pieces - digits) * 8) as i64);
        let reverse = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0809_0a0b_0c0d_0e0f, 0x0001_0203_0405_0607));
        let mut lanes = [[[0u64; 8]; WIDE]; P];
        for (piece, (lanes, bytes)) in lanes.iter_mut().zip(bytes).enumerate().take(pieces) {
            for (lanes, bytes) in lanes.iter_mut().zip(bytes) {
                let bytes = if piece + 1 == pieces { _mm512_sll_epi64(bytes, align) } else { bytes };
                // SAFETY: eight words are one vector; the store is unaligned.
                unsafe {
                    _mm512_storeu_si512(lanes.as_mut_ptr().cast(), _mm512_shuffle_epi8(bytes, reverse))
                };
            }
        }
        for wide in 0..WIDE {
            for lane in 0..8 {
                let out = &mut out[(wide * 8 + lane) * digits..][..8 * pieces];
                for (out, lanes) in out.as_chunks_mut::<8>().0.iter_mut().zip(&lanes) {
                    *out = lanes[wide][lane].to_le_bytes();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_prg::Key;

    #[test]
    fn every_level_packs_and_unpacks_like_the_field() {
        let primes = (3..=127u8).filter(|p| (2..*p).all(|d| p % d != 0));
        for p in primes.filter(|p| !cfg!(miri) || [3, 67].contains(p)) {
            let field = Prime::new(p);
            let digits = field.digits();
            let mut words = Key::from_bytes([p; 32]).stream().words(150);
            words[3] = u64::MAX;
            words[4] = 0;
            // Around multiples of powers of p, where digits change.
            for i in 0..20u32 {
                let power = u64::from(p).wrapping_pow(i % digits as u32);
                words[10 + 2 * i as usize] = power.wrapping_mul(u64::MAX / power / u64::from(i / 2 + 1));
                words[11 + 2 * i as usize] = words[10 + 2 * i as usize].wrapping_sub(1);
            }
            let expected = field.unpack(&words, 150 * digits);
            for level in Level::all() {
                let mut buffer = vec![];
                for (first, n) in
                    [(0, 150 * digits), (0, 0), (1, 1), (digits - 1, 2), (17, 700), (digits, 64 * digits)]
                {
                    let found = Unpacker::new(level, field).window(&words, first, n, &mut buffer);
                    assert!(found == &expected[first..first + n], "{} p = {p} {first} {n}", level.name());
                }
                for n in [0, 1, digits, 8 * digits - 1, 8 * digits, 100 * digits + 3] {
                    let mut out = vec![0; field.words(n)];
                    pack(level, field, &expected[..n], &mut out);
                    assert!(out == field.pack(expected[..n].iter().copied()), "{} p = {p} {n}", level.name());
                }
            }
        }
    }
}
