//! Two parties for one job, without a client: processes of this machine over loopback TLS with keys that live as long as they
//! do, or threads over memory. For benchmarks and examples, in which each party brings its own data.
//!
//! A child reads one line of JSON on its standard input (its identity and the job), prints one line (its address), reads one
//! more line (both addresses), does the job and prints its report.

use crate::bench_float::FloatBench;
use crate::embedded::Program;
use crate::proximity::Proximity;
use crate::secfloat::TrainBench;
use crate::{Error, Result, float32};
use megrez_net::{
    ClockKind, Config, Endpoint, Identity, Limits, NetProfile, Network, PeerName, SessionId, certs,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What both parties do with each other.
pub trait Job: Serialize + DeserializeOwned + Sync {
    /// Its name, unique among jobs; [`serve`] knows all of them.
    const NAME: &'static str;

    /// What a party has to say afterwards.
    type Report: Serialize + DeserializeOwned + Send;

    /// One party's part.
    ///
    /// # Errors
    /// What went wrong between the parties; the other one hears of it.
    fn run(&self, network: Network) -> Result<Self::Report>;
}

/// The first line that a child reads. Holds a private key: it goes through a pipe and nowhere else.
#[derive(Serialize, Deserialize)]
struct Start {
    party: usize,
    session: [u8; 16],
    ca: String,
    certificate: String,
    key: String,
    /// Name, RTT in milliseconds and rate in Mbit/s of the network.
    net: (String, f64, f64),
    name: String,
    job: serde_json::Value,
}

/// The reports of both parties, threads of this process.
///
/// # Errors
/// If a party fails.
pub fn in_threads<J: Job>(job: &J, net: &NetProfile) -> Result<Vec<J::Report>> {
    let networks = Network::in_memory(2, net, ClockKind::Real, Limits::default().step);
    std::thread::scope(|scope| {
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || job.run(n))).collect();
        let join = |r: std::thread::ScopedJoinHandle<'_, Result<J::Report>>| {
            r.join().unwrap_or_else(|_| Err(Error::Refused("a party panicked".into())))
        };
        running.into_iter().map(join).collect()
    })
}

/// A child that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two parties at work, each a process of this machine; they end when this is dropped.
pub(crate) struct Processes {
    parties: Vec<(Running, ChildStdin, BufReader<ChildStdout>)>,
}

impl Processes {
    /// Starts both with the job `name`, which [`serve`] must know.
    pub(crate) fn start(name: &str, job: &impl Serialize, net: &NetProfile) -> Result<Self> {
        let deployment =
            certs::issue(&certs::Request { parties: 2, clients: vec![], hosts: vec![], days: 2 })?;
        let session = crate::wire::fresh_name()?;
        let program = Program::pair_party()?;
        let mut parties = vec![];
        for party in 0..2 {
            let mut child = Command::new(&program.path)
                .args(&program.arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| Error::file(&program.path, format!("cannot start a party: {e}")))?;
            let mut stdin = child.stdin.take().expect("piped");
            let stdout = BufReader::new(child.stdout.take().expect("piped"));
            let child = Running(child);
            let peer = PeerName::party(party)?;
            let pair = deployment.pairs.iter().find(|p| p.name == peer).expect("issued above");
            let start = Start {
                party,
                session,
                ca: deployment.ca.clone(),
                certificate: pair.certificate.clone(),
                key: pair.key.to_string(),
                net: (net.name.clone(), net.rtt_ms, net.mbps),
                name: name.into(),
                job: serde_json::to_value(job).map_err(|e| Error::Refused(e.to_string()))?,
            };
            write_line(&mut stdin, &start)?;
            parties.push((child, stdin, stdout));
        }
        let addresses: Vec<String> =
            parties.iter_mut().map(|(_, _, out)| read_line(out)).collect::<Result<_>>()?;
        for (_, stdin, _) in &mut parties {
            write_line(stdin, &addresses)?;
        }
        Ok(Self { parties })
    }

    /// Tells party i the i-th message.
    pub(crate) fn tell(&mut self, messages: &[impl Serialize; 2]) -> Result<()> {
        self.parties
            .iter_mut()
            .zip(messages)
            .try_for_each(|((_, stdin, _), message)| write_line(stdin, message))
    }

    /// What both parties say next.
    pub(crate) fn hear<R: DeserializeOwned>(&mut self) -> Result<Vec<R>> {
        let hear = |out| read_line::<std::result::Result<R, String>>(out)?.map_err(Error::Refused);
        self.parties.iter_mut().map(|(_, _, out)| hear(out)).collect()
    }
}

/// The reports of both parties, processes of this machine.
///
/// # Errors
/// If a party cannot be started, or fails.
pub fn in_processes<J: Job>(job: &J, net: &NetProfile) -> Result<Vec<J::Report>> {
    Processes::start(J::NAME, job, net)?.hear()
}

/// The child's side: one line of settings in, its address out, everybody's addresses in, its report out.
///
/// # Errors
/// If the parent's lines make no sense. What goes wrong between the parties is in the report.
pub fn serve() -> Result<()> {
    crate::heap::keep();
    let mut stdin = BufReader::new(std::io::stdin());
    let start: Start = read_line(&mut stdin)?;
    match start.name.as_str() {
        FloatBench::NAME => child::<FloatBench>(&mut stdin, start),
        Proximity::NAME => child::<Proximity>(&mut stdin, start),
        float32::NAME => {
            let work = job(&start)?;
            let endpoint = listen(&mut stdin, &start)?;
            float32::serve(&mut stdin, &mut std::io::stdout(), network(&endpoint, start)?, work)
        }
        TrainBench::NAME => child::<TrainBench>(&mut stdin, start),
        other => Err(Error::Refused(format!("there is no job `{other}`"))),
    }
}

fn job<J: DeserializeOwned>(start: &Start) -> Result<J> {
    J::deserialize(&start.job).map_err(|e| Error::Refused(e.to_string()))
}

fn child<J: Job>(stdin: &mut impl BufRead, start: Start) -> Result<()> {
    let job: J = job(&start)?;
    let endpoint = listen(stdin, &start)?;
    let result = network(&endpoint, start).and_then(|network| job.run(network));
    write_line(&mut std::io::stdout(), &result.map_err(|e| e.to_string()))
}

/// Says where this party listens, and hears where the other one does.
fn listen(stdin: &mut impl BufRead, start: &Start) -> Result<Endpoint> {
    let endpoint = Endpoint::bind(Config {
        me: start.party,
        listen: "127.0.0.1:0".into(),
        peers: vec![String::new(); 2],
        identity: Identity::from_pem(&start.ca, &start.certificate, &start.key)?,
        limits: Limits { silence: Duration::from_secs(60), ..Limits::default() },
    })?;
    write_line(&mut std::io::stdout(), &endpoint.local_addr().to_string())?;
    endpoint.set_peers(read_line(stdin)?)?;
    Ok(endpoint)
}

fn network(endpoint: &Endpoint, start: Start) -> Result<Network> {
    let (name, rtt_ms, mbps) = start.net;
    Ok(endpoint.open_session(SessionId(start.session), &NetProfile { name, rtt_ms, mbps })?)
}

pub(crate) fn write_line<T: Serialize>(out: &mut impl Write, message: &T) -> Result<()> {
    let line = serde_json::to_string(message).map_err(|e| Error::Refused(e.to_string()))?;
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Error::Refused(format!("a party's pipe: {e}")))
}

pub(crate) fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| Error::Refused(format!("a party's pipe: {e}")))?;
    serde_json::from_str(&line).map_err(|_| Error::Refused("the party ended before it had an answer".into()))
}
