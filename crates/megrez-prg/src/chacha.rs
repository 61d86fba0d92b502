//! ChaCha12 in counter mode: 64-bit counter, zero nonce. Many blocks run side by side, one per lane
//! of a vector.

use crate::Level;

const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// The state words a, b, c, d of the eight quarter rounds of a double round: columns, then
/// diagonals.
const QUARTERS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

/// 12 rounds are 6 double rounds.
const DOUBLE_ROUNDS: usize = 6;

/// `L` consecutive blocks of eight little-endian words each.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "a lane is an index of several rows")]
fn blocks<const L: usize>(key: &[u32; 8], counter: u64, out: &mut [u64]) {
    let mut initial = [[0u32; L]; 16];
    for (row, word) in initial.iter_mut().zip(CONSTANTS.iter().chain(key)) {
        *row = [*word; L];
    }
    for lane in 0..L {
        let counter = counter.wrapping_add(lane as u64);
        initial[12][lane] = counter as u32;
        initial[13][lane] = (counter >> 32) as u32;
    }
    let mut s = initial;
    for _ in 0..DOUBLE_ROUNDS {
        for [a, b, c, d] in QUARTERS {
            for (add, xor, to, rotate) in [(b, a, d, 16), (d, c, b, 12), (b, a, d, 8), (d, c, b, 7)] {
                // `xor` += `add`; `to` = (`to` ⊕ `xor`) <<< rotate, lane by lane.
                for lane in 0..L {
                    s[xor][lane] = s[xor][lane].wrapping_add(s[add][lane]);
                }
                for lane in 0..L {
                    s[to][lane] = (s[to][lane] ^ s[xor][lane]).rotate_left(rotate);
                }
            }
        }
    }
    for lane in 0..L {
        for i in 0..8 {
            let low = s[2 * i][lane].wrapping_add(initial[2 * i][lane]);
            let high = s[2 * i + 1][lane].wrapping_add(initial[2 * i + 1][lane]);
            out[lane * 8 + i] = u64::from(low) | u64::from(high) << 32;
        }
    }
}

/// Writes the stream from block `first` on.
pub(crate) fn fill(level: Level, key: &[u32; 8], first: u64, out: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    {
        if level.has_avx512() {
            // SAFETY: the level is a witness that the machine has AVX-512.
            return run(key, first, out, |key, at, out| unsafe { x86::blocks16(key, at, out) });
        }
        if level.has_avx2() {
            // SAFETY: the level is a witness that the machine has AVX2.
            return run(key, first, out, |key, at, out: &mut [u64; 64]| unsafe {
                x86::blocks8(key, at, out)
            });
        }
    }
    let _ = level;
    run(key, first, out, |key, at, out: &mut [u64; 32]| blocks::<4>(key, at, out));
}

/// Writes the stream by a generator of `N` words at a time.
#[inline(always)]
fn run<const N: usize>(
    key: &[u32; 8],
    first: u64,
    out: &mut [u64],
    generate: impl Fn(&[u32; 8], u64, &mut [u64; N]),
) {
    let mut at = first;
    let (whole, rest) = out.as_chunks_mut::<N>();
    for chunk in whole {
        generate(key, at, chunk);
        at = at.wrapping_add(N as u64 / 8);
    }
    if rest.len() > 16 {
        let mut last = [0; N];
        generate(key, at, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    } else {
        for chunk in rest.chunks_mut(8) {
            let mut last = [0; 8];
            blocks::<1>(key, at, &mut last);
            chunk.copy_from_slice(&last[..chunk.len()]);
            at = at.wrapping_add(1);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CONSTANTS, DOUBLE_ROUNDS, QUARTERS};
    use std::arch::x86_64::*;

    /// Eight blocks in the lanes of AVX2 vectors.
    #[target_feature(enable = "avx2")]
    pub fn blocks8(key: &[u32; 8], counter: u64, out: &mut [u64; 64]) {
        let counters: [u64; 8] = std::array::from_fn(|lane| counter.wrapping_add(lane as u64));
        let half = |shift: u32| {
            let words: [u32; 8] = std::array::from_fn(|lane| (counters[lane] >> shift) as u32);
            // SAFETY: the array is 32 bytes and the load is unaligned.
            unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
        };
        let mut initial = [_mm256_setzero_si256(); 16];
        for (row, &word) in initial.iter_mut().zip(CONSTANTS.iter().chain(key)) {
            *row = _mm256_set1_epi32(word as i32);
        }
        initial[12] = half(0);
        initial[13] = half(32);
        // Rotations by whole bytes are permutations of bytes.
        let by16 = _mm256_set1_epi64x(0x0504_0706_0100_0302);
        let by16 =
            _mm256_add_epi8(by16, _mm256_set_epi64x(0x0808_0808_0808_0808, 0, 0x0808_0808_0808_0808, 0));
        let by8 = _mm256_set1_epi64x(0x0605_0407_0201_0003);
        let by8 = _mm256_add_epi8(by8, _mm256_set_epi64x(0x0808_0808_0808_0808, 0, 0x0808_0808_0808_0808, 0));
        let by12 = |x| _mm256_or_si256(_mm256_slli_epi32::<12>(x), _mm256_srli_epi32::<20>(x));
        let by7 = |x| _mm256_or_si256(_mm256_slli_epi32::<7>(x), _mm256_srli_epi32::<25>(x));
        let mut s = initial;
        for _ in 0..DOUBLE_ROUNDS {
            for half in [&QUARTERS[..4], &QUARTERS[4..]] {
                for &[a, b, _, d] in half {
                    s[a] = _mm256_add_epi32(s[a], s[b]);
                    s[d] = _mm256_shuffle_epi8(_mm256_xor_si256(s[d], s[a]), by16);
                }
                for &[_, b, c, d] in half {
                    s[c] = _mm256_add_epi32(s[c], s[d]);
                    s[b] = by12(_mm256_xor_si256(s[b], s[c]));
                }
                for &[a, b, _, d] in half {
                    s[a] = _mm256_add_epi32(s[a], s[b]);
                    s[d] = _mm256_shuffle_epi8(_mm256_xor_si256(s[d], s[a]), by8);
                }
                for &[_, b, c, d] in half {
                    s[c] = _mm256_add_epi32(s[c], s[d]);
                    s[b] = by7(_mm256_xor_si256(s[b], s[c]));
                }
            }
        }
        for (word, start) in s.iter_mut().zip(initial) {
            *word = _mm256_add_epi32(*word, start);
        }
        // Transpose: after the two unpackings lane L of quad[4g + r] holds words 4g … 4g+3 of block
        // 4L + r.
        let mut quad = s;
        for g in 0..4 {
            let [a, b, c, d] = [s[4 * g], s[4 * g + 1], s[4 * g + 2], s[4 * g + 3]];
            let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
            quad[4 * g] = _mm256_unpacklo_epi64(ab, cd);
            quad[4 * g + 1] = _mm256_unpackhi_epi64(ab, cd);
            let (ab, cd) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
            quad[4 * g + 2] = _mm256_unpacklo_epi64(ab, cd);
            quad[4 * g + 3] = _mm256_unpackhi_epi64(ab, cd);
        }
        for r in 0..4 {
            for (half, [a, b]) in
                [[quad[r], quad[4 + r]], [quad[8 + r], quad[12 + r]]].into_iter().enumerate()
            {
                let rows = [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)];
                for (l, row) in rows.into_iter().enumerate() {
                    let part = &mut out[(4 * l + r) * 8 + 4 * half..][..4];
                    // SAFETY: `part` is 32 bytes and the store is unaligned.
                    unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), row) };
                }
            }
        }
    }

    /// Sixteen blocks in the lanes of AVX-512 vectors.
    #[target_feature(enable = "avx512f")]
    pub fn blocks16(key: &[u32; 8], counter: u64, out: &mut [u64; 128]) {
        let splat = |word: u32| _mm512_set1_epi32(word as i32);
        let counters: [u64; 16] = std::array::from_fn(|lane| counter.wrapping_add(lane as u64));
        let half = |shift: u32| {
            let words: [u32; 16] = std::array::from_fn(|lane| (counters[lane] >> shift) as u32);
            // SAFETY: the array is 64 bytes and the load is unaligned.
            unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
        };
        let mut initial = [_mm512_setzero_si512(); 16];
        for (row, &word) in initial.iter_mut().zip(CONSTANTS.iter().chain(key)) {
            *row = splat(word);
        }
        initial[12] = half(0);
        initial[13] = half(32);
        let mut s = initial;
        for _ in 0..DOUBLE_ROUNDS {
            for half in [&QUARTERS[..4], &QUARTERS[4..]] {
                // The four quarter rounds are independent: step by step over all of them keeps the
                // ports busy.
                for &[a, b, _, d] in half {
                    s[a] = _mm512_add_epi32(s[a], s[b]);
                    s[d] = _mm512_rol_epi32::<16>(_mm512_xor_si512(s[d], s[a]));
                }
                for &[_, b, c, d] in half {
                    s[c] = _mm512_add_epi32(s[c], s[d]);
                    s[b] = _mm512_rol_epi32::<12>(_mm512_xor_si512(s[b], s[c]));
                }
                for &[a, b, _, d] in half {
                    s[a] = _mm512_add_epi32(s[a], s[b]);
                    s[d] = _mm512_rol_epi32::<8>(_mm512_xor_si512(s[d], s[a]));
                }
                for &[_, b, c, d] in half {
                    s[c] = _mm512_add_epi32(s[c], s[d]);
                    s[b] = _mm512_rol_epi32::<7>(_mm512_xor_si512(s[b], s[c]));
                }
            }
        }
        for (word, start) in s.iter_mut().zip(initial) {
            *word = _mm512_add_epi32(*word, start);
        }
        // Transpose: after the two unpackings lane L of quad[4g + r] holds words 4g … 4g+3 of block
        // 4L + r.
        let mut quad = s;
        for g in 0..4 {
            let [a, b, c, d] = [s[4 * g], s[4 * g + 1], s[4 * g + 2], s[4 * g + 3]];
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            quad[4 * g] = _mm512_unpacklo_epi64(ab, cd);
            quad[4 * g + 1] = _mm512_unpackhi_epi64(ab, cd);
            let (ab, cd) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            quad[4 * g + 2] = _mm512_unpacklo_epi64(ab, cd);
            quad[4 * g + 3] = _mm512_unpackhi_epi64(ab, cd);
        }
        for r in 0..4 {
            let [a, b, c, d] = [quad[r], quad[4 + r], quad[8 + r], quad[12 + r]];
            let (ab_even, ab_odd) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
            let (cd_even, cd_odd) = (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
            let rows = [
                _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even),
                _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd),
                _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even),
                _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd),
            ];
            for (l, row) in rows.into_iter().enumerate() {
                let block = &mut out[(4 * l + r) * 8..][..8];
                // SAFETY: `block` is 64 bytes and the store is unaligned.
                unsafe { _mm512_storeu_si512(block.as_mut_ptr().cast(), row) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_chacha12() {
        use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
        let cases = [(1u8, (1u64 << 32) - 41), (0, 0), (7, 0), (200, 12345)];
        for &(seed, first) in if cfg!(miri) { &cases[..1] } else { &cases } {
            let bytes: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(seed));
            let mut expected = vec![0u8; 40 * 64];
            let mut cipher = chacha20::ChaCha12::new(&bytes.into(), &[0; 12].into());
            cipher.seek(first * 64);
            cipher.apply_keystream(&mut expected);
            let key = std::array::from_fn(|i| u32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap()));
            for level in Level::all() {
                let lengths = [9, 65, 145, 0, 1, 7, 8, 16, 17, 31, 32, 63, 64, 127, 128, 129, 143, 144, 300];
                for &n in if cfg!(miri) { &lengths[..3] } else { &lengths[..] } {
                    let mut out = vec![0u64; n];
                    fill(level, &key, first, &mut out);
                    let found: Vec<u8> = out.iter().flat_map(|w| w.to_le_bytes()).collect();
                    assert!(found == expected[..8 * n], "{} {first} {n}", level.name());
                }
            }
        }
    }

    #[test]
    fn the_counter_has_64_bits() {
        let key = [3; 8];
        let mut expected = [0; 16 * 8];
        for level in Level::all() {
            for start in [(1u64 << 32) - 5, u64::MAX - 4] {
                for (i, block) in expected.chunks_mut(8).enumerate() {
                    fill(Level::PORTABLE, &key, start.wrapping_add(i as u64), block);
                }
                let mut out = [0; 16 * 8];
                fill(level, &key, start, &mut out);
                assert!(out == expected, "{} {start}", level.name());
            }
        }
    }
}
