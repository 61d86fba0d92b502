//! A client of a cluster: shares its inputs with the parties, learns its outputs, and is no compute
//! party.

use crate::protocols::no_ring;
use crate::wire::{self, Failure, Info, ModelPlan, Prepare, Reply, Request, Run, Source, Upload};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::client::{PartyPort, collect_where, provide};
use megrez_engine::float::{FloatInputs, FloatRun, collect_floats, provide_floats};
use megrez_engine::{Options, PartyReport};
use megrez_net::{Channel, Identity, NetError, NetProfile, Payload, PeerName, dial};
use megrez_plan::{FloatPlan, Input, KEPT, Plan};
use megrez_protocols::{Suite, registry};
use megrez_ring::Word;
use megrez_session::Error as SessionError;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Channels to all parties of a cluster. After an error they are closed, and every further call
/// fails.
pub struct Cluster {
    channels: Vec<Channel>,
    name: String,
    patience: Duration,
    /// Of what kind a party's failure was, if one has told it in the middle of an exchange.
    told: Cell<Option<ErrorKind>>,
}

/// After a failure, how long a client listens for what else the parties have to say about it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What to run, besides the plan.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The protocol's name.
    pub protocol: String,
    /// How many times, with inputs of their own.
    pub runs: u32,
    /// The names of the inputs that last, which a model's weights are: they are shared in the first
    /// run, and the parties hold them until the last.
    pub lasting: Vec<String>,
    /// Shape the links.
    pub net: NetProfile,
    /// Material made ahead, for the first run.
    pub material: Option<[u8; 16]>,
    /// The caller insists on a protocol that does not protect.
    pub insecure: bool,
}

impl RunOptions {
    /// One run under a protocol, over links as they are; a protocol that does not protect is
    /// refused.
    pub fn new(protocol: &str) -> Self {
        RunOptions {
            protocol: protocol.into(),
            runs: 1,
            lasting: vec![],
            net: NetProfile::loopback(),
            material: None,
            insecure: false,
        }
    }
}

impl RunOptions {
    fn of_runs(&self) -> Options<'_> {
        Options { runs: self.runs, lasting: &self.lasting }
    }
}

/// What came out of a run.
pub struct Outcome {
    /// Per run and output of the plan: ring elements.
    pub outputs: Vec<Vec<Vec<u64>>>,
    /// Per run and party.
    pub reports: Vec<Vec<PartyReport>>,
}

/// Ring elements of an input for a run, by run and input.
pub type Inputs<'a> = megrez_engine::local::Inputs<'a>;

impl Cluster {
    /// Connects to all parties as the client that `identity` proves.
    pub fn connect(addresses: &[String], identity: &Identity, timeout: Duration) -> Result<Self> {
        let numbered = addresses.iter().enumerate();
        let channels = numbered.map(|(i, a)| channel(i, a, identity, timeout)).collect::<Result<Vec<_>>>()?;
        Self::of(channels, identity)
    }

    /// Connects to one party only, to ask it who it is.
    pub fn connect_one(party: usize, address: &str, identity: &Identity, timeout: Duration) -> Result<Self> {
        Self::of(vec![channel(party, address, identity, timeout)?], identity)
    }

    fn of(channels: Vec<Channel>, identity: &Identity) -> Result<Self> {
        let name = client_name(identity)?;
        Ok(Cluster { channels, name, patience: wire::PATIENCE, told: Cell::new(None) })
    }

    /// A party from which nothing comes for `time` is given up; parties that work say every few
    /// seconds that they are alive.
    pub fn set_patience(&mut self, time: Duration) {
        self.patience = time;
    }

    /// This client's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many parties there are.
    pub fn parties(&self) -> usize {
        self.channels.len()
    }

    /// Asks every party who it is.
    pub fn info(&mut self) -> Result<Vec<Info>> {
        self.attempt(|cluster| {
            cluster.ask(&Request::Info { version: wire::VERSION })?;
            cluster.each(|party, channel| match reply(party, channel)? {
                Reply::Info(info) => Ok(info),
                other => Err(unexpected(party, &other)),
            })
        })
    }

    /// The approved plan of a stored model; all parties must say the same.
    pub fn describe(&mut self, model: &str, batch: usize) -> Result<(String, ModelPlan)> {
        let mut answers = self.attempt(|cluster| {
            cluster.ask(&Request::Describe { model: model.into(), batch })?;
            cluster.each(|party, channel| match reply(party, channel)? {
                Reply::Model { protocol, plan } => Ok((protocol, plan)),
                other => Err(unexpected(party, &other)),
            })
        })?;
        let first = answers.remove(0);
        match answers.iter().position(|a| *a != first) {
            None => Ok(first),
            Some(i) => Err(Error::of(
                ErrorKind::DamagedFile,
                format!("parties 0 and {} describe the model `{model}` differently: do not use it", i + 1),
            )),
        }
    }

    /// Runs a plan. `mine` says which inputs this client provides; `progress` hears of every
    /// finished run.
    pub fn run(
        &mut self,
        plan: &Plan,
        source: Source,
        options: &RunOptions,
        mine: &dyn Fn(&Input) -> bool,
        inputs: &Inputs<'_>,
        progress: &dyn Fn(u32),
    ) -> Result<Outcome> {
        let (outputs, reports) = self.session(source, options, |cluster| {
            let visitor = Exchange { cluster, plan, options: options.of_runs(), mine, inputs, progress };
            dispatch(&options.protocol, plan, visitor)
        })?;
        Ok(Outcome { outputs, reports })
    }

    /// As [`run`](Self::run), a plan of floating point.
    ///
    /// # Errors
    /// If a party refuses or fails.
    pub fn run_floats(
        &mut self,
        plan: &FloatPlan,
        source: Source,
        options: &RunOptions,
        mine: &dyn Fn(&Input) -> bool,
        inputs: &FloatInputs<'_>,
        progress: &dyn Fn(u32),
    ) -> Result<FloatRun> {
        let (outputs, reports) = self.session(source, options, |cluster| {
            let mut outputs = vec![];
            for run in 0..options.runs {
                let mut ports = cluster.ports();
                let mut ports: Vec<&mut dyn PartyPort> =
                    ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
                let shared = |input: &Input| mine(input) && options.of_runs().shares(run, input);
                provide_floats(plan, &shared, &|input| inputs(run, input), &mut ports)?;
                outputs.push(collect_floats(plan, &mut ports)?);
                progress(run);
            }
            Ok(outputs)
        })?;
        Ok(FloatRun { outputs, reports })
    }

    /// Asks the parties to run a plan, does this client's part of it, and hears what they measured,
    /// per run and party.
    fn session<T>(
        &mut self,
        source: Source,
        options: &RunOptions,
        exchange: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<Vec<PartyReport>>)> {
        let request = Request::Run(Run {
            session: wire::fresh_name()?,
            protocol: options.protocol.clone(),
            source,
            runs: options.runs,
            lasting: options.lasting.clone(),
            net: (&options.net).into(),
            material: options.material,
            insecure: options.insecure,
        });
        let (outputs, reports) = self.attempt(|cluster| {
            cluster.ask(&request)?;
            Ok((exchange(cluster)?, cluster.reports(options.runs)?))
        })?;
        let by_run = |run: usize| reports.iter().map(|party| party[run].clone()).collect();
        Ok((outputs, (0..options.runs as usize).map(by_run).collect()))
    }

    /// As [`upload`](Self::upload), a model of floating point; `weights` are numbers by input name.
    ///
    /// # Errors
    /// If a party refuses or fails.
    pub fn upload_floats(
        &mut self,
        upload: Upload,
        weights: &dyn Fn(&Input) -> Result<Vec<f32>>,
    ) -> Result<()> {
        let plan = upload.plans.first().and_then(|p| FloatPlan::from_bytes(&p.plan).ok());
        let plan = plan.ok_or_else(|| Error::Refused("an upload has at least one valid plan".into()))?;
        let name = self.name.clone();
        let weights = |input: &Input| Ok(weights(input)?);
        self.attempt(|cluster| {
            cluster.ask(&Request::Upload(upload))?;
            let mut ports = cluster.ports();
            let mut ports: Vec<&mut dyn PartyPort> =
                ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
            provide_floats(&plan, &|i| i.owner == name, &weights, &mut ports)?;
            cluster.done()
        })
    }

    /// Keeps a model's weights at the parties, in shares. `weights` are ring elements by input
    /// name.
    pub fn upload(&mut self, upload: Upload, weights: &dyn Fn(&Input) -> Result<Vec<u64>>) -> Result<()> {
        let plan = upload.plans.first().and_then(|p| Plan::from_bytes(&p.plan).ok());
        let plan = plan.ok_or_else(|| Error::Refused("an upload has at least one valid plan".into()))?;
        let protocol = upload.protocol.clone();
        let name = self.name.clone();
        let mine = |i: &Input| i.owner == name;
        let inputs = |_: u32, input: &Input| Ok(weights(input)?);
        self.attempt(|cluster| {
            cluster.ask(&Request::Upload(upload))?;
            dispatch(&protocol, &plan, Share { cluster, plan: &plan, mine: &mine, inputs: &inputs })?;
            cluster.done()
        })
    }

    /// Makes material for a plan ahead; returns the name of the batch.
    pub fn prepare(&mut self, protocol: &str, source: Source) -> Result<[u8; 16]> {
        let material = wire::fresh_name()?;
        let session = wire::fresh_name()?;
        self.attempt(|cluster| {
            cluster.ask(&Request::Prepare(Prepare {
                session,
                protocol: protocol.into(),
                source,
                material,
            }))?;
            cluster.done()
        })?;
        Ok(material)
    }

    /// Does one request. If it fails, the parties' own reasons are added and the channels are
    /// closed: what is still under way on them must not be taken for the answer to something else,
    /// and parties that wait for this client hear that it has gone.
    fn attempt<T>(&mut self, request: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.channels.is_empty() {
            let what = "the connection was given up after an error: connect anew";
            return Err(Error::of(ErrorKind::PeerLost, what));
        }
        self.told.take();
        let error = match request(self) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let mut kind = self.told.take().unwrap_or(error.kind());
        let mut told = vec![error.to_string()];
        let until = Instant::now() + LAST_WORDS;
        for (party, mut channel) in self.channels.drain(..).enumerate() {
            let Some(failure) = last_words(&mut channel, until) else { continue };
            if failure.kind.explains(kind) {
                kind = failure.kind;
            }
            if !told.iter().any(|t| t.contains(&failure.reason)) {
                told.push(format!("party {party}: {}", failure.reason));
            }
        }
        Err(Error::of(kind, told.join("; ")))
    }

    /// What every party measured in each of `runs` runs.
    fn reports(&mut self, runs: u32) -> Result<Vec<Vec<PartyReport>>> {
        self.each(|party, channel| match reply(party, channel)? {
            Reply::Reports(reports) if reports.len() == runs as usize => Ok(reports),
            other => Err(unexpected(party, &other)),
        })
    }

    fn done(&mut self) -> Result<()> {
        self.each(|party, channel| match reply(party, channel)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(party, &other)),
        })
        .map(|_| ())
    }

    fn ask(&mut self, request: &Request) -> Result<()> {
        let patience = self.patience;
        // The others would wait for one that is gone.
        if let Some(party) = self.channels.iter().position(Channel::hung_up) {
            let reason = "has closed its connection; look at its log".into();
            return Err(Error::Party { party, kind: ErrorKind::PeerLost, reason });
        }
        self.channels.iter_mut().try_for_each(|channel| {
            // Parties may compute for long before they answer; they say meanwhile that they are
            // alive.
            channel.set_timeout(patience)?;
            wire::send(channel, request)
        })
    }

    /// One answer from every party; if several fail, the reason of the first.
    fn each<T>(&mut self, mut f: impl FnMut(usize, &mut Channel) -> Result<T>) -> Result<Vec<T>> {
        self.channels.iter_mut().enumerate().map(|(i, c)| f(i, c)).collect()
    }

    fn ports(&mut self) -> Vec<Port<'_>> {
        let told = &self.told;
        self.channels.iter_mut().enumerate().map(|(party, channel)| Port { party, channel, told }).collect()
    }
}

fn channel(party: usize, address: &str, identity: &Identity, timeout: Duration) -> Result<Channel> {
    dial(address, identity, &PeerName::party(party)?, timeout).map_err(|e| {
        let reason = format!("cannot reach {address}: {e}");
        Error::Party { party, kind: Error::from(e).kind(), reason }
    })
}

fn client_name(identity: &Identity) -> Result<String> {
    match identity.name() {
        PeerName::Client(name) => Ok(name.clone()),
        PeerName::Party(_) => {
            Err(Error::of(ErrorKind::NotPermitted, "a party's certificate cannot act as a client"))
        }
    }
}

fn reply(party: usize, channel: &mut Channel) -> Result<Reply> {
    match wire::recv(channel, wire::MAX_REPLY)? {
        Reply::Failed(Failure { kind, reason }) => Err(Error::Party { party, kind, reason }),
        reply => Ok(reply),
    }
}

/// The reason that a party gives for a failure, if it gives one soon: the last thing that it says
/// before it hangs up. What comes before may be anything that was under way, shares included.
fn last_words(channel: &mut Channel, until: Instant) -> Option<Failure> {
    let mut last = None;
    for _ in 0..64 {
        let left = until.saturating_duration_since(Instant::now());
        channel.set_timeout(left.max(Duration::from_millis(50))).ok()?;
        match channel.recv(wire::MAX_REPLY) {
            Ok(payload) => last = Some(payload),
            Err(NetError::Closed(_)) => break,
            Err(_) => return None,
        }
    }
    match postcard::from_bytes(last?.as_bytes()) {
        Ok(Reply::Failed(failure)) => Some(failure),
        _ => None,
    }
}

fn dispatch<J: registry::Visitor<AnyDevice, Output = Result<T>>, T>(
    protocol: &str,
    plan: &Plan,
    job: J,
) -> Result<T> {
    registry::dispatch(protocol, plan.ring, job).ok_or_else(|| no_ring(protocol, plan.ring))?
}

fn unexpected(party: usize, _: &Reply) -> Error {
    let reason = "answered out of turn: use one release of megrez everywhere".into();
    Error::Party { party, kind: ErrorKind::Unsupported, reason }
}

/// One party during a run.
struct Port<'a> {
    party: usize,
    channel: &'a mut Channel,
    told: &'a Cell<Option<ErrorKind>>,
}

impl Port<'_> {
    /// The party's answer; a failure is an error of the session, and its kind is kept beside it.
    fn reply(&mut self) -> std::result::Result<Reply, SessionError> {
        reply(self.party, self.channel).map_err(|e| self.refused(&e))
    }

    fn refused(&self, e: &Error) -> SessionError {
        self.told.set(Some(e.kind()));
        SessionError::Refused(e.to_string())
    }
}

impl PartyPort for Port<'_> {
    fn mask_key(&mut self) -> std::result::Result<Vec<u8>, SessionError> {
        match self.reply()? {
            Reply::MaskKey(mask_key) => Ok(mask_key),
            other => Err(self.refused(&unexpected(self.party, &other))),
        }
    }
    fn send(&mut self, share: Payload) -> std::result::Result<(), SessionError> {
        // A party that failed has said why: that is worth more than the broken pipe.
        let Err(broken) = self.channel.send(share.as_bytes()) else { return Ok(()) };
        match reply(self.party, self.channel) {
            Err(told @ Error::Party { .. }) => Err(self.refused(&told)),
            _ => Err(SessionError::Net(broken)),
        }
    }
    fn output(&mut self, limit: usize) -> std::result::Result<Payload, SessionError> {
        match self.reply()? {
            Reply::Share => Ok(self.channel.recv(limit as u64)?),
            other => Err(self.refused(&unexpected(self.party, &other))),
        }
    }
}

/// The client's part of a run, for a suite chosen at run time.
struct Exchange<'a> {
    cluster: &'a mut Cluster,
    plan: &'a Plan,
    options: Options<'a>,
    mine: &'a dyn Fn(&Input) -> bool,
    inputs: &'a Inputs<'a>,
    progress: &'a dyn Fn(u32),
}

impl registry::Visitor<AnyDevice> for Exchange<'_> {
    type Output = Result<Vec<Vec<Vec<u64>>>>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
        let mut ports = self.cluster.ports();
        let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        let mut outputs = Vec::new();
        for run in 0..self.options.runs {
            let shared = |input: &Input| (self.mine)(input) && self.options.shares(run, input);
            let words = |input: &Input| ring_words::<S::Word>((self.inputs)(run, input)?);
            provide(&suite, self.plan, &shared, &words, &mut ports)?;
            // Parties run a plan only for a client who receives all of its outputs.
            let mine = collect_where(&suite, self.plan, &|o| o.recipient != KEPT, &mut ports)?;
            outputs.push(mine.iter().map(|o| o.iter().map(|w| w.to_u64()).collect()).collect());
            (self.progress)(run);
        }
        Ok(outputs)
    }
}

/// Sharing inputs without a run, for an upload.
struct Share<'a> {
    cluster: &'a mut Cluster,
    plan: &'a Plan,
    mine: &'a dyn Fn(&Input) -> bool,
    inputs: &'a dyn Fn(u32, &Input) -> std::result::Result<Vec<u64>, SessionError>,
}

impl registry::Visitor<AnyDevice> for Share<'_> {
    type Output = Result<()>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
        let mut ports = self.cluster.ports();
        let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        let words = |input: &Input| ring_words::<S::Word>((self.inputs)(0, input)?);
        Ok(provide(&suite, self.plan, self.mine, &words, &mut ports)?)
    }
}

fn ring_words<W: Word>(words: Vec<u64>) -> std::result::Result<Vec<W>, SessionError> {
    Ok(words.into_iter().map(W::from_u64).collect())
}
