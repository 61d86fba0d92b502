//! ChaCha12 in counter mode: the portable implementation.

const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

fn quarter(s: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    s[a] = s[a].wrapping_add(s[b]);
    s[d] = (s[d] ^ s[a]).rotate_left(16);
    s[c] = s[c].wrapping_add(s[d]);
    s[b] = (s[b] ^ s[c]).rotate_left(12);
    s[a] = s[a].wrapping_add(s[b]);
    s[d] = (s[d] ^ s[a]).rotate_left(8);
    s[c] = s[c].wrapping_add(s[d]);
    s[b] = (s[b] ^ s[c]).rotate_left(7);
}

/// One block of 64 bytes as eight little-endian words; 64-bit counter, zero nonce.
pub(crate) fn block(key: &[u32; 8], counter: u64) -> [u64; 8] {
    let mut initial = [0u32; 16];
    initial[..4].copy_from_slice(&CONSTANTS);
    initial[4..12].copy_from_slice(key);
    initial[12] = counter as u32;
    initial[13] = (counter >> 32) as u32;
    let mut s = initial;
    for _ in 0..6 {
        quarter(&mut s, 0, 4, 8, 12);
        quarter(&mut s, 1, 5, 9, 13);
        quarter(&mut s, 2, 6, 10, 14);
        quarter(&mut s, 3, 7, 11, 15);
        quarter(&mut s, 0, 5, 10, 15);
        quarter(&mut s, 1, 6, 11, 12);
        quarter(&mut s, 2, 7, 8, 13);
        quarter(&mut s, 3, 4, 9, 14);
    }
    std::array::from_fn(|i| {
        let low = s[2 * i].wrapping_add(initial[2 * i]);
        let high = s[2 * i + 1].wrapping_add(initial[2 * i + 1]);
        u64::from(low) | u64::from(high) << 32
    })
}

/// Writes the stream from `first` on.
pub(crate) fn fill(key: &[u32; 8], first: u64, out: &mut [u64]) {
    for (i, chunk) in out.chunks_mut(8).enumerate() {
        let words = block(key, first.wrapping_add(i as u64));
        chunk.copy_from_slice(&words[..chunk.len()]);
    }
}
