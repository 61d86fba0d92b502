//! What this process's allocator does with memory that is freed. Tensors come and go at every step,
//! and glibc gives large ones back to the system each time, which must then clear every page anew:
//! half of the processor time of a step that does little per byte. So it is told to keep what it
//! has.

/// Keeps freed memory for what is allocated next, up to a gibibyte at the end of each heap. A
/// process that computes as a party calls this once, at its start. Without effect where the
/// allocator is not glibc's.
pub fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, bytes) in [
        (libc::M_TRIM_THRESHOLD, 1 << 30),
        (libc::M_TOP_PAD, 16 << 20),
        // The most that glibc takes.
        (libc::M_MMAP_THRESHOLD, 32 << 20),
    ] {
        // SAFETY: mallopt takes two integers, locks the allocator itself, and changes no memory
        // that is in use.
        unsafe { libc::mallopt(parameter, bytes) };
    }
}
