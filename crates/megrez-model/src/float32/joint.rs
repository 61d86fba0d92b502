//! A client's side of programs that several clients run at the parties of a cluster. Each opening
//! is a run of its own, of all that it needs from the inputs on: parties keep nothing in between,
//! and what is not opened is not computed.

use super::messages::{Reply, Request};
use megrez_float::programs::tape::{Entry, Name, Shape};
use megrez_net::{Identity, PeerName};
use megrez_service::client::{self, Cluster};
use megrez_service::config::ClusterConfig;
use megrez_service::protocols::in_floats;
use megrez_service::wire::{Opening, PartyReport, Program};
use megrez_service::{Error, Result};
use megrez_session::Phase;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

/// How long a party may take to answer the first time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest name of a program, in bytes: a run of it has a number more.
const MAX_NAME: usize = 40;
/// 1 and 0 in single precision: truth values are opened as numbers.
const TRUTHS: [f32; 2] = [1.0, 0.0];

/// Where the parties are, who this client is, and what it calls its program.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The cluster's file.
    pub config: PathBuf,
    /// The folder with this client's certificate and key.
    pub certs: PathBuf,
    /// This client's name.
    pub client: String,
    /// The program's name: the same at all clients, and of no other program that they run at the
    /// same time.
    pub name: String,
    /// The protocol's name.
    pub protocol: String,
    /// How long to wait for the other clients.
    pub patience: Duration,
    /// Threads of each party: the same at all clients.
    pub threads: u32,
}

/// A client of a cluster, and what it has recorded.
pub(super) struct Joint {
    to: Connection,
    addresses: Vec<String>,
    identity: Identity,
    cluster: Cluster,
    /// How often something was opened.
    runs: u64,
    /// What may still be needed, in an order in which it can run.
    tape: Vec<(Name, Entry)>,
    /// This client's inputs.
    numbers: HashMap<Name, Vec<f32>>,
}

impl Joint {
    pub(super) fn new(to: Connection) -> Result<Self> {
        let to = Connection { protocol: in_floats(&to.protocol)?.into(), ..to };
        if to.name.is_empty() || to.name.len() > MAX_NAME {
            return Err(Error::Refused(format!("a program's name has 1 to {MAX_NAME} bytes")));
        }
        // All clients of a program have to meet at one replica.
        let addresses = ClusterConfig::load(&to.config)?.triple(0)?;
        let identity = Identity::load(&to.certs, &PeerName::client(&to.client)?)?;
        let mut cluster = Cluster::connect(&addresses, &identity, PATIENCE)?;
        cluster.info()?;
        Ok(Self { to, addresses, identity, cluster, runs: 0, tape: vec![], numbers: HashMap::new() })
    }

    pub(super) fn client(&self) -> &str {
        &self.to.client
    }

    /// Records a tape and opens values; `live` are those that are not forgotten.
    pub(super) fn run(&mut self, request: Request, live: &HashMap<Name, Shape>) -> Result<Reply> {
        self.tape.extend(request.tape);
        let numbers = request.numbers.into_iter();
        self.numbers
            .extend(numbers.map(|(name, bits)| (name, bits.into_iter().map(f32::from_bits).collect())));
        self.runs += 1;
        let reply = self.open(&request.open, &request.clients, &request.to, live);
        let kept = needed(&self.tape, live.keys().copied());
        self.tape.retain(|(name, _)| kept.contains(name));
        self.numbers.retain(|name, _| kept.contains(name));
        reply
    }

    fn open(
        &mut self,
        open: &[Name],
        clients: &[String],
        to: &[String],
        shapes: &HashMap<Name, Shape>,
    ) -> Result<Reply> {
        let nothing = Reply {
            opened: vec![vec![]; open.len()],
            seconds: 0.0,
            rounds: 0,
            sent_bytes: vec![0; self.addresses.len()],
        };
        if open.is_empty() {
            return Ok(nothing);
        }
        let wanted = needed(&self.tape, open.iter().copied());
        let owners: HashSet<usize> =
            self.tape.iter().filter(|(name, _)| wanted.contains(name)).filter_map(owner).collect();
        let takes_part = |(place, name): &(usize, &String)| owners.contains(place) || to.contains(name);
        let part: Vec<(usize, &String)> = clients.iter().enumerate().filter(takes_part).collect();
        if !part.iter().any(|(_, name)| **name == self.to.client) {
            return Ok(nothing);
        }
        let places: HashMap<usize, usize> =
            part.iter().enumerate().map(|(new, (old, _))| (*old, new)).collect();

        let mut program = Program {
            clients: part.iter().map(|(_, name)| (*name).clone()).collect(),
            tape: vec![],
            outputs: vec![],
            group: 4,
            threads: self.to.threads,
        };
        let mut names: HashMap<Name, Name> = HashMap::new();
        let mut mine = HashMap::new();
        for (name, entry) in self.tape.iter().filter(|(name, _)| wanted.contains(name)) {
            if let Some(numbers) = self.numbers.get(name) {
                mine.insert(program.tape.len(), numbers.clone());
            }
            names.insert(*name, program.tape.len() as Name);
            program.tape.push(renamed(entry, &names, &places));
        }
        let recipients: Vec<usize> = program
            .clients
            .iter()
            .enumerate()
            .filter(|(_, name)| to.contains(name))
            .map(|(i, _)| i)
            .collect();
        for name in open {
            let mut value = names[name];
            let Shape { truth, lanes } = shapes[name];
            if truth {
                let at = program.tape.len() as Name;
                program.tape.extend(TRUTHS.map(|x| Entry::Public(vec![x.to_bits(); lanes])));
                program.tape.push(Entry::Choose { bit: value, yes: at, no: at + 1 });
                value = at + 2;
            }
            program.outputs.push(Opening { value, to: recipients.clone() });
        }
        let (numbers, reports) = self.connected()?.join(&program, &mine)?;
        let bits = |(name, numbers): (&Name, Vec<f32>)| {
            let bits = |x: f32| if shapes[name].truth { u32::from(x == TRUTHS[0]) } else { x.to_bits() };
            numbers.into_iter().map(bits).collect()
        };
        let learns = to.contains(&self.to.client);
        let phases = [Phase::Offline, Phase::Online];
        let online = reports.iter().filter_map(|report| report.phases.get(&Phase::Online));
        let sent = |report: &PartyReport| {
            let readings = report.sent.iter().filter(|reading| phases.contains(&reading.phase));
            readings.flat_map(|reading| &reading.sent).sum()
        };
        Ok(Reply {
            opened: if learns { open.iter().zip(numbers).map(bits).collect() } else { nothing.opened },
            seconds: online.clone().fold(0.0, |most, phase| phase.seconds.max(most)),
            rounds: online.map(|phase| phase.rounds).max().unwrap_or_default(),
            sent_bytes: reports.iter().map(sent).collect(),
        })
    }

    /// Parties close a connection that nobody has used for long.
    fn connected(&mut self) -> Result<Run<'_>> {
        if !self.cluster.is_connected() {
            self.cluster = Cluster::connect(&self.addresses, &self.identity, PATIENCE)?;
        }
        let name = format!("{}/{}", self.to.name, self.runs);
        Ok(Run { cluster: &mut self.cluster, to: &self.to, name })
    }
}

/// A run under its name.
struct Run<'a> {
    cluster: &'a mut Cluster,
    to: &'a Connection,
    name: String,
}

type Ran = (Vec<Vec<f32>>, Vec<PartyReport>);

impl Run<'_> {
    fn join(self, program: &Program, numbers: &HashMap<usize, Vec<f32>>) -> Result<Ran> {
        let Connection { protocol, patience, .. } = self.to;
        self.cluster.join(client::Joint { protocol, name: &self.name, program, patience: *patience }, numbers)
    }
}

/// Whose input an entry is.
fn owner((_, entry): &(Name, Entry)) -> Option<usize> {
    match entry {
        Entry::Input { owner, .. } => Some(*owner),
        _ => None,
    }
}

/// What values are made of, themselves included.
fn needed(tape: &[(Name, Entry)], values: impl Iterator<Item = Name>) -> HashSet<Name> {
    let mut needed: HashSet<Name> = values.collect();
    for (name, entry) in tape.iter().rev() {
        if needed.contains(name) {
            needed.extend(entry.operands());
        }
    }
    needed
}

/// An entry that refers to others by new names, and to clients by new places.
fn renamed(entry: &Entry, names: &HashMap<Name, Name>, places: &HashMap<usize, usize>) -> Entry {
    let of = |x: &Name| names[x];
    match entry {
        Entry::Input { owner, lanes } => Entry::Input { owner: places[owner], lanes: *lanes },
        Entry::Public(_) | Entry::Known(_) => entry.clone(),
        Entry::Apply { op, of: operands } => {
            Entry::Apply { op: op.clone(), of: operands.iter().map(of).collect() }
        }
        Entry::And(a, b) => Entry::And(of(a), of(b)),
        Entry::Xor(a, b) => Entry::Xor(of(a), of(b)),
        Entry::Not(a) => Entry::Not(of(a)),
        Entry::Choose { bit, yes, no } => Entry::Choose { bit: of(bit), yes: of(yes), no: of(no) },
        Entry::Gather { of: from, lanes } => Entry::Gather { of: of(from), lanes: lanes.clone() },
        Entry::Concat(parts) => Entry::Concat(parts.iter().map(of).collect()),
        Entry::Sum { of: terms, lanes } => Entry::Sum { of: of(terms), lanes: *lanes },
        Entry::FusedSum { of: terms, lanes } => Entry::FusedSum { of: of(terms), lanes: *lanes },
        Entry::Dot { of: [x, y], lanes } => Entry::Dot { of: [of(x), of(y)], lanes: *lanes },
    }
}
