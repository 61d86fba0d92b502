// Streams and packed bits.
#include "chacha.cuh"
#include "view.cuh"

struct alignas(16) Quad {
    u32 word[4];
};

// The first `bits` bits of a stream, then zeros to the end of the last block. One thread makes one block of 64 bytes;
// the blocks of a warp go through shared memory so that it writes 512 contiguous bytes at a time. The exclusive or with
// lane / 2 spreads accesses over the banks.
KERNEL keystream(Key key, Quad* out, u64 bits) {
    SHARED Quad staged[8][128];
    u64 block = thread_number(), blocks = (bits + 511) / 512;
    u32 lane = threadIdx.x % 32;
    Quad(&mine)[128] = staged[threadIdx.x / 32];
    u32 s[16];
    chacha(key, block, s);
    if (block + 1 == blocks && bits % 512 != 0) {
        u32 kept = (u32)(bits % 512);
#pragma unroll
        for (u32 i = 0; i < 16; i++) {
            if (kept <= 32 * i) s[i] = 0;
            else if (kept < 32 * i + 32) s[i] &= (1u << (kept % 32)) - 1;
        }
    }
#pragma unroll
    for (u32 q = 0; q < 4; q++)
        mine[lane * 4 + (q ^ (lane / 2 % 4))] = Quad{{s[4 * q], s[4 * q + 1], s[4 * q + 2], s[4 * q + 3]}};
    sync_warp();
    u64 first = block - lane;
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
        u32 b = r * 8 + lane / 4, q = lane % 4;
        if (first + b < blocks) out[(first + b) * 4 + q] = mine[b * 4 + (q ^ (b / 2 % 4))];
    }
}
EXPORT(keystream)

struct Inputs {
    const u64* x[8];
    u32 count;
    u32 unused;
};

KERNEL exclusive_or(Inputs inputs, u64 start, u64* out, u64 n, u64 words) {
    u64 i = thread_number();
    if (i >= words) return;
    u64 word = start;
#pragma unroll
    for (u32 k = 0; k < 8; k++)
        if (k < inputs.count) word ^= inputs.x[k][i];
    if (i == n / 64) word &= (1ull << (n % 64)) - 1;
    out[i] = word;
}
EXPORT(exclusive_or)

KERNEL both(const u64* a, const u64* b, u64* out, u64 words) {
    u64 i = thread_number();
    if (i < words) out[i] = a[i] & b[i];
}
EXPORT(both)

// One thread per bit of whole 64-bit words.
KERNEL view_bits(const u64* x, View view, u32* out, u64 n) {
    u64 i = thread_number();
    u32 bits = gather_bits(i < n && bit_at(x, view_index(view, i, n)));
    if (i % 32 == 0 && i < (n + 63) / 64 * 64) out[i / 32] = bits;
}
EXPORT(view_bits)
