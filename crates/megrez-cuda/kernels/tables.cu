// Tables of functions by pieces. Word i of entry q of value e stands at (q·width + i)·n + e.
#include "word.cuh"

constexpr u32 WIDEST = 4;

// A function of `segments` pieces of `width` coefficients.
struct Table {
    u32 cut, low, segments, width;
};

HD u32 high_of(const Table& f, Wide x) { return (u32)((u64)x >> (f.cut + f.low)) & (f.segments - 1); }
HD Wide low_of(const Table& f, Wide x) { return (Wide)((u64)x >> f.cut & ((1ull << f.low) - 1)); }

// The dealer's entry q of value e: the piece of segment q − r_h, moved by r_l. All pieces are read for it, so that no
// address depends on the mask.
KERNEL lookup_tables(Table f, const W* pieces, const W* masks, W* tables, u64 n) {
    u64 i = thread_number();
    if (i >= n * f.segments) return;
    u64 e = i % n, q = i / n;
    Wide r = masks[e], c[WIDEST] = {};
    const u32 wanted = ((u32)q - high_of(f, r)) & (f.segments - 1);
    for (u32 h = 0; h < f.segments; h++) {
        Wide taken = 0 - (Wide)(h == wanted);
#pragma unroll
        for (u32 k = 0; k < WIDEST; k++)
            if (k < f.width) c[k] |= pieces[h * f.width + k] & taken;
    }
    // Coefficients beyond the piece's are zeros, and stay so.
    Wide by = 0 - low_of(f, r);
#pragma unroll
    for (u32 k = 1; k < WIDEST; k++)
#pragma unroll
        for (u32 at = WIDEST - 1; at-- > k - 1;) c[at] += by * c[at + 1];
#pragma unroll
    for (u32 k = 0; k < WIDEST; k++)
        if (k < f.width) tables[(q * f.width + k) * n + e] = (W)c[k];
}
EXPORT(lookup_tables)

KERNEL open_looked_up(Table f, const W* masked, const W* tables, const W* output_mask, W* out, u64 n) {
    u64 e = thread_number();
    if (e >= n) return;
    Wide m = masked[e], low = low_of(f, m), sum = 0;
    const W* entry = tables + (u64)high_of(f, m) * f.width * n + e;
    for (u32 k = f.width; k-- > 0;) sum = sum * low + entry[k * n];
    out[e] = (W)(sum + output_mask[e]);
}
EXPORT(open_looked_up)
