// The ring Z_2^WORD.
#pragma once
#include "common.cuh"

#if WORD == 8
typedef u8 W;
typedef u32 Wide;
#elif WORD == 16
typedef u16 W;
typedef u32 Wide;
#elif WORD == 32
typedef u32 W;
typedef u32 Wide;
#else
typedef u64 W;
typedef u64 Wide;
#endif

// Arithmetic runs in Wide, which is unsigned even after promotion, and is cut to W when stored.
HD Wide top_bit(Wide x) { return (x >> (WORD - 1)) & 1; }

// Elements move 16 bytes at a time: every buffer is padded to a multiple of 64 bytes.
constexpr u32 LANES = 16 / sizeof(W);
struct alignas(16) Vec {
    W at[LANES];
};
