//! Which requests run, and when: one decision for all parties.
//!
//! Party 0 admits. A request waits there for its turn; the other parties wait until party 0 has
//! dialled the session's link, which is its word that the session runs. Were every party to decide
//! alone, an overloaded cluster would start at one party what another refuses, and all would hold
//! their places until they gave up on each other.
//!
//! Turns are fair between clients: of those who wait, the client with the fewest running sessions
//! is next, then the one whose last turn was longest ago.

use super::settings::Current;
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a request that waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// The sessions of a party: those that run and, at party 0, those that wait.
pub(super) struct Admission {
    settings: Current,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: BTreeMap<String, usize>,
    sessions: usize,
    /// What running sessions have planned to hold, in bytes.
    memory: u64,
    waiting: Vec<Waiting>,
    serial: u64,
    /// When a client had its last turn, by serial number.
    served: BTreeMap<String, u64>,
    draining: bool,
    /// A moving average of how long sessions take, in seconds.
    seconds: f64,
}

struct Waiting {
    serial: u64,
    client: String,
    memory: u64,
}

/// A session's place; it is free again when this is dropped.
pub(super) struct Place<'a> {
    admission: &'a Admission,
    client: String,
    memory: u64,
    since: Instant,
}

impl Admission {
    pub(super) fn new(settings: Current) -> Self {
        Admission { settings, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for this client's turn with a session that plans to hold `memory` bytes. `present`
    /// fails once there is nobody to wait for.
    ///
    /// Requests that `depend` on what earlier ones of the same connection have left are never sent
    /// away because too many wait: their client could not come back with them. A client that waits
    /// `within` some time only is told when that is over.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if too many wait already, its turn does not come or the party drains,
    /// [`ErrorKind::TimedOut`] if it does not come within the client's time, and those of
    /// `present`.
    pub(super) fn turn(
        &self,
        client: &str,
        memory: u64,
        depend: bool,
        within: Option<Duration>,
        mut present: impl FnMut() -> Result<()>,
    ) -> Result<Place<'_>> {
        let mut state = self.lock();
        self.open(&state)?;
        let (all, mine) = (state.waiting.len(), state.waiting.iter().filter(|w| w.client == client).count());
        let most = self.settings.get().capacity.max_waiting;
        // Nobody takes more than half of the queue.
        let full = !depend && (all >= most || mine >= most.div_ceil(2));
        state.serial += 1;
        let serial = state.serial;
        state.waiting.push(Waiting { serial, client: client.into(), memory });
        let turn = self.settings.get().capacity.turn();
        let hurried = within.is_some_and(|within| within < turn);
        let until = Instant::now() + within.map_or(turn, |within| within.min(turn));
        loop {
            if let Some(next) = self.next(&state)
                && state.waiting[next].serial == serial
            {
                state.waiting.remove(next);
                self.changed.notify_all();
                return Ok(self.place(&mut state, client, memory));
            }
            if full || Instant::now() >= until {
                state.waiting.retain(|w| w.serial != serial);
                self.changed.notify_all();
                return Err(match full || !hurried {
                    true => self.busy(&state),
                    false => Error::of(
                        ErrorKind::TimedOut,
                        "its turn has not come in the time that its client gave",
                    ),
                });
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            let leave = match state.draining {
                true => self.open(&state),
                false => {
                    // Looking takes a moment; the others need not wait for that.
                    drop(state);
                    let here = present();
                    state = self.lock();
                    here
                }
            };
            if let Err(e) = leave {
                state.waiting.retain(|w| w.serial != serial);
                self.changed.notify_all();
                return Err(e);
            }
        }
    }

    /// A place for a session that party 0 has admitted. This party refuses only what is far beyond
    /// what it takes itself.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if twice as many sessions run as may.
    pub(super) fn follow(&self, client: &str, memory: u64) -> Result<Place<'_>> {
        let mut state = self.lock();
        if state.sessions >= 2 * self.settings.get().capacity.max_sessions {
            return Err(self.busy(&state));
        }
        Ok(self.place(&mut state, client, memory))
    }

    /// There may be more room than before.
    pub(super) fn look_again(&self) {
        self.changed.notify_all();
    }

    /// From now on nothing is admitted, and what waits is sent away.
    pub(super) fn drain(&self) {
        self.lock().draining = true;
        self.changed.notify_all();
    }

    /// Fails once the party drains.
    pub(super) fn is_open(&self) -> Result<()> {
        self.open(&self.lock())
    }

    /// How many sessions run.
    pub(super) fn sessions(&self) -> usize {
        self.lock().sessions
    }

    /// How many sessions run, by client.
    pub(super) fn running(&self) -> Vec<(String, usize)> {
        self.lock().running.iter().map(|(client, count)| (client.clone(), *count)).collect()
    }

    /// The clients of the requests that wait, each with one.
    pub(super) fn waiting_clients(&self) -> Vec<(String, usize)> {
        self.lock().waiting.iter().map(|waiting| (waiting.client.clone(), 1)).collect()
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, state: &State) -> Result<()> {
        if state.draining {
            return Err(Error::of(ErrorKind::Busy, "this party is about to end: try again later"));
        }
        Ok(())
    }

    fn place(&self, state: &mut State, client: &str, memory: u64) -> Place<'_> {
        *state.running.entry(client.into()).or_default() += 1;
        state.sessions += 1;
        state.memory = state.memory.saturating_add(memory);
        state.serial += 1;
        let serial = state.serial;
        state.served.insert(client.into(), serial);
        // Whose turn was long ago need not be remembered by date.
        if state.served.len() > 1024 {
            let oldest = state.served.iter().min_by_key(|(_, serial)| **serial).map(|(name, _)| name.clone());
            oldest.map(|name| state.served.remove(&name));
        }
        Place { admission: self, client: client.into(), memory, since: Instant::now() }
    }

    /// Which of those who wait is next, if there is room for it.
    fn next(&self, state: &State) -> Option<usize> {
        let settings = self.settings.get();
        let (max_sessions, of_client) =
            (settings.capacity.max_sessions, settings.capacity.sessions_per_client);
        if state.sessions >= max_sessions {
            return None;
        }
        let running = |w: &Waiting| state.running.get(&w.client).copied().unwrap_or(0);
        let allowed = state.waiting.iter().enumerate().filter(|(_, w)| running(w) < of_client);
        let (index, first) = allowed
            .min_by_key(|(_, w)| (running(w), state.served.get(&w.client).copied().unwrap_or(0), w.serial))?;
        // Larger than all there is: alone. Nobody overtakes the next one, or large ones would
        // wait for ever.
        let room =
            state.sessions == 0 || state.memory.saturating_add(first.memory) <= settings.capacity.memory();
        room.then_some(index)
    }

    fn busy(&self, state: &State) -> Error {
        let ahead =
            (state.waiting.len() + state.sessions) as f64 / self.settings.get().capacity.max_sessions as f64;
        let seconds = (ahead * state.seconds).clamp(1.0, 60.0).ceil();
        let what = format!(
            "busy: {} sessions run and {} wait: try again in {seconds} s",
            state.sessions,
            state.waiting.len()
        );
        Error::of(ErrorKind::Busy, what)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        state.sessions -= 1;
        state.memory = state.memory.saturating_sub(self.memory);
        state.seconds = 0.8 * state.seconds + 0.2 * self.since.elapsed().as_secs_f64();
        if let Some(running) = state.running.get_mut(&self.client) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.client);
            }
        }
        drop(state);
        self.admission.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::capacity::Capacity;
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    fn admission(max_sessions: usize, sessions_per_client: usize, max_waiting: usize) -> Admission {
        let memory_mib = 1;
        Admission::new(Current::of(Capacity {
            max_sessions,
            sessions_per_client,
            max_waiting,
            memory_mib,
            ..Capacity::default()
        }))
    }

    fn here() -> Result<()> {
        Ok(())
    }

    fn until(what: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < end, "waited for too long");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn turns_go_round_between_clients() {
        let admission = admission(1, 1, 100);
        let first = admission.turn("a", 0, false, None, here).unwrap();
        let (done, order) = mpsc::channel();
        std::thread::scope(|scope| {
            for client in ["a", "a", "a", "b", "c"] {
                let (admission, done) = (&admission, done.clone());
                let before = admission.waiting();
                scope.spawn(move || {
                    let _place = admission.turn(client, 0, false, None, here).unwrap();
                    done.send(client).unwrap();
                });
                until(|| admission.waiting() == before + 1);
            }
            drop(first);
        });
        drop(done);
        // `a` came first and has had a turn: the others go before its next, and then it has its
        // own.
        assert_eq!(order.iter().collect::<Vec<_>>(), ["b", "c", "a", "a", "a"]);
        assert_eq!((admission.sessions(), admission.waiting()), (0, 0));
    }

    #[test]
    fn one_client_leaves_places_to_others() {
        let admission = admission(3, 2, 100);
        let _two = [0; 2].map(|_| admission.turn("greedy", 0, false, None, here).unwrap());
        let gone = || Err(Error::of(ErrorKind::PeerLost, "gone"));
        assert_eq!(
            admission.turn("greedy", 0, false, None, gone).map(|_| ()).unwrap_err().kind(),
            ErrorKind::PeerLost
        );
        assert_eq!(admission.waiting(), 0, "who has gone does not wait");
        assert!(admission.turn("modest", 0, false, None, gone).is_ok(), "at once");
    }

    #[test]
    fn a_full_queue_says_so_at_once_and_halves_are_kept_free() {
        let admission = admission(1, 1, 2);
        let _running = admission.turn("a", 0, false, None, here).unwrap();
        let gone = AtomicBool::new(false);
        let leave = || match gone.load(Ordering::Acquire) {
            true => Err(Error::of(ErrorKind::PeerLost, "gone")),
            false => Ok(()),
        };
        let wait =
            |client, depend| drop(admission.turn(client, 0, depend, None, leave).map(|_| ()).unwrap_err());
        std::thread::scope(|scope| {
            scope.spawn(|| wait("a", false));
            until(|| admission.waiting() == 1);
            let error = admission.turn("a", 0, false, None, here).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
            assert!(error.to_string().contains("1 sessions run and 1 wait: try again in"), "{error}");
            // Another client still finds room, and so does who cannot come back.
            scope.spawn(|| wait("b", false));
            until(|| admission.waiting() == 2);
            let error = admission.turn("c", 0, false, None, here).map(|_| ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
            scope.spawn(|| wait("a", true));
            until(|| admission.waiting() == 3);
            gone.store(true, Ordering::Release);
        });
    }

    #[test]
    fn a_client_in_a_hurry_is_told_when_its_time_is_over() {
        let admission = admission(1, 1, 9);
        let _running = admission.turn("a", 0, false, None, here).unwrap();
        let start = Instant::now();
        let soon = Some(Duration::from_millis(300));
        let error = admission.turn("b", 0, false, soon, here).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        assert!(start.elapsed() >= Duration::from_millis(300) && admission.waiting() == 0);
    }

    #[test]
    fn memory_admits_what_fits_and_giants_alone() {
        let admission = admission(9, 9, 9);
        let gone = || Err(Error::of(ErrorKind::PeerLost, "gone"));
        let small = admission.turn("a", 600 << 10, false, None, here).unwrap();
        assert!(admission.turn("b", 600 << 10, false, None, gone).is_err(), "both do not fit into 1 MiB");
        drop(small);
        let giant = admission.turn("b", 1 << 40, false, None, gone).unwrap();
        assert!(admission.turn("a", 1, false, None, gone).is_err());
        drop(giant);
        assert!(admission.turn("a", 1, false, None, gone).is_ok());
    }

    #[test]
    fn a_draining_party_admits_nothing() {
        let admission = admission(1, 1, 9);
        let running = admission.turn("a", 0, false, None, here).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| admission.turn("b", 0, false, None, here).map(|_| ()).unwrap_err());
            until(|| admission.waiting() == 1);
            admission.drain();
            assert_eq!(waits.join().unwrap().kind(), ErrorKind::Busy);
        });
        assert_eq!(admission.turn("c", 0, true, None, here).map(|_| ()).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(admission.sessions(), 1, "what runs may finish");
        drop(running);
        assert_eq!(admission.sessions(), 0);
    }

    #[test]
    fn followers_trust_the_decision_within_reason() {
        let admission = admission(1, 1, 0);
        let _places = [0; 2].map(|_| admission.follow("a", 0).unwrap());
        assert_eq!(admission.follow("a", 0).map(|_| ()).unwrap_err().kind(), ErrorKind::Busy);
    }
}
