//! Programs of several clients. Those who take part meet under a name and bring the same program; then the thread of the first of
//! them runs it at this party, for all. Until then a party holds the program's bytes once, and no share.
//!
//! Parties do not trust a client to have asked all of them the same: the session is named after the program and the parts of all
//! clients, so parties that differ do not meet, and its hash is agreed before any client is asked for a share.

use super::asked::{Asked, Wish};
use super::capacity::Capacity;
use super::clients::{ChannelClients, ClientChannel, alive, by, hold};
use super::connections::Receiving;
use super::host::ended;
use super::service::Service;
use super::stored::forbidden;
use crate::protocols::{MIZAR_FLOAT, is_float};
use crate::wire::{self, Failure, Join, MAX_RUN_NAME, Reply};
use crate::{Error, ErrorKind, Result};
use megrez_engine::float::{Program, serve_program};
use megrez_engine::{Clients, PartyReport, agree, hash};
use megrez_float::programs::tape::Shape;
use megrez_kernels::Cpu;
use megrez_net::{NetProfile, Network, Payload};
use megrez_plan::{Input, Output};
use megrez_session::{Error as SessionError, Party};
use megrez_twoparty::client::share_bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the programs that wait at most, together; those in which one client takes part have a quarter of it.
const MAX_WAITING: usize = 256 << 20;
/// How often who waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What must be the same for clients to meet: the protocol, the name, and all who take part, in any order.
type Key = (String, String, Vec<String>);

/// How a program ended.
type Ended = std::result::Result<PartyReport, Failure>;

/// Where the clients of programs wait for each other.
#[derive(Default)]
pub(super) struct Meetings {
    state: Mutex<State>,
    changed: Condvar,
    /// Programs are taken apart one at a time, for that takes many times their bytes.
    reading: Mutex<()>,
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
struct Guest {
    part: [u8; 16],
    channel: Arc<ClientChannel>,
    until: Instant,
}

/// A client's place in a meeting; it has left when this is dropped.
struct Seat<'a> {
    meetings: &'a Meetings,
    key: &'a Key,
    client: &'a str,
    channel: Arc<ClientChannel>,
    number: u64,
    program: Arc<Vec<u8>>,
}

impl Meetings {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client in.
    ///
    /// # Errors
    /// If it has come already, has another program than those who wait, or too many wait.
    fn enter<'a>(
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
    fn gathered(&self, until: Instant, present: impl Fn() -> Result<()>) -> Result<BTreeMap<String, Guest>> {
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
    fn admitted(&self) {
        let _ = self.of(&mut self.meetings.lock()).map(|meeting| meeting.admitted = true);
    }

    /// Has all others write down that they take part in a session, and waits until they have.
    ///
    /// # Errors
    /// If one of them cannot.
    fn noted(&self, session: [u8; 16]) -> Result<()> {
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

    /// Waits for the end of a meeting that has begun; `note` writes down that this client takes part, when the time has come.
    fn outcome(&self, note: impl Fn([u8; 16]) -> Result<()>) -> Result<PartyReport> {
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

    fn end(&self, ended: Ended) {
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

/// Tells those who wait, also where the thread that runs for all of them panics.
struct Ending<'a> {
    seat: &'a Seat<'a>,
    ended: Option<Ended>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let reason = "the program ended unexpectedly; look at the party's log".into();
        let lost = || Err(Failure { kind: ErrorKind::Internal, reason });
        self.seat.end(self.ended.take().unwrap_or_else(lost));
    }
}

impl Service {
    /// Takes part in a program for a client.
    pub(super) fn join(
        &self,
        asked: &Asked,
        join: Join,
        shared: &Arc<ClientChannel>,
        permitted: Result<()>,
        room: Option<Receiving<'_>>,
    ) -> Result<()> {
        let report = alive(shared, || self.attend(asked, join, shared, permitted, room))?;
        wire::send(&mut hold(shared), &Reply::Reports(vec![report]))
    }

    fn attend(
        &self,
        asked: &Asked,
        join: Join,
        shared: &Arc<ClientChannel>,
        permitted: Result<()>,
        room: Option<Receiving<'_>>,
    ) -> Result<PartyReport> {
        let protocol = self.host.protocol(&join.protocol, false)?.name;
        permitted?;
        if !is_float(protocol) {
            let what =
                format!("`{protocol}` does not compute in floating point: use `secfloat` or `mizar-float`");
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        if join.name.len() > MAX_RUN_NAME || join.name.chars().any(char::is_control) {
            let what =
                format!("the name of a run has at most {MAX_RUN_NAME} bytes and no control characters");
            return Err(Error::Refused(what));
        }
        let mut names = wire::program_clients(&join.program)?;
        if !names.iter().any(|client| client == asked.client) {
            return Err(forbidden(format!("`{}` takes no part in this program", asked.client)));
        }
        let first = names[0] == asked.client;
        names.sort_unstable();
        let key: Key = (join.protocol, join.name, names);
        let capacity = &self.host.policy.capacity;
        let until = Instant::now() + capacity.turn().min(Duration::from_secs(join.seconds.into()));
        let guest = Guest { part: join.session, channel: Arc::clone(shared), until };
        let seat = self.meetings.enter(&key, asked.client, guest, join.program, capacity)?;
        drop(room);
        let memory = self.needs(protocol, &seat.program).inspect_err(|e| seat.end(Err(Failure::from(e))))?;
        let here = || {
            self.admission.is_open()?;
            shared.present()
        };
        let guests = seat.gathered(until, here)?;
        if first {
            let mut ending = Ending { seat: &seat, ended: None };
            let ran = self.run_program(asked, &seat, memory, guests);
            ran.iter().for_each(|report| self.metrics.sent(&report.wire_bytes));
            ending.ended = Some(ran.as_ref().map(Clone::clone).map_err(Failure::from));
        }
        seat.outcome(|session| {
            asked.is_done_in(session);
            asked.accept()
        })
    }

    /// A program that this party has room for, and its shapes.
    fn program(&self, bytes: &[u8]) -> Result<(Program, Vec<Shape>)> {
        let program = wire::program(bytes)?;
        let most = self.host.policy.max_elements;
        let shapes = program.check(most).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        Ok((program, shapes))
    }

    /// The memory that a program takes.
    fn needs(&self, protocol: &str, bytes: &[u8]) -> Result<u64> {
        let _one = self.meetings.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let (program, shapes) = self.program(bytes)?;
        let memory = Program::memory(&shapes, bytes.len());
        if protocol != MIZAR_FLOAT.name {
            return Ok(memory);
        }
        Ok(memory.saturating_add(program.dealt(&shapes).min(self.host.endpoint.sent_ahead())))
    }

    fn run_program(
        &self,
        asked: &Asked,
        seat: &Seat<'_>,
        memory: u64,
        guests: BTreeMap<String, Guest>,
    ) -> Result<PartyReport> {
        let parts: Vec<(&String, [u8; 16])> = guests.iter().map(|(name, guest)| (name, guest.part)).collect();
        let all = postcard::to_allocvec(&(seat.key, wire::program_hash(&seat.program), parts));
        let request = hash("megrez 2026 joint request", &all.map_err(|e| Error::of(ErrorKind::Internal, e))?);
        let mut session = [0; 16];
        session.copy_from_slice(&request[..16]);
        let present = || guests.values().try_for_each(|guest| guest.channel.present());
        let patient = || {
            if guests.values().any(|guest| Instant::now() >= guest.until) {
                return Err(Error::of(ErrorKind::TimedOut, "the program has not had its turn in time"));
            }
            present()
        };
        let profile = &NetProfile::loopback();
        let wish = Wish {
            asked,
            session,
            profile,
            present: &patient,
            depend: false,
            alone: false,
            ready: Ok(()),
            memory: &|_: &()| memory,
        };
        let ((), _place) = self.admitted(wish)?;
        seat.admitted();
        asked.is_done_in(session);
        let network = self.host.join(asked, session, profile)?;
        let serve = || {
            let (program, shapes) = self.program(&seat.program)?;
            let mut party = Party::start(network.clone(), Cpu::new(1))?;
            agree(&mut party, "request", &request)?;
            seat.noted(session)?;
            present()?;
            for guest in guests.values() {
                wire::send(&mut hold(&guest.channel), &Reply::Begun)?;
            }
            let capacity = &self.host.policy.capacity;
            let [given, opened] = program.exchanged(&shapes).map(|lanes| share_bytes(1) as u64 * lanes);
            let mut clients = Guests {
                guests: &guests,
                network: network.clone(),
                given: Due::within(capacity.time_for(given)),
                opened: Due::within(capacity.time_for(opened)),
            };
            Ok(serve_program(&program, party, &mut clients)?)
        };
        ended(&network, serve())
    }
}

/// A time that begins when somebody is first waited for.
struct Due {
    time: Duration,
    at: Option<Instant>,
}

impl Due {
    fn within(time: Duration) -> Self {
        Due { time, at: None }
    }

    fn at(&mut self) -> Instant {
        *self.at.get_or_insert_with(|| Instant::now() + self.time)
    }
}

/// The clients of a program, each over its own channel.
struct Guests<'a> {
    guests: &'a BTreeMap<String, Guest>,
    network: Network,
    /// Until when all inputs must be there, and all outputs taken: clients wait for each other, and a sign of life gives none more time.
    given: Due,
    opened: Due,
}

impl Guests<'_> {
    fn of(&self, client: &str, due: Option<Instant>) -> ChannelClients<'_> {
        ChannelClients { channel: &self.guests[client].channel, network: self.network.clone(), due }
    }
}

impl Clients for Guests<'_> {
    fn mask_key(&mut self, input: &Input, mask_key: Vec<u8>) -> std::result::Result<(), SessionError> {
        self.of(&input.owner, None).mask_key(input, mask_key)
    }
    fn data(&mut self, input: &Input, limit: usize) -> std::result::Result<Payload, SessionError> {
        let due = self.given.at();
        self.of(&input.owner, Some(due)).data(input, limit)
    }
    fn output(&mut self, output: &Output, share: Payload) -> std::result::Result<(), SessionError> {
        let due = self.opened.at();
        let mut client = self.of(&output.recipient, None);
        by(due, client.channel, || client.output(output, share))
    }
}
