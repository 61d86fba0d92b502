// The masked lists of the comparison with a dealer, each local step in one pass. Compiled per list: WORD, PRIME, WIDTH
// (bits compared, λ), LENGTH (entries per value), DEALT (dealt elements per value), DIGITS (widths, most significant
// first) unless there is one entry per bit, and the sizes of tiles and of their shared memory, which the launcher needs
// too. The entries' arithmetic is stated in megrez-kernels' reference.
//
// A block works on a tile of values. Streams and packed words don't align with values, so it first spreads samples and
// unpacked digits over rows in shared memory, one row per value; then each thread turns the rows of a value into its
// list; then each thread packs words of the wire.
#include "chacha.cuh"
#include "field.cuh"
#include "word.cuh"

constexpr u32 PER_WORD = digits_of<PRIME>();
constexpr u32 THREADS = 128;
// Bytes before and after each array of rows: what reaches over a tile's ends lands there.
constexpr u32 SLACK = 64;

// The bytes from row to row: an odd number of 32-bit words where that is possible, so that the threads of a warp, each at
// the same place of its own row, hit different banks. A run of samples must not span more than two padded rows.
HD constexpr u32 stride_of(u32 row) {
    u32 longest = maximum(PER_WORD, maximum(per_draw_of<PRIME>(), per_draw_of<PRIME - 1>()));
    return row < longest ? row : (row + 3) / 4 % 2 == 1 ? (row + 3) / 4 * 4 : (row + 3) / 4 * 4 + 4;
}

template <u32 ROW> struct Rows {
    static constexpr u32 STRIDE = stride_of(ROW);
    HD static constexpr u32 bytes(u32 values) { return (2 * SLACK + values * STRIDE + 15) / 16 * 16; }
    u8* at;

    // Elements `start` … of the tile; `start` may be negative by less than a row or, without padding, than SLACK.
    template <u32 COUNT> HD void spread(const u8 (&values)[COUNT], i32 start) const {
        if constexpr (STRIDE == ROW) {
            u8* to = at + start;
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) to[i] = values[i];
        } else {
            i32 row = (start + (i32)ROW) / (i32)ROW - 1;
            u32 left = (u32)((row + 1) * (i32)ROW - start);
            u8* to = at + start + row * (i32)(STRIDE - ROW);
            u8* next = to + (STRIDE - ROW);
#pragma unroll
            for (u32 i = 0; i < COUNT; i++) (i < left ? to : next)[i] = values[i];
        }
    }

    // Whether as many elements, a multiple of four, can be written by words: rows then begin at words, and so many
    // elements break at one row's end at most and stay within the slack.
    HD static constexpr bool by_words(u32 elements) {
        return ROW % 4 == 0 && STRIDE % 4 == 0 && elements + 8 <= SLACK && (STRIDE == ROW || elements + 4 <= ROW);
    }

    // As `spread`, by words; `start` may be negative by less than a row.
    template <u32 COUNT> HD void spread_words(const u8 (&values)[COUNT], i32 start) const {
        const u32 shift = (u32)start % 4;
        const i32 first = start - (i32)shift, row = (first + (i32)ROW) / (i32)ROW - 1;
        u8* to = at + first;
        u32 left = ~0u;
        if constexpr (STRIDE != ROW) {
            to += row * (i32)(STRIDE - ROW);
            left = (u32)((row + 1) * (i32)ROW - first);
        }
        u8* next = to + (STRIDE - ROW);
        u32 before = 0;
#pragma unroll
        for (u32 w = 0; w <= COUNT / 4; w++) {
            u32 packed = 0;
            if (w < COUNT / 4) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) packed |= (u32)values[4 * w + i] << (8 * i);
            }
            u32 word = (u32)((((u64)packed << 32 | before) << (8 * shift)) >> 32);
            u8* here = (4 * w < left ? to : next) + 4 * w;
            if (w > 0 && w < COUNT / 4) {
                *(u32*)here = word;
            } else {
                // The rest of these words is written by others.
#pragma unroll
                for (u32 i = 0; i < 4; i++)
                    if ((i >= shift) == (w == 0)) here[i] = (u8)(word >> (8 * i));
            }
            before = packed;
        }
    }

    // Four elements from place q of a row, q a multiple of four; what lies past the row's end means nothing.
    HD u32 four(u32 row, u32 q) const {
        const u8* from = at + row * STRIDE + q;
        if constexpr (STRIDE % 4 == 0) return *(const u32*)from;
        u32 x = 0;
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            if (q + i < ROW) x |= (u32)from[i] << (8 * i);
        return x;
    }

    HD void set_four(u32 row, u32 q, u32 x) const {
        u8* to = at + row * STRIDE + q;
        if constexpr (STRIDE % 4 == 0) {
            *(u32*)to = x;
        } else {
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                if (q + i < ROW) to[i] = (u8)(x >> (8 * i));
        }
    }
};

// The elements of a row in order, four at a time from shared memory and back.
template <u32 ROW> struct Each {
    const Rows<ROW>& rows;
    u32 row, q = 0, four = 0, done = 0;

    HD u32 next() {
        if (q % 4 == 0) four = rows.four(row, q), done = 0;
        return byte_of(four, q++ % 4);
    }

    // Puts x in the place of the element that came last.
    HD void replace(u32 x) {
        const u32 last = q - 1;
        done |= x << (8 * (last % 4));
        if (last % 4 == 3 || q == ROW) rows.set_four(row, last / 4 * 4, done);
    }
};

// Which blocks of a stream hold the samples of a tile.
template <u32 BOUND> struct Samples {
    static constexpr u32 PER_DRAW = per_draw_of<BOUND>(), PER_BLOCK = 4 * PER_DRAW;
    u64 first_block;
    u32 blocks;
    i32 start; // of the first block, in samples of the tile
    u32 count;

    HD Samples(u64 first, u32 n) {
        first_block = first / PER_BLOCK;
        start = -(i32)(first - first_block * PER_BLOCK);
        count = n;
        blocks = n == 0 ? 0 : ((u32)-start + n - 1) / PER_BLOCK + 1;
    }

    template <u32 ROW> HD void spread(const u32 (&words)[16], u32 block, const Rows<ROW>& rows) const {
        u8 all[PER_BLOCK];
#pragma unroll
        for (u32 d = 0; d < 4; d++) {
            i32 at = start + (i32)(block * PER_BLOCK + d * PER_DRAW);
            u8 values[PER_DRAW];
            if constexpr (Rows<ROW>::by_words(PER_BLOCK)) {
                split_draw<BOUND>(words + 4 * d, values);
#pragma unroll
                for (u32 i = 0; i < PER_DRAW; i++) all[d * PER_DRAW + i] = values[i];
            } else {
                if (at <= -(i32)PER_DRAW || at >= (i32)count) continue;
                split_draw<BOUND>(words + 4 * d, values);
                rows.spread(values, at);
            }
        }
        if constexpr (Rows<ROW>::by_words(PER_BLOCK)) rows.spread_words(all, start + (i32)(block * PER_BLOCK));
    }
};

constexpr u64 LOW = (~0ull >> (64 - WIDTH)) >> 1;

// ---- what the dealer deals ----

static_assert(DEAL_TILE * DEALT % PER_WORD == 0, "a tile's words belong to no other tile");
static_assert(DEAL_SHARED == Rows<DEALT>::bytes(DEAL_TILE), "the launcher counts as the kernel does");

#ifdef DIGITS
constexpr u32 DEALT_UNROLL = DEALT <= 256 ? 64 : 1;
#endif

// [secret − element] for every dealt element of a value, in place.
HD void subtract_from_secrets(u64 rho, const Rows<DEALT>& rows, u32 row) {
    Each<DEALT> share = {rows, row};
#ifndef DIGITS
#pragma unroll 8
    for (u32 i = 0; i < WIDTH - 1; i++) {
        u32 x = (u32)(rho >> (WIDTH - 2 - i) & 1) + PRIME - share.next();
        share.replace(x >= PRIME ? x - PRIME : x);
    }
#else
    constexpr u32 widths[LENGTH] = {DIGITS};
    u32 left = WIDTH - 1;
#pragma unroll DEALT_UNROLL
    for (u32 d = 0; d < LENGTH; d++) {
        left -= widths[d];
        u32 count = (1u << widths[d]) - 1, digit = (u32)(rho >> left) & count;
#pragma unroll
        for (u32 q = 0; q < count; q++) {
            u32 x = (u32)(q == digit) + PRIME - share.next();
            share.replace(x >= PRIME ? x - PRIME : x);
        }
    }
#endif
}

// Whether −x is negative in WIDTH bits, without the negation: of 16 bits, ptxas 13.0 makes `-x < 0` into `x > 0`, which
// is wrong where nothing but the sign is set.
HD bool negated_is_negative(u64 x) { return (((x >> (WIDTH - 1)) & 1) != 0) != ((x & LOW) != 0); }

// Blocks from `tiles` on pack the signs, 64 to a word.
KERNEL_BOUNDED(THREADS, 5) deal_list(const W* masks, u32 cut, Key other, u64* shares, u32* signs, u64 n, u32 tiles) {
    if (blockIdx.x >= tiles) {
        u64 i = (u64)(blockIdx.x - tiles) * THREADS + threadIdx.x;
        u32 bits = gather_bits(i < n && negated_is_negative((u64)masks[i] >> cut));
        if (i % 32 == 0 && i < (n + 63) / 64 * 64) signs[i / 32] = bits;
        return;
    }
    DYNAMIC_SHARED(shared);
    Rows<DEALT> rows = {shared + SLACK};
    u64 first = (u64)blockIdx.x * DEAL_TILE;
    u32 count = (u32)(n - first < DEAL_TILE ? n - first : DEAL_TILE);
    Samples<PRIME> samples(first * DEALT, count * DEALT);
    for (u32 b = threadIdx.x; b < samples.blocks; b += THREADS) {
        u32 words[16];
        chacha(other, samples.first_block + b, words);
        samples.spread(words, b, rows);
    }
    sync_block();
    for (u32 v = threadIdx.x; v < count; v += THREADS)
        subtract_from_secrets((((u64)masks[first + v] >> cut) - 1) & LOW, rows, v);
    sync_block();
    u32 words = (count * DEALT + PER_WORD - 1) / PER_WORD;
    for (u32 w = threadIdx.x; w < words; w += THREADS) {
        u32 v = w * PER_WORD / DEALT, q = w * PER_WORD % DEALT;
        u8 elements[PER_WORD];
#pragma unroll
        for (u32 i = 0; i < PER_WORD; i++) {
            elements[i] = v < count ? rows.at[v * rows.STRIDE + q] : 0;
            if (++q == DEALT) q = 0, v++;
        }
        shares[first * DEALT / PER_WORD + w] = pack_word<PRIME>(elements);
    }
}
EXPORT(deal_list)

// ---- the workers' lists ----

static_assert(LIST_TILE * LENGTH % PER_WORD == 0, "a tile's words belong to no other tile");
static_assert(LIST_SHARED == 2 * Rows<LENGTH>::bytes(LIST_TILE) + Rows<DEALT>::bytes(LIST_TILE) + Rows<1>::bytes(LIST_TILE),
              "the launcher counts as the kernel does");
// With one entry there is nothing to rotate.
constexpr u32 TURNS = LENGTH < 2 ? 2 : LENGTH;

// Takes entries in order, scales and masks them and leaves them in place of the multipliers. Entries are at most
// 126·128 + 5·128, multipliers at most 126: sums stay far below 2^32 and are reduced once.
struct Masking {
    Rows<LENGTH> multiplier, zero;
    u32 row, j;
    u32 scale, mask, done;

    HD void entry(u32 q, u32 value) {
        const u32 byte = q % 4;
        if (byte == 0) {
            scale = multiplier.four(row, q);
            mask = zero.four(row, q);
            done = 0;
        }
        u32 z = byte_of(mask, byte);
        z = j == 0 ? z : PRIME - z;
        // The multiplier's sample is below p − 1: one more is never zero.
        done |= (value * (byte_of(scale, byte) + 1) + z) % PRIME << (8 * byte);
        if (byte == 3 || q == LENGTH - 1) multiplier.set_four(row, q / 4 * 4, done);
    }
};

HD void make_entries(u32 j, u64 m, u32 flip, const Rows<DEALT>& share, Masking& out) {
    const u32 one = j == 0;
    const u32 sign = (u32)(m >> (WIDTH - 1) & 1) ^ flip;
#ifndef DIGITS
    // Sums are not reduced on the way: they are at most 64·(p + 1).
    u32 sum = 0;
    Each<DEALT> dealt = {share, out.row};
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) {
        const bool last = i == WIDTH - 1;
        u32 bit = last ? 0 : (u32)(m >> (last ? 0 : WIDTH - 2 - i)) & 1;
        u32 rho = last ? one : dealt.next();
        u32 s = bit ? one + PRIME - rho : rho;
        out.entry(i, sum + 2 * PRIME - s + one + (sign ^ bit) * one);
        sum += s;
    }
#else
    constexpr u32 widths[LENGTH] = {DIGITS};
    Each<DEALT> dealt = {share, out.row};
    u32 left = WIDTH - 1, unequal = 0;
#pragma unroll DEALT_UNROLL
    for (u32 d = 0; d < LENGTH; d++) {
        left -= widths[d];
        const u32 count = (1u << widths[d]) - 1;
        u32 digit = (u32)(m >> left) & count, all = 0, below = 0, equal = 0;
#pragma unroll
        for (u32 q = 0; q < count; q++) {
            u32 e = dealt.next();
            all += e;
            below += q < digit ? e : 0;
            equal = q == digit ? e : equal;
        }
        equal = (digit == count ? one + PRIME * 256 - all : equal) % PRIME;
        u32 greater = below % PRIME, less_or_equal = one + PRIME - greater;
        u32 direction = sign ? greater : d == LENGTH - 1 ? less_or_equal : less_or_equal + PRIME - equal;
        out.entry(d, unequal + one + 3 * PRIME - direction);
        unequal += one + PRIME - equal;
    }
#endif
}

// Of the multipliers, the zero-shares, the dealt elements and the rotations.
struct Streams {
    Key key[4];
};

// `packed` holds the worker's share of the dealt elements; if it is null they come from their stream.
KERNEL_BOUNDED(THREADS, 6)
masked_list(u32 j, const W* masked, u32 cut, const u64* packed, const u64* flips, Streams streams, u64* out, u64 n) {
    DYNAMIC_SHARED(shared);
    const Rows<LENGTH> multiplier = {shared + SLACK};
    const Rows<LENGTH> zero = {shared + Rows<LENGTH>::bytes(LIST_TILE) + SLACK};
    const Rows<DEALT> share = {shared + 2 * Rows<LENGTH>::bytes(LIST_TILE) + SLACK};
    const Rows<1> rotation = {shared + 2 * Rows<LENGTH>::bytes(LIST_TILE) + Rows<DEALT>::bytes(LIST_TILE) + SLACK};
    const u64 first = (u64)blockIdx.x * LIST_TILE;
    const u32 count = (u32)(n - first < LIST_TILE ? n - first : LIST_TILE);

    const Samples<PRIME - 1> multipliers(first * LENGTH, count * LENGTH);
    const Samples<PRIME> zeros(first * LENGTH, count * LENGTH);
    const Samples<PRIME> shares(first * DEALT, packed ? 0 : count * DEALT);
    const Samples<TURNS> rotations(first, LENGTH < 2 ? 0 : count);
    // A thread takes blocks of any stream: what is not known when this is compiled is found in shared memory.
    SHARED Key keys[4];
#pragma unroll
    for (u32 i = 0; i < 32; i++)
        if (threadIdx.x == i) keys[i / 8].word[i % 8] = streams.key[i / 8].word[i % 8];
    sync_block();
    const u32 to_zeros = multipliers.blocks, to_shares = to_zeros + zeros.blocks;
    const u32 to_rotations = to_shares + shares.blocks;
    for (u32 b = threadIdx.x; b < to_rotations + rotations.blocks; b += THREADS) {
        u32 words[16];
        u32 stream = 0, block = b;
        u64 from = multipliers.first_block;
        if (b >= to_zeros) stream = 1, block = b - to_zeros, from = zeros.first_block;
        if (b >= to_shares) stream = 2, block = b - to_shares, from = shares.first_block;
        if (b >= to_rotations) stream = 3, block = b - to_rotations, from = rotations.first_block;
        chacha(keys[stream], from + block, words);
        if (stream == 0) multipliers.spread(words, block, multiplier);
        else if (stream == 1) zeros.spread(words, block, zero);
        else if (stream == 2) shares.spread(words, block, share);
        else rotations.spread(words, block, rotation);
    }
    if (LENGTH < 2)
        for (u32 v = threadIdx.x; v < count; v += THREADS) rotation.at[v] = 0;
    if (packed) {
        const u64 from = first * DEALT / PER_WORD, to = (first * DEALT + count * DEALT + PER_WORD - 1) / PER_WORD;
        const i32 start = -(i32)(first * DEALT - from * PER_WORD);
        for (u32 w = threadIdx.x; w < (u32)(to - from); w += THREADS) {
            u8 elements[PER_WORD];
            unpack_word<PRIME>(packed[from + w], elements);
            share.spread(elements, start + (i32)(w * PER_WORD));
        }
    }
    sync_block();

    for (u32 v = threadIdx.x; v < LIST_TILE; v += THREADS) {
        if (v >= count) {
            // The last word may reach into these rows.
            for (u32 q = 0; q < LENGTH; q++) multiplier.at[v * multiplier.STRIDE + q] = 0;
            rotation.at[v] = 0;
            continue;
        }
        Masking masking = {multiplier, zero, v, j, 0, 0, 0};
        u64 m = ((u64)masked[first + v] >> cut) & (LOW << 1 | 1);
        make_entries(j, m, bit_at(flips, first + v), share, masking);
    }
    sync_block();

    // Entry q of a value goes to place (q + rotation) mod LENGTH of its list.
    const u32 words = (count * LENGTH + PER_WORD - 1) / PER_WORD;
    for (u32 w = threadIdx.x; w < words; w += THREADS) {
        u32 v = w * PER_WORD / LENGTH, place = w * PER_WORD % LENGTH;
        const u8* row = multiplier.at + v * multiplier.STRIDE;
        u32 turn = rotation.at[v];
        u8 elements[PER_WORD];
#pragma unroll
        for (u32 i = 0; i < PER_WORD; i++) {
            // Below zero is above everything.
            u32 q = place - turn;
            elements[i] = row[minimum(q, q + LENGTH)];
            if (++place == LENGTH) place = 0, turn = rotation.at[++v], row += multiplier.STRIDE;
        }
        out[first * LENGTH / PER_WORD + w] = pack_word<PRIME>(elements);
    }
}
EXPORT(masked_list)

// ---- the dealer's answer ----

constexpr u32 SCAN_THREADS = 256;
static_assert(SCAN_TILE % SCAN_THREADS == 0, "every thread takes as many values");
// Whole values before a word that starts before the tile.
constexpr u32 BEFORE = (PER_WORD + LENGTH - 1) / LENGTH;

KERNEL_BOUNDED(SCAN_THREADS, 4) scan_lists(const u64* a, const u64* b, u32* out, u64 n) {
    SHARED u32 found[SCAN_TILE + 1];
    for (u32 v = threadIdx.x; v <= SCAN_TILE; v += SCAN_THREADS) found[v] = 0;
    sync_block();
    const u64 first = (u64)blockIdx.x * SCAN_TILE;
    const u32 count = (u32)(n - first < SCAN_TILE ? n - first : SCAN_TILE);
    const u64 from = first * LENGTH / PER_WORD, to = (first * LENGTH + count * LENGTH + PER_WORD - 1) / PER_WORD;
    const u32 start = BEFORE * LENGTH - (u32)(first * LENGTH - from * PER_WORD);
    for (u32 w = threadIdx.x; w < (u32)(to - from); w += SCAN_THREADS) {
        u8 x[PER_WORD], y[PER_WORD];
        unpack_word<PRIME>(a[from + w], x);
        unpack_word<PRIME>(b[from + w], y);
        u64 zeros = 0;
#pragma unroll
        for (u32 i = 0; i < PER_WORD; i++) {
            u32 sum = (u32)x[i] + y[i];
            zeros |= (u64)(sum == 0 || sum == PRIME) << i;
        }
        // Every value that the word touches is written, zero or not: the zero's place must not show in the time it
        // takes. What lies outside the tile goes to the slot behind it.
        const u32 v = (start + w * PER_WORD) / LENGTH - BEFORE, place = (start + w * PER_WORD) % LENGTH;
        if (LENGTH >= PER_WORD) {
            const u32 left = minimum(LENGTH - place, PER_WORD);
            atomic_or(&found[minimum(v, SCAN_TILE)], (zeros & ((1ull << left) - 1)) != 0);
            atomic_or(&found[minimum(v + 1, SCAN_TILE)], zeros >> left != 0);
        } else {
            zeros <<= place;
#pragma unroll
            for (u32 k = 0; k < (LENGTH + PER_WORD - 2) / LENGTH + 1; k++) {
                atomic_or(&found[minimum(v + k, SCAN_TILE)], (zeros & ((1ull << minimum(LENGTH, 63)) - 1)) != 0);
                zeros >>= minimum(LENGTH, 63);
            }
        }
    }
    sync_block();
    for (u32 v = threadIdx.x; v < SCAN_TILE; v += SCAN_THREADS) {
        u32 bits = gather_bits(v < count && !found[v]);
        u64 i = first + v;
        if (v % 32 == 0 && i < (n + 63) / 64 * 64) out[i / 32] = bits;
    }
}
EXPORT(scan_lists)
