//! Parties that are children of this process. A child reads one line of JSON on its standard input
//! (who it is and what it is to do), prints one line (its address, or why it cannot serve), reads
//! one more line (everybody's addresses), and ends when its standard input does. Certificates are
//! made for the occasion; private keys go through the pipe and nowhere else.

use crate::wire::Failure;
use crate::{Error, ErrorKind, Result};
use megrez_net::{Config, Endpoint, Identity, Limits, PeerName, certs};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a child may take to end once it is asked to.
const FAREWELL: Duration = Duration::from_secs(2);

/// How to start a party: a program that ends up in
/// [`serve_embedded`](crate::embedded::serve_embedded), and its arguments. One that was
/// [registered](Program::register) ends up in [`pair::serve`](crate::pair::serve) if it is told
/// `pair` as well.
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
    /// The program that makes parties of this process's kind: what [`Program::register`] was told,
    /// or else the running executable as the `megrez` command.
    pub fn current() -> Result<Self> {
        match CURRENT.get() {
            Some(program) => Ok(program.clone()),
            None => {
                let path = std::env::current_exe().map_err(|e| Error::of(ErrorKind::Internal, e))?;
                Ok(Program::from(path.as_path()))
            }
        }
    }

    /// The program that makes parties of a [`pair`](crate::pair): it ends up in
    /// [`pair::serve`](crate::pair::serve).
    pub(crate) fn pair_party() -> Result<Self> {
        let mut program = Program::current()?;
        match CURRENT.get() {
            Some(_) => program.arguments.push("pair".into()),
            None => program.arguments = vec!["pair-party".into()],
        }
        Ok(program)
    }

    /// Says how to start a party from a process that is not the `megrez` command; the first call
    /// counts.
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

/// The first line that a child reads: who it is, and `T`, what it is to do.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start<T> {
    party: usize,
    parties: usize,
    ca: String,
    certificate: String,
    key: String,
    pub(crate) task: T,
}

/// The line that a child prints: its address, or why it cannot serve.
type Ready = std::result::Result<String, Failure>;

/// A child of this process.
struct Child {
    process: Process,
    /// `None` once the child has been asked to end.
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// Running parties; they end when this is dropped.
pub(crate) struct Children {
    children: Vec<Child>,
    addresses: Vec<String>,
}

impl Children {
    /// Starts a party for each task, with certificates for all of them and for `clients`, which are
    /// given back.
    pub(crate) fn start<T: Serialize>(
        program: &Program,
        tasks: Vec<T>,
        clients: &[&str],
    ) -> Result<(Self, certs::Deployment)> {
        let deployment = certs::issue(&certs::Request {
            parties: tasks.len(),
            clients: clients.iter().map(ToString::to_string).collect(),
            hosts: vec![],
            days: 2,
            authority_days: 2,
            only: vec![],
        })?;
        let parties = tasks.len();
        let mut children = Children { children: vec![], addresses: vec![] };
        for (party, task) in tasks.into_iter().enumerate() {
            let mut process = Command::new(&program.path)
                .args(&program.arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|e| Error::file(&program.path, format!("cannot start a party: {e}")))?;
            let stdin = Some(process.stdin.take().expect("piped"));
            let stdout = BufReader::new(process.stdout.take().expect("piped"));
            children.children.push(Child { process, stdin, stdout });
            let name = PeerName::party(party)?;
            let pair = deployment.pairs.iter().find(|p| p.name == name).expect("issued above");
            let start = Start {
                party,
                parties,
                ca: deployment.ca.clone(),
                certificate: pair.certificate.clone(),
                key: pair.key.to_string(),
                task,
            };
            children.tell(party, &start)?;
        }
        for party in 0..parties {
            let refused = |kind, reason| Error::Party { party, kind, reason };
            let ready: Ready = children.hear(party).map_err(|e| refused(e.kind(), e.to_string()))?;
            children.addresses.push(ready.map_err(|Failure { kind, reason }| refused(kind, reason))?);
        }
        let addresses = children.addresses.clone();
        (0..parties).try_for_each(|party| children.tell(party, &addresses))?;
        Ok((children, deployment))
    }

    /// Where the parties listen.
    pub(crate) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The process numbers of the parties.
    pub(crate) fn process_ids(&self) -> Vec<u32> {
        self.children.iter().map(|child| child.process.id()).collect()
    }

    /// Tells a party something, in a line.
    pub(crate) fn tell(&mut self, party: usize, message: &impl Serialize) -> Result<()> {
        write_line(self.children[party].stdin.as_mut().expect("open until the parties end"), message)
    }

    /// What a party says next.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self, party: usize) -> Result<T> {
        read_line(&mut self.children[party].stdout)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        // Closing standard input asks the child to end; one that does not is killed.
        self.children.iter_mut().for_each(|child| drop(child.stdin.take()));
        let deadline = Instant::now() + FAREWELL;
        for Child { process, .. } in &mut self.children {
            while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A child's side: says where it listens, and hears where the others do. `prepared` is what else it
/// needs to serve; its failure goes to the parent, and then there is nothing to serve: `None`.
pub(crate) fn listen<T, P>(
    stdin: &mut impl BufRead,
    start: &Start<T>,
    limits: Limits,
    prepared: Result<P>,
) -> Result<Option<(Endpoint, P)>> {
    let bind = || -> Result<Endpoint> {
        Ok(Endpoint::bind(Config {
            me: start.party,
            listen: "127.0.0.1:0".into(),
            peers: vec![String::new(); start.parties],
            identity: Identity::from_pem(&start.ca, &start.certificate, &start.key)?,
            limits,
        })?)
    };
    let opened = prepared.and_then(|prepared| Ok((bind()?, prepared)));
    let ready: Ready = match &opened {
        Ok((endpoint, _)) => Ok(endpoint.local_addr().to_string()),
        Err(e) => Err(e.into()),
    };
    let written = write_line(&mut std::io::stdout(), &ready);
    // The parent prints the reason, or has gone because of another party's.
    let Ok((endpoint, prepared)) = opened else { return Ok(None) };
    written?;
    endpoint.set_peers(read_line(stdin)?)?;
    Ok(Some((endpoint, prepared)))
}

fn pipe(e: impl std::fmt::Display) -> Error {
    Error::of(ErrorKind::PeerLost, format!("a party's pipe: {e}"))
}

/// Writes a message as a line.
///
/// # Errors
/// If nobody reads.
pub fn write_line<T: Serialize>(out: &mut impl Write, message: &T) -> Result<()> {
    let line = serde_json::to_string(message).map_err(|e| Error::of(ErrorKind::Internal, e))?;
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(pipe)
}

/// Reads a message that is a line.
///
/// # Errors
/// If there is none.
pub fn read_line<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(pipe)?;
    serde_json::from_str(&line)
        .map_err(|_| Error::of(ErrorKind::PeerLost, "the party ended before it had an answer"))
}
