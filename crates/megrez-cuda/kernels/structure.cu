// Rearrangement of elements of UNIT bytes.
#include "common.cuh"
#include "view.cuh"

#if UNIT == 1
typedef u8 T;
#elif UNIT == 2
typedef u16 T;
#elif UNIT == 4
typedef u32 T;
#elif UNIT == 8
typedef u64 T;
#else
struct alignas(16) T {
    u64 half[2];
};
#endif

KERNEL view(const T* x, View view, T* out, u64 n) {
    u64 i = thread_number();
    if (i < n) out[i] = x[view_index(view, i, n)];
}
EXPORT(view)

// As `view`, where neighbours of the input lie along dimension `turned` and not along the last: squares of 32×32 elements
// turn in shared memory, so that both sides are read and written in rows. A block takes a square of one matrix.
KERNEL_BOUNDED(256, 4) view_turned(const T* x, View view, T* out, u32 turned) {
    SHARED T tile[32][33];
    const u32 last = view.rank - 1, lane = threadIdx.x % 32, first = threadIdx.x / 32;
    const u64 columns = view.dims[last], rows = view.dims[turned];
    const u64 across = (columns + 31) / 32, down = (rows + 31) / 32;
    const u64 column = blockIdx.x % across * 32, row = blockIdx.x / across % down * 32;
    u64 matrix = blockIdx.x / across / down, out_stride = columns, row_stride = 0;
    i64 from = (i64)view.offset;
    u64 to = 0;
    for (u32 d = last; d-- > 0; out_stride *= view.dims[d]) {
        if (d == turned) {
            row_stride = out_stride;
            continue;
        }
        u64 at = matrix % view.dims[d];
        matrix /= view.dims[d];
        from += (i64)at * view.strides[d];
        to += at * out_stride;
    }
    for (u32 r = first; r < 32; r += 8)
        if (row + lane < rows && column + r < columns)
            tile[r][lane] = x[from + (i64)(row + lane) + (i64)(column + r) * view.strides[last]];
    sync_block();
    for (u32 r = first; r < 32; r += 8)
        if (row + r < rows && column + lane < columns) out[to + (row + r) * row_stride + column + lane] = tile[lane][r];
}
EXPORT(view_turned)

KERNEL place(const T* x, View target, T* out, u64 n) {
    u64 i = thread_number();
    if (i < n) out[view_index(target, i, n)] = x[i];
}
EXPORT(place)

KERNEL gather(const T* x, const u64* indices, u64 axis, u64 inner, u64 count, T* out, u64 n) {
    u64 i = thread_number();
    if (i >= n) return;
    u64 slice = i / inner;
    out[i] = x[(slice / count * axis + indices[slice % count]) * inner + i % inner];
}
EXPORT(gather)
