// Keys of comparisons and of functions by pieces: half-trees of seeds. What they are stands beside the reference, in
// megrez-kernels: `fused/half_tree.rs`, `fused/comparison_key.rs`, `fused/lookup_keys.rs`.
//
// What a dealer does has no branch and no address that depends on a mask; a worker goes where its masked value says.
#include "aes.cuh"
#include "chacha.cuh"
#include "word.cuh"

// The round keys of the three public permutations: of the tree, and of both blocks of Conv.
constexpr u32 PERMUTATIONS = 3;
// Levels of a tree for one value correction, as megrez-plan has it, and nodes below them.
constexpr u32 DIGIT = 4, NODES = 1 << DIGIT;
// Words of Conv in a block, and the most that are paid.
constexpr u32 IN_BLOCK = 128 / WORD, WIDEST = 4;

KERNEL expand_keys(const Block* permutations, u32* out) {
    u64 i = thread_number();
    if (i < PERMUTATIONS) expand(permutations[i], out + i * ROUND_KEYS);
}
EXPORT(expand_keys)

// Round keys where all threads of a block have them at hand.
#define KEYS_AT_HAND(keys)                                                                                            \
    SHARED u32 at_hand[PERMUTATIONS * ROUND_KEYS];                                                                     \
    for (u32 i = threadIdx.x; i < PERMUTATIONS * ROUND_KEYS; i += blockDim.x) at_hand[i] = keys[i];                    \
    sync_block()

// All ones if t is set.
HD u64 t_of(const Block& s) { return 0 - (s.low & 1); }

HD Block sigma(const Block& s) { return {s.high, s.low ^ s.high}; }

// π(σ(s)) ⊕ σ(s) of two seeds: H, or a block of Conv.
HD void hash(const u32* permutation, Block& a, Block& b) {
    Block x = sigma(a), y = sigma(b);
    a = x, b = y;
    encrypt(permutation, a, b);
    a = a ^ x, b = b ^ y;
}

HD Wide word_of(const Block& block, u32 p) {
    u32 bit = p % IN_BLOCK * WORD;
    return (W)((bit < 64 ? block.low : block.high) >> (bit % 64));
}

// Worker j's root of value e.
HD Block root_of(const Key& key, u64 e, u32 j) {
    u32 s[16];
    chacha(key, e / 4, s);
    Block root = {};
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (i == e % 4) root = {s[4 * i] | (u64)s[4 * i + 1] << 32, s[4 * i + 2] | (u64)s[4 * i + 3] << 32};
    root.low = (root.low & ~1ull) | j;
    return root;
}

// The correction of a level: the first level has a place of its own, which worker 0 has not.
HD Block correction_of(const Block* first, const Block* others, u32 level, u64 e, u64 n) {
    if (level > 0) return others[(level - 1) * n + e];
    return first ? first[e] : Block{};
}

// The dealer's two seeds one level down, and the correction: to the right where `right` is all ones.
HD Block correct(const u32* keys, Block (&s)[2], u64 right) {
    Block h[2] = {s[0], s[1]};
    hash(keys, h[0], h[1]);
    Block correction = h[0] ^ h[1] ^ ((s[0] ^ s[1]) & ~right);
#pragma unroll
    for (u32 j = 0; j < 2; j++) s[j] = h[j] ^ (correction & t_of(s[j])) ^ (s[j] & right);
    return correction;
}

// What corrects Conv of the dealer's two seeds to these words.
HD void paid(const u32* keys, const Block (&s)[2], u32 count, Wide (&words)[WIDEST]) {
    Wide sign = s[1].low & 1 ? (Wide)-1 : 1;
#pragma unroll
    for (u32 block = 0; block * IN_BLOCK < WIDEST; block++) {
        if (block * IN_BLOCK >= count) break;
        Block a = s[0], b = s[1];
        hash(keys + (1 + block) * ROUND_KEYS, a, b);
#pragma unroll
        for (u32 p = block * IN_BLOCK; p < minimum((block + 1) * IN_BLOCK, WIDEST); p++)
            words[p] = sign * (words[p] - word_of(a, p) + word_of(b, p));
    }
}

// All nodes `count` levels below `from`: node k's children are 2k and 2k + 1.
HD void descend(const u32* keys, Block from, u32 level, u32 count, const Block* first, const Block* others, u64 e, u64 n,
                Block (&nodes)[NODES]) {
    nodes[0] = from;
#pragma unroll 1
    for (u32 depth = 0; depth < count; depth++) {
        Block correction = correction_of(first, others, level + depth, e, n);
        // From the last pair on, so that none is overwritten that is still read.
#pragma unroll 1
        for (u32 k = ((1u << depth) + 1) / 2; k-- > 0;) {
            Block a = nodes[2 * k], b = depth == 0 ? a : nodes[2 * k + 1], h = a, g = b;
            hash(keys, h, g);
            h = h ^ (correction & t_of(a)), g = g ^ (correction & t_of(b));
            nodes[4 * k] = h, nodes[4 * k + 1] = h ^ a;
            if (depth > 0) nodes[4 * k + 2] = g, nodes[4 * k + 3] = g ^ b;
        }
    }
}

// Adds up Conv(s) + t·V of the first `limit` nodes; `values` has words p at p·stride.
HD void add_paid(const u32* keys, const Block (&nodes)[NODES], u32 limit, u32 count, const Wide (&values)[WIDEST],
                 Wide (&sums)[WIDEST]) {
#pragma unroll 1
    for (u32 i = 0; i < limit; i += 2) {
        bool both = i + 1 < limit;
        Block s = nodes[i], r = nodes[both ? i + 1 : i];
        Wide t = (Wide)t_of(s), u = both ? (Wide)t_of(r) : 0;
#pragma unroll
        for (u32 block = 0; block * IN_BLOCK < WIDEST; block++) {
            if (block * IN_BLOCK >= count) break;
            Block a = s, b = r;
            hash(keys + (1 + block) * ROUND_KEYS, a, b);
#pragma unroll
            for (u32 p = block * IN_BLOCK; p < minimum((block + 1) * IN_BLOCK, WIDEST); p++)
                sums[p] += word_of(a, p) + (both ? word_of(b, p) : 0) + (t & values[p]) + (u & values[p]);
        }
    }
}

// What is compared, and how many words are paid: (1, r), or (1, r >> truncate, msb r).
struct Compared {
    u32 cut, width, truncate, parts;
};

HD u32 levels_of(const Compared& spec) { return spec.width - 1; }

KERNEL deal_comparison(const u32* keys, Compared spec, const W* masks, Key root_0, Key root_1, Block* first, Block* others,
                       W* values, W* tops, u64 n) {
    KEYS_AT_HAND(keys);
    u64 e = thread_number();
    if (e >= n) return;
    Wide r = masks[e], sign = 1 - 2 * ((r >> (spec.cut + spec.width - 1)) & 1);
    Block s[2] = {root_of(root_0, e, 0), root_of(root_1, e, 1)};
    const u32 levels = levels_of(spec);
#pragma unroll 1
    for (u32 level = 0; level < levels; level++) {
        u64 right = 0 - (u64)((r >> (spec.cut + levels - 1 - level)) & 1);
        Block correction = correct(at_hand, s, right);
        if (level == 0) first[e] = correction;
        else others[(level - 1) * n + e] = correction;
        if ((level + 1) % DIGIT != 0 && level + 1 != levels) continue;
        u32 d = level / DIGIT;
        Wide words[WIDEST] = {sign, sign * (Wide)(W)(r >> spec.truncate), sign * top_bit(r)};
        paid(at_hand, s, spec.parts, words);
        values[(2 * d) * n + e] = (W)words[0], values[(2 * d + 1) * n + e] = (W)words[1];
        if (spec.parts == 3) tops[d * n + e] = (W)words[2];
    }
}
EXPORT(deal_comparison)

KERNEL evaluate_comparison(const u32* keys, Compared spec, u32 j, const W* masked, Key root, const Block* first,
                           const Block* others, const W* values, const W* tops, W* counts, W* words, W* top_words, u64 n) {
    KEYS_AT_HAND(keys);
    u64 e = thread_number();
    if (e >= n) return;
    const u32 levels = levels_of(spec), digits = (levels + DIGIT - 1) / DIGIT;
    Block own = root_of(root, e, j), nodes[NODES];
    Wide sums[WIDEST] = {}, m = masked[e];
#pragma unroll 1
    for (u32 d = 0; d < digits; d++) {
        u32 start = d * DIGIT, count = minimum(DIGIT, levels - start), rest = levels - start - count;
        descend(at_hand, own, start, count, first, others, e, n, nodes);
        u32 digit = (u32)(m >> (spec.cut + rest)) & ((1u << count) - 1);
        own = nodes[digit];
        Wide value[WIDEST] = {values[2 * d * n + e], values[(2 * d + 1) * n + e], spec.parts == 3 ? tops[d * n + e] : (Wide)0};
        add_paid(at_hand, nodes, digit + (d + 1 == digits), spec.parts, value, sums);
    }
    Wide sign = j == 0 ? 1 : (Wide)-1;
    counts[e] = (W)(sign * sums[0]), words[e] = (W)(sign * sums[1]);
    if (spec.parts == 3) top_words[e] = (W)(sign * sums[2]);
}
EXPORT(evaluate_comparison)

// A function by pieces, of `width` coefficients each, on 2^below segments; 2^above blocks of so many are told apart, and
// digits of them pay `parts` words. To the right of the segments it is constant + slope·x.
struct Pieces {
    u32 cut, low, above, below, width, parts;
    u64 constant, slope;
};

HD u64 high_of(const Pieces& f, Wide x) { return (u64)x >> (f.cut + f.low) & ((1ull << (f.above + f.below)) - 1); }
HD Wide low_of(const Pieces& f, Wide x) { return (Wide)((u64)x >> f.cut & ((1ull << f.low) - 1)); }

KERNEL deal_pieces(const u32* keys, Pieces f, const W* masks, Key root_0, Key root_1, Block* first, Block* others, W* values,
                   u64 n) {
    KEYS_AT_HAND(keys);
    u64 e = thread_number();
    if (e >= n) return;
    Wide r = masks[e];
    Block s[2] = {root_of(root_0, e, 0), root_of(root_1, e, 1)};
    const u32 depth = f.above + f.below, lowest = f.cut + f.low;
#pragma unroll 1
    for (u32 level = 0; level < depth; level++) {
        u32 bit = level < f.above ? lowest + depth - 1 - level : lowest + level - f.above;
        Block correction = correct(at_hand, s, 0 - ((u64)r >> bit & 1));
        if (level == 0) first[e] = correction;
        else others[(level - 1) * n + e] = correction;
        if (level >= f.above || f.parts == 0 || ((level + 1) % DIGIT != 0 && level + 1 != f.above)) continue;
        Wide words[WIDEST] = {1, 0 - r};
        paid(at_hand, s, f.parts, words);
        W* to = values + (f.width + level / DIGIT * f.parts) * n + e;
        for (u32 p = 0; p < f.parts; p++) to[p * n] = (W)(p == 0 ? words[0] : words[1]);
    }
    Wide by = 0 - low_of(f, r), words[WIDEST] = {1, by, by * by, by * by * by};
    paid(at_hand, s, f.width, words);
#pragma unroll
    for (u32 k = 0; k < WIDEST; k++)
        if (k < f.width) values[k * n + e] = (W)words[k];
}
EXPORT(deal_pieces)

// Coefficient i at segment h, which may lie beside the segments where blocks are told apart.
HD Wide coefficient(const Pieces& f, const W* pieces, u32 i, i64 h) {
    const i64 segments = 1ll << f.below;
    if (f.above == 0) h &= segments - 1;
    if (h < 0) return 0;
    if (h < segments) return pieces[(u64)h * f.width + i];
    u64 start = (u64)h << (f.low + f.cut);
    return (Wide)(i == 0 ? f.constant + f.slope * start : i == 1 ? f.slope << f.cut : 0);
}

// Two siblings, the leaves below which have numbers that begin with `index`, `depth` levels below where a lane starts.
struct Siblings {
    Block left, right;
    u32 index, depth;
};

// As many wait at most where a lane goes down by itself: segments have at most 16 bits, of which lanes take four.
constexpr u32 DEEPEST = 14;

// A warp takes a value: each lane the leaves whose numbers begin alike.
KERNEL open_pieces(const u32* keys, Pieces f, const W* pieces, u32 j, const W* masked, Key root, const Block* first,
                   const Block* others, const W* values, const W* mask, const W* output_mask, W* out, u64 n) {
    KEYS_AT_HAND(keys);
    u64 e = thread_number() / 32;
    u32 lane = threadIdx.x % 32;
    if (e >= n) return;
    const Wide m = masked[e];
    const u64 high = high_of(f, m);
    Block own = root_of(root, e, j);
    Wide sum = 0, known = 0;
    if (f.above > 0) {
        // Down to the blocks P − 1, P and A, by three lanes, and what is paid to the left of the ways there.
        const u64 ones = (1ull << f.above) - 1, at = high >> f.below, before = (at - 1) & ones;
        const u64 far = at ^ 1ull << (f.above - 1), block = lane == 0 ? before : lane == 1 ? at : far;
        Wide sums[WIDEST] = {};
        if (lane < 3) {
            Block nodes[NODES];
#pragma unroll 1
            for (u32 start = 0; start < f.above; start += DIGIT) {
                const u32 count = minimum(DIGIT, f.above - start);
                const u32 taken = (u32)(block >> (f.above - start - count)) & ((1u << count) - 1);
                descend(at_hand, own, start, count, first, others, e, n, nodes);
                own = nodes[taken];
                if (f.parts == 0) continue;
                const W* from = values + (f.width + start / DIGIT * f.parts) * n + e;
                Wide value[WIDEST] = {from[0], f.parts > 1 ? from[n] : (Wide)0};
                add_paid(at_hand, nodes, taken, f.parts, value, sums);
            }
        }
        Wide right[2];
#pragma unroll
        for (u32 p = 0; p < 2; p++)
            right[p] = p < f.parts ? (Wide)from_lane(sums[p], 0) - (Wide)from_lane(sums[p], 2) : 0;
        u32 start = lane >> (minimum(4, f.below)) & 1;
        Block two[2] = {{from_lane(own.low, 0), from_lane(own.high, 0)}, {from_lane(own.low, 1), from_lane(own.high, 1)}};
        own = start == 0 ? two[0] : two[1];
        const Wide of_m = (Wide)f.constant + (Wide)f.slope * m;
        if (lane == 0) sum = of_m * right[0] + (Wide)f.slope * right[1];
        if (far > before) known = (j == 0 ? of_m : 0) - (Wide)f.slope * (Wide)mask[e];
    }
    // Of as many lanes as there are leaves, those of block P − 1 first.
    const u32 walked = minimum(f.above > 0 ? 4 : 5, f.below), blocks = f.above > 0 ? 1 : 0;
    if (lane < 1u << (walked + blocks)) {
        const u32 mine = lane & ((1u << walked) - 1);
        // The segment of the first leaf; those of the next ones go down.
        const u64 ones = (1ull << f.below) - 1;
        const i64 segment = (i64)(high & ones) + (f.above > 0 && lane >> walked == 0 ? 1ll << f.below : 0);
        Wide power[WIDEST] = {1, low_of(f, m)}, value[WIDEST];
        power[2] = power[1] * power[1], power[3] = power[2] * power[1];
#pragma unroll
        for (u32 k = 0; k < WIDEST; k++) value[k] = k < f.width ? values[k * n + e] : (W)0;
        Block from = own;
#pragma unroll 1
        for (u32 depth = 0; depth < walked; depth++) {
            Block h = from, g = from;
            hash(at_hand, h, g);
            h = h ^ (correction_of(first, others, f.above + depth, e, n) & t_of(from));
            from = mine >> depth & 1 ? h ^ from : h;
        }
        Siblings stack[DEEPEST];
        u32 waiting = 1;
        stack[0] = {from, from, mine, walked};
#pragma unroll 1
        while (waiting > 0) {
            const Siblings now = stack[--waiting];
            if (now.depth < f.below) {
                const Block correction = correction_of(first, others, f.above + now.depth, e, n);
                Block h = now.left, g = now.right;
                hash(at_hand, h, g);
                h = h ^ (correction & t_of(now.left)), g = g ^ (correction & t_of(now.right));
                stack[waiting++] = {h, h ^ now.left, now.index, now.depth + 1};
                // Where a lane starts there is one node.
                if (now.depth > walked)
                    stack[waiting++] = {g, g ^ now.right, now.index | 1u << (now.depth - 1), now.depth + 1};
                continue;
            }
            // Two leaves, or the one where this lane starts.
            const bool two = f.below > walked;
            const u32 index[2] = {now.index, now.index | (two ? 1u << (f.below - 1) : 0)};
            Wide weights[2][WIDEST] = {};
#pragma unroll
            for (u32 of = 0; of < 2; of++) {
                if (of == 1 && !two) break;
                Wide c[WIDEST];
#pragma unroll
                for (u32 i = 0; i < WIDEST; i++)
                    c[i] = i < f.width ? coefficient(f, pieces, i, segment - (i64)index[of]) : (Wide)0;
                weights[of][0] = c[0] + c[1] * power[1] + c[2] * power[2] + c[3] * power[3];
                weights[of][1] = c[1] + 2 * c[2] * power[1] + 3 * c[3] * power[2];
                weights[of][2] = c[2] + 3 * c[3] * power[1];
                weights[of][3] = c[3];
            }
            Wide t = (Wide)t_of(now.left), u = (Wide)t_of(now.right);
#pragma unroll
            for (u32 block = 0; block * IN_BLOCK < WIDEST; block++) {
                if (block * IN_BLOCK >= f.width) break;
                Block a = now.left, b = now.right;
                hash(at_hand + (1 + block) * ROUND_KEYS, a, b);
#pragma unroll
                for (u32 k = block * IN_BLOCK; k < minimum((block + 1) * IN_BLOCK, WIDEST); k++) {
                    sum += weights[0][k] * (word_of(a, k) + (t & value[k]));
                    sum += weights[1][k] * (word_of(b, k) + (u & value[k]));
                }
            }
        }
    }
    u64 all = sum;
#pragma unroll
    for (u32 step = 16; step > 0; step /= 2) all += from_lane_xor(all, step);
    if (lane == 0) out[e] = (W)((Wide)output_mask[e] + (j == 0 ? (Wide)all : 0 - (Wide)all) + known);
}
EXPORT(open_pieces)
