//! The service: accepts clients, takes their requests, and has each done in a session of its own.

use super::asked::Asked;
use super::clients::{Shared, WITHIN_REQUEST, alive, hold};
use super::float;
use super::host::{Host, Policy, ended, hash};
use super::jobs::{PrepareJob, RunJob, UploadJob};
use super::kept::Kept;
use super::stored::{ModelHeader, forbidden, model_path};
use crate::log::{Event, Level, Log};
use crate::protocols::no_ring;
use crate::wire::{self, Failure, Info, Prepare, Reply, Request, Run, Upload};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{PartyReport, files};
use megrez_kernels::Memory;
use megrez_net::{Channel, Endpoint, NetError, NetProfile, PeerName};
use megrez_protocols::registry::{self, Numbers};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a client may think between two requests.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(24 * 3600);

/// A party: its endpoint, its policy and its device.
pub struct Service {
    host: Host,
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
        Arc::new(Service { host: Host { endpoint, policy, device }, sessions: AtomicUsize::new(0) })
    }

    /// Sweeps away what a crash has left in its folders, then accepts clients until the endpoint
    /// stops; each is served in a thread of its own.
    pub fn run(self: &Arc<Self>, log: Log) -> Result<()> {
        let listening = format!(
            "party {} listens on {} and computes on {}",
            self.host.endpoint.me(),
            self.host.endpoint.local_addr(),
            self.host.device.describe()
        );
        log.write(Level::Info, Event::new("listening", listening));
        for folder in ["models", "material"].map(|name| self.host.policy.data.join(name)) {
            for swept in files::sweep(&folder).map_err(|e| Error::file(&folder, e))? {
                let message = format!("removed what an earlier end had left: {}", swept.display());
                log.write(Level::Warn, Event::new("swept", message));
            }
        }
        let log = Arc::new(log);
        loop {
            let accepted = self.host.endpoint.accept_client_within(Duration::from_secs(1));
            for refusal in self.host.endpoint.take_refusals() {
                let message = format!("refused a connection: {refusal}");
                log.write(Level::Warn, Event::new("connection-refused", message));
            }
            match accepted {
                Ok(None) => {}
                Ok(Some((name, channel))) => {
                    let (service, log) = (Arc::clone(self), Arc::clone(&log));
                    std::thread::spawn(move || service.client(&name, channel, &log));
                }
                Err(NetError::Closed(_)) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Serves one client until it goes.
    fn client(&self, name: &PeerName, channel: Channel, log: &Log) {
        let client = match name {
            PeerName::Client(client) => client.as_str(),
            PeerName::Party(_) => "",
        };
        let about = |event, message| Event { client: Some(client), ..Event::new(event, message) };
        log.write(Level::Info, about("connection", "connected".to_owned()));
        let channel = Mutex::new(channel);
        // What this client's runs leave in shares lives as long as its connection.
        let mut kept = Kept::default();
        let e = loop {
            if hold(&channel).set_timeout(BETWEEN_REQUESTS).is_err() {
                return;
            }
            let received = wire::recv::<Request>(&mut hold(&channel), wire::MAX_REQUEST);
            let request = match received {
                Ok(request) => request,
                Err(Error::Net(NetError::Closed(_))) => return,
                Err(e) => {
                    let event = Event { kind: Some(e.kind()), ..about("connection-lost", e.to_string()) };
                    log.write(Level::of(e.kind()), event);
                    break e;
                }
            };
            let asked = Asked::new(client, &request, log);
            let timeout = hold(&channel).set_timeout(WITHIN_REQUEST).map_err(Error::from);
            match timeout.and_then(|()| self.answer(&asked, request, &channel, &mut kept)) {
                Ok(()) => asked.done(),
                Err(e) => {
                    asked.failed(&e);
                    break e;
                }
            }
        };
        // What the client still sends for the failed request must not be taken for the next one.
        let mut channel = channel.into_inner().unwrap_or_else(PoisonError::into_inner);
        let _ = wire::send(&mut channel, &Reply::Failed(Failure::from(&e)));
        let _ = channel.close();
    }

    fn answer(&self, asked: &Asked, request: Request, channel: &Shared, kept: &mut Kept) -> Result<()> {
        match request {
            Request::Info { version } => {
                same_version(version)?;
                wire::send(&mut hold(channel), &Reply::Info(self.info()))
            }
            Request::Describe { model, batch } => {
                let stored = self.host.open(&model, asked.client)?;
                let protocol = stored.header.protocol.clone();
                let plan = stored.header.plan(batch)?.clone();
                wire::send(&mut hold(channel), &Reply::Model { protocol, plan })
            }
            Request::Run(run) => {
                let _slot = self.slot()?;
                let reports = alive(channel, || self.run_plan(asked, &run, channel, kept))?;
                wire::send(&mut hold(channel), &Reply::Reports(reports))
            }
            Request::Upload(upload) => {
                let _slot = self.slot()?;
                alive(channel, || self.upload(asked, &upload, channel))?;
                wire::send(&mut hold(channel), &Reply::Done)
            }
            Request::Prepare(prepare) => {
                let _slot = self.slot()?;
                alive(channel, || self.prepare(asked, &prepare))?;
                wire::send(&mut hold(channel), &Reply::Done)
            }
        }
    }

    fn slot(&self) -> Result<Slot<'_>> {
        let slot = Slot(&self.sessions);
        if self.sessions.fetch_add(1, Ordering::AcqRel) >= self.host.policy.max_sessions {
            return Err(forbidden("this party runs as many sessions as it may: try again later"));
        }
        Ok(slot)
    }

    fn info(&self) -> Info {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Info {
            version: wire::VERSION,
            release: env!("CARGO_PKG_VERSION").into(),
            party: self.host.endpoint.me(),
            device: self.host.device.describe(),
            clock_ms: now.as_millis() as u64,
            sessions: self.sessions.load(Ordering::Relaxed),
        }
    }

    fn run_plan(
        &self,
        asked: &Asked,
        run: &Run,
        channel: &Shared,
        kept: &mut Kept,
    ) -> Result<Vec<PartyReport>> {
        let protocol = self.host.protocol(&run.protocol, run.insecure)?;
        let profile = self.host.profile(&run.net)?;
        if run.runs == 0 {
            return Err(Error::Refused("a run has at least one repetition".into()));
        }
        if protocol.numbers == Numbers::Float32 {
            return float::run(&self.host, asked, run, channel);
        }
        let ready = self.host.plan(asked.client, &run.source);
        let (plan, stored) = self.host.told(run.session, &profile, run.source.is_stored(), ready)?;
        let network = self.host.join(asked, run.session, &profile)?;
        let job = RunJob {
            host: &self.host,
            client: asked.client,
            network: network.clone(),
            plan: &plan,
            run,
            stored,
            channel,
            kept,
        };
        ended(&network, dispatch(&run.protocol, plan.ring, job)?)
    }

    fn upload(&self, asked: &Asked, upload: &Upload, channel: &Shared) -> Result<()> {
        let protocol = self.host.protocol(&upload.protocol, false)?;
        let header = ModelHeader::new(asked.client, self.host.endpoint.me(), upload)?;
        let path = model_path(&self.host.policy.data, &upload.model)?;
        let profile = NetProfile::loopback();
        let free = if path.exists() {
            Err(Error::Refused(format!("a model `{}` is stored already; choose another name", upload.model)))
        } else {
            Ok(())
        };
        self.host.told(upload.session, &profile, true, free)?;
        if protocol.numbers == Numbers::Float32 {
            return float::upload(&self.host, asked, upload, header, &path, channel);
        }
        let plan =
            self.host.told(upload.session, &profile, true, self.host.affordable(&upload.plans[0].plan))?;
        let network = self.host.join(asked, upload.session, &profile)?;
        let job = UploadJob {
            device: self.host.device.clone(),
            network: network.clone(),
            plan: &plan,
            header,
            path: &path,
            request: hash(upload),
            channel,
        };
        ended(&network, dispatch(&upload.protocol, plan.ring, job)?)
    }

    fn prepare(&self, asked: &Asked, prepare: &Prepare) -> Result<()> {
        let protocol = self.host.protocol(&prepare.protocol, false)?;
        if !protocol.offline {
            let what = format!("`{}` has no offline phase: nothing is made ahead", protocol.name);
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
        let profile = NetProfile::loopback();
        let ready = self.host.plan(asked.client, &prepare.source);
        let (plan, stored) = self.host.told(prepare.session, &profile, prepare.source.is_stored(), ready)?;
        let network = self.host.join(asked, prepare.session, &profile)?;
        let job = PrepareJob {
            host: &self.host,
            client: asked.client,
            network: network.clone(),
            plan: &plan,
            prepare,
            stored,
        };
        ended(&network, dispatch(&prepare.protocol, plan.ring, job)?)
    }
}

fn same_version(version: u32) -> Result<()> {
    if version == wire::VERSION {
        return Ok(());
    }
    let what = format!(
        "the client speaks version {version} of the client protocol, this party {}: install one release everywhere",
        wire::VERSION
    );
    Err(Error::of(ErrorKind::Unsupported, what))
}

fn dispatch<J: registry::Visitor<AnyDevice, Output = Result<T>>, T>(
    protocol: &str,
    ring: u32,
    job: J,
) -> Result<Result<T>> {
    registry::dispatch(protocol, ring, job).ok_or_else(|| no_ring(protocol, ring))
}
