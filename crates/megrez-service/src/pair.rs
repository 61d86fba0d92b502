//! Two parties, or three, for one job, without a client: processes of this machine over loopback
//! TLS, or threads over memory. For benchmarks, examples and recorded programs, in which each party
//! brings its own data.
//!
//! A process that may become such a party names the [`Job`]s that it knows, as [`Known`]; this
//! module knows none.

use crate::launch::{Children, Program, Start, listen, read_line, write_line};
use crate::wire::{Failure, Net, fresh_name};
use crate::{Error, ErrorKind, Result};
use megrez_net::{ClockKind, Endpoint, Limits, NetProfile, Network, SessionId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufReader, Stdin};
use std::time::Duration;

/// What the parties do with each other.
pub trait Job: Serialize + DeserializeOwned + Sync {
    /// Its name, unique among jobs.
    const NAME: &'static str;

    /// What a party has to say afterwards.
    type Report: Serialize + DeserializeOwned + Send;

    /// How many parties it takes: two, or with a dealer three.
    fn parties(&self) -> usize {
        2
    }

    /// One party's part.
    ///
    /// # Errors
    /// What went wrong between the parties; the others hear of it.
    fn run(&self, network: Network) -> Result<Self::Report>;
}

/// A kind of job that this program knows.
#[derive(Clone, Copy)]
pub struct Known {
    name: &'static str,
    serve: fn(&mut Child, &serde_json::Value) -> Result<()>,
}

impl Known {
    /// A job that is done once and reported.
    pub const fn job<J: Job>() -> Self {
        Known { name: J::NAME, serve: once::<J> }
    }

    /// A job that talks with its parent for as long as it likes: what it is called with is the
    /// parent's settings.
    pub const fn dialogue(
        name: &'static str,
        serve: fn(&mut Child, &serde_json::Value) -> Result<()>,
    ) -> Self {
        Known { name, serve }
    }
}

/// What a child is told besides its identity.
#[derive(Serialize, Deserialize)]
struct Task {
    session: [u8; 16],
    net: Net,
    name: String,
    job: serde_json::Value,
}

/// The reports of all parties, threads of this process.
///
/// # Errors
/// If a party fails.
pub fn in_threads<J: Job>(job: &J, net: &NetProfile) -> Result<Vec<J::Report>> {
    let networks = Network::in_memory(job.parties(), net, ClockKind::Real, Limits::default().step);
    std::thread::scope(|scope| {
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || job.run(n))).collect();
        let join = |r: std::thread::ScopedJoinHandle<'_, Result<J::Report>>| {
            r.join().unwrap_or_else(|_| Err(Error::of(ErrorKind::Internal, "a party panicked")))
        };
        running.into_iter().map(join).collect()
    })
}

/// Parties at work, each a process of this machine; they end when this is dropped.
pub struct Processes {
    children: Children,
    parties: usize,
}

impl Processes {
    /// Starts so many with the job `name`, which their program must know.
    ///
    /// # Errors
    /// If a party cannot be started.
    pub fn start(name: &str, parties: usize, job: &impl Serialize, net: &NetProfile) -> Result<Self> {
        let session = fresh_name()?;
        let job = serde_json::to_value(job).map_err(|e| Error::of(ErrorKind::Internal, e))?;
        let task = |_| Task { session, net: net.into(), name: name.into(), job: job.clone() };
        let tasks = (0..parties).map(task).collect();
        let (children, _) = Children::start(&Program::pair_party()?, tasks, &[])?;
        Ok(Self { children, parties })
    }

    /// How many there are.
    #[must_use]
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// Tells party i the i-th message.
    ///
    /// # Errors
    /// If a party has gone.
    pub fn tell(&mut self, messages: &[impl Serialize]) -> Result<()> {
        messages.iter().enumerate().try_for_each(|(party, message)| self.children.tell(party, message))
    }

    /// What all parties say next.
    ///
    /// # Errors
    /// If one has gone or failed.
    pub fn hear<R: DeserializeOwned>(&mut self) -> Result<Vec<R>> {
        let hear = |party| self.children.hear::<std::result::Result<R, Failure>>(party)?.map_err(Error::from);
        (0..self.parties).map(hear).collect()
    }
}

/// The reports of all parties, processes of this machine.
///
/// # Errors
/// If a party cannot be started, or fails.
pub fn in_processes<J: Job>(job: &J, net: &NetProfile) -> Result<Vec<J::Report>> {
    Processes::start(J::NAME, job.parties(), job, net)?.hear()
}

/// A party of such a job in its own process.
pub struct Child {
    stdin: BufReader<Stdin>,
    endpoint: Endpoint,
    session: SessionId,
    net: NetProfile,
}

impl Child {
    /// The session with the other parties.
    ///
    /// # Errors
    /// If it does not come.
    pub fn network(&self) -> Result<Network> {
        Ok(self.endpoint.open_session(self.session, &self.net)?)
    }

    /// What the parent says next; `None` once it says nothing more.
    ///
    /// # Errors
    /// If that makes no sense.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        use std::io::BufRead as _;
        if self.stdin.fill_buf().map_or(true, <[u8]>::is_empty) {
            return Ok(None);
        }
        read_line(&mut self.stdin).map(Some)
    }

    /// Answers the parent: with a message, or with what went wrong.
    ///
    /// # Errors
    /// If the parent has gone.
    pub fn tell<T: Serialize>(&self, result: &Result<T>) -> Result<()> {
        let answer: std::result::Result<&T, Failure> = result.as_ref().map_err(Failure::from);
        write_line(&mut std::io::stdout(), &answer)
    }
}

/// The child's side: becomes a party and does one of the jobs that are `known`.
///
/// # Errors
/// If the parent's lines make no sense. What goes wrong between the parties is in the report.
pub fn serve(known: &[Known]) -> Result<()> {
    crate::heap::keep();
    let mut stdin = BufReader::new(std::io::stdin());
    let start: Start<Task> = read_line(&mut stdin)?;
    let Task { session, net, name, job } = &start.task;
    let prepared = net.profile().and_then(|net| {
        let job = known.iter().find(|known| known.name == name);
        let unknown = || Error::of(ErrorKind::Unsupported, format!("there is no job `{name}`"));
        Ok((net, job.ok_or_else(unknown)?))
    });
    let limits = Limits { idle_timeout: Duration::from_secs(60), ..Limits::default() };
    let Some((endpoint, (net, known))) = listen(&mut stdin, &start, limits, prepared)? else { return Ok(()) };
    let mut child = Child { stdin, endpoint, session: SessionId(*session), net };
    (known.serve)(&mut child, job)
}

fn once<J: Job>(child: &mut Child, job: &serde_json::Value) -> Result<()> {
    let job = J::deserialize(job).map_err(|e| Error::of(ErrorKind::Internal, e));
    let result = job.and_then(|job| job.run(child.network()?));
    child.tell(&result)
}
