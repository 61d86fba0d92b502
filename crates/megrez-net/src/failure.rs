//! How all parties of a session come to report the same reason.
//!
//! A party that notices a failure casts one vote: what it saw. A party that hears of a failure
//! before it notices one adopts the first vote that it hears as its own. Every party passes each
//! vote that is new to it on to all others, after its own, and decides when it has heard from every
//! peer whose link is alive, or after a short grace period: the smallest vote wins. Links keep the
//! order, so whoever has heard from all knows all votes. Votes are ordered from root cause to
//! consequence ([`AbortKind`](crate::AbortKind)).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Abort, NetError};

/// Locks, and carries on after a panic elsewhere: every critical section here leaves consistent
/// state behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condvar` for at most `time`.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}

/// One party's view of whether and why the session has failed.
pub(crate) struct Failure {
    grace: Duration,
    tripped: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    votes: BTreeSet<Abort>,
    /// Peers whose vote is still expected: no vote from them yet, and their link is alive.
    expected: Vec<bool>,
    deadline: Option<Instant>,
    decided: Option<Abort>,
}

impl Failure {
    /// `peers[p]`: whether a vote is to be expected from party p.
    pub fn new(peers: Vec<bool>, grace: Duration) -> Self {
        let state = State { votes: BTreeSet::new(), expected: peers, deadline: None, decided: None };
        Self { grace, tripped: AtomicBool::new(false), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Whether somebody has noticed a failure; a relaxed check that is cheap enough for every
    /// message.
    pub fn tripped(&self) -> bool {
        self.tripped.load(Ordering::Acquire)
    }

    /// This party noticed `abort`. Returns the vote to pass on, or none when it is only a
    /// consequence of a failure that is known already.
    pub fn notice(&self, abort: Abort) -> Option<Abort> {
        let mut state = lock(&self.state);
        if !state.votes.is_empty() {
            return None;
        }
        self.enter(&mut state, abort.clone());
        Some(abort)
    }

    /// Party `from` passed `abort` on. Returns it when it is new here, so has to be passed on.
    pub fn hear(&self, from: usize, abort: Abort) -> Option<Abort> {
        let mut state = lock(&self.state);
        if let Some(expected) = state.expected.get_mut(from) {
            *expected = false;
        }
        let late = state.decided.is_some() || state.deadline.is_some_and(|at| Instant::now() >= at);
        let new = !late && !state.votes.contains(&abort) && state.votes.len() < 16;
        if new {
            self.enter(&mut state, abort.clone());
        }
        self.changed.notify_all();
        new.then_some(abort)
    }

    /// The link from `from` is gone: no vote will come from there.
    pub fn gone(&self, from: usize) {
        if let Some(expected) = lock(&self.state).expected.get_mut(from) {
            *expected = false;
        }
        self.changed.notify_all();
    }

    fn enter(&self, state: &mut State, abort: Abort) {
        state.votes.insert(abort);
        state.deadline.get_or_insert_with(|| Instant::now() + self.grace);
        self.tripped.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether the reason is settled, without waiting for it.
    pub fn settled(&self) -> bool {
        let mut state = lock(&self.state);
        if state.decided.is_none() && state.deadline.is_some() && state.due() {
            state.decided = state.votes.first().cloned();
            self.changed.notify_all();
        }
        state.decided.is_some()
    }

    /// The reason that all parties agree on; waits for it for at most the grace period. None when
    /// nothing failed.
    pub fn settle(&self) -> Option<NetError> {
        let mut state = lock(&self.state);
        loop {
            if let Some(abort) = &state.decided {
                return Some(NetError::Aborted(abort.clone()));
            }
            let deadline = state.deadline?;
            if state.due() {
                state.decided = state.votes.first().cloned();
                self.changed.notify_all();
            } else {
                let left = deadline.saturating_duration_since(Instant::now());
                state = wait(&self.changed, state, left);
            }
        }
    }
}

impl State {
    /// All have been heard, or the grace period is over.
    fn due(&self) -> bool {
        !self.expected.contains(&true) || self.deadline.is_some_and(|at| Instant::now() >= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AbortKind;

    fn abort(kind: AbortKind, origin: usize) -> Abort {
        Abort::new(kind, Some(2), origin, "x")
    }

    #[test]
    fn the_smallest_vote_wins_once_all_are_heard() {
        let failure = Failure::new(vec![false, true, true], Duration::from_secs(60));
        assert!(failure.settle().is_none() && !failure.tripped());
        assert!(failure.notice(abort(AbortKind::Timeout, 0)).is_some());
        assert!(failure.notice(abort(AbortKind::Left, 0)).is_none(), "one vote each");
        assert!(failure.hear(1, abort(AbortKind::Left, 1)).is_some());
        assert!(failure.hear(1, abort(AbortKind::Left, 1)).is_none(), "known votes go no further");
        failure.gone(2);
        assert_eq!(failure.settle(), Some(NetError::Aborted(abort(AbortKind::Left, 1))));
        assert!(failure.hear(2, abort(AbortKind::Failed, 2)).is_none(), "decided is decided");
        assert_eq!(failure.settle(), Some(NetError::Aborted(abort(AbortKind::Left, 1))));
    }

    #[test]
    fn a_silent_peer_costs_the_grace_period_only() {
        let failure = Failure::new(vec![false, true], Duration::from_millis(30));
        failure.notice(abort(AbortKind::Stalled, 0));
        let start = Instant::now();
        assert!(failure.settle().is_some());
        assert!(start.elapsed() >= Duration::from_millis(25));
    }
}
