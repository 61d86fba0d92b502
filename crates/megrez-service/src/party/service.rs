//! The service: accepts clients, takes their requests, and has each done in a session of its own.

use super::admission::{Admission, Place};
use super::asked::{Asked, Wish, seconds};
use super::chosen::Chosen;
use super::clients::{ClientChannel, alive, hold, until};
use super::connections::{Connection, Connections, Receiving};
use super::float;
use super::host::{Host, Policy, ended, hash, writable};
use super::jobs::{PrepareJob, RunJob, UploadJob};
use super::kept::Kept;
use super::meetings::Meetings;
use super::metrics::Metrics;
use super::opened::StoredModel;
use super::recent::Recent;
use super::rights::Rights;
use super::settings::Current;
use super::stored::{ModelHeader, taken};
use super::traces::Traces;
use super::training::Training;
use super::upkeep::Upkeep;
use super::uses::Uses;
use crate::audit::{Audit, Entry};
use crate::log::{Event, Level, Log};
use crate::protocols;
use crate::wire::{self, Failure, Prepare, Reply, Request, Run, Upload};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{PartyReport, files};
use megrez_kernels::Memory;
use megrez_net::{Channel, Endpoint, NetError, NetProfile, PeerName, SessionId};
use megrez_plan::{FloatPlan, Plan};
use megrez_protocols::registry::Numbers;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How often a session that waits for party 0 looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(200);
/// A party: its endpoint, its policy and its device.
pub struct Service {
    pub(super) host: Host,
    pub(super) admission: Admission,
    pub(super) connections: Connections,
    pub(super) training: Training,
    pub(super) meetings: Meetings,
    pub(super) metrics: Metrics,
    audit: Option<Audit>,
    traces: Option<Traces>,
    pub(super) rights: RwLock<Arc<Rights>>,
    pub(super) draining: AtomicBool,
    /// Whether the data folder could be written when somebody last looked.
    pub(super) writable: AtomicBool,
}

impl Service {
    /// A service on a bound endpoint; its sessions share the device.
    ///
    /// # Errors
    /// If the audit log cannot be written, or the clients' rights cannot be read.
    pub fn new(endpoint: Arc<Endpoint>, policy: Policy, device: AnyDevice) -> Result<Arc<Self>> {
        let audit = policy.audit.as_deref().map(|path| Audit::open(endpoint.me(), path)).transpose()?;
        let rights = policy.rights.as_deref().map_or_else(|| Ok(Rights::default()), Rights::load)?;
        let traces = policy.traces.as_ref().map(|config| Traces::open(endpoint.me(), config)).transpose()?;
        let settings = Current::new(policy.settings.clone());
        Ok(Arc::new(Service {
            audit,
            traces,
            rights: RwLock::new(Arc::new(rights)),
            admission: Admission::new(settings.clone()),
            connections: Connections::new(settings.clone()),
            training: Training::default(),
            meetings: Meetings::default(),
            metrics: Metrics::new(endpoint.me()),
            host: Host {
                endpoint,
                policy,
                settings,
                device,
                chosen: Chosen::default(),
                uses: Uses::default(),
                recent: Recent::default(),
            },
            draining: AtomicBool::new(false),
            writable: AtomicBool::new(true),
        }))
    }

    /// Ends gently: from now on nothing is admitted, and [`run`](Self::run) returns once what runs
    /// has finished, or its time is up.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.admission.drain();
        self.stop_jobs();
    }

    /// Sweeps away what a crash has left in its folders, then accepts clients until the endpoint
    /// stops or the party has been [drained](Self::drain); each is served in a thread of its own.
    pub fn run(self: &Arc<Self>, log: Log) -> Result<()> {
        let listening = format!(
            "party {} listens on {} and computes on {}",
            self.host.endpoint.me(),
            self.host.endpoint.local_addr(),
            self.host.device.describe()
        );
        writable(&self.host.policy.data)?;
        writable(self.host.policy.models.folder())?;
        self.audited("started")?;
        log.write(Level::Info, Event::new("listening", listening));
        let mut swept = self.host.policy.models.sweep()?;
        for folder in ["material", "jobs", "consents"].map(|name| self.host.policy.data.join(name)) {
            swept.extend(files::sweep(&folder).map_err(|e| Error::file(&folder, e))?);
        }
        swept.extend(Uses::sweep(&self.host.policy.data)?);
        for swept in swept {
            let message = format!("removed what an earlier end had left: {}", swept.display());
            log.write(Level::Warn, Event::new("swept", message));
        }
        let mut upkeep = Upkeep::default();
        let log = Arc::new(log);
        let mut ends = None;
        loop {
            if self.draining.load(Ordering::Acquire) {
                // A session has ended only when its client has heard of it.
                let running = self.admission.sessions().max(self.connections.busy());
                let end = *ends.get_or_insert_with(|| {
                    let message = format!("draining: {running} sessions run");
                    log.write(Level::Info, Event::new("draining", message));
                    Instant::now() + self.host.settings.get().capacity.drain()
                });
                if running == 0 || Instant::now() >= end {
                    let (level, message) = match running {
                        0 => (Level::Info, "drained: no session runs".to_owned()),
                        _ => (Level::Warn, format!("{running} sessions did not finish in time")),
                    };
                    log.write(level, Event::new("ending", message));
                    self.audited("drained")?;
                    self.host.endpoint.stop();
                    return Ok(());
                }
            }
            self.look_after(&mut upkeep, &log, Instant::now());
            let accepted = self.host.endpoint.accept_client_within(Duration::from_millis(200));
            let refusals = self.host.endpoint.take_refusals();
            self.metrics.refused(refusals.len());
            for refusal in refusals {
                let message = format!("refused a connection: {refusal}");
                log.write(Level::Warn, Event::new("connection-refused", message));
            }
            match accepted {
                Ok(None) => {}
                Ok(Some((name, channel))) => {
                    let (service, telling) = (Arc::clone(self), Arc::clone(&log));
                    let serve = move || service.client(&name, channel, &telling);
                    let thread = std::thread::Builder::new().name("megrez-client".into());
                    if let Err(e) = thread.spawn(serve) {
                        let message = format!("refused a client: no thread to serve it: {e}");
                        log.write(Level::Error, Event::new("connection-refused", message));
                    }
                }
                Err(NetError::Closed(_)) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn audited(&self, event: &'static str) -> Result<()> {
        self.audit.as_ref().map_or(Ok(()), |audit| audit.write(Entry { event, ..Entry::default() }, true))
    }

    /// Serves one client until it goes.
    fn client(&self, name: &PeerName, channel: Channel, log: &Log) {
        let client = match name {
            PeerName::Client(client) => client.as_str(),
            // No client's name has a blank in it.
            PeerName::Party(party) if *party == self.host.endpoint.me() => "this party",
            PeerName::Party(_) => "",
        };
        let about = |event, message| Event { client: Some(client), ..Event::new(event, message) };
        let handle = channel.hang_up_handle().map_err(Error::from);
        let mut channel = channel;
        let connection = match handle
            .and_then(|handle| self.connections.enter(client, handle, channel.certificate().cloned()))
        {
            Ok(connection) => connection,
            Err(e) => {
                log.write(Level::of(e.kind()), about("connection-refused", e.to_string()));
                let _ = wire::send(&mut channel, &Reply::Failed(Failure::from(&e)));
                let _ = channel.close();
                return;
            }
        };
        log.write(Level::Info, about("connection", "connected".to_owned()));
        let capacity = &self.host.settings.get().capacity;
        if channel.set_patience(capacity.patience()).is_err() {
            return;
        }
        let shared = Arc::new(ClientChannel::new(channel, capacity.client_idle_timeout()));
        // What this client's runs leave in shares lives as long as its connection.
        let mut kept = Kept::default();
        let e = loop {
            connection.idle(true);
            let (request, room) = match self.request(&shared, &connection) {
                Ok(request) => request,
                Err(Error::Net(NetError::Closed(_))) => return,
                Err(e) => {
                    let event = Event { kind: Some(e.kind()), ..about("connection-lost", e.to_string()) };
                    log.write(Level::of(e.kind()), event);
                    break e;
                }
            };
            let asked = Asked::new(client, &request, log, self.audit.as_ref());
            match self.answer(&asked, request, room, &shared, &mut kept) {
                Ok(()) => {
                    asked.done();
                    self.metrics.request(asked.request, None, asked.since.elapsed());
                    self.traces.iter().for_each(|traces| traces.write(&asked, None, log));
                }
                Err(e) => {
                    asked.failed(&e);
                    self.metrics.request(asked.request, Some(e.kind()), asked.since.elapsed());
                    self.traces.iter().for_each(|traces| traces.write(&asked, Some(e.kind()), log));
                    break e;
                }
            }
        };
        // What the client still sends for the failed request must not be taken for the next one.
        let _ = wire::send(&mut hold(&shared), &Reply::Failed(Failure::from(&e)));
        // A session that still has a hold on it closes it in its turn.
        let _ = Arc::into_inner(shared).map(|shared| shared.into_channel().close());
    }

    /// The next request. A large one is taken in only if there is room.
    fn request<'c>(
        &self,
        shared: &ClientChannel,
        connection: &Connection<'c>,
    ) -> Result<(Request, Option<Receiving<'c>>)> {
        let capacity = &self.host.settings.get().capacity;
        let mut channel = hold(shared);
        let (payload, room) = channel.recv_admitted(capacity.request(), capacity.idle(), |bytes| {
            connection.idle(false);
            connection.receive(bytes)
        })?;
        Ok((wire::parse(&channel, &payload)?, room))
    }

    fn answer(
        &self,
        asked: &Asked,
        request: Request,
        room: Option<Receiving<'_>>,
        channel: &Arc<ClientChannel>,
        kept: &mut Kept,
    ) -> Result<()> {
        // A program keeps its room until it is counted among those that wait.
        let room = room.filter(|_| matches!(request, Request::Join(_)));
        let rights = Arc::clone(&self.rights.read().unwrap_or_else(PoisonError::into_inner));
        let permitted = rights.permit(asked.client, &request);
        match request {
            Request::Info { version } => {
                wire::same_version(version)?;
                wire::send(&mut hold(channel), &Reply::Info(self.info()))
            }
            Request::Describe { model, batch } => {
                permitted.and_then(|()| self.describe(asked.client, &model, batch, channel))
            }
            Request::Run(run) => {
                let counted = permitted.is_ok();
                let ran = alive(channel, || self.run_plan(asked, &run, channel, kept, permitted));
                if counted && !asked.has_begun() {
                    rights.forget(asked.client, run.runs);
                }
                let reports = ran?;
                asked.measure(&reports);
                // Bytes are counted from the beginning of the session.
                reports.last().iter().for_each(|last| self.metrics.sent(&last.wire_bytes));
                wire::send(&mut hold(channel), &Reply::Reports(reports))
            }
            Request::Join(join) => {
                let counted = permitted.is_ok();
                let joined = self.join(asked, join, channel, permitted, room);
                if counted && !asked.has_begun() {
                    rights.forget(asked.client, 1);
                }
                joined
            }
            Request::Upload(upload) => {
                alive(channel, || self.upload(asked, &upload, channel, permitted))?;
                wire::send(&mut hold(channel), &Reply::Done)
            }
            Request::Prepare(prepare) => {
                alive(channel, || self.prepare(asked, &prepare, channel, permitted))?;
                wire::send(&mut hold(channel), &Reply::Done)
            }
            Request::Train(train) => {
                let counted = permitted.is_ok();
                let trained = self.train(asked, &train, channel, permitted);
                if counted && !asked.has_begun() {
                    rights.forget(asked.client, train.job.epochs());
                }
                trained
            }
            Request::Consent { consent, signature } => {
                permitted.and_then(|()| self.consent(asked, &consent, &signature, channel))
            }
            Request::Jobs { job, whole } => {
                permitted.and_then(|()| self.jobs(asked.client, job, whole, channel))
            }
            Request::Stop { job } => permitted.and_then(|()| self.stop(asked.client, job, channel)),
            Request::Remove { model } => permitted.and_then(|()| self.remove(asked, &model, channel)),
            Request::Stored => permitted.and_then(|()| self.holdings(asked.client, channel)),
            Request::Allow { usage, signature } => {
                permitted.and_then(|()| self.allow(asked, &usage, &signature, channel))
            }
            Request::Discard { material } => permitted.and_then(|()| self.discard(asked, material, channel)),
            Request::Assist(assist) => self.assist(asked, &assist, channel),
        }
    }

    /// Waits until a session may run here: at party 0 until it is its turn, at the others until
    /// party 0 has begun it. `ready` is what this party has made of the request; a refusal that may
    /// be its own `alone` is told to those who come.
    pub(super) fn admitted<T>(&self, wish: Wish<'_, T>) -> Result<(T, Place<'_>)> {
        let Wish { asked, session, profile, present, depend, within, alone, ready, memory } = wish;
        let endpoint = &self.host.endpoint;
        let admitted = match ready {
            Ok(ready) if endpoint.me() == 0 => {
                let place = self.admission.turn(asked.client, memory(&ready), depend, within, present)?;
                return Ok((ready, place));
            }
            Err(e) if endpoint.me() == 0 || !alone => Err(e),
            ready => {
                self.await_party_0(session, within, present)?;
                ready.and_then(|ready| {
                    self.admission.is_open()?;
                    let place = self.admission.follow(asked.client, memory(&ready))?;
                    Ok((ready, place))
                })
            }
        };
        let alone = alone || matches!(&admitted, Err(e) if e.kind() == ErrorKind::Busy);
        self.host.told(session, profile, alone, admitted)
    }

    /// Waits until party 0 has dialled its link of a session. One that is open here already is
    /// waited for no more: it is refused where it is opened.
    fn await_party_0(
        &self,
        session: [u8; 16],
        within: Option<Duration>,
        present: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let session = SessionId(session);
        // As long as a turn may take there, and then as long as parties wait for each other.
        let wait = self.host.settings.get().capacity.turn() + self.host.endpoint.connect_limit();
        let wait = within.map_or(wait, |within| within.min(wait));
        let until = Instant::now() + wait;
        while !self.host.endpoint.is_open(session) && !self.host.endpoint.announced(session, 0, LOOK)? {
            present()?;
            if Instant::now() >= until {
                let what = format!("party 0 has not begun the session within {} s", wait.as_secs());
                return Err(Error::of(ErrorKind::TimedOut, what));
            }
        }
        Ok(())
    }

    fn run_plan(
        &self,
        asked: &Asked,
        run: &Run,
        shared: &ClientChannel,
        kept: &mut Kept,
        permitted: Result<()>,
    ) -> Result<Vec<PartyReport>> {
        let protocol = self.host.protocol(&run.protocol, run.insecure)?;
        let profile = &self.host.profile(&run.net)?;
        if run.runs == 0 {
            return Err(Error::Refused("a run has at least one repetition".into()));
        }
        let (session, depend, present) = (run.session, kept.any(), &|| shared.present());
        let (since, within) = (Instant::now(), seconds(run.within_s));
        // A policy is this party's own.
        let alone = run.source.is_stored() || permitted.is_err();
        let countable = |stored: Option<&StoredModel>| {
            self.host.countable(asked.client, run, stored.map(|stored| &stored.header))
        };
        if protocol.numbers == Numbers::Float32 {
            let ready = permitted.and_then(|()| float::plan_of(&self.host, asked.client, run));
            let ready = ready.and_then(|ready| countable(ready.1.as_deref()).map(|()| ready));
            let inbox = self.host.endpoint.sent_ahead();
            let memory = |(plan, _): &(FloatPlan, _)| float::session_memory(&run.protocol, plan, inbox);
            let wish =
                Wish { asked, session, profile, present, depend, within, alone, ready, memory: &memory };
            let ((plan, stored), _place) = self.admitted(wish)?;
            let network = self.host.join(asked, session, profile)?;
            let due = within.map(|within| since + within);
            let run =
                || float::run(&self.host, asked.client, run, &plan, stored.as_deref(), shared, &network);
            return ended(&network, until(due, &network, run));
        }
        let ready = permitted.and_then(|()| self.host.plan(asked.client, &run.source));
        let alone = alone || of_its_own(&ready);
        let ready = ready.and_then(|ready| countable(ready.1.as_deref()).map(|()| ready));
        let memory = |(plan, _): &(Plan, _)| match run.streamed && run.runs > 1 {
            true => Host::memory_streamed(&run.protocol, plan),
            false => Host::memory(&run.protocol, plan),
        };
        let wish = Wish { asked, session, profile, present, depend, within, alone, ready, memory: &memory };
        let ((plan, stored), _place) = self.admitted(wish)?;
        let network = self.host.join(asked, session, profile)?;
        let suite = protocols::suite(&run.protocol, plan.ring)?;
        let job = RunJob {
            host: &self.host,
            client: asked.client,
            network: network.clone(),
            plan: &plan,
            run,
            stored,
            channel: shared,
            kept,
            log: asked.log(),
        };
        let due = within.map(|within| since + within);
        ended(&network, until(due, &network, || job.run(&*suite)))
    }

    fn upload(
        &self,
        asked: &Asked,
        upload: &Upload,
        shared: &ClientChannel,
        permitted: Result<()>,
    ) -> Result<()> {
        let protocol = self.host.protocol(&upload.protocol, false)?;
        let header = ModelHeader::new(asked.client, self.host.endpoint.me(), upload)?;
        let path = self.host.policy.models.path(&upload.model)?;
        let profile = &NetProfile::loopback();
        let permitted = permitted
            .and_then(|()| if path.exists() { Err(taken(&upload.model)) } else { Ok(()) })
            .and_then(|()| self.room_on_disk(asked.client));
        let (session, alone, depend, present) = (upload.session, true, false, &|| shared.present());
        let (since, within) = (Instant::now(), seconds(upload.within_s));
        let due = within.map(|within| since + within);
        let bytes = &upload.plans[0].plan;
        if protocol.numbers == Numbers::Float32 {
            let ready = permitted.and_then(|()| float::affordable(&self.host, bytes));
            let wish = Wish {
                asked,
                session,
                profile,
                present,
                depend,
                within,
                alone,
                ready,
                memory: &float::memory,
            };
            let (plan, _place) = self.admitted(wish)?;
            let network = self.host.join(asked, session, profile)?;
            let keep = || float::upload(&self.host, upload, header, &plan, &path, shared, &network);
            return ended(&network, until(due, &network, keep));
        }
        let ready = permitted.and_then(|()| self.host.affordable(bytes));
        let memory = |plan: &Plan| Host::memory_to_store(plan, &header.inputs);
        let wish = Wish { asked, session, profile, present, depend, within, alone, ready, memory: &memory };
        let (plan, _place) = self.admitted(wish)?;
        let network = self.host.join(asked, session, profile)?;
        let suite = protocols::suite(&upload.protocol, plan.ring)?;
        let job = UploadJob {
            host: &self.host,
            network: network.clone(),
            plan: &plan,
            header,
            path: &path,
            request: hash(upload),
            channel: shared,
        };
        ended(&network, until(due, &network, || job.run(&*suite)))
    }

    fn prepare(
        &self,
        asked: &Asked,
        prepare: &Prepare,
        shared: &ClientChannel,
        permitted: Result<()>,
    ) -> Result<()> {
        let protocol = self.host.protocol(&prepare.protocol, false)?;
        if !protocol.offline {
            let what = format!("`{}` has no offline phase: nothing is made ahead", protocol.name);
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        let profile = &NetProfile::loopback();
        let permitted = permitted.and_then(|()| self.room_on_disk(asked.client));
        let (session, depend, present) = (prepare.session, false, &|| shared.present());
        let (since, within) = (Instant::now(), seconds(prepare.within_s));
        let alone = prepare.source.is_stored() || permitted.is_err();
        let ready = permitted.and_then(|()| self.host.plan(asked.client, &prepare.source));
        let alone = alone || of_its_own(&ready);
        let memory = |(plan, _): &(Plan, _)| Host::memory(&prepare.protocol, plan);
        let wish = Wish { asked, session, profile, present, depend, within, alone, ready, memory: &memory };
        let ((plan, stored), _place) = self.admitted(wish)?;
        // What is made is kept for some time only: it does not fill a disk over the years.
        self.expire(asked.log());
        let network = self.host.join(asked, session, profile)?;
        let suite = protocols::suite(&prepare.protocol, plan.ring)?;
        let job = PrepareJob {
            host: &self.host,
            client: asked.client,
            network: network.clone(),
            plan: &plan,
            prepare,
            stored,
        };
        let due = within.map(|within| since + within);
        ended(&network, until(due, &network, || job.run(&*suite)))
    }
}

/// Whether this party refuses a plan for a reason of its own: public weights that it lacks others
/// may have.
fn of_its_own<T>(ready: &Result<T>) -> bool {
    matches!(ready, Err(e) if e.kind() == ErrorKind::DamagedFile)
}
