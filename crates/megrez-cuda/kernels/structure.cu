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
