// AES-128 (FIPS 197) under public keys, two blocks a thread, by planes of bits: there are no tables, so no address depends
// on a block. The S-box is the circuit of Boyar and Peralta ("A small depth-16 circuit for the AES S-box", SEC 2012), of 128
// gates.
#pragma once
#include "common.cuh"

// 128 bits, of which byte i is the i-th of AES's block.
struct alignas(16) Block {
    u64 low, high;
};

HD Block operator^(const Block& a, const Block& b) { return {a.low ^ b.low, a.high ^ b.high}; }
HD Block operator&(const Block& a, u64 mask) { return {a.low & mask, a.high & mask}; }

constexpr u32 ROUNDS = 10;
// Words of the round keys of one key: eight planes each.
constexpr u32 ROUND_KEYS = 8 * (ROUNDS + 1);

// Changes the bits of `a` under `mask` << n for those of `b` under `mask`.
HD void change_bits(u32& a, u32& b, u32 mask, u32 n) {
    u32 both = (a >> n ^ b) & mask;
    b ^= both, a ^= both << n;
}

// From eight words to planes and back. Words 0 to 3 are the columns of one block, 4 to 7 those of the other. Bit 8·row +
// 4·block + column of plane b is bit b of the byte there.
HD void turn(u32 (&x)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; i += 2) change_bits(x[i], x[i + 1], 0x55555555, 1);
#pragma unroll
    for (u32 i = 0; i < 8; i++)
        if ((i & 2) == 0) change_bits(x[i], x[i + 2], 0x33333333, 2);
#pragma unroll
    for (u32 i = 0; i < 4; i++) change_bits(x[i], x[i + 4], 0x0f0f0f0f, 4);
}

HD void substitute(u32 (&x)[8]) {
    u32 x0 = x[7], x1 = x[6], x2 = x[5], x3 = x[4], x4 = x[3], x5 = x[2], x6 = x[1], x7 = x[0];
    // Linear, to a tower of fields.
    u32 y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, t0 = x1 ^ x2, y1 = t0 ^ x7, y4 = y1 ^ x3;
    u32 y12 = y13 ^ y14, y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8, t1 = x4 ^ y12, y15 = t1 ^ x5, y20 = t1 ^ x1;
    u32 y6 = y15 ^ x7, y10 = y15 ^ t0, y11 = y20 ^ y9, y7 = x7 ^ y11, y17 = y10 ^ y11, y19 = y10 ^ y8;
    u32 y16 = t0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16;
    // The inverse.
    u32 t2 = y12 & y15, t4 = (y3 & y6) ^ t2, t6 = (y4 & x7) ^ t2, t7 = y13 & y16, t9 = (y5 & y1) ^ t7;
    u32 t11 = (y2 & y7) ^ t7, t12 = y9 & y11, t14 = (y14 & y17) ^ t12, t16 = (y8 & y10) ^ t12;
    u32 t21 = t4 ^ t14 ^ y20, t22 = t6 ^ t16 ^ y19, t23 = t9 ^ t14 ^ y21, t24 = t11 ^ t16 ^ y18;
    u32 t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t29 = (t25 & t27) ^ t22, t30 = t23 ^ t24;
    u32 t33 = ((t22 ^ t26) & t30) ^ t24, t34 = t23 ^ t33, t36 = t24 & (t27 ^ t33), t37 = t36 ^ t34;
    u32 t40 = t25 ^ (t29 & (t27 ^ t36)), t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37;
    u32 t45 = t42 ^ t41;
    u32 z0 = t44 & y15, z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7, z6 = t42 & y11;
    u32 z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4, z12 = t43 & y13;
    u32 z13 = t40 & y5, z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8;
    // Linear, back, with the affine map of the S-box.
    u32 t46 = z15 ^ z16, t47 = z10 ^ z11, t48 = z5 ^ z13, t49 = z9 ^ z10, t50 = z2 ^ z12, t51 = z2 ^ z5, t52 = z7 ^ z8;
    u32 t53 = z0 ^ z3, t54 = z6 ^ z7, t55 = z16 ^ z17, t56 = z12 ^ t48, t57 = t50 ^ t53, t58 = z4 ^ t46, t59 = z3 ^ t54;
    u32 t60 = t46 ^ t57, t61 = z14 ^ t57, t62 = t52 ^ t58, t63 = t49 ^ t58, t64 = z4 ^ t59, t65 = t61 ^ t62;
    u32 t66 = z1 ^ t63, t67 = t64 ^ t65, s3 = t53 ^ t66;
    x[7] = t59 ^ t63, x[6] = t64 ^ ~s3, x[5] = t55 ^ ~t67, x[4] = s3;
    x[3] = t51 ^ t66, x[2] = t47 ^ t65, x[1] = t56 ^ ~t62, x[0] = t48 ^ ~t60;
}

HD void shift_rows(u32 (&x)[8]) {
#pragma unroll
    for (u32 b = 0; b < 8; b++) {
        u32 p = x[b];
        x[b] = (p & 0x000000ff) | (p >> 1 & 0x00007700) | (p << 3 & 0x00008800) | (p >> 2 & 0x00330000) |
               (p << 2 & 0x00cc0000) | (p >> 3 & 0x11000000) | (p << 1 & 0xee000000);
    }
}

HD void mix_columns(u32 (&x)[8]) {
    u32 next[8], sum[8];
#pragma unroll
    for (u32 b = 0; b < 8; b++) next[b] = x[b] >> 8 | x[b] << 24, sum[b] = x[b] ^ next[b];
#pragma unroll
    for (u32 b = 0; b < 8; b++) {
        u32 doubled = b == 0 ? sum[7] : b == 1 || b == 3 || b == 4 ? sum[b - 1] ^ sum[7] : sum[b - 1];
        x[b] = doubled ^ next[b] ^ (sum[b] >> 16 | sum[b] << 16);
    }
}

// Both blocks under the key that `keys` are the round keys of.
HD void encrypt(const u32* keys, Block& a, Block& b) {
    u32 x[8] = {(u32)a.low, (u32)(a.low >> 32), (u32)a.high, (u32)(a.high >> 32),
                (u32)b.low, (u32)(b.low >> 32), (u32)b.high, (u32)(b.high >> 32)};
    turn(x);
#pragma unroll
    for (u32 p = 0; p < 8; p++) x[p] ^= keys[p];
#pragma unroll 1
    for (u32 round = 1; round <= ROUNDS; round++) {
        substitute(x);
        shift_rows(x);
        if (round < ROUNDS) mix_columns(x);
#pragma unroll
        for (u32 p = 0; p < 8; p++) x[p] ^= keys[8 * round + p];
    }
    turn(x);
    a = {x[0] | (u64)x[1] << 32, x[2] | (u64)x[3] << 32};
    b = {x[4] | (u64)x[5] << 32, x[6] | (u64)x[7] << 32};
}

// The round keys of a key, as planes for both blocks.
HD void expand(Block key, u32* keys) {
    u32 word[4] = {(u32)key.low, (u32)(key.low >> 32), (u32)key.high, (u32)(key.high >> 32)}, constant = 1;
#pragma unroll 1
    for (u32 round = 0; round <= ROUNDS; round++) {
        u32 planes[8];
#pragma unroll
        for (u32 c = 0; c < 8; c++) planes[c] = word[c % 4];
        turn(planes);
#pragma unroll
        for (u32 p = 0; p < 8; p++) keys[8 * round + p] = planes[p];
        u32 last[8] = {word[3] >> 8 | word[3] << 24};
        turn(last), substitute(last), turn(last);
        word[0] ^= last[0] ^ constant;
        word[1] ^= word[0], word[2] ^= word[1], word[3] ^= word[2];
        constant = constant == 0x80 ? 0x1b : constant << 1;
    }
}
