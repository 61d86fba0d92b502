// Bit planes of elements of Z_2^WORD: plane i holds bit i of n values in ⌈n/64⌉ words. And tables of signs.
#include "word.cuh"

// Transposes two squares of 32×32 bits over a warp, the low halves and the high halves of the lanes' words: bit k of lane
// l's half comes to bit l of lane k's.
HD u64 transpose(u64 x) {
    const u32 lane = threadIdx.x % 32;
    u64 mask = 0x0000ffff0000ffffull;
#pragma unroll
    for (u32 half = 16; half > 0; half /= 2) {
        u64 other = from_lane_xor(x, half);
        x = lane & half ? (x & ~mask) | ((other & ~mask) >> half) : (x & mask) | ((other & mask) << half);
        mask ^= mask << (half / 2);
    }
    return x;
}

// A warp takes this many times 64 values, so that a lane writes 32 bytes of its plane in one go.
constexpr u32 TURNS = 4;

// Planes from, …, from + count − 1. One thread per eight values, a warp per 256.
KERNEL bit_planes(const W* x, u32 from, u32 count, u64* out, u64 n, u64 words) {
    const u32 lane = threadIdx.x % 32;
    const u64 first = thread_number() / 32 * TURNS;
    u64 low[TURNS], high[TURNS];
#pragma unroll
    for (u32 t = 0; t < TURNS; t++) {
        u64 half[2];
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u64 i = (first + t) * 64 + h * 32 + lane;
            half[h] = transpose(i < n ? (u64)x[i] >> from : 0);
        }
        low[t] = (half[0] & 0xffffffffull) | half[1] << 32;
        high[t] = half[0] >> 32 | (half[1] & 0xffffffff00000000ull);
    }
#pragma unroll
    for (u32 t = 0; t < TURNS; t++) {
        if (first + t >= words) continue;
        if (lane < count) out[lane * words + first + t] = low[t];
        if (lane + 32 < count) out[(lane + 32) * words + first + t] = high[t];
    }
}
EXPORT(bit_planes)

KERNEL join_planes(const u64* x, u32 planes, W* out, u64 n, u64 words) {
    const u32 lane = threadIdx.x % 32;
    const u64 first = thread_number() / 32 * TURNS;
    u64 low[TURNS], high[TURNS];
#pragma unroll
    for (u32 t = 0; t < TURNS; t++) {
        bool inside = first + t < words;
        low[t] = inside && lane < planes ? x[lane * words + first + t] : 0;
        high[t] = inside && lane + 32 < planes ? x[(lane + 32) * words + first + t] : 0;
    }
#pragma unroll
    for (u32 t = 0; t < TURNS; t++) {
        u64 half[2] = {(low[t] & 0xffffffffull) | high[t] << 32, low[t] >> 32 | (high[t] & 0xffffffff00000000ull)};
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u64 value = transpose(half[h]), i = (first + t) * 64 + h * 32 + lane;
            if (i < n) out[i] = (W)value;
        }
    }
}
EXPORT(join_planes)

// See Device::sign_table. One thread per bit of whole 64-bit words.
KERNEL sign_table(const W* masks, const u64* bits, u32 cut, u32 width, u32* out, u64 n) {
    u64 at = thread_number(), value = at >> (width - 1), entry = at & ((1ull << (width - 1)) - 1);
    bool inside = value < n;
    u64 difference = inside ? entry - ((u64)masks[value] >> cut) : 0;
    u32 sign = inside ? (u32)(difference >> (width - 1) & 1) ^ bit_at(bits, value) : 0;
    u32 gathered = gather_bits(sign);
    if (at % 32 == 0 && at < ((n << (width - 1)) + 63) / 64 * 64) out[at / 32] = gathered;
}
EXPORT(sign_table)

// See Device::look_up_sign. One thread per value of whole 64-bit words; every entry is read, whatever is wanted.
KERNEL look_up_sign(const W* masked, const u64* table, u32 cut, u32 width, u32 j, u32* out, u64 n) {
    const u64 v = thread_number();
    const u64 entries = 1ull << (width - 1);
    u32 found = 0;
    if (v < n) {
        u64 m = (u64)masked[v] >> cut, wanted = m & (entries - 1);
        found = (u32)(m >> (width - 1)) & (j == 0);
        u64 at = v * entries;
        if (entries < 64) {
            found ^= (u32)(table[at / 64] >> (at % 64 + wanted)) & 1;
        } else {
            for (u64 w = 0; w < entries / 64; w++)
                found ^= (u32)(table[at / 64 + w] >> (wanted % 64)) & (w == wanted / 64);
        }
    }
    u32 gathered = gather_bits(found);
    if (v % 32 == 0 && v < (n + 63) / 64 * 64) out[v / 32] = gathered;
}
EXPORT(look_up_sign)
