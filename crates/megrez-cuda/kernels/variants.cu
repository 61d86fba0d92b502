// Slow ways beside the fast ones, for the tables of MIZAR that compare them. No protocol runs these.
#include "word.cuh"

KERNEL masked(const W* x, u64 mask, W* out, u64 n) {
    u64 i = thread_number();
    if (i < n) out[i] = (W)(x[i] & (Wide)mask);
}
EXPORT(masked)

// p is no constant, so that this is a division.
KERNEL divided(const W* x, u64 p, W* out, u64 n) {
    u64 i = thread_number();
    if (i < n) out[i] = (W)(x[i] - x[i] / (Wide)p * (Wide)p);
}
EXPORT(divided)

#if WORD == 32

constexpr u32 LENGTH = 64;
enum { DIVIDE, BARRETT, MERSENNE };

struct Modulus {
    u32 p;
    u32 factor; // ⌊2^32 / p⌋
    u32 bits;   // p = 2^bits − 1
    u32 how;
};

HD u32 reduced(u32 x, const Modulus& m) {
    if (m.how == DIVIDE) return x - x / m.p * m.p;
    u32 rest = m.how == BARRETT ? x - (u32)(((u64)x * m.factor) >> 32) * m.p : (x & m.p) + (x >> m.bits);
    return rest >= m.p ? rest - m.p : rest;
}

// Every sum anew: one thread per element.
KERNEL prefix_naive(const u32* x, Modulus m, u32* out, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    u32 sum = 0;
    for (u64 k = i / LENGTH * LENGTH; k <= i; k++) sum = reduced(sum + x[k], m);
    out[i] = sum;
}
EXPORT(prefix_naive)

// A warp per list, two elements a lane, sums of 1, 2, 4, … lanes.
KERNEL prefix_scan(const u32* x, Modulus m, u32* out, u64 n) {
    u64 i = thread_number() * 2;
    u32 lane = threadIdx.x % 32;
    u32 first = i < n ? x[i] : 0, both = i + 1 < n ? reduced(first + x[i + 1], m) : first;
    u32 sum = both;
#pragma unroll
    for (u32 step = 1; step < 32; step *= 2) {
        u32 left = (u32)from_lane_below(sum, step);
        if (lane >= step) sum = reduced(sum + left, m);
    }
    u32 before = (u32)from_lane_below(sum, 1);
    if (lane == 0) before = 0;
    if (i < n) out[i] = reduced(before + first, m);
    if (i + 1 < n) out[i + 1] = sum;
}
EXPORT(prefix_scan)

#endif
