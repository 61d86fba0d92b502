// Dense bits and circuits on planes of bits.
#include "common.cuh"

// `count` ≤ 64 bits of x from bit `at` on.
HD u64 bits_at(const u64* x, u64 at, u32 count) {
    if (count == 0) return 0;
    u32 shift = (u32)(at % 64);
    u64 word = x[at / 64] >> shift;
    if (shift + count > 64) word |= x[at / 64 + 1] << (64 - shift);
    return word & (~0ull >> (64 - count));
}

// Adds n bits to `out` from bit `from` on, where there are zeros. One thread per word of the output that they touch.
KERNEL append_bits(const u64* x, u64 from, u64* out, u64 n) {
    u64 word = from / 64 + thread_number(), start = word * 64, end = start + 64;
    if (n == 0 || start >= from + n) return;
    u64 low = start > from ? start : from, high = end < from + n ? end : from + n;
    out[word] |= bits_at(x, low - from, (u32)(high - low)) << (low - start);
}
EXPORT(append_bits)

// Planes of n bits one after the other, without gaps. One thread per word of the output.
KERNEL pack_planes(const u64* x, u64* out, u64 planes, u64 n, u64 words, u64 packed) {
    u64 w = thread_number();
    if (w >= packed) return;
    u64 word = 0, end = minimum_of(w * 64 + 64, planes * n);
    for (u64 at = w * 64; at < end;) {
        u64 plane = at / n, i = at - plane * n;
        u32 count = (u32)minimum_of(n - i, end - at);
        word |= bits_at(x + plane * words, i, count) << (at % 64);
        at += count;
    }
    out[w] = word;
}
EXPORT(pack_planes)

// Undoes pack_planes: one thread per word of a plane.
KERNEL unpack_planes(const u64* x, u64* out, u64 n, u64 words, u64 total) {
    u64 w = thread_number();
    if (w >= total) return;
    u64 plane = w / words, i = (w - plane * words) * 64;
    out[w] = bits_at(x, plane * n + i, (u32)minimum_of(n - i, 64));
}
EXPORT(unpack_planes)

// A gate, or the last step of a plane to its output. An operand is a register's number or the address of a plane.
struct Step {
    u64 a, b;
    u64 to;
    u32 what;
    u32 unused;
};

enum { AND, XOR, NOT, STORE };

// Registers are at most so many; nothing lies at such an address.
constexpr u64 MOST_REGISTERS = 4096;

// Runs every step on one word of each plane: 64 values a thread. The registers lie in shared memory, side by side for
// the threads of a block, and register 0 holds zeros. All threads read the same step.
KERNEL run_circuit(const Step* steps, u32 count, u64 words) {
    DYNAMIC_SHARED(memory);
    u64* const file = (u64*)memory + threadIdx.x;
    const u64 word = thread_number(), stride = blockDim.x;
    if (word >= words) return;
    file[0] = 0;
    for (u32 s = 0; s < count; s++) {
        const Step step = steps[s];
        u64 a = step.a < MOST_REGISTERS ? file[step.a * stride] : ((const u64*)step.a)[word];
        if (step.what == STORE) {
            ((u64*)step.to)[word] = a;
            continue;
        }
        u64 b = step.b < MOST_REGISTERS ? file[step.b * stride] : ((const u64*)step.b)[word];
        file[step.to * stride] = step.what == AND ? a & b : step.what == XOR ? a ^ b : ~a;
    }
}
EXPORT(run_circuit)
