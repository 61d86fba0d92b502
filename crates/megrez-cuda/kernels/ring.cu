// Element-by-element work on Z_2^WORD, and what leads from ring elements to packed bits and back.
#include "word.cuh"

struct Terms {
    const Vec* x[8];
    u64 factor[8];
    u32 count;
    u32 unused;
};

struct Products {
    const Vec* x[4];
    const Vec* y[4];
    u64 factor[4];
    u32 count;
    u32 unused;
};

HD void add_terms(const Terms& terms, u64 i, Wide (&sum)[LANES]) {
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        if (k < terms.count) {
            Vec x = terms.x[k][i];
#pragma unroll
            for (u32 l = 0; l < LANES; l++) sum[l] += (Wide)terms.factor[k] * x.at[l];
        }
    }
}

HD void store(Vec* out, u64 i, const Wide (&value)[LANES]) {
    Vec v;
#pragma unroll
    for (u32 l = 0; l < LANES; l++) v.at[l] = (W)value[l];
    out[i] = v;
}

KERNEL combine(Terms terms, u64 constant, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    Wide sum[LANES];
#pragma unroll
    for (u32 l = 0; l < LANES; l++) sum[l] = (Wide)constant;
    add_terms(terms, i, sum);
    store(out, i, sum);
}
EXPORT(combine)

KERNEL products(Products products, Terms terms, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    Wide sum[LANES] = {};
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        if (k < products.count) {
            Vec x = products.x[k][i], y = products.y[k][i];
#pragma unroll
            for (u32 l = 0; l < LANES; l++) sum[l] += (Wide)products.factor[k] * ((Wide)x.at[l] * y.at[l]);
        }
    }
    add_terms(terms, i, sum);
    store(out, i, sum);
}
EXPORT(products)

KERNEL shift_right(const Vec* x, u32 k, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    Vec v = x[i];
#pragma unroll
    for (u32 l = 0; l < LANES; l++) v.at[l] = (W)((Wide)v.at[l] >> k);
    out[i] = v;
}
EXPORT(shift_right)

// The sum over the middle dimension, one thread per output.
KERNEL sum_columns(const W* x, u64 axis, u64 inner, W* out, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    const W* from = x + i / inner * axis * inner + i % inner;
    Wide sum = 0;
    for (u64 a = 0; a < axis; a++) sum += from[a * inner];
    out[i] = (W)sum;
}
EXPORT(sum_columns)

// The sum over the last dimension, one warp per output.
KERNEL sum_rows(const W* x, u64 axis, W* out, u64 n) {
    u64 row = thread_number() / 32;
    u32 lane = threadIdx.x % 32;
    if (row >= n) return;
    u64 sum = 0;
    for (u64 a = lane; a < axis; a += 32) sum += x[row * axis + a];
    for (u32 step = 16; step > 0; step /= 2) sum += from_lane_xor(sum, step);
    if (lane == 0) out[row] = (W)sum;
}
EXPORT(sum_rows)

// A warp takes 32·SIGNS elements, so that as many loads are under way; bits past the n-th come out as zero.
constexpr u32 SIGNS = 8;
KERNEL msb(const W* x, u32* out, u64 n) {
    const u32 lane = threadIdx.x % 32;
    const u64 first = thread_number() / 32 * 32 * SIGNS, words = (n + 63) / 64 * 2;
    bool top[SIGNS];
#pragma unroll
    for (u32 s = 0; s < SIGNS; s++) {
        u64 i = first + s * 32 + lane;
        top[s] = i < n && top_bit(x[i]);
    }
    u32 mine = 0;
#pragma unroll
    for (u32 s = 0; s < SIGNS; s++) {
        u32 bits = gather_bits(top[s]);
        if (lane == s) mine = bits;
    }
    if (lane < SIGNS && first / 32 + lane < words) out[first / 32 + lane] = mine;
}
EXPORT(msb)

// Row terms[k] of `rows` counts where plane 2k of `signs` says so, and is subtracted where plane 2k + 1 does.
KERNEL signed_sum(const W* base, const W* rows, const u64* terms, u64 count, const u64* signs, W* out, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    const u64 words = (n + 63) / 64;
    const u64* plane = signs + i / 64;
    Wide sum = base[i];
    for (u64 k = 0; k < count; k++, plane += 2 * words) {
        const Wide counts = (Wide)(plane[0] >> i % 64 & 1), minus = (Wide)(plane[words] >> i % 64 & 1);
        const Wide x = (Wide)rows[terms[k] * n + i] & (0 - counts);
        sum += (x ^ (0 - minus)) + minus;
    }
    out[i] = (W)sum;
}
EXPORT(signed_sum)

KERNEL bit_times(const u64* bits, const Vec* x, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    u64 set = bits[i * LANES / 64] >> (i * LANES % 64);
    Vec v;
    if (x) {
        v = x[i];
    } else {
#pragma unroll
        for (u32 l = 0; l < LANES; l++) v.at[l] = 1;
    }
#pragma unroll
    for (u32 l = 0; l < LANES; l++) v.at[l] = (W)(v.at[l] * (Wide)((set >> l) & 1));
    out[i] = v;
}
EXPORT(bit_times)

// One thread per 64-bit word of the dense form.
KERNEL pack_low(const W* x, u32 width, u64* out, u64 n, u64 words) {
    u64 w = thread_number();
    if (w >= words) return;
    u64 mask = ~0ull >> (64 - width), word = 0, start = w * 64;
    u64 i = start / width;
    i32 at = (i32)(i * width - start);
    for (; at < 64 && i < n; i++, at += (i32)width) {
        u64 value = x[i] & mask;
        word |= at < 0 ? value >> -at : value << at;
    }
    out[w] = word;
}
EXPORT(pack_low)

KERNEL unpack_low(const u64* x, u32 width, Vec* out, u64 n, u64 vectors) {
    u64 vector = thread_number();
    if (vector >= vectors) return;
    Vec v;
#pragma unroll
    for (u32 l = 0; l < LANES; l++) {
        u64 i = vector * LANES + l, word = i * width / 64, value = 0;
        u32 shift = (u32)(i * width % 64);
        if (i < n) {
            value = x[word] >> shift;
            if (shift + width > 64) value |= x[word + 1] << (64 - shift);
        }
        v.at[l] = (W)(value & (~0ull >> (64 - width)));
    }
    out[vector] = v;
}
EXPORT(unpack_low)

// (m' >> f) − 2^(ℓ−2−f) and (1 − msb m')·2^(ℓ−f) for m' = m + 2^(ℓ−2): the public summand and the factor of [b].
HD void truncated(W m, u32 f, Wide& shifted, Wide& factor) {
    W moved = (W)(m + ((Wide)1 << (WORD - 2)));
    shifted = ((Wide)moved >> f) - ((Wide)1 << (WORD - 2 - f));
    factor = ((Wide)1 - top_bit(moved)) << (WORD - f);
}

KERNEL open_truncated(u32 j, u32 f, const Vec* masked, const Vec* high, const Vec* top, const Vec* mask, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    Vec m = masked[i], h = high[i], t = top[i], r = mask[i], v;
    Wide first = j == 0;
#pragma unroll
    for (u32 l = 0; l < LANES; l++) {
        Wide shifted, factor;
        truncated(m.at[l], f, shifted, factor);
        v.at[l] = (W)(first * shifted - h.at[l] + factor * t.at[l] + r.at[l]);
    }
    out[i] = v;
}
EXPORT(open_truncated)

// (1 − msb m')·[b] + [u]; the low f bits count, whatever f is.
KERNEL truncation_carry(const Vec* masked, const Vec* top, const Vec* mask, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    Vec m = masked[i], t = top[i], u = mask[i], v;
#pragma unroll
    for (u32 l = 0; l < LANES; l++) {
        W moved = (W)(m.at[l] + ((Wide)1 << (WORD - 2)));
        v.at[l] = (W)(((Wide)1 - top_bit(moved)) * t.at[l] + u.at[l]);
    }
    out[i] = v;
}
EXPORT(truncation_carry)

KERNEL close_truncated(u32 f, const Vec* masked, const Vec* a, const Vec* b, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i >= vectors) return;
    Vec m = masked[i], x = a[i], y = b[i], v;
#pragma unroll
    for (u32 l = 0; l < LANES; l++) {
        Wide shifted, factor;
        truncated(m.at[l], f, shifted, factor);
        v.at[l] = (W)(shifted + (((Wide)x.at[l] + y.at[l]) << (WORD - f)));
    }
    out[i] = v;
}
EXPORT(close_truncated)

struct Selected {
    const Vec* masked;
    const Vec* mask; // [r], or [R] with a truncation
    const u64* choice;
    const u64* flip; // may be null
    const Vec* bit;
    const Vec* mask_bit;
    const Vec* top;     // [b] and
    const Vec* top_bit; // [b·a], null without a truncation
    const Vec* output_mask;
};

// See Device::open_selected. Both forms are one formula: a plain selection has factor 0 and public part m.
template <bool TRUNCATE> HD void select(u32 j, u32 f, const Selected& s, Vec* out, u64 i) {
    u64 chosen = s.choice[i * LANES / 64] >> (i * LANES % 64);
    u64 flipped = s.flip ? s.flip[i * LANES / 64] >> (i * LANES % 64) : 0;
    Vec m = s.masked[i], r = s.mask[i], a = s.bit[i], ra = s.mask_bit[i], z = s.output_mask[i], b = {}, ba = {}, v;
    if (TRUNCATE) b = s.top[i], ba = s.top_bit[i];
    Wide first = j == 0;
#pragma unroll
    for (u32 l = 0; l < LANES; l++) {
        Wide choice = (chosen >> l) & 1, delta = (flipped >> l) & 1;
        Wide epsilon = (Wide)1 - 2 * delta;
        Wide sigma = first * delta + epsilon * a.at[l];
        Wide shown = m.at[l], factor = 0;
        if (TRUNCATE) truncated(m.at[l], f, shown, factor);
        Wide value = first * shown - r.at[l];
        Wide value_sigma = shown * sigma - (delta * r.at[l] + epsilon * ra.at[l]);
        if (TRUNCATE) {
            value += factor * b.at[l];
            value_sigma += factor * (delta * b.at[l] + epsilon * ba.at[l]);
        }
        v.at[l] = (W)(choice * value + ((Wide)1 - 2 * choice) * value_sigma + z.at[l]);
    }
    out[i] = v;
}

KERNEL open_selected(u32 j, Selected s, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i < vectors) select<false>(j, 0, s, out, i);
}
EXPORT(open_selected)

KERNEL open_selected_truncated(u32 j, u32 f, Selected s, Vec* out, u64 vectors) {
    u64 i = thread_number();
    if (i < vectors) select<true>(j, f, s, out, i);
}
EXPORT(open_selected_truncated)
