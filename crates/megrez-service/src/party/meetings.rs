//! Where the clients of a program wait for each other.

use super::capacity::Capacity;
use super::clients::ClientChannel;
use crate::failure::Failure;
use crate::{Error, ErrorKind, Result};
use megrez_engine::PartyReport;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the programs that wait at most, together; those in which one client takes part have a
/// quarter of it.
const MAX_WAITING: usize = 256 << 20;

/// How often who waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What must be the same for clients to meet: the protocol, the name, and all who take part, in any
/// order.
pub(super) type Key = (String, String, Vec<String>);

/// How a program ended.
pub(super) type Ended = std::result::Result<PartyReport, Failure>;

/// Where the clients of programs wait for each other.
#[derive(Default)]
pub(super) struct Meetings {
    state: Mutex<State>,
    changed: Condvar,
    /// Programs are taken apart one at a time, for that takes many times their bytes.
    pub(super) reading: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Those that wait for somebody, by number.
    waiting: HashMap<Key, u64>,
    meetings: BTreeMap<u64, Meeting>,
    serial: u64,
}

struct Meeting {
    program: Arc<Vec<u8>>,
    guests: BTreeMap<String, Guest>,
    /// All have come.
    begun: bool,
    /// It has a place, which counts its memory.
    admitted: bool,
    /// The session in which it runs, once all are to write down that they take part.
    session: Option<[u8; 16]>,
    /// Who has, besides the first client.
    noted: BTreeSet<String>,
    /// How it ended; whoever has heard of it leaves.
    ended: Option<Ended>,
}

/// A client that takes part.
#[derive(Clone)]
pub(super) struct Guest {
    pub(super) part: [u8; 16],
    pub(super) channel: Arc<ClientChannel>,
    pub(super) until: Instant,
}

/// A client's place in a meeting; it has left when this is dropped.
pub(super) struct Seat<'a> {
    meetings: &'a Meetings,
    pub(super) key: &'a Key,
    client: &'a str,
    pub(super) channel: Arc<ClientChannel>,
    number: u64,
    pub(super) program: Arc<Vec<u8>>,
}

impl Meetings {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client in.
    ///
    /// # Errors
    /// If it has come already, has another program than those who wait, or too many wait.
    pub(super) fn enter<'a>(
        &'a self,
        key: &'a Key,
        client: &'a str,
        guest: Guest,
        program: Vec<u8>,
        capacity: &Capacity,
    ) -> Result<Seat<'a>> {
        let mut state = self.lock();
        let state = &mut *state;
        // Who comes again after its connection broke has left, even if nobody has noticed yet.
        let waiting = state.meetings.values_mut().filter(|meeting| !meeting.begun);
        waiting
            .for_each(|meeting| meeting.guests.retain(|name, guest| name != client || !guest.channel.gone()));
        state.clear();
        state.room(key, client, program.len(), capacity)?;
        state.serial += 1;
        let number = *state.waiting.entry(key.clone()).or_insert(state.serial);
        let meeting = state.meetings.entry(number).or_insert_with(|| Meeting {
            program: Arc::new(program.clone()),
            guests: BTreeMap::new(),
            begun: false,
            admitted: false,
            session: None,
            noted: BTreeSet::new(),
            ended: None,
        });
        if meeting.guests.contains_key(client) {
            let what = format!("`{client}` takes part in `{}` already: give this run another name", key.1);
            return Err(Error::Refused(what));
        }
        if *meeting.program != program {
            let there: Vec<&str> = meeting.guests.keys().map(String::as_str).collect();
            let what = format!(
                "`{client}` has brought another program for `{}` than `{}`: use the same source, the same shapes and one \
                 release of megrez everywhere",
                key.1,
                there.join("`, `")
            );
            meeting.ended = Some(Err(Failure { kind: ErrorKind::Invalid, reason: what.clone() }));
            state.waiting.remove(key);
            self.changed.notify_all();
            return Err(Error::Refused(what));
        }
        let (channel, program) = (Arc::clone(&guest.channel), Arc::clone(&meeting.program));
        meeting.guests.insert(client.into(), guest);
        if meeting.guests.len() == key.2.len() {
            meeting.guests.retain(|name, guest| name == client || !guest.channel.gone());
            meeting.begun = meeting.guests.len() == key.2.len();
        }
        if meeting.begun {
            state.waiting.remove(key);
            self.changed.notify_all();
        }
        Ok(Seat { meetings: self, key, client, channel, number, program })
    }
}

impl State {
    /// Whether there is room for one more program that waits for its clients or for its turn.
    fn room(&self, key: &Key, client: &str, bytes: usize, capacity: &Capacity) -> Result<()> {
        let all = || self.meetings.values().filter(|meeting| !meeting.admitted);
        let mine = || all().filter(|meeting| meeting.guests.contains_key(client));
        let held = |meeting: &Meeting| meeting.program.len();
        let most = capacity.sessions_per_client.min(capacity.max_waiting.div_ceil(4));
        let own = mine().count() >= most || mine().map(held).sum::<usize>() + bytes > MAX_WAITING / 4;
        // Who joins others makes no meeting more.
        let full =
            all().count() >= capacity.max_waiting || all().map(held).sum::<usize>() + bytes > MAX_WAITING;
        if own || full && !self.waiting.contains_key(key) {
            let what = "too many programs wait for their clients: try again later";
            return Err(Error::of(ErrorKind::Busy, what));
        }
        Ok(())
    }

    /// A meeting without clients is none.
    fn clear(&mut self) {
        self.meetings.retain(|_, meeting| !meeting.guests.is_empty());
        self.waiting.retain(|_, number| self.meetings.contains_key(number));
    }
}

impl Seat<'_> {
    /// Its meeting, unless another connection of its client has taken its place.
    fn of<'s>(&self, state: &'s mut State) -> Result<&'s mut Meeting> {
        let meeting = state.meetings.get_mut(&self.number).filter(|meeting| {
            meeting.guests.get(self.client).is_some_and(|guest| Arc::ptr_eq(&guest.channel, &self.channel))
        });
        meeting.ok_or_else(|| Error::of(ErrorKind::PeerLost, "the client has gone"))
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.meetings.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until all have come.
    ///
    /// # Errors
    /// If not all come in time, this one goes, or they do not agree.
    pub(super) fn gathered(
        &self,
        until: Instant,
        present: impl Fn() -> Result<()>,
    ) -> Result<BTreeMap<String, Guest>> {
        let mut state = self.meetings.lock();
        loop {
            let meeting = self.of(&mut state)?;
            match &meeting.ended {
                Some(Err(failure)) => return Err(failure.clone().into()),
                _ if meeting.begun => return Ok(meeting.guests.clone()),
                _ if Instant::now() >= until => {
                    let all = self.key.2.iter().map(String::as_str);
                    let missing: Vec<&str> = all.filter(|c| !meeting.guests.contains_key(*c)).collect();
                    let what =
                        format!("`{}` have not come to `{}` in time", missing.join("`, `"), self.key.1);
                    return Err(Error::of(ErrorKind::TimedOut, what));
                }
                _ => {}
            }
            state = self.wait(state);
            drop(state);
            let here = present();
            state = self.meetings.lock();
            if !self.of(&mut state)?.begun {
                here?;
            }
        }
    }

    /// From now on the place that it has counts its memory.
    pub(super) fn admitted(&self) {
        let _ = self.of(&mut self.meetings.lock()).map(|meeting| meeting.admitted = true);
    }

    /// Has all others write down that they take part in a session, and waits until they have.
    ///
    /// # Errors
    /// If one of them cannot.
    pub(super) fn noted(&self, session: [u8; 16]) -> Result<()> {
        let mut state = self.meetings.lock();
        self.of(&mut state)?.session = Some(session);
        self.meetings.changed.notify_all();
        loop {
            let meeting = self.of(&mut state)?;
            if meeting.guests.len() < self.key.2.len() {
                let what = "a client has gone, or this party could not write down that it takes part";
                return Err(Error::of(ErrorKind::PeerLost, what));
            }
            if meeting.noted.len() + 1 == self.key.2.len() {
                return Ok(());
            }
            state = self.wait(state);
        }
    }

    /// Waits for the end of a meeting that has begun; `note` writes down that this client takes
    /// part, when the time has come.
    pub(super) fn outcome(&self, note: impl Fn([u8; 16]) -> Result<()>) -> Result<PartyReport> {
        let mut state = self.meetings.lock();
        loop {
            let meeting = self.of(&mut state)?;
            if let Some(ended) = &meeting.ended {
                return ended.clone().map_err(Error::from);
            }
            match meeting.session.filter(|_| !meeting.noted.contains(self.client)) {
                Some(session) => {
                    drop(state);
                    note(session)?;
                    state = self.meetings.lock();
                    self.of(&mut state)?.noted.insert(self.client.into());
                    self.meetings.changed.notify_all();
                }
                None => state = self.wait(state),
            }
        }
    }

    pub(super) fn end(&self, ended: Ended) {
        let mut state = self.meetings.lock();
        if let Ok(meeting) = self.of(&mut state) {
            meeting.ended.get_or_insert(ended);
            state.waiting.retain(|_, number| *number != self.number);
        }
        self.meetings.changed.notify_all();
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut state = self.meetings.lock();
        let _ = self.of(&mut state).map(|meeting| meeting.guests.remove(self.client));
        state.clear();
        self.meetings.changed.notify_all();
    }
}
