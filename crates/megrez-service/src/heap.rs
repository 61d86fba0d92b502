//! What this process's allocator does with memory that is freed. Tensors come and go at every step,
//! and glibc gives large ones back to the system each time, which must then clear every page anew:
//! half of the processor time of a step that does little per byte. So it is told to keep what it
//! has.

/// Gives freed memory back to the system: for a process that has nothing to do for a while. What it
/// allocates next is cleared anew. Without effect where the allocator is not glibc's.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim takes an integer, locks the allocator itself, and gives back what is
    // free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Keeps freed memory for what is allocated next, up to a gibibyte at the end of each heap. A
/// process that computes as a party calls this once, at its start. Without effect where the
/// allocator is not glibc's.
pub fn keep() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, arenas()),
        (libc::M_TRIM_THRESHOLD, 1 << 30),
        (libc::M_TOP_PAD, 16 << 20),
        // The most that glibc takes.
        (libc::M_MMAP_THRESHOLD, 32 << 20),
    ] {
        // SAFETY: mallopt takes two integers, locks the allocator itself, and changes no memory
        // that is in use.
        unsafe { libc::mallopt(parameter, value) };
    }
}

/// How many heaps threads share. Each may keep up to 64 MiB at its end that is not given back, and
/// glibc makes eight for each processor; what computes asks for little but large pieces.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn arenas() -> libc::c_int {
    std::thread::available_parallelism().map_or(2, |processors| processors.get().clamp(2, 8) as libc::c_int)
}
