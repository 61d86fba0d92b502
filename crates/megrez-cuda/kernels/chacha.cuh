// ChaCha12 in counter mode with a zero nonce, as megrez-prg defines it.
#pragma once
#include "common.cuh"

struct Key {
    u32 word[8];
};

HD u32 rotate(u32 x, u32 n) { return x << n | x >> (32 - n); }

HD void quarter(u32& a, u32& b, u32& c, u32& d) {
    a += b, d = rotate(d ^ a, 16);
    c += d, b = rotate(b ^ c, 12);
    a += b, d = rotate(d ^ a, 8);
    c += d, b = rotate(b ^ c, 7);
}

// Block `counter` of the stream, sixteen 32-bit words.
HD void chacha(const Key& key, u64 counter, u32 (&s)[16]) {
    s[0] = 0x61707865, s[1] = 0x3320646e, s[2] = 0x79622d32, s[3] = 0x6b206574;
#pragma unroll
    for (u32 i = 0; i < 8; i++) s[4 + i] = key.word[i];
    s[12] = (u32)counter, s[13] = (u32)(counter >> 32), s[14] = 0, s[15] = 0;
#pragma unroll
    for (u32 round = 0; round < 6; round++) {
        quarter(s[0], s[4], s[8], s[12]);
        quarter(s[1], s[5], s[9], s[13]);
        quarter(s[2], s[6], s[10], s[14]);
        quarter(s[3], s[7], s[11], s[15]);
        quarter(s[0], s[5], s[10], s[15]);
        quarter(s[1], s[6], s[11], s[12]);
        quarter(s[2], s[7], s[8], s[13]);
        quarter(s[3], s[4], s[9], s[14]);
    }
    s[0] += 0x61707865, s[1] += 0x3320646e, s[2] += 0x79622d32, s[3] += 0x6b206574;
#pragma unroll
    for (u32 i = 0; i < 8; i++) s[4 + i] += key.word[i];
    s[12] += (u32)counter, s[13] += (u32)(counter >> 32);
}
