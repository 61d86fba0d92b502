// Types and the few primitives that a GPU has and a host has not. On the host they come from host.hpp, so that the same
// kernels run, slowly and deterministically, in the tests of a machine without a GPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

#ifndef __CUDACC__
#include "host.hpp"
#else

#define KERNEL extern "C" __global__ void
#define KERNEL_BOUNDED(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define EXPORT(name)
#define HD __device__ __forceinline__
#define SHARED __shared__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) u8 name[]

HD void sync_block() { __syncthreads(); }
HD void sync_warp() { __syncwarp(); }
HD u32 gather_bits(bool bit) { return __ballot_sync(0xffffffffu, bit); }
HD u64 from_lane_xor(u64 x, u32 mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
HD u64 from_lane(u64 x, u32 lane) { return __shfl_sync(0xffffffffu, x, lane); }
// Lanes below `count` get their own.
HD u64 from_lane_below(u64 x, u32 count) { return __shfl_up_sync(0xffffffffu, x, count); }
HD void atomic_or(u32* at, u32 x) { atomicOr(at, x); }
HD void atomic_add(u32* at, u32 x) { atomicAdd(at, x); }
HD void atomic_add(u64* at, u64 x) { atomicAdd(at, x); }

// Byte k of x.
HD u32 byte_of(u32 x, u32 k) { return __byte_perm(x, 0, 0x4440 | k); }

// Copies 16 bytes to shared memory in the background, zeros if not `valid`.
HD void copy_async(void* shared, const void* global, bool valid) {
    u32 to = (u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(valid ? 16 : 0) : "memory");
}
HD void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N of this thread's committed groups are under way.
template <int N> HD void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four 8×8 matrices of 16-bit elements: lane l names row l mod 8 of matrix l / 8 and gets elements 2(l mod 4) and
// 2(l mod 4) + 1 of row l / 4 of each.
HD void load_matrices(u32 (&r)[4], const void* shared) {
    u32 from = (u32)__cvta_generic_to_shared(shared);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}

// c += a·b for 16×32 signed bytes by 32×8 signed bytes; sums wrap at 32 bits.
HD void multiply_bytes(i32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// On sm_90a the four warps of a group multiply together, in the background, with one operand in shared memory.

HD void group_start() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HD void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Makes what copies have brought to shared memory visible to products of this group; a barrier does so for the others'.
HD void copies_to_group() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Waits until at most N of this group's committed products are under way.
template <int N> HD void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// What products have been added to is read from here on.
template <class S> HD void group_read(S& sums) {
#pragma unroll
    for (auto& diagonal : sums) {
#pragma unroll
        for (auto& tile : diagonal) {
#pragma unroll
            for (i32& sum : tile) asm volatile("" : "+r"(sum)::"memory");
        }
    }
}

// c += a·b for 64×32 signed bytes, 16 rows a warp as `multiply_bytes` has them, by 32×64; `right` has the first half of 64
// columns of 32 bytes, and `half` bytes on the second.
HD void group_multiply(i32 (&c)[8][4], const u32 (&a)[4], const u8* right, u32 half) {
    u64 at = (u64)__cvta_generic_to_shared(right);
    u64 matrix = (at >> 4 & 0x3fff) | (u64)(half >> 4) << 16 | (u64)(128 >> 4) << 32;
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
        "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, "
        "%35}, %36, 1;"
        : "+r"(c[0][0]), "+r"(c[0][1]), "+r"(c[0][2]), "+r"(c[0][3]), "+r"(c[1][0]), "+r"(c[1][1]), "+r"(c[1][2]),
          "+r"(c[1][3]), "+r"(c[2][0]), "+r"(c[2][1]), "+r"(c[2][2]), "+r"(c[2][3]), "+r"(c[3][0]), "+r"(c[3][1]),
          "+r"(c[3][2]), "+r"(c[3][3]), "+r"(c[4][0]), "+r"(c[4][1]), "+r"(c[4][2]), "+r"(c[4][3]), "+r"(c[5][0]),
          "+r"(c[5][1]), "+r"(c[5][2]), "+r"(c[5][3]), "+r"(c[6][0]), "+r"(c[6][1]), "+r"(c[6][2]), "+r"(c[6][3]),
          "+r"(c[7][0]), "+r"(c[7][1]), "+r"(c[7][2]), "+r"(c[7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix));
}

#endif

// This thread's number in the grid.
HD u64 thread_number() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

HD constexpr u32 minimum(u32 a, u32 b) { return a < b ? a : b; }
HD constexpr u32 maximum(u32 a, u32 b) { return a > b ? a : b; }
HD constexpr u64 minimum_of(u64 a, u64 b) { return a < b ? a : b; }

// Bits packed 64 to a word.
HD u32 bit_at(const u64* bits, u64 i) { return (u32)(bits[i / 64] >> (i % 64)) & 1; }
