//! A client of a cluster: shares its inputs with the parties, learns its outputs, and is no compute
//! party.

mod exchange;
mod holdings;
mod joint;
mod lines;
mod replicas;
mod training;

use crate::wire::{self, Ahead, Failure, Info, ModelPlan, Prepare, Reply, Request, Run, Source, Upload};
use crate::{Error, ErrorKind, Result};
use exchange::{Exchange, Share};
use lines::{LAST_WORDS, Line, Patience, Port, last_words, line, next, unexpected};
use megrez_engine::client::PartyPort;
use megrez_engine::float::{FloatInputs, FloatRun, collect_floats, provide_floats};
use megrez_engine::{Options, PartyReport};
use megrez_net::{Identity, NetProfile, PeerName};
use megrez_plan::{FloatPlan, Input, KEPT, Plan};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

pub use holdings::Holding;
pub use joint::Joint;
pub use training::{Learnt, Standing};

/// Channels to all parties of a cluster. After an error they are closed, and every further call
/// fails.
pub struct Cluster {
    lines: RefCell<Vec<Line>>,
    name: String,
    /// Where the parties are, and who asks: to connect anew.
    addresses: Vec<(usize, String)>,
    identity: Identity,
    patience: Patience,
    /// Of what kind a party's failure was, if one has told it in the middle of an exchange.
    told: Cell<Option<ErrorKind>>,
}

/// Pauses between attempts while the parties are busy: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

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
    /// The parties make the material of a run while the one before goes on: runs follow each other
    /// faster, and phases of one run are measured beside those of another.
    pub streamed: bool,
    /// Shape the links.
    pub net: NetProfile,
    /// Which of the material that was made ahead serves these runs.
    pub material: Ahead,
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
            streamed: false,
            net: NetProfile::loopback(),
            material: Ahead::Nothing,
            insecure: false,
        }
    }
}

impl RunOptions {
    fn of_runs(&self) -> Options<'_> {
        Options { runs: self.runs, lasting: &self.lasting, streamed: self.streamed }
    }
}

/// A stored model at a batch size, as its parties tell of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The protocol in whose sharing it is kept.
    pub protocol: String,
    /// What its owner approved.
    pub plan: ModelPlan,
    /// How many runs of it every party has made material ahead for, for this client.
    pub stock: usize,
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
        let lines = numbered.map(|(i, a)| line(i, a, identity, timeout)).collect::<Result<Vec<_>>>()?;
        Self::of(lines, addresses.iter().cloned().enumerate().collect(), identity, timeout)
    }

    /// Connects to one party only, to ask it who it is.
    pub fn connect_one(party: usize, address: &str, identity: &Identity, timeout: Duration) -> Result<Self> {
        let line = line(party, address, identity, timeout)?;
        Self::of(vec![line], vec![(party, address.to_owned())], identity, timeout)
    }

    fn of(
        lines: Vec<Line>,
        addresses: Vec<(usize, String)>,
        identity: &Identity,
        connect: Duration,
    ) -> Result<Self> {
        let name = client_name(identity)?;
        let patience = Patience {
            connect,
            idle_timeout: wire::PATIENCE,
            busy: wire::PATIENCE_WITH_BUSY,
            request: None,
            until: None,
        };
        let (lines, told) = (RefCell::new(lines), Cell::new(None));
        Ok(Cluster { lines, name, addresses, identity: identity.clone(), patience, told })
    }

    /// A party from which nothing comes for `time` is given up; parties that work say every few
    /// seconds that they are alive.
    pub fn set_patience(&mut self, time: Duration) {
        self.patience.idle_timeout = time;
    }

    /// A request that has not ended after `time` is given up, whatever the parties say; by default
    /// it may take as long as it likes.
    pub fn set_timeout(&mut self, time: Option<Duration>) {
        self.patience.request = time;
    }

    /// While the parties are busy, a request is repeated for `time`, with growing pauses. Default:
    /// a minute.
    pub fn set_busy_patience(&mut self, time: Duration) {
        self.patience.busy = time;
    }

    /// This client's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether all connections stand, as far as that is known without asking.
    pub fn is_connected(&self) -> bool {
        let lines = self.lines.borrow();
        !lines.is_empty() && lines.iter().all(|line| !line.channel.hung_up())
    }

    /// How many parties there are.
    pub fn parties(&self) -> usize {
        self.lines.borrow().len()
    }

    /// Asks every party who it is.
    pub fn info(&mut self) -> Result<Vec<Info>> {
        self.attempt(|cluster| {
            cluster.ask(&Request::Info { version: wire::VERSION })?;
            cluster.each(|party, reply| match reply {
                Reply::Info(info) => Ok(info),
                other => Err(unexpected(party, &other)),
            })
        })
    }

    /// A stored model at a batch size; all parties must say the same of its protocol and plan.
    pub fn describe(&mut self, model: &str, batch: usize) -> Result<Description> {
        let mut answers = self.attempt(|cluster| {
            cluster.ask(&Request::Describe { model: model.into(), batch })?;
            cluster.each(|party, reply| match reply {
                Reply::Model { protocol, plan, stock } => Ok(Description { protocol, plan, stock }),
                other => Err(unexpected(party, &other)),
            })
        })?;
        let first = answers.remove(0);
        let same = |other: &Description| other.protocol == first.protocol && other.plan == first.plan;
        match answers.iter().position(|other| !same(other)) {
            None => {
                let stock = answers.iter().fold(first.stock, |least, other| least.min(other.stock));
                Ok(Description { stock, ..first })
            }
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
        // What an earlier run has left with the parties goes with the connection.
        let again = plan.inputs.iter().all(|input| input.owner != KEPT);
        let (outputs, reports) = self.session(source, options, again, |cluster| {
            let (ports, protocol) = (cluster.ports(), &options.protocol);
            Exchange { protocol, ports, plan, options: options.of_runs(), mine, inputs, progress }.run()
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
        let (outputs, reports) = self.session(source, options, true, |cluster| {
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
        again: bool,
        mut exchange: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<(T, Vec<Vec<PartyReport>>)> {
        let mut run = Run {
            session: wire::fresh_name()?,
            protocol: options.protocol.clone(),
            source,
            runs: options.runs,
            lasting: options.lasting.clone(),
            streamed: options.streamed,
            net: (&options.net).into(),
            material: options.material,
            insecure: options.insecure,
            within_s: None,
        };
        let (outputs, reports) = self.repeated(again, |cluster| {
            (run.session, run.within_s) = (wire::fresh_name()?, cluster.patience.within_s());
            cluster.ask(&Request::Run(run.clone()))?;
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
        let mut upload = upload;
        self.repeated(true, |cluster| {
            (upload.session, upload.within_s) = (wire::fresh_name()?, cluster.patience.within_s());
            cluster.ask(&Request::Upload(upload.clone()))?;
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
        let mut upload = upload;
        self.repeated(true, |cluster| {
            (upload.session, upload.within_s) = (wire::fresh_name()?, cluster.patience.within_s());
            cluster.ask(&Request::Upload(upload.clone()))?;
            let ports = cluster.ports();
            Share { protocol: &protocol, ports, plan: &plan, mine: &mine, inputs: &inputs }.run()?;
            cluster.done()
        })
    }

    /// Makes material for a plan ahead; returns the name of the batch.
    pub fn prepare(&mut self, protocol: &str, source: Source) -> Result<[u8; 16]> {
        self.make(protocol, &source, false)
    }

    /// As [`prepare`](Self::prepare), for the stock of this client: runs take it by themselves.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub fn prepare_stock(&mut self, protocol: &str, source: Source) -> Result<[u8; 16]> {
        self.make(protocol, &source, true)
    }

    fn make(&mut self, protocol: &str, source: &Source, stock: bool) -> Result<[u8; 16]> {
        let material = wire::fresh_name()?;
        self.repeated(true, |cluster| {
            let (session, protocol, source) = (wire::fresh_name()?, protocol.into(), source.clone());
            let within_s = cluster.patience.within_s();
            cluster.ask(&Request::Prepare(Prepare {
                session,
                protocol,
                source,
                material,
                stock,
                within_s,
            }))?;
            cluster.done()
        })?;
        Ok(material)
    }

    /// Does a request, again and again while the parties are too busy for it, each time on new
    /// connections. `again` says whether it can be done on others than the present ones.
    fn repeated<T>(&mut self, again: bool, mut request: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        // From when a party says first that it is busy: before, others may have been waited for.
        let mut give_up = None;
        let busy = self.patience.busy;
        let mut soon = |pause| Instant::now() + pause < *give_up.get_or_insert_with(|| Instant::now() + busy);
        self.patience.until = self.patience.request.map(|time| Instant::now() + time);
        let mut pause = PAUSES[0];
        let result = loop {
            match self.attempt(&mut request) {
                Err(e) if e.kind() == ErrorKind::Busy && again && soon(pause) => {
                    std::thread::sleep(pause);
                    // Clients that were sent away together do not come back together.
                    let mut random = [0];
                    let _ = getrandom::fill(&mut random);
                    pause = (pause.mul_f64(1.5 + f64::from(random[0]) / 256.0)).min(PAUSES[1]);
                    self.reconnect()?;
                }
                result => break result,
            }
        };
        self.patience.until = None;
        result
    }

    /// New channels to all parties.
    fn reconnect(&mut self) -> Result<()> {
        let addresses = std::mem::take(&mut self.addresses);
        let lines = addresses
            .iter()
            .map(|(party, address)| line(*party, address, &self.identity, self.patience.connect))
            .collect::<Result<Vec<_>>>();
        self.addresses = addresses;
        *self.lines.get_mut() = lines?;
        Ok(())
    }

    /// Does one request. If it fails, the parties' own reasons are added and the channels are
    /// closed: what is still under way on them must not be taken for the answer to something else,
    /// and parties that wait for this client hear that it has gone.
    fn attempt<T>(&mut self, request: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.lines.get_mut().is_empty() {
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
        for mut line in self.lines.get_mut().drain(..) {
            // Who was sent away has no more to hear from those who wait for the one that sent it.
            if kind == ErrorKind::Busy {
                continue;
            }
            let Some(failure) = last_words(&mut line.channel, until) else { continue };
            if failure.kind.explains(kind) {
                kind = failure.kind;
            }
            if !told.iter().any(|t| t.contains(&failure.reason)) {
                told.push(format!("party {}: {}", line.party, failure.reason));
            }
        }
        Err(Error::of(kind, told.join("; ")))
    }

    /// What every party measured in each of `runs` runs.
    fn reports(&mut self, runs: u32) -> Result<Vec<Vec<PartyReport>>> {
        self.each(|party, reply| match reply {
            Reply::Reports(reports) if reports.len() == runs as usize => Ok(reports),
            other => Err(unexpected(party, &other)),
        })
    }

    fn done(&mut self) -> Result<()> {
        self.each(|party, reply| match reply {
            Reply::Done => Ok(()),
            other => Err(unexpected(party, &other)),
        })
        .map(|_| ())
    }

    fn ask(&mut self, request: &Request) -> Result<()> {
        let idle_timeout = self.patience.idle_timeout;
        let lines = self.lines.get_mut();
        // The others would wait for one that is gone.
        if let Some(line) = lines.iter().find(|line| line.channel.hung_up()) {
            // It may have said why.
            let until = Instant::now() + LAST_WORDS;
            let party = line.party;
            let line = lines.iter_mut().find(|line| line.party == party).expect("found above");
            return Err(match last_words(&mut line.channel, until) {
                Some(Failure { kind, reason }) => Error::Party { party, kind, reason },
                None => {
                    let reason = "has closed its connection; look at its log".into();
                    Error::Party { party, kind: ErrorKind::PeerLost, reason }
                }
            });
        }
        lines.iter_mut().try_for_each(|line| {
            // Parties may compute for long before they answer; they say meanwhile that they are
            // alive.
            line.channel.set_timeout(idle_timeout)?;
            wire::send(&mut line.channel, request)
        })
    }

    /// One answer from every party; if several fail, the reason of the first.
    fn each<T>(&mut self, mut f: impl FnMut(usize, Reply) -> Result<T>) -> Result<Vec<T>> {
        let count = self.parties();
        let mut answer = |i: usize| {
            let (party, reply) = next(&self.lines, i, &self.patience)?;
            f(party, reply)
        };
        (0..count).map(&mut answer).collect()
    }

    fn ports(&self) -> Vec<Port<'_>> {
        let Cluster { lines, told, patience, .. } = self;
        (0..self.parties()).map(|index| Port { index, lines, told, patience }).collect()
    }
}

fn client_name(identity: &Identity) -> Result<String> {
    match identity.name() {
        PeerName::Client(name) => Ok(name.clone()),
        PeerName::Party(_) => {
            Err(Error::of(ErrorKind::NotPermitted, "a party's certificate cannot act as a client"))
        }
    }
}
