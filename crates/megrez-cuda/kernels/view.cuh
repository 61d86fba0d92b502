// Strided views of at most twelve dimensions.
#pragma once
#include "common.cuh"

struct View {
    u64 offset;
    u64 dims[12];
    i64 strides[12];
    u32 rank;
    u32 unused;
};

// The input index of output element i of n.
HD u64 view_index(const View& view, u64 i, u64 n) {
    i64 at = (i64)view.offset;
    if (n >> 32 == 0) {
        u32 rest = (u32)i;
        for (u32 d = view.rank; d-- > 0;) {
            u32 dim = (u32)view.dims[d], quotient = rest / dim;
            at += (i64)(rest - quotient * dim) * view.strides[d];
            rest = quotient;
        }
    } else {
        for (u32 d = view.rank; d-- > 0;) {
            at += (i64)(i % view.dims[d]) * view.strides[d];
            i /= view.dims[d];
        }
    }
    return (u64)at;
}
