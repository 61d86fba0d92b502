// A worker's masked bit list with a kernel for every step and every intermediate in device memory, a byte per element, as a
// library of operators would make it: the same numbers as masked_list in list.cu. No protocol runs this; benches compare.
// Compiled per list: WORD, PRIME, WIDTH and LENGTH = WIDTH, one entry per bit.
#include "chacha.cuh"
#include "field.cuh"
#include "word.cuh"

// `offset` is added to every sample. One thread per block of the stream.
template <u32 BOUND> HD void sampled(const Key& key, u32 offset, u8* out, u64 n) {
    constexpr u32 PER_DRAW = per_draw_of<BOUND>();
    u64 block = thread_number();
    if (block * 4 * PER_DRAW >= n) return;
    u32 words[16];
    chacha(key, block, words);
    for (u32 d = 0; d < 4; d++) {
        u8 values[PER_DRAW];
        split_draw<BOUND>(words + 4 * d, values);
        u64 first = (block * 4 + d) * PER_DRAW;
#pragma unroll
        for (u32 i = 0; i < PER_DRAW; i++)
            if (first + i < n) out[first + i] = (u8)(values[i] + offset);
    }
}

KERNEL sample_elements(Key key, u8* out, u64 n) { sampled<PRIME>(key, 0, out, n); }
EXPORT(sample_elements)
KERNEL sample_multipliers(Key key, u8* out, u64 n) { sampled<PRIME - 1>(key, 1, out, n); }
EXPORT(sample_multipliers)
KERNEL sample_rotations(Key key, u8* out, u64 n) { sampled<LENGTH>(key, 0, out, n); }
EXPORT(sample_rotations)

// One thread per word of the wire.
KERNEL unpack(const u64* x, u8* out, u64 n) {
    constexpr u32 PER_WORD = digits_of<PRIME>();
    u64 word = thread_number();
    if (word * PER_WORD >= n) return;
    u8 values[PER_WORD];
    unpack_word<PRIME>(x[word], values);
#pragma unroll
    for (u32 i = 0; i < PER_WORD; i++)
        if (word * PER_WORD + i < n) out[word * PER_WORD + i] = values[i];
}
EXPORT(unpack)

KERNEL pack(const u8* x, u64* out, u64 n) {
    constexpr u32 PER_WORD = digits_of<PRIME>();
    u64 word = thread_number();
    if (word * PER_WORD >= n) return;
    u8 values[PER_WORD];
#pragma unroll
    for (u32 i = 0; i < PER_WORD; i++) {
        u64 at = word * PER_WORD + i;
        values[i] = at < n ? x[at] : 0;
    }
    out[word] = pack_word<PRIME>(values);
}
EXPORT(pack)

// From here one thread per entry of a list, n entries in all.

// Bit `at % LENGTH` of the masked value, most significant first; the last entry's is zero.
HD u32 bit_of(const W* masked, u32 cut, u64 at) {
    u32 i = (u32)(at % LENGTH);
    return i == LENGTH - 1 ? 0 : (u32)((u64)masked[at / LENGTH] >> cut >> (LENGTH - 2 - i)) & 1;
}

// [m_i ≠ ρ_i] from the shares of ρ.
KERNEL differences(u32 j, const W* masked, u32 cut, const u8* share, u8* out, u64 n) {
    u64 at = thread_number();
    if (at >= n) return;
    u32 i = (u32)(at % LENGTH), one = j == 0;
    u32 rho = i == LENGTH - 1 ? one : share[at / LENGTH * (LENGTH - 1) + i];
    u32 s = bit_of(masked, cut, at) ? one + PRIME - rho : rho;
    out[at] = (u8)(s % PRIME);
}
EXPORT(differences)

KERNEL sums_before(const u8* x, u8* out, u64 n) {
    u64 at = thread_number();
    if (at >= n) return;
    u32 sum = 0;
    for (u64 k = at / LENGTH * LENGTH; k < at; k++) sum = (sum + x[k]) % PRIME;
    out[at] = (u8)sum;
}
EXPORT(sums_before)

KERNEL entries(u32 j, const W* masked, u32 cut, const u64* flips, const u8* sums, const u8* differences, u8* out, u64 n) {
    u64 at = thread_number();
    if (at >= n) return;
    u32 one = j == 0, sign = (u32)((u64)masked[at / LENGTH] >> cut >> (WIDTH - 1) & 1) ^ bit_at(flips, at / LENGTH);
    u32 t = sums[at] + PRIME - differences[at] + one + (sign ^ bit_of(masked, cut, at)) * one;
    out[at] = (u8)(t % PRIME);
}
EXPORT(entries)

KERNEL scale(const u8* x, const u8* factors, u8* out, u64 n) {
    u64 at = thread_number();
    if (at < n) out[at] = (u8)((u32)x[at] * factors[at] % PRIME);
}
EXPORT(scale)

KERNEL add_zero_shares(u32 j, const u8* x, const u8* zeros, u8* out, u64 n) {
    u64 at = thread_number();
    if (at < n) out[at] = (u8)((x[at] + (j == 0 ? zeros[at] : PRIME - zeros[at])) % PRIME);
}
EXPORT(add_zero_shares)

KERNEL rotate_lists(const u8* x, const u8* rotations, u8* out, u64 n) {
    u64 at = thread_number();
    if (at >= n) return;
    u64 list = at / LENGTH;
    out[list * LENGTH + (at % LENGTH + rotations[list]) % LENGTH] = x[at];
}
EXPORT(rotate_lists)
