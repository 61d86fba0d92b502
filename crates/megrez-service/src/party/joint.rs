//! Programs of several clients. Those who take part meet under a name and bring the same program; then the thread of the first of
//! them runs it at this party, for all. Until then a party holds the program's bytes once, and no share.
//!
//! Parties do not trust a client to have asked all of them the same: the session is named after the program and the parts of all
//! clients, so parties that differ do not meet, and its hash is agreed before any client is asked for a share.

use super::asked::Asked;
use super::clients::{ChannelClients, Shared, alive, hold};
use super::host::ended;
use super::service::{Service, Wish};
use super::stored::forbidden;
use crate::protocols::{MIZAR_FLOAT, is_float};
use crate::wire::{self, Failure, Join, Reply};
use crate::{Error, ErrorKind, Result};
use megrez_engine::float::{Program, serve_program};
use megrez_engine::{Clients, PartyReport, agree, hash};
use megrez_kernels::Cpu;
use megrez_net::{NetProfile, Network, Payload, PeerName};
use megrez_plan::{Input, Output};
use megrez_session::{Error as SessionError, Party};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest name of a run, in bytes.
const MAX_NAME: usize = 64;
/// Bytes of the programs that wait at most, together.
const MAX_WAITING: usize = 256 << 20;
/// How often who waits looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What must be the same for clients to meet: the protocol, the name, and all who take part, in any order.
type Key = (String, String, Vec<String>);

/// Where the clients of programs wait for each other.
#[derive(Default)]
pub(super) struct Meetings {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Those that wait for somebody, by number.
    waiting: HashMap<Key, u64>,
    meetings: HashMap<u64, Meeting>,
    serial: u64,
}

struct Meeting {
    program: Arc<Vec<u8>>,
    guests: BTreeMap<String, Guest>,
    begun: bool,
    /// How it ended; whoever has heard of it leaves.
    ended: Option<std::result::Result<PartyReport, Failure>>,
}

/// A client that takes part.
#[derive(Clone)]
struct Guest {
    part: [u8; 16],
    channel: Arc<Shared>,
}

impl Meetings {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client in: the number of its meeting.
    ///
    /// # Errors
    /// If it has come already, has another program than those who wait, or too many wait.
    fn enter(&self, key: &Key, client: &str, guest: Guest, program: Vec<u8>, most: usize) -> Result<u64> {
        let mut state = self.lock();
        let state = &mut *state;
        let mine = state.meetings.values().filter(|m| !m.begun && m.guests.contains_key(client)).count();
        let held: usize = state.meetings.values().map(|m| m.program.len()).sum();
        if mine >= most || held.saturating_add(program.len()) > MAX_WAITING {
            return Err(Error::of(
                ErrorKind::Busy,
                "too many programs wait for their clients: try again later",
            ));
        }
        state.serial += 1;
        let number = *state.waiting.entry(key.clone()).or_insert(state.serial);
        let program = Arc::new(program);
        let meeting = state.meetings.entry(number).or_insert_with(|| Meeting {
            program: Arc::clone(&program),
            guests: BTreeMap::new(),
            begun: false,
            ended: None,
        });
        if meeting.guests.contains_key(client) {
            let what = format!("`{client}` takes part in `{}` already: give this run another name", key.1);
            return Err(Error::Refused(what));
        }
        if meeting.program != program {
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
        meeting.guests.insert(client.into(), guest);
        if meeting.guests.len() == key.2.len() {
            meeting.begun = true;
            state.waiting.remove(key);
            self.changed.notify_all();
        }
        Ok(number)
    }

    /// Waits until all have come: the program and the clients.
    ///
    /// # Errors
    /// If not all come in time, this one goes, or they do not agree.
    fn gathered(
        &self,
        number: u64,
        key: &Key,
        client: &str,
        until: Instant,
        present: impl Fn() -> Result<()>,
    ) -> Result<(Arc<Vec<u8>>, BTreeMap<String, Guest>)> {
        let mut state = self.lock();
        let left = loop {
            let meeting = &state.meetings[&number];
            match &meeting.ended {
                _ if meeting.begun => return Ok((Arc::clone(&meeting.program), meeting.guests.clone())),
                Some(Err(failure)) => break Error::from(failure.clone()),
                _ if Instant::now() >= until => {
                    let missing: Vec<&str> = key
                        .2
                        .iter()
                        .map(String::as_str)
                        .filter(|c| !meeting.guests.contains_key(*c))
                        .collect();
                    let what = format!("`{}` have not come to `{}` in time", missing.join("`, `"), key.1);
                    break Error::of(ErrorKind::TimedOut, what);
                }
                _ => {}
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            drop(state);
            let here = present();
            state = self.lock();
            if let Err(gone) = here
                && !state.meetings[&number].begun
            {
                break gone;
            }
        };
        leave(&mut state, number, key, client);
        Err(left)
    }

    /// Waits for the end of a meeting that has begun, and leaves it.
    fn outcome(&self, number: u64, key: &Key, client: &str) -> Result<PartyReport> {
        let mut state = self.lock();
        loop {
            if let Some(ended) = &state.meetings[&number].ended {
                let ended = ended.clone().map_err(Error::from);
                leave(&mut state, number, key, client);
                return ended;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self, number: u64, ended: std::result::Result<PartyReport, Failure>) {
        if let Some(meeting) = self.lock().meetings.get_mut(&number) {
            meeting.ended.get_or_insert(ended);
        }
        self.changed.notify_all();
    }
}

/// A client leaves; a meeting without clients is none.
fn leave(state: &mut State, number: u64, key: &Key, client: &str) {
    let Some(meeting) = state.meetings.get_mut(&number) else { return };
    meeting.guests.remove(client);
    if meeting.guests.is_empty() {
        state.meetings.remove(&number);
        if state.waiting.get(key) == Some(&number) {
            state.waiting.remove(key);
        }
    }
}

/// Tells those who wait, also where the thread that runs for all of them panics.
struct Ending<'a> {
    meetings: &'a Meetings,
    number: u64,
    ended: Option<std::result::Result<PartyReport, Failure>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let reason = "the program ended unexpectedly; look at the party's log".into();
        let lost = || Err(Failure { kind: ErrorKind::Internal, reason });
        self.meetings.end(self.number, self.ended.take().unwrap_or_else(lost));
    }
}

impl Service {
    /// Takes part in a program for a client.
    pub(super) fn join(
        &self,
        asked: &Asked,
        join: Join,
        shared: &Arc<Shared>,
        permitted: Result<()>,
    ) -> Result<()> {
        let report = alive(shared, || self.attend(asked, join, shared, permitted))?;
        wire::send(&mut hold(shared), &Reply::Reports(vec![report]))
    }

    fn attend(
        &self,
        asked: &Asked,
        join: Join,
        shared: &Arc<Shared>,
        permitted: Result<()>,
    ) -> Result<PartyReport> {
        let protocol = self.host.protocol(&join.protocol, false)?.name;
        permitted?;
        if !is_float(protocol) {
            let what =
                format!("`{protocol}` does not compute in floating point: use `secfloat` or `mizar-float`");
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        if join.name.len() > MAX_NAME || join.name.chars().any(char::is_control) {
            let what = format!("the name of a run has at most {MAX_NAME} bytes and no control characters");
            return Err(Error::Refused(what));
        }
        let clients = self.program(&join.program)?.0.clients;
        clients.iter().try_for_each(|client| PeerName::client(client).map(drop))?;
        if !clients.iter().any(|client| client == asked.client) {
            return Err(forbidden(format!("`{}` takes no part in this program", asked.client)));
        }
        let first = clients[0] == asked.client;
        let mut names = clients;
        names.sort_unstable();
        let key: Key = (join.protocol, join.name, names);
        let capacity = &self.host.policy.capacity;
        let until = Instant::now() + capacity.turn().min(Duration::from_secs(join.seconds.into()));
        let guest = Guest { part: join.session, channel: Arc::clone(shared) };
        let number =
            self.meetings.enter(&key, asked.client, guest, join.program, capacity.sessions_per_client)?;
        let here = || {
            self.admission.is_open()?;
            shared.present()
        };
        let (program, guests) = self.meetings.gathered(number, &key, asked.client, until, here)?;
        if first {
            let mut ending = Ending { meetings: &self.meetings, number, ended: None };
            let ran = self.run_program(asked, protocol, &key, &program, guests);
            ran.iter().for_each(|report| self.metrics.sent(&report.wire_bytes));
            ending.ended = Some(ran.as_ref().map(Clone::clone).map_err(Failure::from));
        } else {
            drop(guests);
            // Who cannot write it down ends it by going, and hears how it ended like all others.
            if let Err(e) = asked.accept() {
                hold(shared).hang_up_handle()?.hang_up();
                self.meetings.outcome(number, &key, asked.client)?;
                return Err(e);
            }
        }
        self.meetings.outcome(number, &key, asked.client)
    }

    /// A program that this party has room for, and the memory that it takes.
    fn program(&self, bytes: &[u8]) -> Result<(Program, u64)> {
        let program = wire::program(bytes)?;
        let most = self.host.policy.max_elements;
        let shapes = program.check(most).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        let memory = Program::memory(&shapes);
        Ok((program, memory))
    }

    fn run_program(
        &self,
        asked: &Asked,
        protocol: &str,
        key: &Key,
        bytes: &[u8],
        guests: BTreeMap<String, Guest>,
    ) -> Result<PartyReport> {
        let (program, mut memory) = self.program(bytes)?;
        if protocol == MIZAR_FLOAT.name {
            memory = memory.saturating_add(program.dealt().min(self.host.endpoint.sent_ahead()));
        }
        let parts: Vec<(&String, [u8; 16])> = guests.iter().map(|(name, guest)| (name, guest.part)).collect();
        let all = postcard::to_allocvec(&(key, wire::program_hash(bytes), parts));
        let request = hash("megrez 2026 joint request", &all.map_err(|e| Error::of(ErrorKind::Internal, e))?);
        let mut session = [0; 16];
        session.copy_from_slice(&request[..16]);
        let present = || guests.values().try_for_each(|guest| guest.channel.present());
        let profile = &NetProfile::loopback();
        let wish = Wish {
            asked,
            session,
            profile,
            present: &present,
            depend: false,
            alone: false,
            ready: Ok(()),
            memory: &|_: &()| memory,
        };
        let ((), _place) = self.admitted(wish)?;
        let network = self.host.join(asked, session, profile)?;
        let serve = || {
            let mut party = Party::start(network.clone(), Cpu::new(1))?;
            agree(&mut party, "request", &request)?;
            for guest in guests.values() {
                wire::send(&mut hold(&guest.channel), &Reply::Begun)?;
            }
            let mut clients = Guests { guests: &guests, network: network.clone() };
            Ok(serve_program(&program, party, &mut clients)?)
        };
        ended(&network, serve())
    }
}

/// The clients of a program, each over its own channel.
struct Guests<'a> {
    guests: &'a BTreeMap<String, Guest>,
    network: Network,
}

impl Guests<'_> {
    fn of(&self, client: &str) -> ChannelClients<'_> {
        ChannelClients { channel: &self.guests[client].channel, network: self.network.clone() }
    }
}

impl Clients for Guests<'_> {
    fn mask_key(&mut self, input: &Input, mask_key: Vec<u8>) -> std::result::Result<(), SessionError> {
        self.of(&input.owner).mask_key(input, mask_key)
    }
    fn data(&mut self, input: &Input, limit: usize) -> std::result::Result<Payload, SessionError> {
        self.of(&input.owner).data(input, limit)
    }
    fn output(&mut self, output: &Output, share: Payload) -> std::result::Result<(), SessionError> {
        self.of(&output.recipient).output(output, share)
    }
}
