//! Long calls: they run in a thread of their own, so that other threads of Python go on and Ctrl-C
//! ends the wait.

use super::ending::Call;
use super::error::{error, refused};
use megrez::{Error, Result};
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// How long Python waits between two looks at signals and progress.
const LOOK: Duration = Duration::from_millis(50);

/// What the waiting side and the working side tell each other.
#[derive(Default)]
pub struct Watch {
    given_up: AtomicBool,
    begun: AtomicU32,
}

impl Watch {
    /// Says that run `run` begins; fails if nobody waits any more.
    pub fn before(&self, run: u32) -> Result<()> {
        self.begun.store(run, Ordering::Relaxed);
        match self.given_up.load(Ordering::Relaxed) {
            true => Err(Error::Refused("interrupted".into())),
            false => Ok(()),
        }
    }
}

/// Works without the interpreter's lock. `progress` is called with the number of finished runs
/// whenever it has grown.
///
/// When Python raises meanwhile, the work goes on until it asks its watch, and what it finds is
/// dropped.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let call = Call::begin(py);
    let watch = Arc::new(Watch::default());
    let (send, mut receive) = channel();
    let theirs = Arc::clone(&watch);
    std::thread::Builder::new()
        .name("megrez".into())
        .spawn(move || {
            // The waiting side may be gone; then nobody wants the result.
            let _ = send.send(work(&theirs));
        })
        .map_err(refused)?;
    let mut told = 0;
    loop {
        let outcome;
        (receive, outcome) = call.detached(move || {
            let outcome = receive.recv_timeout(LOOK);
            (receive, outcome)
        });
        match outcome {
            Ok(result) => return result.map_err(error),
            Err(RecvTimeoutError::Disconnected) => return Err(refused("a bug in megrez: the work panicked")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let begun = watch.begun.load(Ordering::Relaxed);
        let tell = |progress: &Bound<'_, PyAny>| progress.call1((begun,)).map(|_| ());
        let told_now = match progress {
            Some(progress) if begun > told => tell(progress),
            _ => Ok(()),
        };
        told = begun;
        if let Err(raised) = told_now.and_then(|()| py.check_signals()) {
            watch.given_up.store(true, Ordering::Relaxed);
            return Err(raised);
        }
    }
}
