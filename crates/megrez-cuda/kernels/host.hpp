// Kernels on a host: the threads of a block are fibres. A warp runs as far ahead of the others as barriers allow, its
// threads one after another, in an order that alternates from launch to launch. What a kernel must not rely on is as bad as it can be:
// shared memory starts as garbage and background copies arrive as late as the waits allow.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#include <utility>

#define KERNEL static void
#define KERNEL_BOUNDED(threads, blocks) static void
#define HD inline
#define SHARED static
#define DYNAMIC_SHARED(name) u8* const name = emulator::dynamic
#define EXPORT(name)                                                                                                  \
    extern "C" void launch_##name(const u32* grid, u32 threads, u32 shared, void** args) {                            \
        emulator::launch(&name, grid, threads, shared, args);                                                         \
    }

namespace emulator {

struct Index {
    u32 x, y, z;
};

struct Copy {
    void* to;
    const void* from;
    u32 bytes, group;
};

enum Waits { RUNS, FOR_WARP, FOR_BLOCK, DONE };

constexpr u32 MOST = 256, STACK = 1 << 17;

// A stopped flow of control. Changing from one to another is the emulator's most frequent act; where we know the
// machine it takes no system call.
#ifdef __x86_64__
typedef void* Context;
// Keeps what a call keeps on the old stack and takes it from the new one.
__attribute__((naked, noinline)) static void change(Context*, Context*) {
    asm("push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15;"
        "mov %rsp, (%rdi); mov (%rsi), %rsp;"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp; ret");
}
static void prepare(Context& context, u8* stack, u64 size, void (*run)()) {
    void** top = (void**)(stack + size - 64);
    *top = (void*)run;
    memset(top - 6, 0, 48);
    context = top - 6;
}
#else
typedef ucontext_t Context;
static void change(Context* from, Context* to) { swapcontext(from, to); }
static void prepare(Context& context, u8* stack, u64 size, void (*run)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = size;
    context.uc_link = 0;
    makecontext(&context, run, 0);
}
#endif

struct Fibre {
    Context context;
    Waits waits;
    u32 exchanges;
    Copy copies[256];
    u32 copies_pending, group;
};

static Fibre fibres[MOST];
static u8* stacks;
static Context scheduler;
static u32 current, threads_in_block;
static u64 exchanged[2][MOST][8];
static u8* dynamic;
static bool backwards;
static void (*body)(void*);
static void* body_of;

static Index thread_index, block_index, block_size, grid_size;

static void wait(Waits what) {
    u32 me = current;
    fibres[me].waits = what;
    change(&fibres[me].context, &scheduler);
}

// Gives this lane's words to its warp and returns everyone's. Two sets alternate, so that nobody overwrites words which a
// slower lane still reads.
static const u64 (*exchange(const u64* words, u32 n))[8] {
    u32 me = current, set = fibres[me].exchanges++ % 2;
    memcpy(exchanged[set][me], words, n * 8);
    wait(FOR_WARP);
    return &exchanged[set][me / 32 * 32];
}

static void entry() {
    body(body_of);
    // They could land in what somebody else has written there since.
    if (fibres[current].copies_pending > 0) fprintf(stderr, "a thread ends with copies under way\n"), abort();
    fibres[current].waits = DONE;
    change(&fibres[current].context, &scheduler);
}

static void start(Fibre& fibre, u8* stack) {
    prepare(fibre.context, stack, STACK, entry);
    fibre.waits = RUNS;
    fibre.exchanges = fibre.copies_pending = fibre.group = 0;
}

// Runs a warp until all its threads wait for the block or are done: as far ahead of the others as it can get.
static void run_warp(u32 warp) {
    for (;;) {
        u32 arrived = 0, gone = 0;
        for (u32 i = 0; i < 32; i++) {
            u32 t = warp + (backwards ? 31 - i : i);
            if (fibres[t].waits == RUNS) {
                current = t, thread_index.x = t;
                change(&scheduler, &fibres[t].context);
            }
        }
        for (u32 t = warp; t < warp + 32; t++) arrived += fibres[t].waits == FOR_WARP, gone += fibres[t].waits != FOR_WARP;
        if (arrived == 0) return;
        if (gone > 0) fprintf(stderr, "a warp-wide operation misses lanes that wait elsewhere\n"), abort();
        for (u32 t = warp; t < warp + 32; t++) fibres[t].waits = RUNS;
    }
}

static void run_block() {
    for (u32 t = 0; t < threads_in_block; t++) start(fibres[t], stacks + (u64)t * STACK);
    for (;;) {
        u32 done = 0;
        for (u32 warp = 0; warp < threads_in_block; warp += 32) run_warp(backwards ? threads_in_block - 32 - warp : warp);
        for (u32 t = 0; t < threads_in_block; t++) {
            if (fibres[t].waits == DONE) done++;
            else fibres[t].waits = RUNS;
        }
        if (done == threads_in_block) return;
        if (done > 0) fprintf(stderr, "a barrier misses threads that returned\n"), abort();
    }
}

template <class... A> struct Call {
    void (*kernel)(A...);
    void** args;
    template <size_t... I> void with(std::index_sequence<I...>) { kernel(*(A*)args[I]...); }
    static void go(void* self) { ((Call*)self)->with(std::index_sequence_for<A...>()); }
};

template <class... A> void launch(void (*kernel)(A...), const u32* grid, u32 threads, u32 shared, void** args) {
    if (threads > MOST || threads % 32 != 0) fprintf(stderr, "a block of %u threads\n", threads), abort();
    if (!stacks) stacks = (u8*)mmap(0, (u64)MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dynamic = (u8*)aligned_alloc(64, (shared + 127) / 64 * 64);
    Call<A...> call = {kernel, args};
    body = Call<A...>::go, body_of = &call;
    threads_in_block = threads;
    block_size = {threads, 1, 1}, grid_size = {grid[0], grid[1], grid[2]};
    backwards = !backwards;
    for (block_index.z = 0; block_index.z < grid[2]; block_index.z++)
        for (block_index.y = 0; block_index.y < grid[1]; block_index.y++)
            for (block_index.x = 0; block_index.x < grid[0]; block_index.x++) {
                memset(dynamic, 0xa5, shared);
                run_block();
            }
    free(dynamic);
}

} // namespace emulator

#define threadIdx emulator::thread_index
#define blockIdx emulator::block_index
#define blockDim emulator::block_size
#define gridDim emulator::grid_size

static inline void sync_block() { emulator::wait(emulator::FOR_BLOCK); }
static inline void sync_warp() { emulator::wait(emulator::FOR_WARP); }

static inline u32 gather_bits(bool bit) {
    u64 mine = bit;
    const u64(*all)[8] = emulator::exchange(&mine, 1);
    u32 bits = 0;
    for (u32 l = 0; l < 32; l++) bits |= (u32)all[l][0] << l;
    return bits;
}

static inline u64 from_lane_xor(u64 x, u32 mask) { return emulator::exchange(&x, 1)[emulator::current % 32 ^ mask][0]; }
static inline u64 from_lane(u64 x, u32 lane) { return emulator::exchange(&x, 1)[lane][0]; }
static inline u64 from_lane_below(u64 x, u32 count) {
    u32 lane = emulator::current % 32;
    return emulator::exchange(&x, 1)[lane < count ? lane : lane - count][0];
}
static inline u32 byte_of(u32 x, u32 k) { return (x >> (8 * k)) & 255; }
static inline void atomic_or(u32* at, u32 x) { *at |= x; }
static inline void atomic_add(u32* at, u32 x) { *at += x; }
static inline void atomic_add(u64* at, u64 x) { *at += x; }

static inline void copy_async(void* shared, const void* global, bool valid) {
    emulator::Fibre& me = emulator::fibres[emulator::current];
    me.copies[me.copies_pending++ % 256] = {shared, global, valid ? 16u : 0u, me.group};
    memset(shared, 0x5a, 16);
}
static inline void copy_commit() { emulator::fibres[emulator::current].group++; }
template <int N> static inline void copy_wait() {
    emulator::Fibre& me = emulator::fibres[emulator::current];
    u32 kept = 0;
    for (u32 c = 0; c < me.copies_pending; c++) {
        emulator::Copy copy = me.copies[c];
        if (copy.group + N < me.group) {
            memset(copy.to, 0, 16);
            memcpy(copy.to, copy.from, copy.bytes);
        } else {
            me.copies[kept++] = copy;
        }
    }
    me.copies_pending = kept;
}

static inline void load_matrices(u32 (&r)[4], const void* shared) {
    u64 mine = (u64)shared;
    const u64(*rows)[8] = emulator::exchange(&mine, 1);
    u32 lane = emulator::current % 32;
    for (u32 m = 0; m < 4; m++) {
        const u8* row = (const u8*)rows[m * 8 + lane / 4][0];
        if ((u64)row % 16 != 0) fprintf(stderr, "a matrix row is not aligned\n"), abort();
        memcpy(&r[m], row + lane % 4 * 4, 4);
    }
}

namespace emulator {
// The operands of a warp's product, row by row along the sum.
struct Bytes {
    signed char left[16][32], right[8][32];
};
static Bytes bytes[2][MOST / 32];

__attribute__((optimize("O3"), no_sanitize("undefined"))) static u32 dot(const signed char* a, const signed char* b) {
    i32 sum = 0;
    for (u32 k = 0; k < 32; k++) sum += a[k] * b[k];
    return (u32)sum;
}
} // namespace emulator

static inline void multiply_bytes(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    u32 me = emulator::current, lane = me % 32, row = lane / 4, k = lane % 4 * 4;
    emulator::Bytes& all = emulator::bytes[emulator::fibres[me].exchanges++ % 2][me / 32];
    memcpy(&all.left[row][k], &a[0], 4), memcpy(&all.left[row + 8][k], &a[1], 4);
    memcpy(&all.left[row][k + 16], &a[2], 4), memcpy(&all.left[row + 8][k + 16], &a[3], 4);
    memcpy(&all.right[row][k], &b0, 4), memcpy(&all.right[row][k + 16], &b1, 4);
    emulator::wait(emulator::FOR_WARP);
    for (u32 e = 0; e < 4; e++)
        c[e] = (i32)((u32)c[e] + emulator::dot(all.left[row + e / 2 * 8], all.right[lane % 4 * 2 + e % 2]));
}

// Products of a group of warps: done at once or as late as the waits allow, in turns.
namespace emulator {
struct Product {
    i32 (*sums)[4];
    const u32* left;
    const u8* right;
    u32 half, group;
};
static Product products[MOST][256];
static u32 products_pending[MOST], product_group[MOST];

static void multiply(const Product& product) {
    u32 lane = current % 32, left[4];
    memcpy(left, product.left, 16);
    for (u32 t = 0; t < 8; t++) {
        const u8* column = product.right + (t * 8 + lane / 4) * 16 + lane % 4 * 4;
        u32 b0, b1;
        memcpy(&b0, column, 4), memcpy(&b1, column + product.half, 4);
        multiply_bytes(product.sums[t], left, b0, b1);
    }
}
} // namespace emulator

static inline void group_start() {}
static inline void group_commit() { emulator::product_group[emulator::current]++; }
static inline void copies_to_group() {}
static inline void group_multiply(i32 (&c)[8][4], const u32 (&a)[4], const u8* right, u32 half) {
    using namespace emulator;
    u32 me = current;
    Product product = {c, a, right, half, product_group[me]};
    if (backwards) products[me][products_pending[me]++ % 256] = product;
    else multiply(product);
}
template <int N> static inline void group_wait() {
    using namespace emulator;
    u32 me = current, kept = 0;
    for (u32 p = 0; p < products_pending[me]; p++) {
        if (products[me][p].group + N < product_group[me]) multiply(products[me][p]);
        else products[me][kept++] = products[me][p];
    }
    products_pending[me] = kept;
}
template <class S> static inline void group_read(S&) {}
