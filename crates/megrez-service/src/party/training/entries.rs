//! Which jobs run at a party.

use super::files::name;
use crate::failure::Failure;
use crate::training::{Job, JobId};
use crate::{Error, ErrorKind, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Jobs that may run at once at a party, and of these one client's: they stay long, and others want
/// its places, too.
const JOBS: [usize; 2] = [4, 2];

/// A job that runs.
pub(super) struct Running {
    pub(super) job: Job,
    /// Somebody wants it to stop.
    pub(super) stop: AtomicBool,
    pub(super) epoch: AtomicU32,
    pub(super) step: AtomicU32,
}

/// The jobs of a party since it started: those that run, and why others ended.
#[derive(Default)]
pub(in crate::party) struct Training {
    pub(super) running: Mutex<HashMap<JobId, Arc<Running>>>,
    pub(super) failed: Mutex<HashMap<JobId, Failure>>,
}

/// Most reasons that are remembered.
const REASONS: usize = 1024;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A job's entry among those that run, as long as it does.
pub(super) struct Entry<'a> {
    training: &'a Training,
    pub(super) id: JobId,
    pub(super) running: Arc<Running>,
}

impl Training {
    pub(super) fn enter(&self, job: &Job) -> Result<Entry<'_>> {
        let id = job.id();
        let mut all = lock(&self.running);
        if all.contains_key(&id) {
            return Err(Error::Refused(format!("the job {} runs already", name(&id))));
        }
        let of_client = all.values().filter(|running| running.job.client == job.client).count();
        if all.len() >= JOBS[0] || of_client >= JOBS[1] {
            let what =
                format!("{} jobs run here, {of_client} of this client's: at most {JOBS:?} do", all.len());
            return Err(Error::of(ErrorKind::Busy, what));
        }
        let (epoch, step, stop) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
        let running = Arc::new(Running { job: job.clone(), stop, epoch, step });
        all.insert(id, Arc::clone(&running));
        lock(&self.failed).remove(&id);
        Ok(Entry { training: self, id, running })
    }

    pub(super) fn failed(&self, id: JobId, e: &Error) {
        let mut failed = lock(&self.failed);
        if failed.len() < REASONS {
            failed.insert(id, Failure::from(e));
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        lock(&self.training.running).remove(&self.id);
    }
}
