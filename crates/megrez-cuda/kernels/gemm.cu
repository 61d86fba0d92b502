// Products of matrices and images over Z_2^WORD.
//
// On the tensor cores an element is WORD / 8 signed bytes ("limbs", balanced base-256 digits); limb products are summed
// per diagonal s = i + j in 32 bits and joined as Σ 2^(8s)·sum_s. Diagonals s ≥ 4 may wrap, since only their low bits
// count; the others don't while a launch sums over at most 32767 elements: 4·32767·2^14 < 2^31.
//
// A step is 32 elements along the sum: 32 bytes of each limb of a row, in two halves. Limbs lie in memory as they are
// copied in: of the left operand, a row's step in a run; of the right one, for eight rows a step's parts (the halves of
// limbs) one after the other, in each of which the rows have 16 bytes. Short rows are filled with zeros.
#include "word.cuh"

#if WORD >= 32

constexpr u32 LIMBS = WORD / 8;
// Bytes of one row for one step.
constexpr u32 STEP = LIMBS * 32;

// Four elements' limbs: byte i of limb l is limb l of element i.
HD void split_limbs(const Wide (&x)[4], u32 (&limbs)[LIMBS]) {
    const Wide offset = (Wide)0x8080808080808080ull;
#pragma unroll
    for (u32 l = 0; l < LIMBS; l++) limbs[l] = 0;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        Wide digits = (x[i] + offset) ^ offset;
#pragma unroll
        for (u32 l = 0; l < LIMBS; l++) limbs[l] |= (u32)(digits >> (8 * l) & 255) << (8 * i);
    }
}

// Four elements of the step of a row, whose parts are `part` bytes apart.
HD void store_limbs(u8* step, u32 part, u32 quarter, const Wide (&x)[4]) {
    u32 limbs[LIMBS];
    split_limbs(x, limbs);
#pragma unroll
    for (u32 l = 0; l < LIMBS; l++) *(u32*)(step + (2 * l + quarter / 4) * part + quarter % 4 * 4) = limbs[l];
}

// Where a row's step lies in a right operand.
HD u8* right_step(u8* out, u64 row, u32 steps, u64 step) {
    return out + (row / 8 * steps + step) * 8 * STEP + row % 8 * 16;
}

// Limbs of `rows` rows of k elements, filled to padded_rows rows; one thread per four elements.
KERNEL limbs_of_rows(const W* x, u8* out, u64 rows, u64 padded_rows, u64 k, u32 steps, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    u32 quarter = (u32)(i % 8);
    u64 step = i / 8 % steps, row = i / 8 / steps, batch = row / padded_rows, at = row % padded_rows;
    Wide four[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        u64 column = step * 32 + quarter * 4 + e;
        four[e] = at < rows && column < k ? x[(batch * rows + at) * k + column] : 0;
    }
    store_limbs(out + (row * steps + step) * STEP, 16, quarter, four);
}
EXPORT(limbs_of_rows)

// Limbs of the columns of k×n matrices. Those of a right operand, without groups, or of a left one: there matrix z goes
// to image z / groups, and in it to group z % groups, `steps` steps of every row. Rows of the output from n on, up to
// padded_rows, are zero.
KERNEL_BOUNDED(256, 4)
limbs_of_columns(const W* x, u8* out, u64 k, u64 n, u64 padded_rows, u32 steps, u32 groups, u32 first) {
    SHARED W tile[32][33];
    const u64 z = first + blockIdx.z, step = blockIdx.y, left = (u64)blockIdx.x * 32;
    const u32 lane = threadIdx.x % 32;
    for (u32 r = threadIdx.x / 32; r < 32; r += 8) {
        u64 row = step * 32 + r, column = left + lane;
        tile[r][lane] = row < k && column < n ? x[(z * k + row) * n + column] : 0;
    }
    sync_block();
    const u32 column = threadIdx.x / 8, quarter = threadIdx.x % 8;
    if (left + column >= padded_rows) return;
    Wide four[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++) four[e] = tile[quarter * 4 + e][column];
    if (groups == 0) {
        store_limbs(right_step(out, z * padded_rows + left + column, steps, step), 128, quarter, four);
    } else {
        u64 row = z / groups * padded_rows + left + column;
        store_limbs(out + ((row * groups + z % groups) * steps + step) * STEP, 16, quarter, four);
    }
}
EXPORT(limbs_of_columns)

// Limbs of convolution weights OIHW, per group, filled to padded_rows output channels; the sum runs over taps, then over
// channels in steps of 32. One thread per four elements.
KERNEL limbs_of_weights(const W* w, u8* out, u32 per_group, u32 padded_rows, u32 channels, u32 taps, u32 blocks, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    u32 quarter = (u32)(i % 8), block = (u32)(i / 8 % blocks);
    u64 rest = i / 8 / blocks;
    u32 tap = (u32)(rest % taps), row = (u32)(rest / taps % padded_rows);
    u64 group = rest / taps / padded_rows;
    Wide four[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++) {
        u32 channel = block * 32 + quarter * 4 + e;
        bool inside = row < per_group && channel < channels;
        four[e] = inside ? w[((group * per_group + row) * channels + channel) * taps + tap] : 0;
    }
    u64 rows = group * padded_rows + row;
    store_limbs(right_step(out, rows, taps * blocks, tap * blocks + block), 128, quarter, four);
}
EXPORT(limbs_of_weights)

// A block of two groups of four warps makes ROWS×COLUMNS outputs, a warp 16×64: the tensor cores are at their best with 64
// columns. Of 64 bits there are twice as many diagonals as a group has registers for: both groups make the same outputs,
// each half of the diagonals and of the products. Of 32 bits each group makes 64 rows.
constexpr u32 ROWS = WORD == 64 ? 64 : 128, COLUMNS = 64, ACROSS = COLUMNS / 8;
constexpr u32 DIAGONALS = 4; // of a group
// Which diagonals a group has, and where: 1 + 2 + 7 + 8 and 3 + 4 + 5 + 6 products.
HD constexpr bool has_diagonal(u32 group, u32 s) { return WORD != 64 || (group == 0) == (s < 2 || s > 5); }
HD constexpr u32 place_of_diagonal(u32 s) { return WORD != 64 || s < 2 ? s : s > 5 ? s - 4 : s - 2; }
constexpr u32 STAGES = GEMM_STAGES;
// A stage holds the rows' 32 bytes of every limb on the left, and 32 bytes more, so that the limbs of one row hit
// different banks; on the right the rows' 16 bytes of every part: eight rows are 128 bytes in a run, as the tensor cores
// read them.
constexpr u32 LEFT_LIMB = ROWS * 32 + 32, RIGHT_PART = COLUMNS * 16;
constexpr u32 STAGE = LIMBS * (LEFT_LIMB + 2 * RIGHT_PART);
static_assert(GEMM_SHARED == STAGES * STAGE && GEMM_ROWS == ROWS && GEMM_COLUMNS == COLUMNS, "as the launcher has it");
// How many steps ahead of its use a stage is filled.
constexpr u32 AHEAD = GEMM_GROUPS ? STAGES - 2 : STAGES - 1;
static_assert(AHEAD > 0, "a stage is filled before it is used");

struct Problem {
    const u8* left;
    const u8* right;
    W* out;
    u64 left_batch, right_batch, out_batch; // from batch to batch: bytes, bytes, elements
    u32 rows, columns, steps;
    u32 steps_per_split, splits;
    u32 first_batch;
    // A convolution: its rows are the output's pixels over all images, its left limbs those of the input's pixels.
    u32 height, width, pixels, out_width;
    u32 kernel_width, channel_blocks, groups;
    i32 stride[2], pad[2], dilation[2];
    u32 channels_out;
};

// The 16 bytes `half` of a row of 32: rows four apart change halves, so that eight rows hit all banks.
HD u32 place_of(u32 row, u32 half) { return row * 32 + ((half ^ (row / 4 % 2)) * 16); }

struct Pixel {
    i32 y, x; // where the window starts
    u64 image; // its first pixel
};

// The copies of one step to a stage, 16 bytes a thread at a time; of a step that there is not, zeros.
template <bool CONV> struct Copies {
    static constexpr u32 AT_ONCE = 256 / (2 * LIMBS), OF_LEFT = ROWS / AT_ONCE, COUNT = OF_LEFT + COLUMNS / AT_ONCE;
    const Problem& p;
    const u8 *left, *right;
    const Pixel* window;
    u8* stage;
    u32 step, block;
    bool is;
    i32 dy, dx;

    HD Copies(const Problem& p, const u8* left, const u8* right, const Pixel* window, u8* stage, u32 step, bool is)
        : p(p), left(left), right(right), window(window), stage(stage), step(step), block(0), is(is), dy(0), dx(0) {
        if (CONV) {
            u32 tap = step / p.channel_blocks;
            block = step - tap * p.channel_blocks;
            u32 tap_row = tap / p.kernel_width;
            dy = (i32)tap_row * p.dilation[0], dx = (i32)(tap - tap_row * p.kernel_width) * p.dilation[1];
        }
    }

    HD void start(u32 i) const {
        if (i < OF_LEFT) {
            const u32 part = threadIdx.x % (2 * LIMBS), row = threadIdx.x / (2 * LIMBS) + i * AT_ONCE;
            u8* to = stage + part / 2 * LEFT_LIMB + place_of(row, part % 2);
            if (CONV) {
                Pixel at = window[row];
                i32 y = at.y + dy, x = at.x + dx;
                bool inside = is && (u32)y < p.height && (u32)x < p.width;
                u64 pixel = inside ? at.image + (u64)((u32)y * p.width + (u32)x) : 0;
                copy_async(to, left + (pixel * p.groups * p.channel_blocks + block) * STEP + part * 16, inside);
            } else {
                copy_async(to, left + ((u64)row * p.steps + step) * STEP + part * 16, is);
            }
        } else {
            u32 at = threadIdx.x + (i - OF_LEFT) * 256, eight = at / (16 * LIMBS), piece = at % (16 * LIMBS);
            u8* to = stage + LIMBS * LEFT_LIMB + piece / 8 * RIGHT_PART + eight * 128 + piece % 8 * 16;
            copy_async(to, right + ((u64)eight * p.steps + step) * 8 * STEP + piece * 16, is);
        }
    }

    // Those of one of `parts`.
    HD void start_part(u32 part, u32 parts) const {
#pragma unroll
        for (u32 i = 0; i < COUNT; i++)
            if (i >= part * COUNT / parts && i < (part + 1) * COUNT / parts) start(i);
    }
};

typedef u32 Left[LIMBS][4]; // a warp's rows of a step

HD void load_left(Left& left, const u8* stage, u32 row, u32 first = 0, u32 last = LIMBS) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 l = 0; l < LIMBS; l++)
        if (l >= first && l < last)
            load_matrices(left[l], stage + l * LEFT_LIMB + place_of(row + lane % 16, lane / 16));
}

typedef i32 Sums[DIAGONALS][ACROSS][4];

#if GEMM_GROUPS

// Starts the products of one limb of the left operand.
template <u32 GROUP> HD void start_products(Sums& sums, const Left& left, const u8* right, u32 i) {
#pragma unroll
    for (u32 j = 0; i + j < LIMBS; j++)
        if (has_diagonal(GROUP, i + j))
            group_multiply(sums[place_of_diagonal(i + j)], left[i], right + 2 * j * RIGHT_PART, RIGHT_PART);
}
// The limbs whose products come first: about half of them.
constexpr u32 HALF = WORD == 64 ? 3 : 1;

#else

template <u32 GROUP> HD void multiply_step(Sums& sums, const Left& left, const u8* right) {
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (u32 j = 0; j < LIMBS; j++) {
        u32 b[ACROSS][2];
#pragma unroll
        for (u32 c = 0; c < ACROSS; c += 2) {
            u32 r[4];
            load_matrices(r, right + (2 * j + lane / 8 % 2) * RIGHT_PART + (c * 8 + lane / 16 * 8 + lane % 8) * 16);
            b[c][0] = r[0], b[c][1] = r[1], b[c + 1][0] = r[2], b[c + 1][1] = r[3];
        }
#pragma unroll
        for (u32 i = 0; i + j < LIMBS; i++) {
            if (!has_diagonal(GROUP, i + j)) continue;
#pragma unroll
            for (u32 c = 0; c < ACROSS; c++)
                multiply_bytes(sums[place_of_diagonal(i + j)][c], left[i], b[c][0], b[c][1]);
        }
    }
}

#endif

// What a group's diagonals add to output e of tile c and half h of a warp's rows.
template <u32 GROUP> HD Wide joined(const Sums& sums, u32 c, u32 h, u32 e) {
    Wide value = 0;
#pragma unroll
    for (u32 s = 0; s < LIMBS; s++)
        if (has_diagonal(GROUP, s)) value += (Wide)(i64)sums[place_of_diagonal(s)][c][2 * h + e] << (8 * s);
    return value;
}

template <bool CONV, u32 GROUP> HD void multiply_by_group(const Problem& p, u8* stages, Pixel* window) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 warp_row = (WORD == 64 ? warp % 4 : warp) * 16;
    // Blocks that run together share rows and columns in the cache: they walk down bands of eight block rows.
    const u32 down = (p.rows + ROWS - 1) / ROWS, across = (p.columns + COLUMNS - 1) / COLUMNS;
    const u32 tile = blockIdx.x / p.splits, split = blockIdx.x % p.splits;
    const u32 band = tile / (8 * across), in_band = tile % (8 * across), band_rows = minimum(down - band * 8, 8);
    const u32 row = (band * 8 + in_band % band_rows) * ROWS, column = in_band / band_rows * COLUMNS;
    const u32 batch = p.first_batch + blockIdx.z;

    const u8* left = p.left + batch * p.left_batch + (CONV ? 0 : (u64)row * p.steps * STEP);
    const u8* right = p.right + batch * p.right_batch + (u64)column * p.steps * STEP;
    if (CONV) {
        for (u32 r = threadIdx.x; r < ROWS; r += 256) {
            u32 image = (row + r) / p.pixels, pixel = (row + r) % p.pixels;
            // Rows past the end stand outside every image.
            bool inside = row + r < p.rows;
            window[r].y = inside ? (i32)(pixel / p.out_width) * p.stride[0] - p.pad[0] : -(1 << 30);
            window[r].x = (i32)(pixel % p.out_width) * p.stride[1] - p.pad[1];
            window[r].image = (u64)image * p.height * p.width;
        }
        sync_block();
    }

    Sums sums = {};
    const u32 first = split * p.steps_per_split, last = minimum(first + p.steps_per_split, p.steps);
    auto stage_of = [&](u32 step) { return stages + (step - first) % STAGES * STAGE; };
    auto right_of = [&](u32 step) { return stage_of(step) + LIMBS * LEFT_LIMB; };
    auto copies = [&](u32 step) { return Copies<CONV>(p, left, right, window, stage_of(step), step, step < last); };
    auto load = [&](u32 step) {
        copies(step).start_part(0, 1);
        copy_commit();
    };
#pragma unroll
    for (u32 s = 0; s < AHEAD; s++) load(first + s);
#if GEMM_GROUPS
    // What has come of the next stage is there for all.
    auto arrive = [&] {
        copy_wait<AHEAD - 1>();
        copies_to_group();
        sync_block();
    };
    // A warp can start few products before those of others are done: it copies in between, so that none waits for it.
    auto advance = [&](Left& now, Left& next, u32 step) {
        const u8* operand = right_of(step);
        const Copies<CONV> later = copies(step + AHEAD);
        group_start();
#pragma unroll
        for (u32 i = 0; i < HALF; i++) {
            start_products<GROUP>(sums, now, operand, i);
            later.start_part(i, HALF);
        }
        copy_commit();
        group_commit();
        // All products of the step before are done: the registers of its rows are free, and after the barrier its stage.
        group_wait<1>();
        arrive();
        const u8* following = stage_of(step + 1);
        group_start();
#pragma unroll
        for (u32 i = HALF; i < LIMBS; i++) {
            start_products<GROUP>(sums, now, operand, i);
            const u32 at = i - HALF, count = LIMBS - HALF;
            load_left(next, following, warp_row, at * LIMBS / count, (at + 1) * LIMBS / count);
        }
        group_commit();
    };
    Left even, odd;
    arrive();
    load_left(even, stage_of(first), warp_row);
    for (u32 step = first; step < last; step += 2) {
        advance(even, odd, step);
        if (step + 1 < last) advance(odd, even, step + 1);
    }
    group_wait<0>();
    group_read(sums);
#else
    for (u32 step = first; step < last; step++) {
        copy_wait<AHEAD - 1>();
        sync_block();
        load(step + AHEAD);
        Left rows;
        load_left(rows, stage_of(step), warp_row);
        multiply_step<GROUP>(sums, rows, right_of(step));
    }
#endif

    // Zeros for steps that there are not may be under way to the stages, which are used again.
    copy_wait<0>();
    // Where both groups have diagonals of an output, each finishes half of the tiles, with what the other has of them.
    constexpr u32 TILES = WORD == 64 ? ACROSS / 2 : ACROSS, MINE = GROUP * TILES, OTHERS = ACROSS - TILES - MINE;
    u64* other = (u64*)stages;
    if (WORD == 64) {
        sync_block();
#pragma unroll
        for (u32 i = 0; i < 4 * TILES; i++)
            other[i * 256 + threadIdx.x] = joined<GROUP>(sums, OTHERS + i / 4, i / 2 % 2, i % 2);
        sync_block();
    }
    W* out = p.out + batch * p.out_batch;
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 r = row + warp_row + h * 8 + lane / 4;
        if (r >= p.rows) continue;
        u64 start = CONV ? (u64)(r / p.pixels) * p.channels_out * p.pixels + r % p.pixels : (u64)r * p.columns;
#pragma unroll
        for (u32 c = 0; c < TILES; c++) {
#pragma unroll
            for (u32 e = 0; e < 2; e++) {
                u32 at = column + (MINE + c) * 8 + lane % 4 * 2 + e;
                if (at >= p.columns) continue;
                Wide value = joined<GROUP>(sums, MINE + c, h, e);
                if (WORD == 64) value += (Wide)other[(c * 4 + h * 2 + e) * 256 + (threadIdx.x ^ 128)];
                W* to = out + start + (CONV ? (u64)at * p.pixels : at);
                // Sums modulo 2^WORD don't depend on their order.
                if (p.splits > 1) atomic_add(to, (W)value);
                else *to = (W)value;
            }
        }
    }
}

template <bool CONV> HD void multiply(const Problem& p, u8* stages, Pixel* window) {
    if (WORD != 64 || threadIdx.x < 128) multiply_by_group<CONV, 0>(p, stages, window);
    else multiply_by_group<CONV, WORD == 64>(p, stages, window);
}

KERNEL_BOUNDED(256, 1) multiply_limbs(Problem p) {
    DYNAMIC_SHARED(stages);
    multiply<false>(p, stages, 0);
}
EXPORT(multiply_limbs)

KERNEL_BOUNDED(256, 1) convolve_limbs(Problem p) {
    DYNAMIC_SHARED(stages);
    SHARED Pixel window[ROWS];
    multiply<true>(p, stages, window);
}
EXPORT(convolve_limbs)

// Few rows: a thread sums one column, of at most eight rows, over `depth` elements. The output is zero before.
KERNEL_BOUNDED(256, 3) multiply_thin(const W* x, const W* y, W* out, u32 m, u32 k, u32 n, u32 depth, u32 first_batch) {
    SHARED W left[8][64];
    const u64 batch = first_batch + blockIdx.z;
    const u32 column = blockIdx.x * 256 + threadIdx.x, start = blockIdx.y * depth, end = minimum(start + depth, k);
    x += batch * m * k, y += batch * k * n, out += batch * m * n;
    Wide sums[8] = {};
    for (u32 at = start; at < end; at += 64) {
        sync_block();
        for (u32 i = threadIdx.x; i < 512; i += 256) {
            u32 row = i / 64, q = at + i % 64;
            left[row][i % 64] = row < m && q < end ? x[(u64)row * k + q] : 0;
        }
        sync_block();
        const u32 here = minimum(end - at, 64);
        if (column < n) {
#pragma unroll 4
            for (u32 q = 0; q < here; q++) {
                Wide factor = y[(u64)(at + q) * n + column];
#pragma unroll
                for (u32 r = 0; r < 8; r++) sums[r] += left[r][q] * factor;
            }
        }
    }
    if (column >= n) return;
#pragma unroll
    for (u32 r = 0; r < 8; r++)
        if (r < m) atomic_add(out + (u64)r * n + column, (W)sums[r]);
}
EXPORT(multiply_thin)

#endif

// Any shape and any word: 64×64 outputs a block, 4×4 a thread.
KERNEL_BOUNDED(256, 2) multiply_words(const W* x, const W* y, W* out, u32 m, u32 k, u32 n, u32 first_batch) {
    SHARED W left[16][65], right[16][64];
    const u64 batch = first_batch + blockIdx.z;
    const u32 across = (n + 63) / 64, row = blockIdx.x / across * 64, column = blockIdx.x % across * 64;
    const u32 down_in = threadIdx.x / 16, across_in = threadIdx.x % 16;
    x += batch * m * k, y += batch * k * n, out += batch * m * n;
    Wide sums[4][4] = {};
    for (u32 at = 0; at < k; at += 16) {
        for (u32 i = threadIdx.x; i < 1024; i += 256) {
            u32 r = row + i / 16, q = at + i % 16;
            left[i % 16][i / 16] = r < m && q < k ? x[(u64)r * k + q] : 0;
            q = at + i / 64;
            u32 c = column + i % 64;
            right[i / 64][i % 64] = q < k && c < n ? y[(u64)q * n + c] : 0;
        }
        sync_block();
#pragma unroll
        for (u32 q = 0; q < 16; q++) {
#pragma unroll
            for (u32 r = 0; r < 4; r++) {
#pragma unroll
                for (u32 c = 0; c < 4; c++) sums[r][c] += (Wide)left[q][down_in + 16 * r] * right[q][across_in + 16 * c];
            }
        }
        sync_block();
    }
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
#pragma unroll
        for (u32 c = 0; c < 4; c++) {
            u32 to_row = row + down_in + 16 * r, to_column = column + across_in + 16 * c;
            if (to_row < m && to_column < n) out[(u64)to_row * n + to_column] = (W)sums[r][c];
        }
    }
}
EXPORT(multiply_words)

struct Window {
    u32 channels, height, width;            // of the input
    u32 channels_out, rows, columns;        // of the output
    u32 per_group, out_per_group;           // channels
    u32 kernel[2];
    i32 stride[2], pad[2], dilation[2];
};

// Any convolution, one thread per output.
KERNEL convolve_words(const W* x, const W* w, W* out, Window g, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    u32 column = (u32)(i % g.columns), row = (u32)(i / g.columns % g.rows);
    u64 plane = i / g.columns / g.rows;
    u32 o = (u32)(plane % g.channels_out);
    u64 image = plane / g.channels_out;
    x += (image * g.channels + (u64)(o / g.out_per_group) * g.per_group) * g.height * g.width;
    w += (u64)o * g.per_group * g.kernel[0] * g.kernel[1];
    const i32 top = (i32)row * g.stride[0] - g.pad[0], left = (i32)column * g.stride[1] - g.pad[1];
    Wide sum = 0;
    for (u32 c = 0; c < g.per_group; c++) {
        for (u32 a = 0; a < g.kernel[0]; a++) {
            const u32 y = (u32)(top + (i32)a * g.dilation[0]);
            for (u32 b = 0; b < g.kernel[1]; b++, w++) {
                const u32 z = (u32)(left + (i32)b * g.dilation[1]);
                if (y < g.height && z < g.width) sum += (Wide)x[(u64)y * g.width + z] * *w;
            }
        }
        x += (u64)g.height * g.width;
    }
    out[i] = (W)sum;
}
EXPORT(convolve_words)
