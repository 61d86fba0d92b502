//! Programs of several clients. Those who take part meet under a name and bring the same program;
//! then the thread of the first of them runs it at this party, for all. Until then a party holds
//! the program's bytes once, and no share.
//!
//! Parties do not trust a client to have asked all of them the same: the session is named after the
//! program and the parts of all clients, so parties that differ do not meet, and its hash is agreed
//! before any client is asked for a share.

use super::asked::{Asked, Wish};
use super::clients::{ChannelClients, ClientChannel, alive, by, hold};
use super::connections::Receiving;
use super::host::ended;
use super::meetings::{Ended, Guest, Key, Seat};
use super::service::Service;
use super::stored::forbidden;
use crate::protocols::{MIZAR_FLOAT, in_floats};
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
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

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
        if in_floats(protocol)? != protocol {
            return Err(Error::Refused(format!("`{protocol}` is not the protocol of its floats")));
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
        let capacity = &self.host.settings.get().capacity;
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
        let most = self.host.settings.get().max_elements;
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
            within: None,
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
            let capacity = &self.host.settings.get().capacity;
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
    /// Until when all inputs must be there, and all outputs taken: clients wait for each other, and
    /// a sign of life gives none more time.
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
