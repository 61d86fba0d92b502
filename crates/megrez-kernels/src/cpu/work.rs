//! Dividing work among threads and instruction sets.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `task` for 0 … `tasks` − 1 on up to `threads` threads. Threads take the next task when they
/// are free, since other parties may keep some cores busy. Starting a thread takes some ten
/// microseconds: callers pass 1 for small work.
pub fn parallel(threads: usize, tasks: usize, task: impl Fn(usize) + Sync) {
    share(threads, tasks, &task);
}

/// One for all tasks: starting threads would be a tenth of what is compiled.
fn share(threads: usize, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    if threads.min(tasks) <= 1 {
        return (0..tasks).for_each(task);
    }
    let next = AtomicUsize::new(0);
    let run = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= tasks {
                break;
            }
            task(i);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(tasks) {
            // A thread that cannot be had leaves its tasks to the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
}

/// A slice of which several threads write disjoint parts.
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a mutable slice that is handed out in parts; `part` demands that they are disjoint.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice for as long as parts of it are written.
    pub fn new(slice: &'a mut [T]) -> Self {
        Disjoint { start: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No two parts that are alive at the same time overlap.
    #[allow(clippy::mut_from_ref, reason = "the parts are disjoint, as the contract says")]
    #[inline(always)]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside of its slice");
        // SAFETY: the range is inside the slice, which is borrowed for 'a; the caller keeps parts
        // disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}

/// Splits `out` into chunks of `size` elements and runs `task(index of the chunk, chunk)` on up to
/// `threads` threads.
pub fn chunks<T: Send>(threads: usize, out: &mut [T], size: usize, task: impl Fn(usize, &mut [T]) + Sync) {
    let len = out.len();
    let shared = Disjoint::new(out);
    parallel(threads, len.div_ceil(size), |i| {
        // SAFETY: chunks of different indices are disjoint, and every index runs once.
        task(i, unsafe { shared.part(i * size..len.min((i + 1) * size)) });
    });
}

/// Defines a function whose first argument is the [`megrez_prg::Level`] that it runs at: the same
/// plain code, compiled once for each set of vector instructions.
macro_rules! at_every_level {
    ($(#[$meta:meta])* $vis:vis fn $name:ident<$($gen:ident: $bound:path),*>($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name<$($gen: $bound),*>(level: megrez_prg::Level, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments, reason = "inherited")]
            fn plain<$($gen: $bound),*>($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,bmi2")]
                #[allow(clippy::too_many_arguments, reason = "inherited")]
                fn avx2<$($gen: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                    plain::<$($gen),*>($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
                #[allow(clippy::too_many_arguments, reason = "inherited")]
                fn avx512<$($gen: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                    plain::<$($gen),*>($($arg),*)
                }
                if level.has_avx512() {
                    // SAFETY: the level is a witness that the machine has these instructions.
                    return unsafe { avx512::<$($gen),*>($($arg),*) };
                }
                if level.has_avx2() {
                    // SAFETY: the level is a witness that the machine has these instructions.
                    return unsafe { avx2::<$($gen),*>($($arg),*) };
                }
            }
            let _ = level;
            plain::<$($gen),*>($($arg),*)
        }
    };
}
pub(crate) use at_every_level;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_written_once() {
        for threads in [1, 3] {
            for n in [0, 1, 9, 10, 11, 45] {
                let mut out = vec![0usize; n];
                chunks(threads, &mut out, 10, |i, chunk| {
                    chunk.iter_mut().enumerate().for_each(|(j, x)| *x += i * 10 + j + 1);
                });
                assert!(out.iter().enumerate().all(|(i, &x)| x == i + 1));
            }
        }
    }

    #[test]
    #[should_panic = "outside of its slice"]
    fn parts_stay_inside() {
        let mut out = [0; 4];
        // SAFETY: only one part exists.
        unsafe { Disjoint::new(&mut out).part(2..5) };
    }
}
