//! Which of several lanes computes.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lanes that take turns: one computes, on all of the device, while messages of the others are
/// under way. Were they to compute beside each other, all would send at the same time, and all wait
/// then.
#[derive(Default)]
pub struct Turns {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    /// A lane has its turn.
    taken: bool,
    waiting: BTreeSet<usize>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is this lane's turn: the first goes first.
    pub(crate) fn take(&self, lane: usize) {
        let mut state = self.state();
        state.waiting.insert(lane);
        while state.taken || state.waiting.first() != Some(&lane) {
            state = self.given.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.remove(&lane);
        state.taken = true;
    }

    /// Ends a turn.
    pub(crate) fn give(&self) {
        self.state().taken = false;
        self.given.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_lane_has_its_turn_and_the_first_that_waits_comes_next() {
        let (turns, inside) = (Turns::default(), AtomicUsize::new(0));
        let order = Mutex::new(vec![]);
        turns.take(9);
        std::thread::scope(|scope| {
            for lane in [2, 0, 1] {
                let (turns, inside, order) = (&turns, &inside, &order);
                scope.spawn(move || {
                    turns.take(lane);
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    order.lock().unwrap().push(lane);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    turns.give();
                });
            }
            while turns.state().waiting.len() < 3 {
                std::thread::yield_now();
            }
            assert!(order.lock().unwrap().is_empty());
            turns.give();
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    }
}
