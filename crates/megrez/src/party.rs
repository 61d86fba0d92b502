//! The party service: serves clients and takes part in sessions, several at a time; each may fail without the others.

mod float;

use crate::device::AnyDevice;
use crate::infer::find;
use crate::kept::Kept;
use crate::secfloat;
use crate::wire::{self, Info, ModelPlan, Prepare, Reply, Request, Run, Source, Upload};
use crate::{Error, Result};
use megrez_engine::{Clients, Options, PartyReport, Stored, check, offline, serve, store};
use megrez_kernels::Device;
use megrez_net::{Channel, Endpoint, Limits, NetError, NetProfile, Network, Payload, PeerName, SessionId};
use megrez_plan::{FloatPlan, Input, KEPT, Kind, Output, Plan, ValueId};
use megrez_protocols::{Store as _, Suite, registry};
use megrez_ring::Shape;
use megrez_session::{Error as SessionError, Party, Phase};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a client may think between two requests.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(24 * 3600);
/// How long a client may take within a request before it is given up, and its session with it.
const WITHIN_REQUEST: Duration = Duration::from_secs(3600);
/// How often a party that waits for its client looks whether the session still lives.
const SESSION_CHECK: Duration = Duration::from_millis(200);

/// How long a session waits for the other parties. A client asks all of them at once, so they come soon or never.
const GATHERING: Duration = Duration::from_secs(20);

/// The time-outs of a party that takes a peer for dead after `silence`.
pub fn limits(silence: Duration) -> Limits {
    Limits { silence, connect: GATHERING, ..Limits::default() }
}

/// What a party allows and where it keeps things.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Stored models and material.
    pub data: PathBuf,
    /// Whether clients may ask for artificial delays and rates.
    pub allow_shaping: bool,
    /// Whether clients may ask for protocols that do not protect.
    pub allow_insecure: bool,
    /// Most sessions at a time.
    pub max_sessions: usize,
    /// Most elements that the values of one plan may have together.
    pub max_elements: usize,
}

/// A party: its endpoint, its policy and its device.
pub struct Service {
    endpoint: Arc<Endpoint>,
    policy: Policy,
    device: AnyDevice,
    sessions: AtomicUsize,
}

/// Counts as a session until dropped.
struct Slot<'a>(&'a AtomicUsize);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Service {
    /// A service on a bound endpoint; its sessions share the device.
    pub fn new(endpoint: Arc<Endpoint>, policy: Policy, device: AnyDevice) -> Arc<Self> {
        Arc::new(Service { endpoint, policy, device, sessions: AtomicUsize::new(0) })
    }

    /// Accepts clients until the endpoint stops; each is served in a thread of its own. `log` gets one line per event,
    /// without secrets.
    pub fn run(self: &Arc<Self>, log: impl Fn(&str) + Send + Sync + 'static) -> Result<()> {
        let log = Arc::new(log);
        loop {
            let accepted = self.endpoint.accept_client_within(Duration::from_secs(1));
            self.endpoint.take_refusals().iter().for_each(|r| log(&format!("refused a connection: {r}")));
            match accepted {
                Ok(None) => {}
                Ok(Some((name, channel))) => {
                    let (service, log) = (Arc::clone(self), Arc::clone(&log));
                    std::thread::spawn(move || service.client(&name, channel, &*log));
                }
                Err(NetError::Closed(_)) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Serves one client until it goes.
    fn client(&self, name: &PeerName, channel: Channel, log: &dyn Fn(&str)) {
        let channel = Mutex::new(channel);
        // What this client's runs leave in shares lives as long as its connection.
        let mut kept = Kept::default();
        let (what, e) = loop {
            if hold(&channel).set_timeout(BETWEEN_REQUESTS).is_err() {
                return;
            }
            let received = wire::recv::<Request>(&mut hold(&channel), wire::MAX_REQUEST);
            let request = match received {
                Ok(request) => request,
                Err(Error::Net(NetError::Closed(_))) => return,
                Err(e) => break ("request", e),
            };
            let what = describe(&request);
            let timeout = hold(&channel).set_timeout(WITHIN_REQUEST).map_err(Error::from);
            match timeout.and_then(|()| self.answer(name, request, &channel, &mut kept)) {
                Ok(()) => log(&format!("{name}: {what}: done")),
                Err(e) => break (what, e),
            }
        };
        log(&format!("{name}: {what}: {e}"));
        // What the client still sends for the failed request must not be taken for the next one.
        let mut channel = channel.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = wire::send(&mut channel, &Reply::Failed(e.to_string()));
        let _ = channel.close();
    }

    fn answer(&self, name: &PeerName, request: Request, channel: &Shared, kept: &mut Kept) -> Result<()> {
        let client = match name {
            PeerName::Client(client) => client.as_str(),
            PeerName::Party(_) => "",
        };
        match request {
            Request::Info { version } => {
                same_version(version)?;
                wire::send(&mut hold(channel), &Reply::Info(self.info()))
            }
            Request::Describe { model, batch } => {
                let stored = StoredModel::open(&self.policy.data, &model, client)?;
                let protocol = stored.header.protocol.clone();
                let plan = stored.header.plan(batch)?.clone();
                wire::send(&mut hold(channel), &Reply::Model { protocol, plan })
            }
            Request::Run(run) => {
                let _slot = self.slot()?;
                let reports = alive(channel, || self.run_plan(client, &run, channel, kept))?;
                wire::send(&mut hold(channel), &Reply::Reports(reports))
            }
            Request::Upload(upload) => {
                let _slot = self.slot()?;
                alive(channel, || self.upload(client, &upload, channel))?;
                wire::send(&mut hold(channel), &Reply::Done)
            }
            Request::Prepare(prepare) => {
                let _slot = self.slot()?;
                alive(channel, || self.prepare(client, &prepare))?;
                wire::send(&mut hold(channel), &Reply::Done)
            }
        }
    }

    fn slot(&self) -> Result<Slot<'_>> {
        let slot = Slot(&self.sessions);
        if self.sessions.fetch_add(1, Ordering::AcqRel) >= self.policy.max_sessions {
            return Err(Error::Refused("this party runs as many sessions as it may: try again later".into()));
        }
        Ok(slot)
    }

    fn info(&self) -> Info {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Info {
            version: wire::VERSION,
            release: env!("CARGO_PKG_VERSION").into(),
            party: self.endpoint.me(),
            device: self.device.describe(),
            clock_ms: now.as_millis() as u64,
            sessions: self.sessions.load(Ordering::Relaxed),
        }
    }

    /// The plan of a request, and the stored model that it may use.
    fn plan(&self, client: &str, source: &Source) -> Result<(Plan, Option<StoredModel>)> {
        match source {
            Source::Plan(bytes) => {
                let plan = self.affordable(bytes)?;
                own(&plan.inputs, &plan.outputs, client)?;
                Ok((plan, None))
            }
            Source::Model { model, batch } => {
                let stored = StoredModel::open(&self.policy.data, model, client)?;
                let bytes = &stored.header.plan(*batch)?.plan;
                let plan = self.affordable(bytes)?;
                // The plan names placeholders; whoever is allowed to use the model plays the data owner.
                Ok((plan, Some(stored)))
            }
        }
    }

    /// A valid plan whose values this party has room for.
    fn affordable(&self, bytes: &[u8]) -> Result<Plan> {
        let plan = Plan::from_bytes(bytes).map_err(|e| Error::Refused(e.to_string()))?;
        self.room_for(plan.values.iter().map(|v| v.shape.elements()))?;
        Ok(plan)
    }

    /// Refuses a plan whose values have too many elements together.
    fn room_for(&self, mut values: impl Iterator<Item = usize>) -> Result<()> {
        let elements = values.try_fold(0usize, usize::checked_add).unwrap_or(usize::MAX);
        if elements > self.policy.max_elements {
            return Err(Error::Refused(format!(
                "the plan's values have {elements} elements together, this party takes at most {}: use a smaller \
                 batch, or raise max_elements in party.toml",
                self.policy.max_elements
            )));
        }
        Ok(())
    }

    fn profile(&self, net: &wire::Net) -> Result<NetProfile> {
        let profile = net.profile()?;
        if !profile.is_unshaped() && !self.policy.allow_shaping {
            return Err(Error::Refused(
                "this party does not shape its links; set allow_shaping in party.toml for measurements"
                    .into(),
            ));
        }
        Ok(profile)
    }

    /// The protocol, if this party and this caller allow it.
    fn protocol(&self, name: &str, insecure: bool) -> Result<()> {
        let protocol = find(name)?;
        if protocol.insecure && !(insecure && self.policy.allow_insecure) {
            return Err(Error::Refused(format!(
                "`{name}` does not protect the data ({}); it runs only when the caller says `--insecure` and the \
                 party allows it",
                protocol.security
            )));
        }
        if protocol.parties != self.endpoint.parties() {
            return Err(Error::Refused(format!(
                "`{name}` takes {} parties, this cluster has {}",
                protocol.parties,
                self.endpoint.parties()
            )));
        }
        Ok(())
    }

    fn run_plan(
        &self,
        client: &str,
        run: &Run,
        channel: &Shared,
        kept: &mut Kept,
    ) -> Result<Vec<PartyReport>> {
        self.protocol(&run.protocol, run.insecure)?;
        let profile = self.profile(&run.net)?;
        if run.runs == 0 {
            return Err(Error::Refused("a run has at least one repetition".into()));
        }
        if run.protocol == secfloat::PROTOCOL.name {
            return self.run_floats(client, run, channel);
        }
        let (plan, stored) = self.plan(client, &run.source)?;
        let network = self.endpoint.open_session(SessionId(run.session), &profile)?;
        let agreement = hash(run);
        let job = RunJob {
            service: self,
            network: network.clone(),
            plan: &plan,
            run,
            stored,
            agreement,
            channel,
            kept,
        };
        ended(&network, dispatch(&run.protocol, plan.ring, job)?)
    }

    fn upload(&self, client: &str, upload: &Upload, channel: &Shared) -> Result<()> {
        self.protocol(&upload.protocol, false)?;
        let header = ModelHeader::new(client, upload)?;
        let path = model_path(&self.policy.data, &upload.model)?;
        if path.exists() {
            return Err(Error::Refused(format!(
                "a model `{}` is stored already; choose another name",
                upload.model
            )));
        }
        if upload.protocol == secfloat::PROTOCOL.name {
            return self.upload_floats(upload, &header, &path, channel);
        }
        let network = self.endpoint.open_session(SessionId(upload.session), &NetProfile::loopback())?;
        let plan = self.affordable(&upload.plans[0].plan)?;
        let agreement = hash(upload);
        let job = UploadJob {
            device: self.device.clone(),
            network: network.clone(),
            plan: &plan,
            header: &header,
            path: &path,
            agreement,
            channel,
        };
        ended(&network, dispatch(&upload.protocol, plan.ring, job)?)
    }

    fn prepare(&self, client: &str, prepare: &Prepare) -> Result<()> {
        self.protocol(&prepare.protocol, false)?;
        if prepare.protocol == secfloat::PROTOCOL.name {
            return Err(Error::Refused("floating point has no offline phase: nothing is made ahead".into()));
        }
        let (plan, stored) = self.plan(client, &prepare.source)?;
        let network = self.endpoint.open_session(SessionId(prepare.session), &NetProfile::loopback())?;
        let agreement = hash(prepare);
        let job =
            PrepareJob { service: self, network: network.clone(), plan: &plan, prepare, stored, agreement };
        ended(&network, dispatch(&prepare.protocol, plan.ring, job)?)
    }
}

fn describe(request: &Request) -> &'static str {
    match request {
        Request::Info { .. } => "info",
        Request::Run(_) => "run",
        Request::Upload(_) => "upload",
        Request::Describe { .. } => "describe",
        Request::Prepare(_) => "prepare",
    }
}

fn same_version(version: u32) -> Result<()> {
    if version == wire::VERSION {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the client speaks version {version} of the client protocol, this party {}: install one release everywhere",
        wire::VERSION
    )))
}

fn unknown(name: &str) -> Error {
    Error::Refused(format!("there is no protocol `{name}`; `megrez protocols` lists them"))
}

/// The parties compare this: they must have been asked for the same thing.
fn hash<T: Serialize>(request: &T) -> [u8; 32] {
    let bytes = postcard::to_allocvec(request).expect("requests have plain fields");
    megrez_engine::hash("megrez 2026 request", &bytes)
}

/// Every input and output must belong to `client`.
fn own(inputs: &[Input], outputs: &[Output], client: &str) -> Result<()> {
    let foreign = inputs
        .iter()
        .filter(|i| i.owner != client && i.owner != KEPT)
        .map(|i| format!("input `{}` belongs to `{}`", i.name, i.owner));
    let leaked = outputs
        .iter()
        .filter(|o| o.recipient != client && o.recipient != KEPT)
        .map(|o| format!("output `{}` goes to `{}`", o.name, o.recipient));
    let problems: Vec<String> = foreign.chain(leaked).collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::Refused(format!("`{client}` may not run this plan: {}", problems.join("; "))))
}

/// Ends a session: a failure that is this party's own is told to the others, and all report the same reason.
fn ended<T>(network: &Network, result: Result<T>) -> Result<T> {
    result.map_err(|e| match &e {
        Error::Session(SessionError::Net(inner)) | Error::Net(inner) if inner.abort().is_some() => e,
        other => Error::Net(network.fail(&other.to_string())),
    })
}

fn dispatch<J: registry::Visitor<AnyDevice, Output = Result<T>>, T>(
    protocol: &str,
    ring: u32,
    job: J,
) -> Result<Result<T>> {
    registry::dispatch(protocol, ring, job).ok_or_else(|| unknown(protocol))
}

/// A client's channel during a long request: whoever talks to the client holds it.
type Shared = Mutex<Channel>;

fn hold(channel: &Shared) -> MutexGuard<'_, Channel> {
    channel.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does long work for a client, and tells the client meanwhile that this party is alive.
fn alive<T>(channel: &Shared, work: impl FnOnce() -> T) -> T {
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = finished.recv_timeout(wire::SIGN_OF_LIFE) {
                // If somebody holds the channel, the client hears from this party or is expected to speak itself.
                if let Ok(mut channel) = channel.try_lock() {
                    let _ = channel.keep_alive();
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// The client's channel during a run.
struct ChannelClients<'a> {
    channel: &'a Shared,
    network: Network,
}

/// A client that went away is no peer of the session: its loss is this party's own failure, for all to hear.
fn client_lost(e: Error) -> SessionError {
    SessionError::Refused(format!("the client was lost: {e}"))
}

impl Clients for ChannelClients<'_> {
    fn ticket(&mut self, _: &Input, ticket: Vec<u8>) -> std::result::Result<(), SessionError> {
        wire::send(&mut hold(self.channel), &Reply::Ticket(ticket)).map_err(client_lost)
    }
    fn data(&mut self, _: &Input, limit: usize) -> std::result::Result<Payload, SessionError> {
        // A session that fails meanwhile must not wait for its client.
        let until = Instant::now() + WITHIN_REQUEST;
        while !hold(self.channel).readable(SESSION_CHECK)? && Instant::now() < until {
            self.network.flush()?;
        }
        hold(self.channel).recv(limit as u64).map_err(|e| client_lost(e.into()))
    }
    fn output(&mut self, _: &Output, share: Payload) -> std::result::Result<(), SessionError> {
        let mut channel = hold(self.channel);
        wire::send(&mut channel, &Reply::Share).map_err(client_lost)?;
        channel.send(share.as_bytes()).map_err(|e| client_lost(e.into()))
    }
}

struct RunJob<'a> {
    service: &'a Service,
    network: Network,
    plan: &'a Plan,
    run: &'a Run,
    stored: Option<StoredModel>,
    agreement: [u8; 32],
    channel: &'a Shared,
    kept: &'a mut Kept,
}

impl registry::Visitor<AnyDevice> for RunJob<'_> {
    type Output = Result<Vec<PartyReport>>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
        check(&suite, self.plan).map_err(|e| Error::Refused(e.to_string()))?;
        let mut party = Party::start(self.network.clone(), self.service.device.clone())?;
        megrez_engine::agree(&mut party, "request", &self.agreement)?;
        let mut stored = load::<S>(&self.stored, &self.run.protocol, self.plan, &party)?;
        self.kept.load::<S>(&self.run.protocol, self.plan, &mut party, &mut stored)?;
        let prepared = match &self.run.material {
            Some(batch) => {
                let folder = self.service.policy.data.join("material");
                let claimed = store::claim::<S>(&folder, party.device(), self.plan, party.me(), batch)?;
                Some(claimed)
            }
            None => None,
        };
        let mut clients = ChannelClients { channel: self.channel, network: self.network.clone() };
        let options = Options { runs: self.run.runs };
        let reports = serve(&suite, self.plan, &mut party, &mut stored, prepared, &mut clients, options)?;
        let most = self.service.policy.max_elements;
        self.kept.store::<S>(&self.run.protocol, self.plan, &party, &stored, self.agreement, most)?;
        Ok(reports)
    }
}

struct PrepareJob<'a> {
    service: &'a Service,
    network: Network,
    plan: &'a Plan,
    prepare: &'a Prepare,
    stored: Option<StoredModel>,
    agreement: [u8; 32],
}

impl registry::Visitor<AnyDevice> for PrepareJob<'_> {
    type Output = Result<()>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Result<()> {
        check(&suite, self.plan).map_err(|e| Error::Refused(e.to_string()))?;
        let mut party = Party::start(self.network, self.service.device.clone())?;
        megrez_engine::agree(&mut party, "request", &self.agreement)?;
        let stored: Stored<S> = load::<S>(&self.stored, &self.prepare.protocol, self.plan, &party)?;
        let given = |name: &str| stored.get(name).map(|(masks, _)| masks.clone());
        let prepared = offline(&suite, self.plan, &mut party, 0, &given, &mut vec![])?;
        let folder = self.service.policy.data.join("material");
        let me = party.me();
        store::keep(&folder, party.device(), self.plan, me, &self.prepare.material, &prepared)?;
        // All parties have kept theirs, or all hear that one could not.
        Ok(party.barrier("material-kept")?)
    }
}

struct UploadJob<'a> {
    device: AnyDevice,
    network: Network,
    plan: &'a Plan,
    header: &'a ModelHeader,
    path: &'a Path,
    agreement: [u8; 32],
    channel: &'a Shared,
}

impl registry::Visitor<AnyDevice> for UploadJob<'_> {
    type Output = Result<()>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Result<()> {
        let mut party = Party::start(self.network.clone(), self.device)?;
        megrez_engine::agree(&mut party, "request", &self.agreement)?;
        party.enter(Phase::Input, 0);
        let mut clients = ChannelClients { channel: self.channel, network: self.network.clone() };
        let weights: Vec<&Input> =
            self.plan.inputs.iter().filter(|i| self.header.inputs.contains(&i.name)).collect();
        let mut masks = Vec::new();
        for input in &weights {
            let value = self.plan.value(input.value);
            let (mask, ticket) = party.step(&format!("upload/{}", input.name), |p| suite.input(p, value))?;
            clients.ticket(input, ticket)?;
            masks.push(mask);
        }
        let mut body = Vec::new();
        for (input, mask) in weights.iter().zip(masks) {
            let value = self.plan.value(input.value);
            let payload = clients.data(input, value.shape.elements() * (self.plan.ring as usize / 8))?;
            let data = suite.accept(&party, value, payload)?;
            mask.write(party.device(), &mut body).map_err(|e| Error::Refused(e.to_string()))?;
            data.write(party.device(), &mut body).map_err(|e| Error::Refused(e.to_string()))?;
        }
        write_model(self.path, self.header, &body)?;
        let kept = party.barrier("model-kept");
        if kept.is_err() {
            // Another party could not: half a model is of no use.
            let _ = std::fs::remove_file(self.path);
        }
        Ok(kept?)
    }
}

// ---- stored models ----

/// What a party knows of a stored model besides its shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ModelHeader {
    /// The client who uploaded it.
    owner: String,
    /// The clients who may run it.
    allow: Vec<String>,
    /// The protocol in whose sharing it is kept.
    protocol: String,
    /// The names of the weights, in the order of the body.
    inputs: Vec<String>,
    /// The approved plans.
    plans: Vec<ModelPlan>,
}

impl ModelHeader {
    /// Checks an upload: the weights must be the same in every plan, and belong to the uploading client.
    fn new(client: &str, upload: &Upload) -> Result<Self> {
        let refuse = |what: &str| Err(Error::Refused(format!("model `{}`: {what}", upload.model)));
        let mut weights = None;
        for approved in &upload.plans {
            let mine = owned(&upload.protocol, &approved.plan, client)?;
            match &weights {
                None => weights = Some(mine),
                Some(first) if *first != mine => return refuse("its plans differ in their weights"),
                Some(_) => {}
            }
        }
        match weights {
            None => refuse("an upload has at least one plan"),
            Some(w) if w.is_empty() => refuse("it has no weights of yours"),
            Some(w) => Ok(ModelHeader {
                owner: client.into(),
                allow: upload.allow.clone(),
                protocol: upload.protocol.clone(),
                inputs: w.into_iter().map(|(name, ..)| name).collect(),
                plans: upload.plans.clone(),
            }),
        }
    }

    /// Refuses another protocol than the one in whose shares the model is.
    fn is_of(&self, protocol: &str) -> Result<()> {
        if self.protocol == protocol {
            return Ok(());
        }
        let own = &self.protocol;
        Err(Error::Refused(format!("the model is kept in shares of `{own}`; run it under that protocol")))
    }

    fn plan(&self, batch: usize) -> Result<&ModelPlan> {
        self.plans.iter().find(|p| p.batch == batch).ok_or_else(|| {
            let batches: Vec<String> = self.plans.iter().map(|p| p.batch.to_string()).collect();
            Error::Refused(format!("the model's owner approved batches of {}", batches.join(", ")))
        })
    }
}

/// The inputs of a plan that are a client's own: their names, shapes and kinds.
fn owned(protocol: &str, bytes: &[u8], client: &str) -> Result<Vec<(String, Shape, Option<Kind>)>> {
    let refuse = |e: megrez_plan::PlanError| Error::Refused(e.to_string());
    let mine = |inputs: &[Input], value: &dyn Fn(ValueId) -> (Shape, Option<Kind>)| {
        let mine = inputs.iter().filter(|i| i.owner == client);
        mine.map(|i| (value(i.value), i.name.clone()))
            .map(|((shape, kind), name)| (name, shape, kind))
            .collect()
    };
    if protocol == secfloat::PROTOCOL.name {
        let plan = FloatPlan::from_bytes(bytes).map_err(refuse)?;
        return Ok(mine(&plan.inputs, &|id| (plan.shape(id).clone(), None)));
    }
    let plan = Plan::from_bytes(bytes).map_err(refuse)?;
    Ok(mine(&plan.inputs, &|id| (plan.value(id).shape.clone(), Some(plan.value(id).kind))))
}

/// A stored model whose use is permitted.
struct StoredModel {
    header: ModelHeader,
    body: Vec<u8>,
}

/// The file of a model; names are as plain as clients' names, so that they cannot leave the folder.
fn model_path(data: &Path, model: &str) -> Result<PathBuf> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if model.is_empty() || model.len() > 64 || !model.chars().all(plain) {
        return Err(Error::Refused(
            "a model's name has 1 to 64 lower-case letters, digits, hyphens and underscores".into(),
        ));
    }
    Ok(data.join("models").join(format!("{model}.model")))
}

impl StoredModel {
    fn open(data: &Path, model: &str, client: &str) -> Result<Self> {
        let path = model_path(data, model)?;
        // The same words whether it is missing or not permitted: a stranger does not learn which models there are.
        let absent = || Error::Refused(format!("there is no model `{model}` that `{client}` may use"));
        let bytes = std::fs::read(&path).map_err(|_| absent())?;
        let (header, body) = postcard::take_from_bytes::<ModelHeader>(&bytes)
            .map_err(|_| Error::file(&path, "is damaged or of another version: upload the model again"))?;
        if header.owner != client && !header.allow.iter().any(|c| c == client) {
            return Err(absent());
        }
        Ok(StoredModel { header, body: body.to_vec() })
    }
}

fn write_model(path: &Path, header: &ModelHeader, body: &[u8]) -> Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let mut file = options.open(path)?;
        file.write_all(&postcard::to_allocvec(header).map_err(std::io::Error::other)?)?;
        file.write_all(body)?;
        file.sync_all()
    };
    write().map_err(|e| Error::file(path, e))
}

/// The shares of a stored model as inputs of a plan.
fn load<S: Suite>(
    stored: &Option<StoredModel>,
    protocol: &str,
    plan: &Plan,
    party: &Party<S::Device>,
) -> Result<Stored<S>> {
    let Some(stored) = stored else { return Ok(HashMap::new()) };
    stored.header.is_of(protocol)?;
    let mut body = stored.body.as_slice();
    let mut weights = HashMap::new();
    for name in &stored.header.inputs {
        let damaged = |_| Error::Refused("the stored model is damaged: upload it again".into());
        let masks = S::Masks::read(party.device(), &mut body).map_err(damaged)?;
        let data = S::Data::read(party.device(), &mut body).map_err(damaged)?;
        weights.insert(name.clone(), (masks, data));
    }
    debug_assert!(plan.inputs.iter().any(|i| weights.contains_key(&i.name)));
    Ok(weights)
}
