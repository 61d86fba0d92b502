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

// Bits of an operand for `count` lanes from `lane` on: element i of those with `lanes` lanes each, or its one bit for
// all.
HD u64 lanes_at(const u64* x, u64 i, u64 lanes, u64 all, u64 lane, u32 count) {
    if (lanes < all) return 0 - (u64)bit_at(x, i);
    u64 at = i * lanes + lane;
    u32 shift = (u32)(at % 64);
    u64 low = x[at / 64] >> shift;
    return shift + count > 64 ? low | x[at / 64 + 1] << (64 - shift) : low;
}

// Products of matrices of bits: bit (b, i, j, l) is the exclusive or over k of x(b, i, k, l) and y(b, k, j, l); an
// operand has a bit for every lane l, or one for all. One thread makes a word, row by row of the lanes in it.
KERNEL bit_product(const u64* x, const u64* y, u64* out, u64 n, u64 rows, u64 inner, u64 columns, u64 of_x, u64 of_y) {
    u64 word = thread_number(), from = word * 64;
    if (from >= n) return;
    u64 end = from + 64 < n ? from + 64 : n, lanes = of_x > of_y ? of_x : of_y, made = 0;
    for (u64 at = from; at < end;) {
        u64 row = at / lanes, lane = at % lanes, j = row % columns, i = row / columns % rows;
        u64 batch = row / columns / rows, left = lanes - lane < end - at ? lanes - lane : end - at;
        u32 count = (u32)left;
        u64 sum = 0;
        for (u64 k = 0; k < inner; k++)
            sum ^= lanes_at(x, (batch * rows + i) * inner + k, of_x, lanes, lane, count) &
                   lanes_at(y, (batch * inner + k) * columns + j, of_y, lanes, lane, count);
        made |= (sum & (~0ull >> (64 - count))) << (at - from);
        at += count;
    }
    out[word] = made;
}
EXPORT(bit_product)
