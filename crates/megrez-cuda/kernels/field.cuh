// F_p with p < 128: the dense wire form and bounded sampling, as megrez-ring and megrez-prg define them. Bounds are
// template parameters, so that every division is by a constant.
#pragma once
#include "common.cuh"

HD constexpr u64 power(u64 base, u32 exponent) { return exponent == 0 ? 1 : base * power(base, exponent - 1); }

// The largest k with base^k at most `limit`.
HD constexpr u32 exponent_within(u64 base, u64 limit) {
    u32 k = 0;
    for (u64 rest = limit; rest >= base; rest /= base) k++;
    return k;
}

// Digits are peeled in groups that fit 31 bits, so that most arithmetic is on 32-bit words.
template <u32 BOUND> HD constexpr u32 group_of() { return exponent_within(BOUND, 1ull << 31); }

// Elements per 64-bit word of the wire.
template <u32 P> HD constexpr u32 digits_of() { return exponent_within(P, ~0ull); }
// Samples per 128-bit draw.
template <u32 BOUND> HD constexpr u32 per_draw_of() { return exponent_within(BOUND, 1ull << 56); }

// The base-BOUND digits of x < BOUND^COUNT, most significant first.
template <u32 BOUND, u32 COUNT> HD void peel(u32 x, u8* out) {
#pragma unroll
    for (u32 i = COUNT; i-- > 0;) {
        u32 quotient = x / BOUND;
        out[i] = (u8)(x - quotient * BOUND);
        x = quotient;
    }
}

// The elements of one word of the wire, each below P whatever the word holds.
template <u32 P> HD void unpack_word(u64 word, u8 (&out)[digits_of<P>()]) {
    constexpr u32 GROUP = group_of<P>(), FULL = digits_of<P>() / GROUP, REST = digits_of<P>() % GROUP;
#pragma unroll
    for (u32 g = 0; g < FULL; g++) {
        u64 quotient = word / power(P, GROUP);
        peel<P, GROUP>((u32)(word - quotient * power(P, GROUP)), out + digits_of<P>() - (g + 1) * GROUP);
        word = quotient;
    }
    if constexpr (REST > 0) peel<P, REST>((u32)(word % power(P, REST)), out);
}

// One word of the wire from its elements, the first most significant.
template <u32 P> HD u64 pack_word(const u8 (&in)[digits_of<P>()]) {
    constexpr u32 GROUP = group_of<P>(), FULL = digits_of<P>() / GROUP, REST = digits_of<P>() % GROUP;
    u64 word = 0;
    if constexpr (REST > 0) {
#pragma unroll
        for (u32 i = 0; i < REST; i++) word = word * P + in[i];
    }
#pragma unroll
    for (u32 g = 0; g < FULL; g++) {
        u32 part = 0;
#pragma unroll
        for (u32 i = 0; i < GROUP; i++) part = part * P + in[REST + g * GROUP + i];
        word = word * power(P, GROUP) + part;
    }
    return word;
}

template <u32 BOUND, u32 COUNT> HD void take(u32 (&fraction)[4], u8* out) {
    u64 carry = 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        carry = (u64)fraction[i] * (u32)power(BOUND, COUNT) + (carry >> 32);
        fraction[i] = (u32)carry;
    }
    peel<BOUND, COUNT>((u32)(carry >> 32), out);
}

// The samples of one draw of 128 bits, lowest 32 bits first. Multiplying the fraction by BOUND^g gives g samples as one
// integer: the same integers as g multiplications by BOUND.
template <u32 BOUND> HD void split_draw(const u32* draw, u8 (&out)[per_draw_of<BOUND>()]) {
    constexpr u32 GROUP = group_of<BOUND>(), FULL = per_draw_of<BOUND>() / GROUP, REST = per_draw_of<BOUND>() % GROUP;
    u32 fraction[4] = {draw[0], draw[1], draw[2], draw[3]};
#pragma unroll
    for (u32 g = 0; g < FULL; g++) take<BOUND, GROUP>(fraction, out + g * GROUP);
    if constexpr (REST > 0) take<BOUND, REST>(fraction, out + FULL * GROUP);
}
