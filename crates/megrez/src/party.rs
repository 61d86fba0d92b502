//! The party service: serves clients and takes part in sessions, several at a time; each may fail without the others.

mod clients;
mod float;
mod jobs;
mod stored;

use crate::device::AnyDevice;
use crate::infer::find;
use crate::kept::Kept;
use crate::secfloat;
use crate::wire::{self, Info, Prepare, Reply, Request, Run, Source, Upload};
use crate::{Error, Result};
use clients::{Shared, WITHIN_REQUEST, alive, hold};
use jobs::{PrepareJob, RunJob, UploadJob};
use megrez_engine::{PartyReport, files};
use megrez_kernels::Device;
use megrez_net::{Channel, Endpoint, Limits, NetError, NetProfile, Network, PeerName, SessionId};
use megrez_plan::{Input, KEPT, Output, Plan};
use megrez_protocols::registry;
use megrez_session::Error as SessionError;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stored::{ModelHeader, StoredModel, model_path};

/// How long a client may think between two requests.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(24 * 3600);

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

    /// Sweeps away what a crash has left in its folders, then accepts clients until the endpoint stops; each is served in a
    /// thread of its own. `log` gets one line per event, without secrets.
    pub fn run(self: &Arc<Self>, log: impl Fn(&str) + Send + Sync + 'static) -> Result<()> {
        for folder in ["models", "material"].map(|name| self.policy.data.join(name)) {
            for swept in files::sweep(&folder).map_err(|e| Error::file(&folder, e))? {
                log(&format!("removed what an earlier end had left: {}", swept.display()));
            }
        }
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
                let stored = self.open(&model, client)?;
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

    fn open(&self, model: &str, client: &str) -> Result<StoredModel> {
        StoredModel::open(&self.policy.data, model, client, self.endpoint.me())
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
                let stored = self.open(model, client)?;
                let plan = self.affordable(&stored.header.plan_for(*batch, client)?.plan)?;
                Ok((plan, Some(stored)))
            }
        }
    }

    /// What this party may have to refuse `alone`, such as a damaged file, the others hear at once: it joins the session to
    /// end it. They would otherwise wait for it until they gave up. What follows from the request is refused everywhere.
    fn told<T>(&self, session: [u8; 16], profile: &NetProfile, alone: bool, ready: Result<T>) -> Result<T> {
        let join = || self.endpoint.open_session(SessionId(session), profile);
        ready.map_err(|e| match alone.then(join) {
            Some(Ok(network)) => Error::Net(network.fail(&e.to_string())),
            _ => e,
        })
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
        let ready = self.plan(client, &run.source);
        let (plan, stored) = self.told(run.session, &profile, run.source.is_stored(), ready)?;
        let network = self.endpoint.open_session(SessionId(run.session), &profile)?;
        let job = RunJob {
            service: self,
            client,
            network: network.clone(),
            plan: &plan,
            run,
            stored,
            channel,
            kept,
        };
        ended(&network, dispatch(&run.protocol, plan.ring, job)?)
    }

    fn upload(&self, client: &str, upload: &Upload, channel: &Shared) -> Result<()> {
        self.protocol(&upload.protocol, false)?;
        let header = ModelHeader::new(client, self.endpoint.me(), upload)?;
        let path = model_path(&self.policy.data, &upload.model)?;
        let profile = NetProfile::loopback();
        let free = if path.exists() {
            Err(Error::Refused(format!("a model `{}` is stored already; choose another name", upload.model)))
        } else {
            Ok(())
        };
        self.told(upload.session, &profile, true, free)?;
        if upload.protocol == secfloat::PROTOCOL.name {
            return self.upload_floats(upload, header, &path, channel);
        }
        let plan = self.told(upload.session, &profile, true, self.affordable(&upload.plans[0].plan))?;
        let network = self.endpoint.open_session(SessionId(upload.session), &profile)?;
        let job = UploadJob {
            device: self.device.clone(),
            network: network.clone(),
            plan: &plan,
            header,
            path: &path,
            request: hash(upload),
            channel,
        };
        ended(&network, dispatch(&upload.protocol, plan.ring, job)?)
    }

    fn prepare(&self, client: &str, prepare: &Prepare) -> Result<()> {
        self.protocol(&prepare.protocol, false)?;
        if prepare.protocol == secfloat::PROTOCOL.name {
            return Err(Error::Refused("floating point has no offline phase: nothing is made ahead".into()));
        }
        let profile = NetProfile::loopback();
        let ready = self.plan(client, &prepare.source);
        let (plan, stored) = self.told(prepare.session, &profile, prepare.source.is_stored(), ready)?;
        let network = self.endpoint.open_session(SessionId(prepare.session), &profile)?;
        let job =
            PrepareJob { service: self, client, network: network.clone(), plan: &plan, prepare, stored };
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
