//! Parties on this machine: real processes on loopback, with mutual TLS and keys that live as long as they do. The
//! client is the parent process; the children are usually the same program.
//!
//! A child reads one line of JSON on its standard input (its identity and settings), prints one line (its address),
//! reads one more line (everybody's addresses) and serves until its standard input ends.

use crate::client::Cluster;
use crate::device::DeviceChoice;
use crate::party::{Policy, Service};
use crate::{Error, Result};
use megrez_net::{Config, Endpoint, Identity, Limits, PeerName, certs};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The name of the parent as a client.
pub const CLIENT: &str = "local";

/// How to start a party: a program that ends up in [`serve_embedded`], and its arguments. One that was
/// [registered](Program::register) ends up in [`pair::serve`](crate::pair::serve) if it is told `pair` as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What it is told on its command line.
    pub arguments: Vec<OsString>,
}

/// What [`Program::current`] gives, if this process is not the `megrez` command.
static CURRENT: OnceLock<Program> = OnceLock::new();

impl Program {
    /// The program that makes parties of this process's kind: what [`Program::register`] was told, or else the running
    /// executable as the `megrez` command.
    pub fn current() -> Result<Self> {
        match CURRENT.get() {
            Some(program) => Ok(program.clone()),
            None => {
                let path = std::env::current_exe().map_err(|e| Error::Refused(e.to_string()))?;
                Ok(Program::from(path.as_path()))
            }
        }
    }

    /// The program that makes parties of a [`pair`](crate::pair): it ends up in [`pair::serve`](crate::pair::serve).
    pub(crate) fn pair_party() -> Result<Self> {
        let mut program = Program::current()?;
        match CURRENT.get() {
            Some(_) => program.arguments.push("pair".into()),
            None => program.arguments = vec!["pair-party".into()],
        }
        Ok(program)
    }

    /// Says how to start a party from a process that is not the `megrez` command; the first call counts.
    pub fn register(self) {
        let _ = CURRENT.set(self);
    }
}

/// A `megrez` command.
impl From<&Path> for Program {
    fn from(megrez: &Path) -> Self {
        Program { path: megrez.into(), arguments: vec!["party".into(), "--embedded".into()] }
    }
}

/// The first line that a child reads. Holds a private key: it goes through a pipe and nowhere else.
#[derive(Serialize, Deserialize)]
struct Start {
    party: usize,
    parties: usize,
    ca: String,
    certificate: String,
    key: String,
    data: PathBuf,
    silence_seconds: u64,
    device: DeviceChoice,
}

/// The line that a child prints: its address, or why it cannot serve.
type Ready = std::result::Result<String, String>;

/// The second line that a child reads.
#[derive(Serialize, Deserialize)]
struct Peers {
    addresses: Vec<String>,
}

/// Running parties; they end when this is dropped.
pub struct Parties {
    children: Vec<(Child, Option<ChildStdin>)>,
    addresses: Vec<String>,
    identity: Identity,
    data: PathBuf,
}

impl Parties {
    /// Starts `count` parties, on one device or on one for each: see [`DeviceChoice::each`].
    pub fn start(program: impl Into<Program>, count: usize, devices: &[DeviceChoice]) -> Result<Self> {
        Self::start_with(program, count, devices, Limits::default().silence)
    }

    /// As [`start`](Self::start); a party that is silent for `silence`, in whole seconds, is taken for dead.
    pub fn start_with(
        program: impl Into<Program>,
        count: usize,
        devices: &[DeviceChoice],
        silence: Duration,
    ) -> Result<Self> {
        let program = program.into();
        let devices = DeviceChoice::each(devices, count)?;
        if count < 2 {
            return Err(Error::Refused(
                "a single party has nobody to talk to: run it in a thread of this process (--parties thread)"
                    .into(),
            ));
        }
        let deployment = certs::issue(&certs::Request {
            parties: count,
            clients: vec![CLIENT.into()],
            hosts: vec![],
            days: 2,
        })?;
        let identity = deployment.identity(&PeerName::client(CLIENT)?)?;
        let name: String = crate::wire::fresh_name()?.iter().map(|b| format!("{b:02x}")).collect();
        let data = std::env::temp_dir().join(format!("megrez-{name}"));
        let mut parties = Parties { children: vec![], addresses: vec![], identity, data };
        let mut outputs = Vec::new();
        for (party, &device) in devices.iter().enumerate() {
            let mut child = Command::new(&program.path)
                .args(&program.arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| Error::file(&program.path, format!("cannot start a party: {e}")))?;
            let mut stdin = child.stdin.take().expect("piped");
            outputs.push(BufReader::new(child.stdout.take().expect("piped")));
            let name = PeerName::party(party)?;
            let pair = deployment.pairs.iter().find(|p| p.name == name).expect("issued above");
            let start = Start {
                party,
                parties: count,
                ca: deployment.ca.clone(),
                certificate: pair.certificate.clone(),
                key: pair.key.to_string(),
                data: parties.data.join(format!("party{party}")),
                silence_seconds: silence.as_secs(),
                device,
            };
            let written = write_line(&mut stdin, &start);
            parties.children.push((child, Some(stdin)));
            written?;
        }
        for (party, output) in outputs.iter_mut().enumerate() {
            let refused = |reason| Error::Party { party, reason };
            let ready: Ready = read_line(output).map_err(|e| refused(e.to_string()))?;
            parties.addresses.push(ready.map_err(refused)?);
        }
        let peers = Peers { addresses: parties.addresses.clone() };
        for (_, stdin) in &mut parties.children {
            write_line(stdin.as_mut().expect("open until the parties end"), &peers)?;
        }
        Ok(parties)
    }

    /// A client of these parties.
    pub fn connect(&self) -> Result<Cluster> {
        Cluster::connect(&self.addresses, &self.identity, Duration::from_secs(10))
    }

    /// Who their client is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where the parties listen.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The process numbers of the parties, for tests that stop or kill one.
    pub fn process_ids(&self) -> Vec<u32> {
        self.children.iter().map(|(child, _)| child.id()).collect()
    }
}

impl Drop for Parties {
    fn drop(&mut self) {
        // Closing standard input asks the child to end; one that does not is killed.
        self.children.iter_mut().for_each(|(_, stdin)| drop(stdin.take()));
        let deadline = Instant::now() + Duration::from_secs(2);
        for (child, _) in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn write_line<T: Serialize>(out: &mut impl Write, message: &T) -> Result<()> {
    let line = serde_json::to_string(message).map_err(|e| Error::Refused(e.to_string()))?;
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(|e| Error::Refused(format!("a party's pipe: {e}")))
}

fn read_line<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| Error::Refused(format!("a party's pipe: {e}")))?;
    serde_json::from_str(&line).map_err(|_| Error::Refused("the party ended before it was ready".into()))
}

/// The child's side: serves until standard input ends.
pub fn serve_embedded() -> Result<()> {
    crate::heap::keep();
    let mut stdin = BufReader::new(std::io::stdin());
    let start: Start = read_line(&mut stdin)?;
    let identity = Identity::from_pem(&start.ca, &start.certificate, &start.key)?;
    let config = Config {
        me: start.party,
        listen: "127.0.0.1:0".into(),
        peers: vec![String::new(); start.parties],
        identity,
        limits: crate::party::limits(Duration::from_secs(start.silence_seconds)),
    };
    let opened = start.device.open().and_then(|device| Ok((device, Arc::new(Endpoint::bind(config)?))));
    let ready: Ready = match &opened {
        Ok((_, endpoint)) => Ok(endpoint.local_addr().to_string()),
        Err(e) => Err(e.to_string()),
    };
    let written = write_line(&mut std::io::stdout(), &ready);
    // The parent prints the reason, or has gone because of another party's.
    let Ok((device, endpoint)) = opened else { return Ok(()) };
    written?;
    let peers: Peers = read_line(&mut stdin)?;
    endpoint.set_peers(peers.addresses)?;
    // Whoever started this party owns the machine: it may be asked for anything.
    let policy = Policy {
        data: start.data,
        allow_shaping: true,
        allow_insecure: true,
        max_sessions: 16,
        max_elements: usize::MAX,
    };
    let service = Service::new(Arc::clone(&endpoint), policy, device);
    let serving = std::thread::spawn(move || service.run(|_| {}));
    // The parent holds the other end; when it goes, for whatever reason, so does this party.
    let mut rest = String::new();
    while matches!(stdin.read_line(&mut rest), Ok(n) if n > 0) {
        rest.clear();
    }
    endpoint.stop();
    drop(serving);
    Ok(())
}
