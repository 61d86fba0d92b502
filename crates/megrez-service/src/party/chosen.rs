//! Which batches of material sessions are about to claim, so that no two choose one.

use megrez_engine::store::BatchId;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Batches that sessions of this party have chosen and not claimed yet.
#[derive(Default)]
pub(super) struct Chosen(Mutex<BTreeSet<BatchId>>);

/// A batch that no other session chooses while this is held.
pub(super) struct Choice<'a> {
    chosen: &'a Chosen,
    pub(super) batch: BatchId,
}

impl Chosen {
    fn all(&self) -> MutexGuard<'_, BTreeSet<BatchId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first that `find` gives and nobody has chosen. It looks while nobody can choose, since a
    /// batch that was found and then claimed is there no more.
    pub(super) fn first(&self, find: impl FnOnce() -> Vec<BatchId>) -> Option<Choice<'_>> {
        let mut all = self.all();
        let batch = find().into_iter().find(|batch| !all.contains(batch))?;
        all.insert(batch);
        Some(Choice { chosen: self, batch })
    }
}

impl Drop for Choice<'_> {
    fn drop(&mut self) {
        self.chosen.all().remove(&self.batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sessions_choose_one_batch() {
        let chosen = Chosen::default();
        let find = || vec![[1; 16], [2; 16]];
        let first = chosen.first(find).unwrap();
        let second = chosen.first(find).unwrap();
        assert_eq!((first.batch, second.batch), ([1; 16], [2; 16]));
        assert!(chosen.first(find).is_none());
        drop(first);
        assert_eq!(chosen.first(find).unwrap().batch, [1; 16]);
    }
}
