//! The interpreter's end.
//!
//! Threads of Python that nobody waits for (daemons) may be in a long call when the interpreter
//! ends. One that asks for the interpreter's lock then never gets it: Python before 3.14 ends such
//! a thread where it stands, which tears down Rust's frames below, and the process ends by a
//! signal. So before its end the interpreter waits for calls that hold its lock or are about to
//! take it, and calls that come back later stay where they are until the process ends.

use pyo3::prelude::*;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// How long the interpreter's end is put off for a function of Python's that a long call has
/// called, such as one that hears of progress.
const GRACE: Duration = Duration::from_secs(2);

static STATE: Mutex<State> = Mutex::new(State { awake: 0, ended_by: None });
static CHANGED: Condvar = Condvar::new();

struct State {
    /// Long calls that hold the interpreter's lock, or are about to take it.
    awake: usize,
    /// The thread that ends the interpreter, which goes on to use it.
    ended_by: Option<ThreadId>,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has Python call [`end`] before the interpreter ends.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end, module)?;
    module.py().import("atexit")?.call_method1("register", (end,)).map(|_| ())
}

/// From here on no other thread takes the interpreter's lock in a long call.
#[pyfunction]
fn end(py: Python<'_>) {
    py.detach(|| {
        let mut state = state();
        state.ended_by = Some(thread::current().id());
        let waited = CHANGED.wait_timeout_while(state, GRACE, |state| state.awake > 0);
        drop(waited);
    });
}

/// A long call: one that gives the interpreter's lock up, and takes it again.
pub struct Call<'py>(Python<'py>);

impl<'py> Call<'py> {
    /// Counts the call for as long as this lives.
    pub fn begin(py: Python<'py>) -> Self {
        state().awake += 1;
        Self(py)
    }

    /// Works without the interpreter's lock. Does not come back if the interpreter has ended.
    pub fn detached<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.detach(|| {
            let _away = Away::go();
            work()
        })
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        sleep();
    }
}

/// One call fewer is awake.
fn sleep() {
    state().awake -= 1;
    CHANGED.notify_all();
}

/// While it lives, its call does not want the lock.
struct Away;

impl Away {
    fn go() -> Self {
        sleep();
        Self
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        let mut state = state();
        while state.ended_by.is_some_and(|thread| thread != thread::current().id()) {
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awake += 1;
    }
}
